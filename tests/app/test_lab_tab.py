"""The Lab tab: a loop of pictures whose knobs are moved, and what is counted of every setting."""

from __future__ import annotations

import base64
import math

import gradio as gr
import numpy as np
import pytest
from playwright.sync_api import expect

from app.boards.lazy import Lazy
from app.boards.loop import FILM, PLACES, SAMPLES, LoopBoard, deviation_of
from app.boards.picture import Board
from app.session import Sessions
from app.ui import lab_tab
from app.ui.lab_tab import CHANGING, FASTEST, SAME, STAYING, LabTab, Loop
from app.ui.panels import lab
from app.ui.place import Place
from engine.core import KnobArray, Knobs, Prompt, Step
from engine.errors import NotSupported
from engine.methods import find
from engine.run import generate

STAGE = "#lab-stage .ft-lab"


def played(picto, *settings: tuple[str, dict]) -> tuple[LoopBoard, Board]:
    """A loop of one picture for each (method, knobs)."""
    board = LoopBoard()
    for seed, (name, knobs) in enumerate(settings):
        method, given = find(name)
        run = generate(picto, method, Prompt("a red apple", seed=seed, size=64), given | knobs, name=name)
        picture = Board(run)
        for step in run:
            picture.add(step)
            board.add(run, step)
        board.finish(run, "data:,")
    return board, picture


def test_every_setting_is_counted_apart(picto):
    relaxed = {"window": 8, "relax": "additive"}
    board, picture = played(
        picto, ("sjdpp", {"window": 8}), ("sjdpp", relaxed | {"added_mass": 0.2}), ("sjdpp", relaxed | {"added_mass": 0.9})
    )
    first, second, third = board.settings.values()
    assert [s.tokens for s in board.settings.values()] == [64, 64, 64] and board.pictures == 3
    assert sum(s.seconds for s in board.settings.values()) == pytest.approx(board.clock)
    assert first.exact and first.mean_deviation == 0.0
    assert not second.exact and 0 < second.mean_deviation < third.mean_deviation <= 1
    assert [(t.name, t.before, t.after) for t in board.turned] == [
        ("relax", "off", "additive"), ("added_mass", 0.1, 0.2), ("added_mass", 0.2, 0.9)
    ]  # fmt: skip
    assert board.curve() == [second.number, third.number]  # those that δ alone tells apart
    value = lab.encode(board, picture, 100.0, "x", {})
    assert [s["deviation"] for s in value["settings"]] == [0.0, second.mean_deviation, third.mean_deviation]
    assert value["turned"][-1]["letter"] == "δ" and value["now"] == third.number
    times = np.frombuffer(base64.b64decode(value["time"]), np.float32)
    assert len(times) == len(board.samples) and (np.diff(times) > 0).all() and times[-1] == pytest.approx(board.clock)


def test_a_setting_that_comes_back_goes_on_counting(picto):
    board, _ = played(picto, ("sjd", {"window": 8}), ("sjd", {"window": 4}), ("sjd", {"window": 8}), ("lookup", {}))
    assert [(s.name, s.tokens) for s in board.settings.values()] == [("sjd", 64), ("sjd", 128), ("lookup", 64)]
    assert board.turned[-1].name == "method" and board.curve() == []
    assert len({s.number for s in board.settings.values()}) == 3


def test_acceptance_is_counted_by_place_and_stays_within_bounds(picto):
    board, _ = played(picto, ("sjd", {"window": 8}))
    setting = board.now
    assert 0 < len(setting.shares) <= min(7, PLACES)
    assert all(0 <= share <= 1 for share in setting.shares)
    assert (np.diff(setting.asked) <= 0).all() and (setting.kept <= setting.asked).all()
    wave, _ = played(picto, ("zipar", {}))
    assert wave.now.shares == [] and math.isnan(wave.now.mean_deviation)


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


def test_the_next_picture_takes_what_was_moved():
    loop = Loop("sjd", {"window": 3}, {"prompts": CHANGING, "tempo": "1 step a second", "size": "64 px"}, "mine", 5)
    texts = [loop.take(i, None)[2] for i in range(7)]
    assert texts[0].text == "mine" and len({p.text for p in texts}) == 6 and texts[6].text == "mine"
    assert [p.seed for p in texts] == list(range(5, 12)) and texts[0].size == 64 and loop.pause == 1.0
    loop.set(name="gsd", knobs={}, chosen={**loop.chosen, "prompts": STAYING})
    assert [loop.take(i, None)[0] for i in range(2)] == ["gsd", "gsd"]
    assert {loop.take(i, None)[2].text for i in range(4)} == {"mine"}


@pytest.fixture
def tab(picto) -> LabTab:
    """The tab on a page that is not served."""
    with gr.Blocks() as page, gr.Tabs(), gr.Tab("Lab") as own:
        missing = Lazy("lowpoly", lab_tab.assets.models() / "nowhere", lambda: None)
        return LabTab(Place(page, own, picto, missing, Sessions()))


def test_presets_are_what_they_say(tab):
    name, values, told = tab.values_of(SAME, "sjd")
    assert (name, values["verify"], told) == ("sjd", "match seed", [])
    assert tab.values_of(SAME, "zipar")[0] == lab_tab.FAVOURITE  # ZipAR as published has no same picture
    name, values, told = tab.values_of(FASTEST, "sjdpp")
    method, _ = find(name)
    assert tab.shown("nobody", name, values)[1]["name"] == name and "recorded table" in told[0]["text"]
    assert method.exact(Knobs(KnobArray(method.knobs, values).read()))
    name, values, _ = tab.values_of("lantern_window", "sjdpp")
    assert name == "lantern_window" and values["relax"] == "additive"
    with pytest.raises(NotSupported):
        tab.values_of("nobody", "sjdpp")


def test_a_broken_snapshot_is_a_sentence(tab):
    class Request:
        session_hash = "nobody"

    for wrong in (None, {"name": "nobody", "knobs": {}}, {"name": "sjd", "knobs": {"window": 1e9}}, {"name": "sjd", "knobs": 3}):
        assert tab.recall(wrong, Request())[3][0]["kind"] == "error"
    assert tab.recall({"name": "sjd", "knobs": {"window": 9}}, Request())[1]["values"]["window"] == 9


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
    page.locator("#lab-knobs .ft-knob[data-knob=verify] select").select_option("residual")  # a fixed knob: the next picture takes it
    page.wait_for_function("Number(document.querySelector('.ft-lab').dataset.settings) >= 3")
    page.locator("[data-chart=curve] canvas").focus()
    page.keyboard.press("Home")
    assert "tokens / s" in page.inner_text("[data-chart=curve] output")
    page.keyboard.press("a")
    page.wait_for_function(
        "text => document.querySelector('#lab-knobs .ft-knob[data-knob=window] output').textContent === text", arg=before
    )
    with page.expect_download() as found:
        page.click("[data-chart=curve] [data-save=csv]")
    text = found.value.path().read_text(encoding="utf-8")
    assert "# first seed: 7" in text and "tokens_per_second" in text and text.count("window") >= 3
    page.click("#lab-cancel")
    page.wait_for_selector("#lab-generate")
    expect(page.locator(STAGE)).to_have_attribute("data-state", "stopped")
    assert page.locator(".ft-film img").count() >= 1


@pytest.mark.browser
def test_the_loop_makes_way_for_somebody_who_waits(open_page, visit):
    page = looping(open_page())
    assert visit().can_generate("image")
    page.wait_for_selector("#lab-messages p:has-text('Somebody waits for the engine')")
    page.wait_for_selector("#lab-generate")
