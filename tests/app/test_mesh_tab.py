"""The Mesh tab: its texts, its menus, and the tab in a real browser."""

from __future__ import annotations

import json
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
import torch
import trimesh

from app.live.background import Background
from app.live.boards.lazy import Lazy
from app.live.boards.mesh import MeshBoard
from app.live.session import Sessions
from app.requests import meshes
from app.requests.sides import start_values
from app.runs.mesh_files import write_files
from app.server import studio
from app.shared import StudioState
from app.ui import mesh_side
from app.ui.method_menu import choices
from app.ui.panels import clouds, verdict
from app.ui.tab_context import TabContext
from app.ui.tabs import mesh_input, mesh_tab, quality_table
from app.ui.tabs.race import RaceTab
from engine.backbones.lowpoly import Mesh
from engine.core import Prompt
from engine.errors import MissingWeights
from engine.mesh.bpt_tokens import BPT
from engine.mesh.read import read
from engine.methods import find
from engine.run import generate
from engine.tuning.prepare import to_stderr_once
from tests.app.boards import CHAIR, board_of, mesh_run
from tests.app.race_page import FACES, VIEW, RacePage, finish, move

# ---------------------------------------------------------------- what is said


def run_without_a_face(low, tokens: list[int], **state):
    """A run that wrote these tokens."""
    run = mesh_run(low, "xspecmesh")
    run.tokens, run.positions = tokens, list(range(len(tokens)))
    run.stopped, run.finished = state.get("stopped", False), state.get("finished", False)
    return run


def test_a_run_without_a_face_says_what_happened_and_what_to_try(low):
    verdict = mesh_side.without_a_face(run_without_a_face(low, [BPT.eos], finished=True))
    assert verdict["headline"] == "The mesh has no faces" and "ended the mesh after 1 token." in verdict["detail"]
    assert "Try another seed" in verdict["detail"] and "axis" in verdict["detail"] and "normals" in verdict["detail"]
    assert "reached the length limit" in mesh_side.without_a_face(run_without_a_face(low, [1, 2], finished=True))["detail"]
    stopped = mesh_side.without_a_face(run_without_a_face(low, [1, 2], stopped=True))
    assert stopped["state"] == "stopped" and "2 tokens" in stopped["detail"]
    board = MeshBoard(run_without_a_face(low, [BPT.eos], finished=True))
    assert mesh_side.side_of(board, "XSpecMesh", None).text == "No faces in 1 token."


def test_an_empty_mesh_offers_its_settings_alone(low, tmp_path):
    files = write_files(run_without_a_face(low, [BPT.eos], finished=True), read(CHAIR), tmp_path / "mesh")
    assert set(files) == {"settings"}


def test_the_repaired_mesh_is_a_file_of_its_own_where_there_is_something_to_repair(low, tmp_path, monkeypatch):
    run, shape, box = run_without_a_face(low, [BPT.eos], finished=True), read(CHAIR), trimesh.creation.box()
    for faces, mends in ((box.faces, False), (np.array(box.faces)[2:], True)):
        mesh = Mesh(np.array(box.vertices, np.float32), np.array(faces), run.backbone.render([BPT.eos], [0], True).parser)
        monkeypatch.setattr(run, "result", lambda mesh=mesh: mesh)
        monkeypatch.setattr(low, "render", lambda *_, mesh=mesh: mesh)
        files = write_files(run, shape, tmp_path / "mesh")
        assert ("repaired" in files) is mends
    assert len(trimesh.load(files["glb"], force="mesh").faces) == 10  # as generated
    repaired = trimesh.load(files["repaired"], force="scene")
    assert repaired.to_geometry().is_watertight and "-repaired.glb" in files["repaired"].name
    assert "trimesh closes 1 of 1 hole" in files["repaired"].read_bytes().decode("latin1")


def test_quality_stands_beside_its_floor_and_tokens_without_a_face_are_counted(low):
    board = board_of(mesh_run(low, "ar"))
    measured = quality_table.measure(board, "plain", read(CHAIR))
    assert measured.dangling == board.dangling and measured.tokens == len(board.run.tokens)
    assert measured.dropped == len(board.faces) - measured.numbers["faces"]
    shown = quality_table.encode([measured])
    rows = {row["label"]: row for row in shown["rows"]}
    assert list(rows) == [label for _, label, _ in quality_table.ROWS] and shown["heads"] == [{"title": "Plain decoding", "side": "plain"}]
    chamfer = rows["Chamfer distance"]
    assert chamfer["cells"] == [{"text": f"{measured.numbers['chamfer']:.4f}", "good": None}]
    assert chamfer["floor"] == f"{measured.numbers['floor']:.4f}"
    assert rows["Holes"]["cells"][0]["text"] == str(measured.repair.holes)
    assert rows["Winding"]["cells"][0]["good"] is measured.repair.winding_consistent
    assert any(line.startswith("Repair of Plain decoding: ") for line in shown["notes"])
    assert f"{board.dangling} of {measured.tokens} tokens" in quality_table.token_sentence(measured)
    empty = quality_table.measure(MeshBoard(run_without_a_face(low, [BPT.eos], finished=True)), "fast", read(CHAIR))
    assert "1 of 1 tokens is part of no face" in quality_table.token_sentence(empty)
    assert quality_table.encode([empty]) is None
    cells = [row["cells"][1]["text"] for row in quality_table.encode([measured, empty])["rows"]]
    assert cells.count("–") == len(quality_table.ROWS) - 1
    mesh = board.run.result()
    more = quality_table.with_column(shown, "Shrinkwrapped", quality_table.numbers_of(mesh.vertices, mesh.faces, read(CHAIR))[0])
    assert more["heads"][1] == {"title": "Shrinkwrapped", "side": "download"} and more["notes"] == shown["notes"]
    assert all(row["cells"][0] == row["cells"][1] for row in more["rows"]), "it is the same mesh"


def test_the_verdict_compares_seconds_of_a_token_where_lengths_differ(low):
    fast, plain = (MeshBoard(run_without_a_face(low, [1] * n, finished=True)) for n in (50, 100))
    fast.run.seconds, plain.run.seconds = 1.0, 3.0
    text = verdict.encode(fast, plain, mesh_side.WORDS)
    assert text["headline"] == "1.5× faster per token" and "50 tokens instead of 100" in text["detail"]
    fast.run.finished = False
    assert verdict.encode(fast, None, mesh_side.WORDS)["live"] == "50 tokens per second"


# ---------------------------------------------------------------- models, menus, examples


def test_the_favourite_comes_first_and_is_not_seeded_where_its_rule_is_not_exact(low):
    names = [name for _, name in mesh_tab.favourite_first(choices(low))]
    assert names[:2] == ["xspecmesh", "xspecmesh_exact"] and {"lookup", "sjdpp", "jacobi"} <= set(names) and "ar" not in names
    assert "verify" not in start_values("xspecmesh")[1]
    assert start_values("lookup")[1]["verify"] == "match seed"


def test_no_method_of_the_menu_needs_what_the_model_lacks(low):
    prompt = Prompt(points=torch.zeros(16, 6), size=8)
    for _, name in choices(low):
        next(iter(generate(low, find(name)[0], prompt, start_values(name, low.suits)[1], name=name)), None)  # raises NotSupported


def test_a_method_starts_with_what_suits_the_model_and_a_preset_with_its_own(low):
    assert start_values("sjdpp", low.suits)[1] == {"window": 4, "verify": "match seed"}
    assert start_values("sjdpp")[1] == {"verify": "match seed"}
    assert start_values("mulo_jacobi", low.suits)[1]["window"] == 32


def test_what_auto_takes_without_recorded_tokens_is_said_once_not_to_every_visitor(low, capsys):
    to_stderr_once.cache_clear()
    assert {Background(Sessions()).fastest(low) for _ in range(3)} == {"auto:xspecmesh_exact"}
    assert capsys.readouterr().err.count("No tokens per pass are recorded for lowpoly") == 1


def test_the_menu_takes_the_cards_of_the_loaded_model(picto, low, tmp_path):
    tab = tab_with(Lazy("lowpoly", tmp_path, lambda: low), picto)
    shown = open_values(tab)
    groups = {card["name"]: card["group"] for card in shown["cards"]["mesh-method"]}
    assert groups["xspecmesh"].startswith("Relaxed") and groups["xspecmesh_exact"].startswith("Exact") and groups["lookup"] == "Baselines"
    assert shown["method"] in groups and "ar" not in groups
    assert "ar" in {card["name"] for card in shown["cards"]["mesh-other"]}


def tab_with(mesh: Lazy, picto) -> RaceTab:
    """A tab on a separate page."""
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Mesh") as tab:
        context = TabContext(page, tab, StudioState(picto, mesh, Sessions()))
        race_tab = RaceTab(context, mesh_tab.MeshRace(context))
        race_tab.wire()
        return race_tab


def open_values(tab: RaceTab) -> dict:
    """Opens the tab; returns its values."""
    visitor = SimpleNamespace(session_hash="a")
    *first, line, clock = tab.subject.open("xspecmesh", "ar", {}, False, visitor)
    assert line == [] and not clock.active
    first = dict(zip(tab.subject.input.table, first, strict=True))
    assert "Loading" in first["messages"][0]["text"]
    return first | dict(zip(tab.subject.filling, tab.subject.load(visitor), strict=True))


def test_without_weights_the_tab_opens_and_says_how_to_train_them(picto, tmp_path, monkeypatch):
    monkeypatch.setattr(studio, "MODELS", tmp_path)
    mesh = studio.mesh_model()
    shown = open_values(tab_with(mesh, picto))
    (sentence,) = shown["messages"]
    assert "weights are not in this checkout" in sentence["text"] and "python launch.py train lowpoly" in sentence["text"]
    assert shown["live"]["viewer"]["value"]["points"] and shown["tiles"] == "chair"
    assert not mesh.is_present


def test_weights_without_heads_are_offered_without_xspecmesh(picto, low, tmp_path):
    from engine.backbones.lowpoly import Lowpoly

    shown = open_values(tab_with(Lazy("lowpoly", tmp_path, lambda: Lowpoly(low.model, {}, tmp_path)), picto))
    assert shown["knobs"]["name"] != "xspecmesh" and "no draft heads" in shown["messages"][0]["text"]


def test_a_model_is_loaded_once_and_a_failure_is_not_remembered(tmp_path):
    answers = iter([MissingWeights("not yet"), "the model"])

    def once():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lazy = Lazy("lowpoly", tmp_path, once)
    with pytest.raises(MissingWeights):
        lazy.get()
    assert lazy.get() == lazy.get() == "the model"


def test_a_folder_goes_to_the_tab_of_its_kind(picto_folder, lowpoly_folder):
    assert studio.models_of("pictogram", None) == (("pictogram", None), ("lowpoly", None))
    assert studio.models_of("pictogram", str(picto_folder)) == (("pictogram", str(picto_folder)), ("lowpoly", None))
    assert studio.models_of("pictogram", str(lowpoly_folder)) == (("pictogram", None), ("lowpoly", str(lowpoly_folder)))
    assert studio.models_of("lowpoly_lora", None) == studio.models_of("lowpoly:lora", None) == (("pictogram", None), ("lowpoly:lora", None))


def test_examples_are_small_clouds_with_normals_that_point_up(tmp_path):
    files = sorted(meshes.EXAMPLES.glob("*.ply"))
    assert {f.stem for f in files} == set(meshes.ORDER) and sum(f.stat().st_size for f in files) < 500_000
    for name, points in mesh_input.example_clouds().items():
        shape = read(meshes.EXAMPLES / f"{name}.ply")
        assert (shape.kind, len(shape.points), shape.frame.up, shape.notes) == ("cloud", 2048, "y", [])
        dots = clouds.dots(points)
        assert 300 < len(dots) <= clouds.DOTS and dots[:, :2].max() < clouds.SIDE


# ---------------------------------------------------------------- in the browser


@pytest.fixture
def open_mesh(open_page):
    """Opens the studio as a new visitor, on the Mesh tab with an example loaded."""

    def visit(width: int = 1024, height: int = 768):
        return RacePage(open_page(width, height), "mesh").open().page  # without a graphics card, large views draw slowly

    return visit


@pytest.mark.browser
def test_from_an_example_to_a_file_with_the_keyboard(open_mesh, served, tmp_path):
    page = open_mesh()
    page.locator("[data-cloud=tree]").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#mesh-notes p:has-text('tree.ply')")
    assert page.locator("[data-cloud=tree]").get_attribute("aria-pressed") == "true"
    move(page, "mesh-settings", "face_budget", 20)  # 168 faces: long enough to move a slider in
    page.keyboard.press("Control+Enter")
    RacePage(page, "mesh").wait_for_both()
    move(page, "mesh-knobs", "accept_probability", 10)  # 0.05 + 10 * 0.01
    assert page.locator("[data-cloud=chair]").is_disabled()
    assert page.locator("#mesh-knobs .ft-knob[data-knob=verify] select").is_disabled()
    assert page.locator("#mesh-knobs .ft-knob[data-knob=accept_probability] em").inner_text() == "live"
    finish(page, "mesh-")
    assert page.evaluate(f"{VIEW}.state") == "done"
    page.wait_for_function("document.querySelector('#mesh-verdict .ft-fit').textContent.includes(' match')")
    course = "document.querySelector('#mesh-trace .ft-chart').dataset"
    page.wait_for_function(f"{course}.state === 'done' && {course}.moves === '1'")
    folder = served.runs()[-1]
    assert page.evaluate(f"Number({course}.tokens)") == json.loads((folder / "run.json").read_text())["totals"]["tokens"]
    assert page.locator("#mesh-tree .ft-about-chart").inner_text().startswith("XSpecMesh drafts no trees")
    with np.load(folder / "trace.npz") as trace:
        assert [round(float(v), 2) for v in dict.fromkeys(trace["knob_accept_probability"])] == [0.5, 0.15]
    settings = json.loads((folder / "run.json").read_text())
    assert (settings["backbone"], settings["prompt"], settings["seed"]) == ("lowpoly", "tree.ply", 7)
    rows = page.locator("#mesh-quality tbody tr").all_inner_texts()
    assert [row.split("\t")[0] for row in rows] == [label for _, label, _ in quality_table.ROWS]
    assert page.locator("#mesh-quality").inner_text().count("part of no face") >= 2
    with page.expect_download() as waiting:
        page.click("#mesh-download-glb")
    assert waiting.value.suggested_filename == "tree-xspecmesh-7.glb"
    waiting.value.save_as(tmp_path / "tree.glb")
    mesh, tree = trimesh.load(tmp_path / "tree.glb", force="mesh"), read(meshes.EXAMPLES / "tree.ply")
    assert len(mesh.faces) > 10
    sides = tree.frame.from_model(np.array([[-1, -1, -1], [1, 1, 1]]))
    assert (mesh.bounds[0] >= sides[0] - 1e-6).all() and (mesh.bounds[1] <= sides[1] + 1e-6).all()
    page.click("[data-cloud=table]")  # another input removes everything of the last one
    page.wait_for_function(f"{FACES.format('accelerated')} === 0")
    page.wait_for_selector("#mesh-quality .ft-quality-box", state="hidden")


@pytest.mark.browser
def test_own_files_are_cleaned_and_bad_ones_refused_with_a_sentence(open_mesh, tmp_path):
    page = open_mesh()
    drop = page.locator("#mesh-file input[type=file]")
    good, bad, other = tmp_path / "scan.xyz", tmp_path / "bad.ply", tmp_path / "notes.docx"
    points = read(CHAIR).points[:900, :3] * 7 + 100
    good.write_text("\n".join(" ".join(map(str, row)) for row in [*points.tolist(), points[0].tolist(), ["nan"] * 3]))
    bad.write_text("nothing of the kind")
    other.write_text("nor this")
    drop.set_input_files(good)
    page.wait_for_selector("#mesh-notes p:has-text('scan.xyz: a point cloud of 900 points')")
    assert page.locator("#mesh-notes p").count() == 5
    assert page.locator("[data-cloud][aria-pressed=true]").count() == 0
    page.wait_for_function(f"Number({VIEW}.points) === 900")
    for file, sentence in ((bad, "bad.ply is damaged"), (other, "notes.docx has a format that cannot be read")):
        drop.set_input_files(file)
        page.wait_for_selector(f"#mesh-messages p[data-kind=error]:has-text('{sentence}')")
        assert "scan.xyz" in page.inner_text("#mesh-notes") and page.evaluate(f"Number({VIEW}.points)") == 900
    page.locator("#mesh-axis [data-up=x]").click()
    page.wait_for_selector("#mesh-messages p", state="detached")
    page.wait_for_selector("#mesh-axis .ft-axes[data-taken=x]")
    assert page.locator("#mesh-axis .ft-axis[aria-pressed=true]").all_inner_texts() == ["x"]


@pytest.mark.browser
def test_it_fits_a_phone_and_ends_within_the_budget(open_mesh):
    page = open_mesh(390, 844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    move(page, "mesh-settings", "face_budget", 1)
    assert page.locator("#mesh-settings .ft-knob[data-knob=face_budget] output").inner_text() == "8"
    page.click("#mesh-bar .ft-summary")
    page.uncheck("#mesh-compare input")
    page.locator(".ft-sheet:visible").click()
    page.click("#mesh-generate")
    finish(page, "mesh-")
    assert 0 < page.evaluate(FACES.format("accelerated")) <= 8
    assert page.evaluate(f"{VIEW}.views") == "1"
    assert page.evaluate("document.documentElement.scrollWidth") == 390
