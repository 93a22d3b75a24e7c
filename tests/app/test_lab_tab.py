"""The Lab tab: a loop of pictures whose knobs are moved, and the totals of every setting."""

from __future__ import annotations

import base64
import json
import math
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest
from playwright.sync_api import expect

from app.live.boards.lazy import Lazy
from app.live.boards.loop import FILM, PLACES, SAMPLES, LoopBoard, deviation_of
from app.live.boards.picture import Board
from app.live.session import Sessions
from app.requests.pictures import FAVOURITE
from app.shared import StudioState
from app.ui.panels import elsewhere, lab
from app.ui.tab_context import TabContext
from app.ui.tabs import example, lab_example, subject
from app.ui.tabs.lab_tab import FASTEST, SAME, LabTab
from app.ui.tabs.looping import CHANGING, STAYING, Loop
from engine import assets
from engine.core import KnobArray, Knobs, Prompt, Step
from engine.errors import MissingWeights, NotSupported
from engine.methods import find
from engine.run import generate

STAGE = "#lab-stage .ft-lab"


def play_loop(picto, *settings: tuple[str, dict]) -> tuple[LoopBoard, Board]:
    """A loop of one picture for each (method, knobs)."""
    board = LoopBoard(elsewhere.sizes(picto))
    for seed, (name, knobs) in enumerate(settings):
        method, values = find(name)
        run = generate(picto, method, Prompt("a red apple", seed=seed, size=64), values | knobs, name=name)
        picture = Board(run)
        for step in run:
            picture.add(step)
            board.add(run, step)
        board.finish(run, "data:,")
    return board, picture


def test_every_setting_is_counted_apart(picto):
    relaxed = {"window": 8, "relax": "additive"}
    board, picture = play_loop(
        picto, ("sjdpp", {"window": 8}), ("sjdpp", relaxed | {"added_mass": 0.2}), ("sjdpp", relaxed | {"added_mass": 0.9})
    )
    first, second, third = board.settings.values()
    assert [s.tokens for s in board.settings.values()] == [64, 64, 64] and board.pictures == 3
    assert sum(s.seconds for s in board.settings.values()) == pytest.approx(board.clock)
    assert first.exact and first.mean_deviation == 0.0
    assert not second.exact and 0 < second.mean_deviation < third.mean_deviation <= 1
    assert [(t.name, t.before, t.after) for t in board.changes] == [
        ("relax", "off", "additive"), ("added_mass", 0.1, 0.2), ("added_mass", 0.2, 0.9)
    ]  # fmt: skip
    assert board.curve() == [second.number, third.number]  # settings that differ only in δ
    value = lab.encode(board, picture, 100.0, "x", {})
    assert [s["deviation"] for s in value["settings"]] == [0.0, second.mean_deviation, third.mean_deviation]
    assert value["places"][2] == "an H100 with a 7B model"
    assert [s["ratios"][2] for s in value["settings"]] == pytest.approx([s["compression"] for s in value["settings"]], abs=1e-3)
    assert value["turned"][-1]["letter"] == "δ" and value["now"] == third.number
    assert {("Tolerance", "off", "by an amount")} <= {(t["letter"], t["before"], t["after"]) for t in value["turned"]}
    times = np.frombuffer(base64.b64decode(value["time"]), np.float32)
    assert len(times) == len(board.samples) and (np.diff(times) > 0).all() and times[-1] == pytest.approx(board.clock)


def test_a_setting_that_comes_back_goes_on_counting(picto):
    board, _ = play_loop(picto, ("sjd", {"window": 8}), ("sjd", {"window": 4}), ("sjd", {"window": 8}), ("lookup", {}))
    assert [(s.name, s.tokens) for s in board.settings.values()] == [("sjd", 64), ("sjd", 128), ("lookup", 64)]
    assert board.changes[-1].name == "method" and board.curve() == []
    assert len({s.number for s in board.settings.values()}) == 3


def test_acceptance_is_counted_by_place_and_stays_within_bounds(picto):
    board, _ = play_loop(picto, ("sjd", {"window": 8}))
    setting = board.now
    assert 0 < len(setting.shares) <= min(7, PLACES)
    assert all(0 <= share <= 1 for share in setting.shares)
    assert (np.diff(setting.drafted) <= 0).all() and (setting.accepted <= setting.drafted).all()
    accepted, most = lab.setting(setting, board)["most"]
    assert 0 < accepted <= most < 7
    wave, _ = play_loop(picto, ("zipar", {}))
    assert wave.now.most == [] and wave.now.shares == [] and math.isnan(wave.now.mean_deviation)


def test_the_course_stays_short_and_loses_no_token(picto):
    method, _ = find("ar")
    run, board = generate(picto, method, Prompt("a", size=64), {}), LoopBoard()
    for count in range(20 * SAMPLES):
        step = Step([1], [count])
        step.seconds, step.knobs = 0.3, {}
        board.add(run, step)
    assert len(board.samples) <= SAMPLES + 1
    assert sum(s.tokens for s in board.samples) == 20 * SAMPLES and board.samples[-1].end == pytest.approx(board.clock)
    for _ in range(2 * FILM):
        board.finish(run, "data:,")
    assert len(board.film) == FILM
    run.close()


def test_the_deviation_of_a_step_is_nought_if_it_is_exact_and_unknown_if_nothing_was_measured():
    step = Step([1], [0])
    assert deviation_of(step) == 0.0
    step.exact = False
    assert math.isnan(deviation_of(step))


def test_the_next_picture_takes_what_was_moved(picto):
    chosen = {"prompts": CHANGING, "tempo": "1 step a second", "size": "64 px"}
    loop = Loop("sjd", {"window": 3}, chosen, "mine", 5, subject.pictures(picto))
    texts = [loop.take(i)[2] for i in range(7)]
    assert texts[0].text == "mine" and len({p.text for p in texts}) == 6 and texts[6].text == "mine"
    assert [p.seed for p in texts] == list(range(5, 12)) and texts[0].size == 64 and loop.pause == 1.0
    loop.set(name="gsd", knobs={}, chosen={**loop.chosen, "prompts": STAYING})
    assert [loop.take(i)[0] for i in range(2)] == ["gsd", "gsd"]
    assert {loop.take(i)[2].text for i in range(4)} == {"mine"}


def nothing() -> None:
    """A missing model."""
    raise MissingWeights("The weights are not here.")


@pytest.fixture
def tab(picto) -> LabTab:
    """The tab on an unserved page."""
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Lab") as own:
        missing = Lazy("lowpoly", assets.models() / "nowhere", nothing)
        tab = LabTab(TabContext(page, own, StudioState(picto, missing, Sessions())))
        tab.wire()
        return tab


def test_presets_are_what_they_say(tab):
    name, values, messages = tab.preset_values(SAME, "sjd", tab.pictures)
    assert (name, values["verify"], messages) == ("sjd", "match seed", [])
    assert tab.preset_values(SAME, "zipar", tab.pictures)[0] == FAVOURITE  # published ZipAR cannot match the picture
    name, values, messages = tab.preset_values(FASTEST, "sjdpp", tab.pictures)
    method, _ = find(name)
    assert tab.apply_change("nobody", tab.pictures, name, values)[1]["name"] == name and "fastest exact method" in messages[0]["text"]
    assert method.exact(Knobs(KnobArray(method.knobs, values).read()))
    name, values, _ = tab.preset_values("sjdpp_published", "sjdpp", tab.pictures)
    assert name == "sjdpp_published" and values["refresh"] == "reuse published"
    with pytest.raises(NotSupported):
        tab.preset_values("nobody", "sjdpp", tab.pictures)


def test_a_broken_snapshot_is_a_sentence(tab):
    class Request:
        session_hash = "nobody"

    for wrong in (None, {"name": "nobody", "knobs": {}}, {"name": "sjd", "knobs": {"window": 1e9}}, {"name": "sjd", "knobs": 3}):
        assert tab.recall(wrong, "image", Request())[3][0]["kind"] == "error"
    assert tab.recall({"name": "sjd", "knobs": {"window": 9}}, "image", Request())[1]["values"]["window"] == 9


def test_the_other_kind_brings_its_methods_settings_and_clouds(tab, low, monkeypatch):
    failed = dict(zip(tab.switched, tab.switch("mesh"), strict=True))
    assert failed["kind"] == "image" and failed["messages"][0]["kind"] == "error"
    monkeypatch.setattr(tab, "mesh", Lazy("lowpoly", assets.models(), lambda: low))
    shown = dict(zip(tab.switched, tab.switch("mesh"), strict=True))
    assert shown["method"] == "xspecmesh" and shown["knobs"]["loops"] and shown["stage"]["kind"] == "mesh"
    assert [k["name"] for k in json.loads(shown["settings"]["declarations"])] == ["clouds", "tempo", "face_budget"]
    offered = {card["name"] for card in shown["cards"]["lab-method"]}
    assert "xspecmesh_exact" in offered and "zipar" not in offered
    visible = {name: shown[name].visible for name in ("prompt", "table", "xspecmesh_exact", "zipar_verified")}
    assert visible == {"prompt": False, "table": True, "xspecmesh_exact": True, "zipar_verified": False}
    back = dict(zip(tab.switched, tab.switch("image"), strict=True))
    assert back["method"] == FAVOURITE and back["prompt"].visible
    assert tab.tune({"values": {}}, "house", SimpleNamespace(session_hash="a"))[0]["kind"] == "error"


def test_clouds_are_looped_over(low):
    meshes = subject.meshes(low)
    loop = Loop("xspecmesh", {}, {"clouds": CHANGING, "tempo": "1 step a second", "face_budget": 16}, meshes.thing("", "tree"), 5, meshes)
    prompts = [loop.take(i)[2] for i in range(9)]
    assert [p.text for p in prompts[:2]] == ["tree", "table"] and prompts[8].text == "tree" and len({p.text for p in prompts}) == 8
    assert prompts[3].seed == 8 and prompts[3].size == 16 and prompts[3].points.shape[1] == 6
    assert meshes.thing("", "../secret") == "chair"


def test_the_example_is_a_loop_whose_charts_have_something_to_show(picto, tmp_path, monkeypatch):
    recorded = lab_example.read(tmp_path, picto)
    assert recorded["pictures"] == 6 and recorded["example"] != lab_example.NOTE.format("this machine")
    monkeypatch.setattr(example, "PATIENCE", float("inf"))  # however busy the machine is
    lab_example.make(tmp_path, picto, lambda: False)
    loop = lab_example.read(tmp_path, picto)
    assert (loop["state"], loop["pictures"], loop["example"]) == ("stopped", 6, lab_example.NOTE.format("this machine"))
    assert loop["plain"] > 0
    assert len(loop["settings"]) == 6 and len(loop["curve"]) == 3  # the windows are on a line
    assert {t["letter"] for t in loop["turned"]} >= {"W", "δ"} and loop["settings"][0]["shares"]
    monkeypatch.setattr(lab_example, "run", lambda *arguments: pytest.fail("it is run once"))
    lab_example.make(tmp_path, picto, lambda: False)
    assert lab_example.read(tmp_path, picto) == loop
    monkeypatch.undo()
    monkeypatch.setattr(example, "race", lambda boards, interrupted: iter(()))  # as if plain decoding took too long
    assert lab_example.run(picto, lambda: False) == {}  # a slow model's Lab shows the recorded loop


# --- in a browser -----------------------------------------------------------------------------------------------------


def looping(page):
    """The tab, with a loop of small pictures in progress."""
    page.get_by_role("tab", name="Lab", exact=True).click()
    page.locator("#lab-settings .ft-knob[data-knob=size] select").select_option("64 px")
    page.click("#lab-generate")
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.pictures) >= 1")
    return page


def move(page, knob: str, stop: int) -> None:
    """Moves a slider of the Lab."""
    page.locator(f"#lab-knobs .ft-knob[data-knob={knob}] input").evaluate(
        "(input, stop) => { input.value = stop; input.dispatchEvent(new Event('input', {bubbles: true})); }", stop
    )


@pytest.mark.browser
def test_knobs_are_moved_while_the_loop_goes_on(open_page):
    page = looping(open_page())
    page.click("[data-snapshot=A] [data-do=keep]")
    before = page.locator("#lab-knobs .ft-knob[data-knob=window] output").inner_text()
    move(page, "window", 3)
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.settings) >= 2")
    assert int(page.locator(STAGE).get_attribute("data-turned")) >= 1
    page.locator("#lab-knobs .ft-knob[data-knob=verify] select").select_option("residual")  # a fixed knob: it applies to the next picture
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.settings) >= 3")
    page.locator("[data-chart=curve] .ft-plot").focus()
    page.keyboard.press("Home")
    assert "tokens / s" in page.inner_text("[data-chart=curve] output")
    page.keyboard.press("a")
    page.wait_for_function(
        "text => document.querySelector('#lab-knobs .ft-knob[data-knob=window] output').textContent === text", arg=before
    )
    with page.expect_download() as download:
        page.click("[data-chart=curve] [data-save=csv]")
    text = download.value.path().read_text(encoding="utf-8")
    assert "# first seed: 7" in text and "tokens_per_second" in text and text.count("window") >= 3
    page.click("#lab-cancel")
    page.wait_for_selector("#lab-generate")
    expect(page.locator(STAGE)).to_have_attribute("data-state", "stopped")
    assert page.locator(".ft-film img").count() >= 1
    page.select_option(f"{STAGE} .ft-elsewhere select", "an RTX 4090 with pictogram")
    expect(page.locator("[data-chart=curve] .xtitle")).to_have_text("Computed speed-up on an RTX 4090, pictogram (×)")
    expect(page.locator(f"{STAGE} [data-key=speedup] dt")).to_have_text("× plain, computed")
    for measured in ("[data-key=tokens_per_second]", "[data-chart=course]"):
        expect(page.locator(f"{STAGE} {measured}")).to_be_hidden()


@pytest.mark.browser
def test_the_loop_makes_way_for_somebody_who_waits_and_goes_on_after_them(open_page, visit):
    page = looping(open_page())
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.pictures) >= 1")
    assert visit().can_generate("image")
    before = int(page.locator(STAGE).get_attribute("data-pictures"))
    page.wait_for_function("before => Number(document.querySelector('.ft-lab').dataset.pictures) > before + 1", arg=before)
    page.click("#lab-cancel")
    page.wait_for_selector("#lab-generate")


@pytest.mark.browser
def test_meshes_are_looped_over_with_live_knobs(open_page):
    page = open_page()
    page.get_by_role("tab", name="Lab", exact=True).click()
    page.click("#lab-kind [data-kind=mesh]")
    page.wait_for_selector("#lab-settings .ft-knob[data-knob=face_budget]")
    expect(page.locator("#lab-prompt")).to_have_count(0)
    page.click("#lab-clouds [data-cloud=tree]")
    page.locator("#lab-settings .ft-knob[data-knob=face_budget] input").evaluate(
        "input => { input.value = 1; input.dispatchEvent(new Event('input', {bubbles: true})); }"
    )
    page.click("#lab-generate")
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.pictures) >= 1")
    page.wait_for_function("Number(document.querySelector('#lab-view .ft-mesh').dataset.acceleratedFaces) > 0")  # of this mesh or the next
    expect(page.locator("#lab-kind [data-kind=image]")).to_be_disabled()
    move(page, "accept_probability", 10)
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.settings) >= 2")
    assert int(page.locator(STAGE).get_attribute("data-turned")) >= 1
    page.click("#lab-cancel")
    page.wait_for_selector("#lab-generate")
    expect(page.locator(STAGE)).to_have_attribute("data-state", "stopped")
    assert page.locator("#lab-view .ft-mesh").get_attribute("data-state") in ("stopped", "done")
    page.click("#lab-kind [data-kind=image]")
    expect(page.locator("#lab-prompt")).to_be_visible()
    expect(page.locator("#lab-view")).to_be_hidden()
