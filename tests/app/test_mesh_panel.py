"""The mesh panel: its value, and what a user sees of it on a small page that grows procedural meshes."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import gradio as gr
import numpy as np
import pytest
from gradio.utils import diff
from PIL import Image

from app.studio import free_port
from app.ui import theme
from app.ui.panels import mesh
from app.ui.panels.mesh import UNKNOWN, Side
from tests.app.conftest import ROOT, wait_for

TOTALS = {"seconds": 1.5, "tokens_per_second": 88.4, "forwards": 61, "step_compression": 3.214}
GROWN = {"plain": 300, "accelerated": 634}  # faces at the end of a growth
UPDATES = 16
HALF = GROWN["accelerated"] // 2
WITH_A_CARD = """
  const real = WebGL2RenderingContext.prototype.getParameter;
  WebGL2RenderingContext.prototype.getParameter = function (name) {
    return name === 37446 ? "A card" : real.call(this, name); // 37446 asks for the name of the renderer
  };
"""


# ---------------------------------------------------------------- meshes


def box(low: tuple[float, ...], high: tuple[float, ...], cells: int = 1) -> np.ndarray:
    """float [F, 3, 3]: the triangles of a box, each side cut into cells x cells."""
    low, high = np.array(low), np.array(high)
    faces = []
    for axis in range(3):
        across, down = (axis + 1) % 3, (axis + 2) % 3
        for end in (0.0, 1.0):
            for u in range(cells):
                for v in range(cells):
                    quad = np.full((4, 3), end)
                    quad[:, across] = np.array([u, u + 1, u + 1, u]) / cells
                    quad[:, down] = np.array([v, v, v + 1, v + 1]) / cells
                    faces += [quad[corners] for corners in (([0, 1, 2], [0, 2, 3]) if end else ([2, 1, 0], [3, 2, 0]))]
    return low + np.array(faces) * (high - low)


def turned(profile: list[tuple[float, float]], x: float, z: float, sides: int = 12) -> np.ndarray:
    """float [F, 3, 3]: a profile of (radius, height) turned around an upright axis."""
    angles = np.arange(sides + 1) * 2 * np.pi / sides
    faces = []
    for (r, y), (s, t) in pairwise(profile):
        for a, b in pairwise(angles):
            corners = [(r, y, a), (r, y, b), (s, t, b), (s, t, a)]
            quad = np.array([[x + radius * np.cos(way), height, z + radius * np.sin(way)] for radius, height, way in corners])
            faces += [quad[chosen] for chosen, radius in (([2, 1, 0], r), ([3, 2, 0], s)) if radius > 1e-6]
    return np.array(faces)


def still_life() -> np.ndarray:
    """uint8 [F, 3, 3]: a table with a vase, a ball and a box, from the ground up as the tokens of a mesh come."""
    legs = [box((x, -0.9, z), (x + 0.12, 0.0, z + 0.12), 2) for x in (-0.86, 0.74) for z in (-0.56, 0.44)]
    top = box((-0.94, 0.0, -0.64), (0.94, 0.1, 0.64), 3)
    vase = turned([(0, 0.1), (0.16, 0.1), (0.27, 0.3), (0.24, 0.48), (0.11, 0.66), (0.1, 0.76), (0.18, 0.88)], -0.42, -0.08, 14)
    ball = turned([(0.24 * np.sin(a), 0.34 - 0.24 * np.cos(a)) for a in np.linspace(0, np.pi, 8)], 0.4, -0.22, 14)
    cube = box((0.12, 0.1, 0.16), (0.4, 0.32, 0.44))
    soup = np.concatenate([*legs, top, vase, ball, cube])
    cells = np.clip(((soup + 1) / 2 * 128 - 0.5).round(), 0, 127).astype(np.uint8)
    return cells[np.argsort(cells[:, :, 1].min(1), kind="stable")]


def cloud(count: int = 2048) -> np.ndarray:
    """float32 [N, 6]: points on the still life and their normals."""
    soup = (still_life() + 0.5) / 64 - 1
    noise = np.random.default_rng(3)
    normals = np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0])
    area = np.linalg.norm(normals, axis=1)
    chosen = noise.choice(len(soup), count, p=area / area.sum())
    weights = noise.dirichlet((1, 1, 1), count)
    points = (soup[chosen] * weights[:, :, None]).sum(1)
    return np.concatenate([points, normals[chosen] / area[chosen, None]], 1).astype(np.float32)


def side(name: str, count: int, ghosts: int = 0, state: str = "running") -> Side:
    """A side with the first faces of the still life; on the accelerated one three or so arrive in a step."""
    faces = still_life()
    noise = np.random.default_rng(5)
    tokens = noise.integers(2, 6, len(faces))
    steps = np.repeat(np.arange(len(faces)), noise.integers(1, 6, len(faces)))[: len(faces)]  # faces that one step completed
    depth = np.arange(len(faces)) - np.searchsorted(steps, steps)
    accepted = np.where(depth, 255 - 60 // (depth + 1), noise.integers(0, 150, len(faces)))
    if name == "plain":
        steps, depth, accepted = np.cumsum(tokens), np.full(len(faces), UNKNOWN), np.full(len(faces), UNKNOWN)
    heat, chance, top = noise.integers(0, 200, len(faces)), accepted[::-1], noise.integers(100, 255, len(faces))
    columns = [column[:count] for column in (faces, accepted, depth, steps, tokens, heat, chance, top)]
    title, badge = ("Plain decoding", None) if name == "plain" else ("XSpecMesh", {"exact": False, "why": "Drafts above a threshold pass."})
    return Side(*columns, ghost=faces[count : count + ghosts], title=title, state=state, badge=badge, counters=TOTALS)


def waiting() -> dict:
    """The panel before the first run."""
    return mesh.encode({"plain": Side.waiting("Plain decoding", "One token at a time."), "accelerated": Side.waiting("XSpecMesh")})


# ---------------------------------------------------------------- what the panel is sent


def numbers(text: str, kind: str = "u1") -> np.ndarray:
    """The array behind base64."""
    return np.frombuffer(base64.b64decode(text), kind)


def encoded(count: int) -> dict:
    """A value in which both sides have so many faces."""
    return mesh.encode({name: side(name, count) for name in mesh.SIDES}, cloud(64))


def test_faces_travel_as_eighteen_bytes_each():
    made = side("accelerated", 200)
    made.step = made.step + 70_000  # more than two bytes hold
    rows = numbers(mesh.encode({"accelerated": made})["sides"]["accelerated"]["faces"]).reshape(-1, mesh.RECORD)
    assert (rows[:, :9].reshape(-1, 3, 3) == made.faces).all()
    assert (rows[:, 9:12] == np.stack([made.accepted, made.depth, made.tokens], 1)).all()
    assert (rows[:, 12:15].astype(int) @ [1, 256, 65536] == made.step).all()
    assert (rows[:, 15:] == np.stack([made.entropy, made.probability, made.top], 1)).all()


def test_an_update_costs_only_its_new_faces():
    before, after = encoded(600), encoded(603)
    edits = diff(before, after)
    assert sorted((edit[0], edit[1][1:]) for edit in edits) == [("append", ["accelerated", "faces"]), ("append", ["plain", "faces"])]
    assert len(json.dumps(edits)) < 300
    assert len(json.dumps(after)) < 33_000
    assert diff(after, encoded(603)) == []


def test_sides_may_be_missing_and_states_add_up():
    assert list(mesh.encode({"plain": None, "accelerated": side("accelerated", 3)})["sides"]) == ["accelerated"]
    states = ("running", "done"), ("done", "done"), ("stopped", "done")
    found = [mesh.encode({n: side(n, 3, state=s) for n, s in zip(mesh.SIDES, pair)})["state"] for pair in states]
    assert found == ["running", "done", "stopped"]
    assert waiting()["state"] == "empty"
    with pytest.raises(AssertionError, match="at least one side"):
        mesh.encode({})


def test_counters_are_words_and_unknown_ones_are_left_out():
    made = side("plain", 3)
    made.counters = {"seconds": np.float64(2.5), "forwards": 12_345, "draft_forwards": 7}
    assert mesh.encode({"plain": made})["sides"]["plain"]["counters"] == {"seconds": "2.50", "forwards": "12,345"}


def test_points_are_int16_with_or_without_normals():
    points = cloud(50)
    points[0, 0] = 1.5  # outside the box: kept at its wall
    full = numbers(mesh.encode(SIDE, points)["points"], "<i2").reshape(-1, 6) / 32767
    assert np.abs(full - np.clip(points, -1, 1)).max() < 1 / 32767
    bare = numbers(mesh.encode(SIDE, points[:, :3])["points"], "<i2").reshape(-1, 6)
    assert (bare[:, 3:] == 0).all() and bare[:, :3].any()


def test_a_corner_outside_the_lattice_is_a_bug():
    made = side("plain", 3)
    made.faces = made.faces + np.uint8(128)
    with pytest.raises(AssertionError, match=r"corners lie in 0\.\.127"):
        mesh.encode({"plain": made})


SIDE = {"accelerated": Side.waiting("XSpecMesh")}


# ---------------------------------------------------------------- the page that the browser opens


def ask(text: str) -> dict:
    """What a line like "plain=40 accelerated=90 ghost=8 state=done points=1" asks for."""
    words = dict(pair.split("=") for pair in text.split())
    shown = {n: side(n, int(words[n]), int(words.get("ghost", 0)), words.get("state", "running")) for n in mesh.SIDES if n in words}
    return mesh.encode(shown or {"accelerated": Side.waiting("XSpecMesh", "Press Generate.")}, cloud() if "points" in words else None)


def grow() -> Iterator[tuple[dict, dict]]:
    """Both sides grow, with drafts ahead, and wait at half; at the end they stand still. The other tab's panel gets the same."""
    goes_on.clear()
    for update in range(1, UPDATES + 1):
        state = "done" if update == UPDATES else "running"
        ghosts = {"plain": 0, "accelerated": 0 if state == "done" else 6}
        value = mesh.encode({n: side(n, GROWN[n] * update // UPDATES, ghosts[n], state) for n in mesh.SIDES}, cloud())
        yield value, value
        if update == UPDATES // 2:
            goes_on.wait(60)
        time.sleep(0.08)


goes_on = threading.Event()


def page() -> gr.Blocks:
    """A panel, a second one in a tab that nobody has opened yet, a line that says what to show, and a growth."""
    with gr.Blocks(analytics_enabled=False, fill_width=True) as blocks:
        with gr.Tabs():
            with gr.Tab("First"):
                panel = mesh.build(waiting())
            with gr.Tab("Late"):
                late = mesh.build(waiting(), "late")
        line = gr.Textbox(elem_id="line", label="Show")
        button, on = gr.Button("Grow", elem_id="grow"), gr.Button("Go on", elem_id="on")
        line.submit(ask, line, panel, show_progress="hidden")
        button.click(grow, None, [panel, late], show_progress="hidden")
        on.click(goes_on.set, None, None, queue=False)
    return blocks


def serve(port: int) -> None:
    """Serves the page until it is interrupted."""
    address = free_port("127.0.0.1", port)
    print(f"http://127.0.0.1:{address}", flush=True)
    page().launch(
        server_port=address, quiet=True, ssr_mode=False, theme=theme.theme(), css=theme.css(), head=theme.HEAD, footer_links=[],
        run_history=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page in another process."""
    folder = tmp_path_factory.mktemp("mesh")
    log = folder / "log.txt"
    own = {"GRADIO_TEMP_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from tests.app.test_mesh_panel import serve; serve(7960)"]
    with log.open("w") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env={**os.environ, **own})
    try:
        yield wait_for(process, log)
        assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture
def open_panel(browser, address: str) -> Iterator[Callable]:
    """A function that opens the page; at the end there may have been no error and no request that left the machine."""
    contexts, wrong = [], []

    def visit(script: str = "", width: int = 1366, height: int = 900, **options):
        contexts.append(browser.new_context(viewport={"width": width, "height": height}, **options))
        page = contexts[-1].new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda e: wrong.append(f"page error: {e}"))
        page.on("console", lambda m: wrong.append(f"console: {m.text}") if m.type == "error" else None)
        page.on("request", lambda r: None if r.url.startswith((f"{address}/", "data:", "blob:")) else wrong.append(r.url))
        page.add_init_script(script or "0")
        page.goto(address)
        page.wait_for_selector("#mesh .ft-mesh[data-context]")
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []


def fact(page, name: str, panel: str = "mesh") -> str:
    """A fact that the panel writes on itself."""
    return page.locator(f"#{panel} .ft-mesh").get_attribute(f"data-{name}")


def until(page, panel: str = "mesh", **facts: object) -> None:
    """Waits until facts of the panel are so."""
    wanted = "".join(f'[data-{name.replace("_", "-")}="{value}"]' for name, value in facts.items())
    page.wait_for_selector(f"#{panel} .ft-mesh{wanted}", state="attached")


def redrawn(page, act: Callable[[], object]) -> None:
    """Does something and waits until it has been drawn."""
    before = int(fact(page, "drawn"))
    act()
    page.wait_for_function(f"Number(document.querySelector('#mesh .ft-mesh').dataset.drawn) > {before}")


def show(page, text: str) -> None:
    """Has the page show what a line asks for."""
    faces = dict(pair.split("=") for pair in text.split())
    page.fill("#line textarea, #line input", text)
    redrawn(page, lambda: page.press("#line textarea, #line input", "Enter"))
    until(page, **{f"{name}_faces": faces.get(name, 0) for name in mesh.SIDES})


def pixels(page) -> np.ndarray:
    """float [H, W, 3] in 0..1: what stands on the canvas."""
    page.mouse.move(5, 5)
    shot = Image.open(io.BytesIO(page.locator("#mesh canvas").screenshot()))
    return np.asarray(shot.convert("RGB"), float) / 255


def colourful(picture: np.ndarray) -> np.ndarray:
    """bool [H, W]: pixels that are far from grey."""
    return picture.max(-1) - picture.min(-1) > 0.3


def pinkish(picture: np.ndarray) -> int:
    """How many pixels have the hue of a draft."""
    red, green, blue = np.moveaxis(picture, -1, 0)
    return int(((red - green > 0.12) & (blue - green > 0.06)).sum())


def drag(page, across: int, down: int, button: str = "left") -> None:
    """Drags from the middle of the left view."""
    box = page.locator("#mesh canvas").bounding_box()
    x, y = box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.5
    page.mouse.move(x, y)
    page.mouse.down(button=button)
    page.mouse.move(x + across, y + down, steps=3)
    page.mouse.up(button=button)


@pytest.mark.browser
def test_both_sides_grow_and_the_camera_stays(open_panel):
    page = open_panel()
    until(page, state="empty", views=2)
    page.click("#grow")
    until(page, accelerated_faces=HALF)
    home = fact(page, "camera")
    redrawn(page, lambda: drag(page, 90, 40))
    moved = fact(page, "camera")
    assert moved != home
    assert fact(page, "state") == "running"
    page.click("#on")
    until(page, state="done", plain_faces=GROWN["plain"], accelerated_faces=GROWN["accelerated"], ghosts=0)
    assert fact(page, "camera") == moved
    label = page.locator("#mesh canvas").get_attribute("aria-label")
    assert label == f"Plain decoding: {GROWN['plain']} faces, done. XSpecMesh: {GROWN['accelerated']} faces, done"
    assert page.locator("#mesh dl[data-side=plain] dd").all_inner_texts() == ["1.50", "88.4", "61", "3.21"]
    page.locator("#mesh canvas").dblclick(position={"x": 300, "y": 40})
    page.wait_for_function(f"document.querySelector('#mesh .ft-mesh').dataset.camera === '{home}'")


@pytest.mark.browser
def test_a_tab_that_is_opened_late_and_a_page_that_is_loaded_anew_have_everything(open_panel):
    page = open_panel()
    page.click("#grow")
    until(page, accelerated_faces=HALF)
    page.get_by_role("tab", name="Late").click()
    until(page, "late", accelerated_faces=HALF, state="running")
    page.click("#on")
    until(page, "late", state="done", plain_faces=GROWN["plain"], accelerated_faces=GROWN["accelerated"])
    page.wait_for_function("document.querySelector('#late .ft-mesh').dataset.drawn > 0")
    page.reload()
    until(page, state="empty", plain_faces=0)
    show(page, "plain=40 accelerated=90")
    show(page, "plain=30 accelerated=120")  # fewer than before: another run


@pytest.mark.browser
def test_views_and_colours_change_the_picture_and_ask_nobody(open_panel):
    page = open_panel()
    show(page, "plain=634 accelerated=634 state=done points=1")
    asked = []
    page.on("request", lambda r: asked.append(r.url))
    clay = pixels(page)
    seen = {"shaded": clay}
    for mode in ("wireframe", "both", "points"):
        redrawn(page, lambda mode=mode: page.click(f"#mesh [data-mode={mode}]"))
        assert fact(page, "mode") == mode
        seen[mode] = pixels(page)
    redrawn(page, lambda: page.click("#mesh [data-mode=shaded]"))
    for colour in ("accepted", "step", "entropy", "top", "probability", "depth"):
        redrawn(page, lambda colour=colour: page.select_option("#mesh select", colour))
        assert fact(page, "map") == colour
        seen[colour] = pixels(page)
    names = list(seen)
    for i, first in enumerate(names):
        for second in names[:i]:
            assert np.abs(seen[first] - seen[second]).max(-1).mean() > 0.005, (first, second)
    half = clay.shape[1] // 2
    assert colourful(clay[40:]).mean() < 0.001
    assert colourful(seen["accepted"][40:, :half]).mean() < 0.001  # nothing is drafted on the plain side
    assert colourful(seen["accepted"][40:, half:]).mean() > 0.05
    assert colourful(seen["step"][40:, :half]).mean() > 0.05
    assert page.inner_text("#mesh .ft-legend").split("\n")[:2] == ["the model's own", "drafted 4 tokens ahead"]
    redrawn(page, lambda: page.select_option("#mesh select", "plain"))
    redrawn(page, lambda: page.click("#mesh [data-show=points]"))
    assert fact(page, "points") == "2048"
    assert np.abs(pixels(page) - clay).max(-1).mean() > 0.002
    assert asked == []


@pytest.mark.browser
def test_drafts_are_pink_and_go_away(open_panel):
    page = open_panel()
    show(page, "plain=210 accelerated=420 ghost=9")
    assert fact(page, "ghosts") == "18"
    assert "draft, not yet accepted" in page.inner_text("#mesh .ft-legend")
    assert pinkish(pixels(page)[40:]) > 500
    redrawn(page, lambda: page.click("#mesh [data-show=ghost]"))
    assert pinkish(pixels(page)[40:]) < 20
    redrawn(page, lambda: page.click("#mesh [data-show=ghost]"))
    show(page, "plain=210 accelerated=420 ghost=0")
    assert pinkish(pixels(page)[40:]) < 20


@pytest.mark.browser
def test_the_meshes_wipe_over_each_other(open_panel):
    page = open_panel()
    show(page, "plain=60 accelerated=634 state=done")
    apart = pixels(page)
    redrawn(page, lambda: page.click("#mesh [data-wipe]"))
    seen = {}
    for at in (0, 500, 1000):
        redrawn(page, lambda at=at: page.locator("#mesh .ft-mesh-wipe input").evaluate(
            "(r, at) => { r.value = at; r.dispatchEvent(new Event('input')); }", at
        ))  # fmt: skip
        seen[at] = pixels(page)
    middle = seen[0].shape[1] // 2
    inner = np.s_[60:-60, 20 : middle - 20], np.s_[60:-60, middle + 20 : -20]
    assert np.abs(seen[0] - seen[1000])[60:-60].mean() > 0.005, "one of them is another mesh"
    assert np.abs(seen[500] - seen[1000])[inner[0]].mean() < 0.002 and np.abs(seen[500] - seen[0])[inner[1]].mean() < 0.002
    redrawn(page, lambda: page.click("#mesh [data-wipe]"))
    assert np.abs(pixels(page) - apart).mean() < 0.002


@pytest.mark.browser
def test_hands_keys_and_wheel_move_the_camera(open_panel):
    page = open_panel()
    show(page, "plain=300 accelerated=634 state=done")
    assert page.inner_text("#mesh [data-side=plain] .ft-readout") == "Drag to turn, scroll to zoom, right-drag to move"
    canvas = page.locator("#mesh canvas")
    places = [fact(page, "camera")]

    def moves(act: Callable[[], object]) -> None:
        redrawn(page, act)
        places.append(fact(page, "camera"))

    moves(lambda: drag(page, 60, 20, "right"))
    moves(lambda: page.mouse.wheel(0, -120))
    canvas.focus()
    for key in ("ArrowLeft", "ArrowUp", "Shift+ArrowDown", "+", "-"):
        moves(lambda key=key: page.keyboard.press(key))
    yaw, pitch, distance, *target = np.array([place.split() for place in places], float).T
    assert len(set(places)) >= len(places) - 1  # plus and minus undo each other
    assert set(yaw[:3]) == {0.62} and yaw[3] != 0.62 and pitch[4] > pitch[3]
    assert distance[2] < distance[1] and distance[6] < distance[5]
    assert any(np.ptp(way[:2]) for way in target)
    moves(lambda: page.keyboard.press("0"))
    assert places[-1] == places[0]
    assert "Drag to turn" not in page.inner_text("#mesh [data-side=plain] .ft-readout")


@pytest.mark.browser
def test_a_face_under_the_pointer_is_read_out(open_panel):
    page = open_panel()
    show(page, "plain=634 accelerated=634 state=done")
    box = page.locator("#mesh canvas").bounding_box()
    middle = box["y"] + box["height"] * 0.5
    page.mouse.move(box["x"] + box["width"] * 0.75, middle)
    page.wait_for_function("document.querySelector('#mesh [data-side=accelerated] .ft-readout').textContent.startsWith('face ')")
    said = page.inner_text("#mesh [data-side=accelerated] .ft-readout").split(" · ")
    face = int(said[0].removeprefix("face ")) - 1
    made = side("accelerated", 634)
    share = round(100 * made.accepted[face] / 254)
    assert said[1:4] == [f"{made.tokens[face]} tokens", f"{share} % accepted", f"step {made.step[face] + 1}"]
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.wait_for_function("document.querySelector('#mesh [data-side=plain] .ft-readout').textContent.startsWith('face ')")
    assert page.inner_text("#mesh [data-side=accelerated] .ft-readout") == ""
    assert "accepted" not in page.inner_text("#mesh [data-side=plain] .ft-readout")


@pytest.mark.browser
def test_the_picture_can_be_saved_and_follows_the_theme(open_panel, tmp_path):
    page = open_panel()
    show(page, "accelerated=634 state=done")
    assert fact(page, "views") == "1"
    assert page.locator("#mesh .ft-mesh-sides [data-side=plain]").is_hidden()
    saved = []
    for dark in (True, False):
        page.evaluate("dark => document.body.classList.toggle('dark', !dark)", dark)  # so that the next line changes it
        redrawn(page, lambda dark=dark: page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark))
        with page.expect_download() as download:
            page.click("#mesh [data-do=save]")
        assert download.value.suggested_filename == "foretoken-mesh.png"
        download.value.save_as(tmp_path / "mesh.png")
        saved.append(np.asarray(Image.open(tmp_path / "mesh.png").convert("RGB"), float) / 255)
    dark, light = saved
    assert dark.shape[1] == page.locator("#mesh canvas").evaluate("c => c.width")
    assert dark[20, 20].max() < 0.2 and light[20, 20].min() > 0.8
    assert dark[dark.shape[0] // 3 : -dark.shape[0] // 3].std() > 0.1


@pytest.mark.browser
def test_a_lost_context_comes_back(open_panel):
    page = open_panel()
    show(page, "plain=300 accelerated=634 state=done")
    before = pixels(page)
    lose = "() => { window.taken = document.querySelector('#mesh canvas').getContext('webgl2').getExtension('WEBGL_lose_context'); "
    page.evaluate(lose + "window.taken.loseContext(); }")
    until(page, context="lost")
    assert "comes back by itself" in page.inner_text("#mesh .ft-mesh-note")
    redrawn(page, lambda: page.evaluate("window.taken.restoreContext()"))
    until(page, context="ok")
    assert page.inner_text("#mesh .ft-mesh-note") == ""
    assert np.abs(pixels(page) - before).mean() < 0.002


@pytest.mark.browser
def test_without_webgl_the_panel_says_so_and_still_counts(open_panel):
    page = open_panel("HTMLCanvasElement.prototype.getContext = () => null")
    until(page, context="none")
    assert "not support WebGL 2" in page.inner_text("#mesh .ft-mesh-note")
    page.click("#grow")
    until(page, accelerated_faces=HALF)
    page.click("#on")
    until(page, state="done", accelerated_faces=GROWN["accelerated"])
    assert page.inner_text("#mesh [data-side=accelerated] .ft-mesh-count") == f"{GROWN['accelerated']} faces"


@pytest.mark.browser
def test_a_finished_mesh_turns_only_for_those_who_like_motion_and_until_it_is_touched(open_panel):
    page = open_panel(WITH_A_CARD)
    show(page, "accelerated=90")
    resting = fact(page, "camera")
    page.fill("#line textarea, #line input", "accelerated=90 state=done")
    page.press("#line textarea, #line input", "Enter")
    page.wait_for_function(f"document.querySelector('#mesh .ft-mesh').dataset.camera !== '{resting}'")
    page.locator("#mesh canvas").focus()
    page.keyboard.press("0")
    page.wait_for_function(f"document.querySelector('#mesh .ft-mesh').dataset.camera === '{resting}'")
    for _ in range(3):  # each one draws; none of them turns
        redrawn(page, lambda: page.evaluate("document.body.classList.toggle('dark')"))
    assert fact(page, "camera") == resting
    calm = open_panel(WITH_A_CARD, reduced_motion="reduce")
    show(calm, "accelerated=90 state=done")
    for _ in range(3):
        redrawn(calm, lambda: calm.evaluate("document.body.classList.toggle('dark')"))
    assert fact(calm, "camera") == resting


@pytest.mark.browser
def test_it_fits_a_phone_with_one_view_above_the_other(open_panel):
    page = open_panel(width=390, height=844)
    show(page, "plain=300 accelerated=634 ghost=9")
    until(page, stacked="true")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    upper, lower = (page.locator(f"#mesh .ft-mesh-sides [data-side={name}]").bounding_box() for name in mesh.SIDES)
    assert upper["x"] == lower["x"] and upper["y"] + upper["height"] <= lower["y"] + 1
