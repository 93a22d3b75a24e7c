"""A new visitor's first minute: a finished race, one line of controls, words to click, messages, the keyboard, a phone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import gradio as gr
import pytest

from app.live.session import Sessions
from app.requests import validation
from app.requests.sides import start_values
from app.server.studio import mesh_model
from app.shared import StudioState
from app.ui.method_menu import badge, cards, choices, first_number, speed_words, title_of, with_auto
from app.ui.panels.methods import TEMPLATE
from app.ui.tab_context import TabContext
from app.ui.tabs import example, image_tab, lab_example, vocabulary
from app.ui.tabs.race import RaceTab
from app.ui.tabs.speeds import speeds_here, speedups
from engine.assets import recordings
from engine.errors import NotSupported
from engine.methods import METHODS, about, find, names
from engine.tuning.auto import StepHere, resolve
from engine.words.emoji_objects import TAUGHT
from tests.app.conftest import PATIENCE
from tests.app.race_page import take
from tests.engine.backbones import tiny

PROMPT = "#prompt textarea, #prompt input"
VALUE = "document.querySelector('#prompt textarea, #prompt input').value"


def test_every_method_says_in_a_sentence_what_it_does() -> None:
    assert all(about(name).endswith(".") and 30 < len(about(name)) < 110 for name in names())


def test_cards_stand_in_their_groups_with_what_was_measured(picto) -> None:
    shown = cards(choices(picto), picto.suits, {"sjdpp": speed_words(3.14), "jacobi": speed_words(0.5)})
    groups = [card["group"] for card in shown]
    assert groups == sorted(groups, key=["Exact: the same as plain decoding", "Relaxed: may differ from plain decoding", "Baselines"].index)
    assert {card["name"]: card["speed"] for card in shown if "×" in card["speed"]} == {"sjdpp": "3.1× here", "jacobi": "0.50× here"}
    assert all(card["exact"] for card in shown if card["group"].startswith("Exact"))
    assert not any(card["exact"] for card in shown if card["group"].startswith("Relaxed")) and "ft-cards" in TEMPLATE
    assert badge("auto:sjdpp,window=16", {"window": 16})["summary"] == ["Fastest here (SJD++, window 16)", "exact"]
    assert badge("auto:sjdpp,window=16", {"window": 5})["summary"][2:] == ["window 5"]  # moved since
    assert (
        speed_words(None) == "Not yet measured here"
        and first_number(find("sjdpp")[0], {"window": 5}) == ["window 5"]
        and first_number(find("ar")[0], {}) == []
    )
    assert first_number(find("adt_tree_lantern")[0], {"nodes": 60}) == ["nodes 60"]  # not a knob that acts only in another mode
    assert [word.split()[0] for word in first_number(find("gsd")[0], {})] == ["window"] and first_number(find("mulo")[0], {})[0].startswith(
        "keep"
    )


@pytest.mark.parametrize(
    ("speedup", "step", "words"),
    [
        (None, None, "Not yet measured here"),
        (1.24, StepHere(1.24, 4.0, 8.0), "1.2× here"),
        (0.97, StepHere(0.97, 4.0, 8.0), "1.0× here"),
        (0.6, None, "0.60× here"),
        (0.6, StepHere(0.7, 4.14, 6.96), "0.60× here, slower: 4.1 of 7.0 ms are its drafter"),
    ],
)
def test_a_card_says_why_a_method_is_slower_here(speedup: float | None, step: StepHere | None, words: str) -> None:
    assert speed_words(speedup, step) == words


def test_before_the_first_run_a_card_has_the_expected_speed_and_then_the_runs(tmp_path, picto, monkeypatch) -> None:
    monkeypatch.setattr(
        "app.ui.tabs.speeds.steps_here", lambda backbone: {"eagle": StepHere(0.5, 3.0, 9.0), "spatial": StepHere(2.4, 1, 5)}
    )
    assert speeds_here(tmp_path, picto) == {"eagle": "0.50× here, slower: 3.0 of 9.0 ms are its drafter", "spatial": "2.4× here"}
    monkeypatch.setattr("app.ui.tabs.speeds.speedups", lambda runs, name, weights: {"eagle": 0.6, "sjd": 0.9})
    assert speeds_here(tmp_path, picto) == {
        "eagle": "0.60× here, slower: 3.0 of 9.0 ms are its drafter",
        "spatial": "2.4× here",
        "sjd": "0.90× here",
    }


def test_speeds_are_medians_over_plain_decoding(tmp_path, monkeypatch) -> None:
    def run(name: str, speed: float) -> dict:
        return {"finished": True, "backbone": "toy", "weights": "w", "preset": None, "method": name, "totals": {"tokens_per_second": speed}}

    monkeypatch.setattr("app.ui.tabs.speeds.processor", lambda: "here")
    for i, (name, speed) in enumerate([("ar", 10), ("ar", 30), ("ar", 20), ("sjd", 60), ("sjd", 40), ("sjd", 50)]):
        (tmp_path / f"{i}").mkdir()
        (tmp_path / f"{i}" / "run.json").write_text(json.dumps(run(name, speed) | {"machine": {"processor": "here"}}))
    assert speedups(tmp_path, "toy", "w") == {"sjd": 2.5}
    (tmp_path / "6").mkdir()
    raced = run("jacobi", 30) | {"machine": {"processor": "here"}, "other": {"method": "ar", "tokens_per_second": 60}}
    (tmp_path / "6" / "run.json").write_text(json.dumps(raced))
    assert speedups(tmp_path, "toy", "w") == {"sjd": 2.5, "jacobi": 0.5}
    assert speedups(tmp_path, "toy", "other") == {} and speedups(tmp_path / "none", "toy", "w") == {}


def test_the_drawer_holds_what_the_model_knows(picto) -> None:
    drawer = vocabulary.groups(picto)
    objects = [item for group in drawer if group["kind"] == "object" for item in group["items"]]
    assert {item["written"] for item in objects} == set(TAUGHT) and "tiger" not in picto.words
    assert all(item["plural"] and item["article"] in ("a", "an") for item in objects)
    assert {group["kind"] for group in drawer} >= {"object", "place"}
    assert vocabulary.groups(SimpleNamespace(words={})) == []


def test_an_example_is_run_once_and_again_for_other_weights(tmp_path) -> None:
    model, calls = tiny.pictogram(), []
    model.weights_hash = "one"

    def make() -> dict:
        calls.append(1)
        return {"verdict": {"state": "done"}}

    recorded, machine = example.shown(tmp_path, model, {"seed": 7}, "race")
    assert recorded["right"]["state"] == "done" and "AMD EPYC" in machine
    for _ in range(2):
        example.make(tmp_path, model, {"seed": 7}, make)
        assert example.shown(tmp_path, model, {"seed": 7}, "race") == ({"verdict": {"state": "done"}}, "this machine")
    assert len(calls) == 1
    file = next(tmp_path.glob("*.json"))
    file.write_text("{")  # damaged
    example.make(tmp_path, model, {"seed": 7}, make)
    assert len(calls) == 2
    model.weights_hash = "two"
    example.make(tmp_path, model, {"seed": 7}, make)
    assert len(calls) == 3 and len(list(tmp_path.glob("*.json"))) == 1
    model.weights_hash = None
    example.make(tmp_path, model, {"seed": 7}, make)
    assert len(calls) == 3 and example.shown(tmp_path, model, {"seed": 7}, "race")[1] == machine


def test_the_recorded_examples_have_the_form_of_new_ones(picto, tmp_path) -> None:
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Image") as where:
        context = TabContext(page, where, StudioState(picto, mesh_model(), Sessions(folder=tmp_path), examples=tmp_path))
        race = image_tab.PictureRace(context)
        RaceTab(context, race)
    prompt, sides, _ = race._example_inputs()
    made, recorded = race._race_once(replace(prompt, size=64), sides, lambda: False), example.shown(tmp_path, picto, {}, "race")[0]
    assert {name: value.keys() for name, value in made.items()} == {name: value.keys() for name, value in recorded.items()}
    assert race._race_once(prompt, sides, lambda: True) == {}  # a visitor's run comes first
    loop = lab_example.run(picto, lambda: False)
    assert loop.keys() == example.shown(tmp_path, picto, {}, "lab")[0].keys()
    assert sum(file.stat().st_size for file in recordings().iterdir()) < 200_000


@pytest.mark.browser
def test_a_newcomer_finds_a_finished_race_that_plays(browser, served) -> None:
    page = browser.new_context(color_scheme="light").new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script("""window.replayed = [];
      window.addEventListener("DOMContentLoaded", () => new MutationObserver((all) => all.forEach(({ target }) =>
        window.replayed.push(target.dataset.replayed))).observe(document.body, { subtree: true, attributeFilter: ["data-replayed"] }))""")
    page.goto(served.address)
    page.wait_for_selector("#canvas-fast .ft-card[data-state=done]")
    page.wait_for_selector("#canvas-plain .ft-card[data-state=done]")
    assert page.locator("#canvas-fast .ft-card").get_attribute("data-tokens") != "0"
    assert re.match("An example, recorded on (this machine|pictogram on AMD EPYC)", page.inner_text("#verdict .ft-note"))
    page.wait_for_function("replayed.some((count) => Number(count) > 0) && replayed.at(-1) === ''")  # it plays to its end
    assert page.locator(".ft-settings").first.is_hidden()  # one line instead
    assert not page.evaluate("document.body.classList.contains('dark')")  # as set in the system
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("document.body.classList.contains('dark')")
    page.click(".ft-theme")  # a choice is remembered
    page.reload()
    page.wait_for_selector(".ft-theme:text-is('Dark')")
    page.click(".ft-summary[data-do=settings]")
    page.wait_for_selector("#method .ft-picked")
    page.context.close()


@pytest.mark.browser
def test_the_line_of_controls_and_the_settings_are_one(open_page) -> None:
    page = open_page()
    page.click("#bar button[data-size='64 px']")
    assert page.locator("#settings .ft-knob[data-knob=size] select").input_value() == "64 px"
    page.locator("#settings .ft-knob[data-knob=size] select").select_option("256 px")
    page.wait_for_selector("#bar button[data-size='256 px'][aria-pressed=true]")
    page.focus("#method .ft-picked")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("#method .ft-method-card[data-name='auto:sjdpp']:focus")
    for size in ("256 px", "64 px"):  # cards drawn anew while they are open
        knobs = {"panel": "settings", "declarations": [{"name": "size", "choices": ["256 px"]}], "values": {"size": size}}
        page.evaluate("(detail) => window.dispatchEvent(new CustomEvent('foretoken:knobs', { detail }))", knobs)
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    last = page.locator("#method .ft-pick").get_attribute("data-name")
    assert last != "auto:sjdpp" and page.locator("#method .ft-cards").is_hidden()
    title = page.locator("#method .ft-picked b").inner_text()
    page.wait_for_selector(f".ft-summary[data-do=settings] b:text-is('{title}')")
    page.click(".ft-summary[data-do=settings]")
    assert page.locator("#method").is_hidden()


@pytest.mark.browser
def test_cards_say_what_was_raced_here_and_methods_that_cannot_run_are_off(open_page) -> None:
    page = open_page()
    page.click("#bar button[data-size='64 px']")
    page.click("#method .ft-picked")
    cards = page.locator("#method .ft-method-card")
    scaled = cards.filter(has_text="Needs a picture larger than 64 px")
    assert scaled.count() == 2 and all(card.is_disabled() for card in scaled.all())
    page.keyboard.press("Escape")
    take(page, "jacobi")
    page.click("#generate")
    page.wait_for_selector("#download:not([disabled])")
    page.reload()
    page.wait_for_function("/[0-9.]+× here/.test(document.querySelector('#method [data-name=jacobi] small')?.textContent)")
    page.click("#bar button[data-size='128 px']")
    page.wait_for_function("![...document.querySelectorAll('#method .ft-method-card')].some((card) => card.disabled)")
    take(page, "sjdpp")
    page.locator("#knobs .ft-knob[data-knob=relax] select").select_option("additive")  # which no seed can be matched with
    page.wait_for_function("document.querySelector('#knobs .ft-knob[data-knob=verify] select').value === 'residual'")
    page.wait_for_selector("#messages p:has-text('Tolerance is on')")
    page.wait_for_selector("#badge .ft-badge[data-exact=false]")


@pytest.mark.browser
def test_words_are_clicked_together_and_messages_move_nothing(open_page) -> None:
    page = open_page()
    page.click(".ft-summary[data-do=words]")
    for text, so_far in (("cat", "a cat"), ("above", "a cat above"), ("two", "a cat above two"), ("penguin", "a cat above two penguins")):
        page.locator(f"#words button:has-text('{text}')").first.click()
        page.wait_for_function(f"{VALUE} === {json.dumps(so_far)}")
    page.locator("#words button:text-is('snow')").click()
    page.wait_for_function(f"{VALUE} === 'a cat above two penguins in the snow'")
    page.fill("#words input", "peng")
    assert page.locator("#words button:visible").count() == 2  # the penguin, and Close
    page.click("#words [data-do=close]")
    page.click("#bar button[data-size='64 px']")
    before = page.locator("#canvas-fast").bounding_box()
    page.fill(PROMPT, "a pengiun")
    page.wait_for_selector("#hints .ft-instead")
    page.click("#generate")
    page.wait_for_selector("#download:not([disabled])")
    assert page.locator("#canvas-fast").bounding_box()["y"] == pytest.approx(before["y"], abs=1)


@pytest.mark.browser
def test_escape_cancels_and_the_focus_stays(open_page) -> None:
    page = open_page()
    page.click("#bar button[data-size='256 px']")
    page.focus("#generate")
    page.keyboard.press("Enter")
    page.wait_for_selector("#cancel")
    page.wait_for_function("document.activeElement?.id === 'cancel'")
    page.wait_for_function("Number(document.querySelector('#canvas-fast .ft-card').dataset.tokens) > 0")
    page.keyboard.press("Escape")
    page.wait_for_selector("#generate")
    page.wait_for_function("document.activeElement?.id === 'generate'")
    page.wait_for_selector("#canvas-fast .ft-card[data-state=stopped]")


@pytest.mark.browser
def test_pictures_and_their_figures_are_seen_whole(open_page) -> None:
    """With closed settings, both pictures and their figures fit on the screen, and the right picture is aligned with Generate."""
    page = open_page(1440, 900)
    page.click(".ft-summary[data-do=settings]")
    page.wait_for_selector(".ft-settings >> nth=0", state="hidden")
    for width, height in ((1440, 900), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        figures, button = page.locator("#canvas-fast .ft-counters").bounding_box(), page.locator("#generate").bounding_box()
        assert figures["y"] + figures["height"] <= height
        assert figures["x"] + figures["width"] == pytest.approx(button["x"] + button["width"], abs=2)


@pytest.mark.browser
def test_the_mesh_tab_has_one_line_of_controls(open_page) -> None:
    """The method in a few words, the up axis, the seed; the rest is behind the chip. A message does not shift the page."""
    page = open_page(1440, 900)
    page.get_by_role("tab", name="Mesh", exact=True).click()
    page.wait_for_selector("#mesh-ready i", state="attached")
    page.wait_for_selector("#mesh-notes p:has-text('chair.ply')")
    chip = page.locator("#mesh-bar .ft-summary")
    assert chip.locator(".ft-badge").inner_text() in ("exact", "not exact") and chip.locator("b").inner_text()
    right = page.locator("#mesh .ft-mesh-sides [data-side=accelerated] h3")
    assert right.inner_text() == chip.locator("b").inner_text()
    page.click("#mesh-method .ft-picked")
    page.click("#mesh-method .ft-method-card[data-name=sjdpp]")
    page.wait_for_function("document.querySelector('#mesh [data-side=accelerated] h3').textContent === 'SJD++'")  # what Generate will use
    chip.click()
    page.wait_for_selector("#mesh-method", state="hidden")
    assert page.locator("#mesh-axis .ft-axis:visible").count() == 6 and page.locator("#mesh-seed").is_visible()
    for width, height in ((1366, 768), (1440, 900)):
        page.set_viewport_size({"width": width, "height": height})
        frame = page.locator("#mesh .ft-mesh-frame").bounding_box()
        assert frame["y"] + frame["height"] <= height
    page.fill("#mesh-seed input", "-1")
    page.press("#mesh-seed input", "Tab")
    page.click("#mesh-generate")
    page.wait_for_selector("#mesh-messages p[data-kind=error]")
    page.wait_for_selector("#mesh-generate")
    assert page.locator("#mesh .ft-mesh-frame").bounding_box()["y"] == pytest.approx(frame["y"], abs=1)


@pytest.mark.browser
def test_a_phone_races_side_by_side_with_the_settings_in_a_sheet(open_page) -> None:
    page = open_page(390, 844)
    left, right = (page.locator(f"#canvas-{side}").bounding_box() for side in ("plain", "fast"))
    assert left["y"] == pytest.approx(right["y"], abs=1) and right["x"] > left["x"] + left["width"] - 1
    page.click(".ft-summary[data-do=settings]")
    sheet = page.locator(".ft-settings").first.bounding_box()
    assert sheet["y"] + sheet["height"] == pytest.approx(844, abs=1) and sheet["width"] == 390
    page.click(".ft-sheet")
    assert page.locator(".ft-settings").first.is_hidden()
    page.click("#bar button[data-size='64 px']")
    page.click("#generate")
    page.wait_for_selector(".ft-runs tbody tr")
    for each in page.locator(".ft-runs tbody tr").first.locator("button, .ft-badge").all():  # nothing overflows the screen
        box = each.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.get_by_role("tab", name="Mesh", exact=True).click()
    page.wait_for_selector("#mesh-notes p")
    last = page.locator("#mesh-axis .ft-axis").last.bounding_box()
    assert last["x"] + last["width"] <= 390 and page.evaluate("document.documentElement.scrollWidth") == 390
    page.wait_for_selector("#mesh-ready i", state="attached")
    page.click("#mesh-generate")
    page.wait_for_function("document.querySelector('#mesh .ft-mesh-frame').getBoundingClientRect().top < 500")  # seen without scrolling
    page.locator("#mesh-generate").wait_for()


def test_what_auto_takes_is_the_first_card_and_says_what_it_is(picto) -> None:
    probable = with_auto(choices(picto), None, picto)  # until it is measured
    assert probable[0] == ("SJD++", "sjdpp") and sorted(probable) == sorted(choices(picto))
    entries = with_auto(choices(picto), resolve(picto), picto)
    assert entries[0] == ("Fastest here (SJD++)", "auto:sjdpp") and entries[1:] == choices(picto)  # these weights have no recorded tokens
    first = cards(entries, picto.suits)[0]
    assert (first["name"], first["exact"], first["title"]) == ("auto:sjdpp", True, "Fastest here (SJD++)") and "fastest exact" in first[
        "about"
    ]
    method, values = start_values("auto:sjdpp,window=8", picto.suits)
    assert method is METHODS["sjdpp"] and values == {"window": 8, "verify": "match seed"}
    assert start_values("auto:xspecmesh_exact,depth=3")[1]["verify"] == "match seed"
    assert title_of("auto:sjdpp,window=8") == "Fastest here (SJD++, window 8)"
    assert title_of("auto:surface,heads=cross-attention,drafted=6") == "Fastest here (Surface drafts)"
    assert validation.method("auto:xspecmesh_exact,heads=multilayer,depth=4")[1] is METHODS["xspecmesh"]
    with pytest.raises(NotSupported):
        validation.method("auto:" * 30 + "sjdpp")
