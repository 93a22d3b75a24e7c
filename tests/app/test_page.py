"""The studio in a real browser. Every wait is for something on the page, never for time."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from app.ui.knobs import stops
from engine.decoding.initializers import WINDOW
from engine.methods.mulo import LEAST
from tests.app.race_page import PROMPT, STATE, TOKENS, cancel, choose, drag, finish, move, start, take

pytestmark = pytest.mark.browser
SPREAD = """c => {
  const values = c.getContext("2d").getImageData(0, 0, c.width, c.height).data.filter((_, i) => i % 4 < 3);
  const mean = values.reduce((sum, x) => sum + x, 0) / values.length;
  return Math.sqrt(values.reduce((sum, x) => sum + (x - mean) ** 2, 0) / values.length);
}"""


UNDERSTOOD = [  # (prompt, part of the line below it)
    ("two foxes on snow at sunset", "Draws two foxes; background: s"),
    ("a blue house without a tree", "Draws a blue house, no tree;"),
    ("never a cat", "does not understand 'never'"),
    ("six cats", "counts to"),
    ("a cat snow", "Try: in the snow"),
    ("two foxes and a pengiun", "pengiun is read as penguin. Undo"),
]


def test_both_sides_grow_and_finish(open_page):
    page = open_page()
    start(page)
    first = page.evaluate(TOKENS.format("plain"))
    assert page.evaluate(STATE) == "running"
    assert page.locator("#knobs .ft-knob[data-knob=refresh] select").is_disabled()
    assert page.locator("#knobs .ft-knob[data-knob=window] input").is_enabled()
    page.wait_for_function(f"{TOKENS.format('plain')} > {first} && {STATE} === 'running'")
    cancel(page)
    finish(page)
    choose(page, "settings", "size", "128 px")  # one of 256 pixels would take long to its end
    before = {side: int(page.locator(f"#canvas-{side} .ft-card").get_attribute("data-pictures")) for side in ("plain", "fast")}
    page.click("#generate")
    for side in ("plain", "fast"):
        card = page.locator(f"#canvas-{side} .ft-card")
        page.wait_for_selector(f"#canvas-{side} .ft-card[data-state=done]")
        assert card.get_attribute("data-state") == "done"
        assert card.get_attribute("data-tokens") == "256"
        page.wait_for_function(f"Number(document.querySelector('#canvas-{side} .ft-card').dataset.pictures) > {before[side]}")
        assert "256 of 256 tokens, done" in card.locator(".ft-picture").get_attribute("aria-label")
    finish(page)
    assert page.locator("#canvas-fast .ft-badge").inner_text() == "exact"
    text = page.inner_text("#verdict")
    assert "identical, token for token" in text
    assert "faster" in text or "slower" in text or "As fast as" in text
    assert page.inner_text("#verdict .ft-headline") == "0 of 2 objects found"  # random weights draw no fox, however fast
    elsewhere = page.locator("#verdict .ft-elsewhere option").all_inner_texts()
    assert len(elsewhere) == 17 and re.fullmatch(r"an H100 with a 7B model: [0-9.]+×, computed", elsewhere[3])
    assert page.get_attribute("#verdict .ft-verdict", "data-tone") == "even"
    assert spread(page, "fast") > 0


def spread(page, side: str) -> float:
    """Standard deviation of a canvas's pixels; 0 if it is empty."""
    return page.locator(f"#canvas-{side} .ft-picture").evaluate(SPREAD)


def test_a_slider_and_a_menu_act_in_the_running_run_and_are_recorded(open_page, served):
    page = open_page()
    start(page)
    move(page, "knobs", "window", 2)
    page.wait_for_function("document.querySelector('#trace .ft-chart').dataset.moves === '1'")  # its first step is on the page
    expect(page.locator("#canvas-fast .ft-badge")).to_have_text("exact")
    choose(page, "knobs", "relax", "additive")  # ends the match of the seed
    page.wait_for_selector("#badge .ft-badge[data-exact=false]")
    page.wait_for_selector("#canvas-fast .ft-badge[data-exact=false]")
    page.wait_for_function("document.querySelector('#trace .ft-chart').dataset.moves === '2'")
    assert page.evaluate(STATE) == "running"
    cancel(page)
    finish(page)
    with np.load(served.runs()[-1] / "trace.npz") as file:
        trace = dict(file)
    windows = trace["knob_window"]
    assert windows[0] == WINDOW.default
    assert windows[-1] == 3
    assert set(windows) == {WINDOW.default, 3}
    assert max(trace["step_drafted"][windows == 3]) <= 2
    assert "token for token" not in page.inner_text("#verdict") and page.locator("#messages p[data-kind=error]").count() == 0


def test_unknown_words_and_mistakes_are_said(open_page):
    page = open_page()
    prompt = page.locator(PROMPT)
    for text, shown in UNDERSTOOD:
        prompt.fill(text)
        page.wait_for_selector(f'#hints p:has-text("{shown}")')
    page.click("#hints .ft-instead:text-is('Undo')")
    page.wait_for_selector("#hints p:has-text('does not know')")
    page.locator("#hints .ft-instead:text-is('penguin')").click()
    page.wait_for_function("document.querySelector('#prompt textarea, #prompt input').value === 'two foxes and a penguin'")
    page.wait_for_selector("#words .ft-words-drawer", state="hidden")
    prompt.fill("Pikachu")  # nothing known: the words open, and the prompt keeps the focus
    page.wait_for_selector("#words .ft-words-drawer", state="visible")
    assert prompt.evaluate("field => document.activeElement === field")
    page.click("#generate")
    page.wait_for_selector("#messages p[data-kind=error]:has-text('knows no word of this prompt')")
    page.wait_for_selector("#generate")
    prompt.fill("a cat")
    page.wait_for_selector("#words .ft-words-drawer", state="hidden")
    prompt.fill(" ")
    page.click("#generate")
    page.wait_for_selector("#messages p[data-kind=error]:has-text('The prompt is empty')")
    page.wait_for_selector("#generate")
    prompt.fill("")  # the message goes, and the examples come back in its place
    page.locator(".ft-chip").nth(2).click()
    page.wait_for_function("document.querySelector('#prompt textarea, #prompt input').value.startsWith('a red apple')")
    page.wait_for_selector("#hints p", state="detached")


def say(page, seed: str) -> None:
    """Types into the seed field."""
    page.fill("#seed input", seed)
    page.press("#seed input", "Tab")


def expect_refusal(page, sentence: str) -> None:
    """Presses Generate and waits for this error and for the button to return."""
    page.click("#generate")
    page.wait_for_selector(f'#messages p[data-kind=error]:has-text("{sentence}")')
    page.wait_for_selector("#generate")
    expect(page.locator("#cancel")).to_be_hidden()


def test_wrong_values_are_sentences_and_lock_nobody_out(open_page):
    page = open_page()
    page.uncheck("#compare input")
    choose(page, "settings", "size", "64 px")
    for seed, shown in (("-1", "-1"), ("1e99", "1e+99")):
        say(page, seed)
        expect_refusal(page, f"The seed {shown} is out of range")  # of this click, not of the one before
    say(page, "5")
    menu = page.locator("#settings .ft-knob[data-knob=size] select")
    menu.evaluate("m => { m.add(new Option('7000 px')); m.value = '7000 px'; m.dispatchEvent(new Event('change')); }")
    expect_refusal(page, "size cannot be '7000 px'")
    choose(page, "settings", "size", "64 px")
    prompt = page.locator(PROMPT)
    for text, shown in (("🧿 🪅", "prompt"), ("a cat \u0000 on snow", "characters that are not text")):
        prompt.fill(text)
        expect_refusal(page, shown)
    prompt.fill("a cat on snow")
    say(page, "")  # as good as 0
    page.click("#generate")
    page.wait_for_selector("#messages p", state="detached")
    finish(page)
    assert page.locator("#canvas-fast .ft-card").get_attribute("data-state") == "done"


def test_a_preset_brings_its_knobs_and_its_badge(open_page):
    page = open_page()
    take(page, "sjdpp_published")
    page.wait_for_selector("#badge .ft-badge[data-exact=false]")
    assert page.locator("#knobs .ft-knob[data-knob=refresh] select").input_value() == "reuse published"
    expect(page.locator("#knobs .ft-knob[data-knob=reuse_ratio]")).to_be_visible()
    expect(page.locator("#knobs .ft-knob[data-knob=added_mass]")).to_be_hidden()  # acts only with additive relaxation
    choose(page, "knobs", "relax", "additive")
    expect(page.locator("#knobs .ft-knob[data-knob=added_mass]")).to_be_visible()
    choose(page, "knobs", "relax", "off")
    choose(page, "knobs", "verify", "match seed")
    page.wait_for_selector("#badge .ft-badge[data-exact=true]")
    choose(page, "knobs", "verify", "residual")
    page.wait_for_selector("#badge .ft-badge[data-exact=false]")
    start(page, "64 px")
    finish(page)
    assert page.locator("#canvas-fast .ft-badge").inner_text() == "not exact"
    assert "sharpens the distribution" in page.locator("#canvas-fast .ft-badge").get_attribute("data-tip")


def test_a_tolerance_that_is_moved_is_marked_on_the_trace_and_ends_exactness(open_page):
    page = open_page()
    take(page, "cross_regression")
    page.wait_for_selector("#badge .ft-badge[data-exact=true]")
    start(page)
    assert page.locator("#canvas-fast .ft-badge").inner_text() == "exact"
    move(page, "knobs", "energy_tolerance", 8)
    page.wait_for_function("Number(document.querySelector('#trace .ft-chart').dataset.moves) >= 1")  # else both may fall into one step
    move(page, "knobs", "energy_smoothing", 4)
    page.wait_for_selector("#badge .ft-badge[data-exact=false]")
    page.wait_for_selector("#canvas-fast .ft-badge[data-exact=false]")
    page.wait_for_function("Number(document.querySelector('#trace .ft-chart').dataset.moves) >= 2")
    assert page.evaluate(STATE) == "running"
    cancel(page)  # the rest of the picture adds nothing
    finish(page)
    chart = page.locator("#trace .ft-chart")
    assert chart.get_attribute("data-tokens") == page.locator("#canvas-fast .ft-card").get_attribute("data-tokens")
    assert "Energy of each draft" in page.inner_text("#trace") and "a knob was moved" in page.inner_text("#trace")
    assert "deviation from plain decoding" in page.inner_text("#trace") and "drafts accepted (shaded)" in page.inner_text("#trace")
    assert "token for token" not in page.inner_text("#verdict")


def test_the_map_is_drawn_without_asking_the_server(raced):
    page, urls = raced, []
    page.on("request", lambda r: urls.append(r.url))
    drag(page.locator("#overlay input"), 80)
    page.select_option("#overlay select", "entropy")
    assert page.locator("#canvas-plain .ft-overlay").evaluate("c => [c.hidden, c.width, c.style.opacity]") == [False, 8, "0.8"]
    page.locator("#canvas-plain .ft-frame").hover(position={"x": 20, "y": 20})
    assert page.locator("#canvas-fast .ft-readout").inner_text().startswith("token ")
    page.locator("#trace canvas").first.hover(position={"x": 60, "y": 40})
    assert "of 64 · " in page.inner_text("#trace output")
    page.locator("#trace canvas").first.focus()
    page.keyboard.press("End")
    assert page.inner_text("#trace output").startswith("number 64 of 64")  # hover values can also be read without a pointer
    assert page.locator("#trace canvas").first.get_attribute("aria-valuetext") == page.inner_text("#trace output")
    assert page.inner_text("#lens .ft-lens-place").startswith("row 8, column 8, pass ")
    page.select_option("#overlay select", "top")
    assert not page.locator("#canvas-fast .ft-overlay").evaluate("c => c.hidden")
    page.select_option("#overlay select", "pass")
    marked = "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).filter((x, i) => i % 4 === 3 && x).length"
    assert 1 <= page.locator("#canvas-fast .ft-overlay").evaluate(marked) <= 16  # tokens committed by one pass
    assert page.locator("#canvas-plain .ft-overlay").evaluate(marked) == 1
    depth = page.locator("#overlay option[value=depth]")
    assert (depth.get_attribute("disabled"), depth.inner_text()) == ("", "Draft depth (SJD++ records no depth)")
    assert "SJD++ drafts no trees" in page.inner_text("#tree")
    assert urls == []


def test_trees_are_drawn_and_their_candidates_can_be_read(open_page):
    page = open_page()
    take(page, "eagle")
    page.uncheck("#compare input")
    choose(page, "settings", "size", "64 px")
    page.click("#generate")
    finish(page)
    assert int(page.locator("#tree .ft-chart").get_attribute("data-trees")) > 0
    assert page.locator("#trace .ft-chart").get_attribute("data-tokens") == "64"
    urls = []
    page.on("request", lambda r: urls.append(r.url))
    page.select_option("#overlay select", "depth")
    assert page.locator("#canvas-fast .ft-overlay").evaluate("c => [c.hidden, c.width]") == [False, 8]
    page.locator("#canvas-fast .ft-frame").hover(position={"x": 40, "y": 200})
    assert page.inner_text("#canvas-fast .ft-readout").startswith("token ")
    assert "depth" in page.inner_text("#tree figcaption >> nth=1")
    page.wait_for_selector("#tree .ft-chart[data-patches]")
    page.locator("#tree canvas").first.focus()
    page.keyboard.press("Home")
    assert "candidate 1 of" in page.inner_text("#tree output")
    assert urls == []


def test_a_small_draft_grows_into_the_picture_and_its_repairs_are_mapped(open_page):
    """MuLo-SD at 256 pixels, drafted at 128: τ and l act while it runs, and the map tells what was redrawn next to a rejected token."""
    page = open_page()
    take(page, "mulo")
    assert "0.0001" in page.inner_text("#knobs .ft-knob[data-knob=least_mass]")
    move(page, "knobs", "least_mass", int(np.abs(np.array(stops(LEAST)) - 0.02).argmin()))
    page.uncheck("#compare input")
    start(page, sides=("fast",))
    assert page.evaluate(STATE) == "running"
    for knob in ("least_mass", "radius"):
        assert page.locator(f"#knobs .ft-knob[data-knob={knob}] input").is_enabled()
    move(page, "knobs", "radius", 1)
    finish(page)
    assert page.locator("#canvas-fast .ft-card").get_attribute("data-tokens") == "1024"
    page.wait_for_function("document.querySelector('#overlay .ft-legend').innerText.includes('redrawn next to a rejected one')")
    assert page.locator("#canvas-fast .ft-badge").inner_text() == "not exact"
