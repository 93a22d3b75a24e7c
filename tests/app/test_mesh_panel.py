"""The mesh panel in a browser, on a small page that grows procedural meshes."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from PIL import Image

from app.live.boards.mesh import steps_of
from app.ui.panels import mesh
from tests.app.conftest import ROOT, Watched, settle, wait_for
from tests.app.mesh_page import GROWN, HALF
from tests.app.still_life import side

pytestmark = [pytest.mark.browser, pytest.mark.panel]
WITH_A_CARD = """
  const real = WebGL2RenderingContext.prototype.getParameter;
  WebGL2RenderingContext.prototype.getParameter = function (name) {
    return name === 37446 ? "A card" : real.call(this, name); // 37446 asks for the name of the renderer
  };
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page in another process."""
    folder = tmp_path_factory.mktemp("mesh")
    log = folder / "log.txt"
    own = {"GRADIO_TEMP_DIR": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "from tests.app.mesh_page import serve; serve(7960)"]
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
    """A function that opens the page; at the end there must have been no errors and no requests to other machines."""
    visits = []

    def visit(script: str = "", width: int = 1366, height: int = 900, **options):
        visits.append(Watched(browser.new_context(**options), address, width, height, script, "#mesh .ft-mesh[data-context]"))
        return visits[-1].page

    yield visit
    for each in visits:
        each.page.context.close()
    assert [line for each in visits for line in each.wrong] == []


def fact(page, name: str, panel: str = "mesh") -> str:
    """Value of one of the panel's data attributes."""
    return page.locator(f"#{panel} .ft-mesh").get_attribute(f"data-{name}")


def until(page, panel: str = "mesh", **facts: object) -> None:
    """Waits until data attributes of the panel have these values."""
    wanted = "".join(f'[data-{name.replace("_", "-")}="{value}"]' for name, value in facts.items())
    page.wait_for_selector(f"#{panel} .ft-mesh{wanted}", state="attached")


def redrawn(page, act: Callable[[], object]) -> None:
    """Does something and waits until the panel has redrawn."""
    before = int(fact(page, "drawn"))
    act()
    page.wait_for_function(f"Number(document.querySelector('#mesh .ft-mesh').dataset.drawn) > {before}")


def show(page, text: str) -> None:
    """Sends a line to the page and waits until it shows it."""
    faces = dict(pair.split("=") for pair in text.split())
    page.fill("#line textarea, #line input", text)
    redrawn(page, lambda: page.press("#line textarea, #line input", "Enter"))
    until(page, **{f"{name}_faces": faces.get(name, 0) for name in mesh.SIDES})


def pixels(page) -> np.ndarray:
    """float [H, W, 3] in 0..1: pixels of the canvas."""
    page.mouse.move(5, 5)
    shot = Image.open(io.BytesIO(page.locator("#mesh canvas").screenshot()))
    return np.asarray(shot.convert("RGB"), float) / 255


def colourful(picture: np.ndarray) -> np.ndarray:
    """bool [H, W]: pixels that are far from grey."""
    return picture.max(-1) - picture.min(-1) > 0.3


def pinkish(picture: np.ndarray) -> int:
    """Number of pixels with the hue of a draft."""
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


def test_without_a_gpu_a_run_is_drawn_with_half_the_pixels_and_its_result_with_all(open_panel):
    page = open_panel()
    until(page, state="empty", views=2)
    share = "canvas => canvas.width / canvas.clientWidth"
    assert page.locator("#mesh canvas").evaluate(share) == pytest.approx(1, abs=0.01)
    redrawn(page, lambda: page.click("#grow"))
    until(page, accelerated_faces=HALF, state="running")
    page.wait_for_function(f"({share})(document.querySelector('#mesh canvas')) < 0.6")
    page.click("#on")
    until(page, state="done")
    page.wait_for_function(f"({share})(document.querySelector('#mesh canvas')) > 0.9")


def test_a_tab_that_is_opened_late_and_a_page_that_is_loaded_anew_have_everything(open_panel):
    page = open_panel()
    page.click("#grow")
    until(page, accelerated_faces=HALF)
    page.get_by_role("tab", name="Late").click()
    until(page, "late", accelerated_faces=HALF, state="running")
    page.click("#on")
    until(page, "late", state="done", plain_faces=GROWN["plain"], accelerated_faces=GROWN["accelerated"])
    page.wait_for_function("document.querySelector('#late .ft-mesh').dataset.drawn > 0")
    settle(page)
    page.reload()
    until(page, state="empty", plain_faces=0)
    show(page, "plain=40 accelerated=90")
    show(page, "plain=30 accelerated=120")  # fewer than before: another run


def test_views_and_colours_change_the_picture_and_ask_nobody(open_panel):
    page = open_panel()
    show(page, "plain=634 accelerated=634 state=done points=1")
    urls = []
    page.on("request", lambda r: urls.append(r.url))
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
    assert urls == []


def test_drafts_are_pink_and_go_away(open_panel):
    page = open_panel()
    show(page, "plain=210 accelerated=420 ghost=9")
    assert fact(page, "ghosts") == "18"
    assert "draft, not yet checked" in page.inner_text("#mesh .ft-legend")
    assert pinkish(pixels(page)[40:]) > 500
    redrawn(page, lambda: page.click("#mesh [data-show=ghost]"))
    assert pinkish(pixels(page)[40:]) < 20
    redrawn(page, lambda: page.click("#mesh [data-show=ghost]"))
    show(page, "plain=210 accelerated=420 ghost=0")
    assert pinkish(pixels(page)[40:]) < 20


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


def test_a_side_shows_its_faces_snapped_or_a_surface_made_without_the_model(open_panel):
    """Only the classical surface has no tokens, so it has no colours; all choices are reachable with the keyboard."""
    page = open_panel()
    show(page, "plain=300 accelerated=300 state=done surfaces=1")
    page.select_option("#mesh select", "accepted")
    page.mouse.move(5, 5)
    assert page.locator("#mesh .ft-surfaces[data-side=plain]").is_hidden()
    line, seen = page.locator("#mesh .ft-surfaces[data-side=accelerated]"), {}
    first = line.get_by_role("button", name="As decoded")
    first.focus()
    for name, faces, note, label in (
        ("decoded", 300, "3.1 sampling floors", ""),
        ("snapped", 300, "2.1 sampling floors", ", snapped to points"),
        ("classical", 12, "1.2 sampling floors, no model", ", classical surface"),
        ("decoded", 300, "3.1 sampling floors", ""),
    ):
        if seen:  # one button on, or back to the first
            page.keyboard.press("Tab") if name != "decoded" else first.focus()
            redrawn(page, lambda: page.keyboard.press("Enter"))
        assert line.locator("[aria-pressed=true]").get_attribute("data-surface") == name
        assert line.locator("span").inner_text() == note
        assert page.inner_text("#mesh .ft-mesh-sides [data-side=accelerated] .ft-mesh-count") == f"{faces} faces"
        assert page.locator("#mesh canvas").get_attribute("aria-label").endswith(f"XSpecMesh: {faces} faces, done{label}")
        picture = pixels(page)
        half = picture[60:-60, picture.shape[1] // 2 + 20 :]
        assert (colourful(half).sum() > 200) == (name != "classical")
        if name in seen:
            assert np.abs(half - seen[name]).mean() < 0.002
        assert all(np.abs(half - other).mean() > 0.01 for each, other in seen.items() if each != name)
        seen[name] = half
    show(page, "plain=300 accelerated=310")  # of a new run there are none yet, and the buttons keep their place
    assert line.is_visible() and line.locator("button:not([disabled])").count() == 0
    assert fact(page, "accelerated-faces") == "310" and line.locator("span").inner_text() == ""


def test_a_surface_without_a_run_stands_on_the_left(open_panel):
    page = open_panel()
    page.fill("#line textarea, #line input", "plain=0 accelerated=300 state=done classical=1 surfaces=1")
    page.press("#line textarea, #line input", "Enter")
    until(page, plain_faces=12, accelerated_faces=300)
    line = page.locator("#mesh .ft-surfaces[data-side=plain]")
    assert line.inner_text().strip() == "1.2 sampling floors, no model" and line.locator("button:visible").count() == 0
    assert page.locator("#mesh dl[data-side=plain] dd").all_inner_texts() == ["1.50", "–", "–", "–"]


def test_hands_keys_and_wheel_move_the_camera(open_panel):
    page = open_panel()
    show(page, "plain=300 accelerated=634 state=done")
    assert page.inner_text("#mesh [data-side=plain] .ft-readout") == "Drag to rotate, scroll to zoom, right-drag to move"
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
    assert len(set(places)) >= len(places) - 1  # plus and minus cancel out
    assert set(yaw[:3]) == {0.62} and yaw[3] != 0.62 and pitch[4] > pitch[3]
    assert distance[2] < distance[1] and distance[6] < distance[5]
    assert any(np.ptp(way[:2]) for way in target)
    moves(lambda: page.keyboard.press("0"))
    assert places[-1] == places[0]
    assert "Drag to rotate" not in page.inner_text("#mesh [data-side=plain] .ft-readout")


def test_a_face_under_the_pointer_is_read_out(open_panel):
    page = open_panel()
    show(page, "plain=634 accelerated=634 state=done")
    box = page.locator("#mesh canvas").bounding_box()
    middle = box["y"] + box["height"] * 0.5
    page.mouse.move(box["x"] + box["width"] * 0.75, middle)
    page.wait_for_function("document.querySelector('#mesh [data-side=accelerated] .ft-readout').textContent.startsWith('face ')")
    readout = page.inner_text("#mesh [data-side=accelerated] .ft-readout").split(" · ")
    face = int(readout[0].removeprefix("face ")) - 1
    faces = side("accelerated", 634).faces
    share = round(100 * int(faces["accepted"][face]) / 254)
    assert readout[1:4] == [f"{faces['tokens'][face]} tokens", f"{share} % of guesses accepted", f"step {steps_of(faces)[face] + 1}"]
    page.mouse.move(box["x"] + box["width"] * 0.25, middle)
    page.wait_for_function("document.querySelector('#mesh [data-side=plain] .ft-readout').textContent.startsWith('face ')")
    assert page.inner_text("#mesh [data-side=accelerated] .ft-readout") == ""
    assert "accepted" not in page.inner_text("#mesh [data-side=plain] .ft-readout")


def test_the_picture_can_be_saved_and_follows_the_theme(open_panel, tmp_path):
    page = open_panel()
    show(page, "accelerated=634 state=done")
    assert fact(page, "views") == "1"
    assert page.locator("#mesh .ft-mesh-sides [data-side=plain]").is_hidden()
    saved = []
    for dark in (True, False):
        page.evaluate("dark => document.body.classList.toggle('dark', !dark)", dark)  # so that the next line is a change
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


def test_a_lost_context_comes_back(open_panel):
    page = open_panel()
    show(page, "plain=300 accelerated=634 state=done")
    before = pixels(page)
    lose = "() => { window.taken = document.querySelector('#mesh canvas').getContext('webgl2').getExtension('WEBGL_lose_context'); "
    page.evaluate(lose + "window.taken.loseContext(); }")
    until(page, context="lost")
    assert "will restore it shortly" in page.inner_text("#mesh .ft-mesh-note")
    redrawn(page, lambda: page.evaluate("window.taken.restoreContext()"))
    until(page, context="ok")
    assert page.inner_text("#mesh .ft-mesh-note") == ""
    assert np.abs(pixels(page) - before).mean() < 0.002


def test_without_webgl_the_panel_says_so_and_still_counts(open_panel):
    page = open_panel("HTMLCanvasElement.prototype.getContext = () => null")
    until(page, context="none")
    assert "not support WebGL 2" in page.inner_text("#mesh .ft-mesh-note")
    page.click("#grow")
    until(page, accelerated_faces=HALF)
    page.click("#on")
    until(page, state="done", accelerated_faces=GROWN["accelerated"])
    assert page.inner_text("#mesh [data-side=accelerated] .ft-mesh-count") == f"{GROWN['accelerated']} faces"


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
    for _ in range(3):  # each one redraws without turning
        redrawn(page, lambda: page.evaluate("document.body.classList.toggle('dark')"))
    assert fact(page, "camera") == resting
    calm = open_panel(WITH_A_CARD, reduced_motion="reduce")
    show(calm, "accelerated=90 state=done")
    for _ in range(3):
        redrawn(calm, lambda: calm.evaluate("document.body.classList.toggle('dark')"))
    assert fact(calm, "camera") == resting


def test_it_fits_a_phone_with_one_view_above_the_other(open_panel):
    page = open_panel(width=390, height=844)
    show(page, "plain=300 accelerated=634 ghost=9")
    until(page, stacked="true")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    upper, lower = (page.locator(f"#mesh .ft-mesh-sides [data-side={name}]").bounding_box() for name in mesh.SIDES)
    assert upper["x"] == lower["x"] and upper["y"] + upper["height"] <= lower["y"] + 1
