"""The lens: its values against the records of the run, and on the page."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from app.live.boards.patches import Patches
from app.ui import mesh_side
from app.ui.panels import lens
from app.ui.picture_side import frame_of
from engine.diagnostics import DECISIONS
from engine.mesh.bpt_tokens import parse
from engine.run import generate
from tests.app import boards
from tests.app.boards import numbers
from tests.app.race_page import VIEW, RacePage, choose, drag, finish, take

LISTS = {"tokens": np.int32, "p": np.float32, "q": np.float32}
AT = "#lens .ft-lens[data-at='{}']"
FRAME = "#canvas-fast .ft-frame"


def shown(picto: Any, name: str, steps: int | None = None, **knobs: Any) -> tuple[Any, dict[str, Any]]:
    """A board, and the lens's value of it."""
    board = boards.board(picto, name, steps, **knobs)
    return board, lens.live_value(frame_of([board], Patches(picto)))


def check(board: Any, value: dict[str, Any]) -> None:
    """All that the lens draws is what the steps recorded."""
    at = dict(zip(numbers(value["position"], np.int32).tolist(), range(10**6), strict=False))
    ends = np.cumsum(numbers(value["count"], np.uint8).astype(int))
    sent = {name: np.split(numbers(value[name], kind), ends[:-1]) for name, kind in LISTS.items()}
    known = numbers(value["known"], np.int32).tolist()
    verdicts = dict(zip(board.trail.positions, board.trail.verdict, strict=True))
    assert at
    for number, step in enumerate(board.run.steps):
        if not set(step.positions) & at.keys():
            continue
        record = SimpleNamespace(**{each: np.asarray(getattr(step.trace.decisions, each)) for each in DECISIONS})
        for i, position in enumerate(step.positions):
            if position not in at:
                continue
            which = at[position]
            tokens = sent["tokens"][which].tolist()
            columns = [record.tokens[i].tolist().index(token) for token in tokens]
            assert np.array_equal(sent["p"][which], record.p[i][columns]) and np.array_equal(sent["q"][which], record.q[i][columns], True)
            left_out = np.delete(np.fmax(record.p[i], record.q[i]), columns)
            assert (left_out < lens.LEAST).all() and {step.tokens[i], *tokens} <= set(known) and step.tokens[i] in tokens
            for name, kind, expected in (
                ("own", np.int32, step.tokens[i]), ("step", np.int32, number), ("draft", np.int32, record.draft[i].item()),
                ("coin", np.float32, record.coin[i].item()), ("mass", np.float32, record.mass[i].item()),
                ("verdict", np.uint8, verdicts[position]),
            ):  # fmt: skip
                assert np.array_equal(numbers(value[name], kind)[which], kind(expected), equal_nan=kind is np.float32)


@pytest.mark.parametrize(
    ("name", "knobs"),
    [
        ("sjd", {"window": 8}),
        ("sjdpp", {"window": 8, "verify": "match seed"}),
        ("eagle", {"depth": 2, "width": 40, "nodes": 128, "children": "deterministic"}),
    ],
)
def test_the_lens_shows_what_was_recorded(picto: Any, name: str, knobs: dict[str, Any]) -> None:
    board, value = shown(picto, name, **knobs)
    check(board, value)
    assert len(numbers(value["position"], np.int32)) == 64 and value["sheet"]
    for name in ("p", "own", "draft"):
        with pytest.raises(AssertionError):  # the mutant: what belongs to the token before
            check(board, value | {name: lens.to_text(np.roll(numbers(value[name]), 1))})


@pytest.mark.parametrize("name", ["sjdpp", "xspecmesh"])
def test_the_lens_of_a_mesh_shows_what_was_recorded_of_every_token_after_a_prefix(low: Any, name: str) -> None:
    whole = boards.mesh_run(low, name, verify="match seed" if name == "sjdpp" else "residual").finish()
    run = generate(low, whole.method, replace(whole.prompt, prefix=tuple(whole.tokens[:9]), seed=8), whole.fixed)
    board = boards.board_of(run)
    value = lens.live_value(mesh_side.frame_of([board]))
    check(board, value)
    assert numbers(value["position"], np.int32).tolist() == list(range(9, len(run.tokens)))
    assert numbers(value["ids"], np.int32).tolist() == run.tokens
    spans = [span for face in parse(run.tokens).faces for own in face.tokens for span in (own[0], own[-1] + 1)]
    assert len(spans) > 12 and numbers(value["corners"], np.int32).tolist() == spans


def test_while_a_run_goes_on_its_latest_passes_are_sent(picto: Any) -> None:
    board, value = shown(picto, "sjd", 9, window=8)
    check(board, value)
    assert numbers(value["step"], np.int32).min() == 9 - lens.LATEST and value["state"] == "running"


def test_the_dice_under_match_seed_fall_on_the_drawn_token(picto: Any) -> None:
    """The token with the greatest log p + noise is the committed one; with the noise of the next position it is not (the mutant)."""
    _, value = shown(picto, "sjdpp", window=8, verify="match seed")
    ends = np.cumsum(numbers(value["count"], np.uint8).astype(int))[:-1]
    tokens, p, dice = (np.split(numbers(value[name], kind), ends) for name, kind in {**LISTS, "dice": np.float32}.items() if name != "q")
    own = numbers(value["own"], np.int32).tolist()
    with np.errstate(divide="ignore"):
        rolled = [int(t[np.argmax(np.log(x) + g)]) for t, x, g in zip(tokens, p, dice, strict=True)]
        wrong = [int(t[np.argmax(np.log(x) + g[::-1])]) for t, x, g in zip(tokens, p, dice, strict=True)]
    assert rolled == own != wrong


def test_the_trees_of_all_passes_are_those_that_were_verified(picto: Any) -> None:
    board, value = shown(picto, "eagle", depth=3, width=3, nodes=8)
    trees, known = value["trees"], set(numbers(value["known"], np.int32).tolist())
    ends = np.cumsum(numbers(trees["step_nodes"], np.int32))[:-1]
    sent = [
        np.split(numbers(trees[f"tree_{name}"], kind), ends)
        for name, kind in (("tokens", np.int32), ("parents", np.int32), ("p", np.float32))
    ]
    expected = [step.trace.tree for step in board.run.steps]
    assert trees["first"] == 0 and len(ends) > 5 and any(max(tree.parents, default=-1) >= 0 for tree in expected)
    for tree, tokens, parents, p in zip(expected, *sent, strict=True):
        assert (tokens.tolist(), parents.tolist(), p.tolist()) == (tree.tokens, tree.parents, np.float32(tree.p).tolist())
        assert known >= set(tree.tokens)


def test_a_method_without_records_says_so(picto: Any) -> None:
    assert "keeps no record" in shown(picto, "ar")[1]["about"]


# --- on the page ------------------------------------------------------------------------------------------------------


@pytest.mark.browser
def test_a_token_that_is_pointed_at_is_explained_without_the_server(raced: Any) -> None:
    page, urls = raced, []
    page.on("request", lambda r: urls.append(r.url))
    box = page.locator(FRAME).bounding_box()
    page.locator(FRAME).hover(position={"x": box["width"] * 2.5 / 8, "y": box["height"] * 4.5 / 8})
    page.wait_for_selector(AT.format(34))
    assert page.inner_text("#lens .ft-lens-place").startswith("row 5, column 3, pass ")
    assert page.inner_text("#lens .ft-lens-verdict") in (
        "Kept.",
        "Refused, replaced by the model's own.",
        "No guess here: the model drew it.",
    )
    page.locator("#lens .ft-lens-bars").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(AT.format(35))
    assert "(drawn)" in page.locator("#lens .ft-lens-bars").get_attribute("aria-valuetext")
    page.mouse.move(0, 0)
    assert page.locator(AT.format(35)).count() == 1  # stays on what was last pointed at
    assert urls == []


@pytest.mark.browser
def test_a_face_that_is_pointed_at_shows_its_tokens_and_candidate_vertices(open_page: Any) -> None:
    tab = RacePage(open_page(), "mesh").open()
    page, card = tab.page, "#mesh-lens .ft-lens"
    tab.small()
    box = page.locator("#mesh canvas").bounding_box()
    for step in range(64):  # until a face is under the pointer
        page.mouse.move(box["x"] + box["width"] * (0.6 + 0.3 * (step % 8) / 8), box["y"] + box["height"] * (0.2 + 0.6 * (step // 8) / 8))
        if page.inner_text("#mesh-lens [data-do=play]") == "Play a pass":
            break
    at, tokens = page.get_attribute(card, "data-at"), page.locator("#mesh-lens .ft-lens-tokens button")
    assert re.match(r"face \d+, third corner, pass \d+", page.inner_text("#mesh-lens .ft-lens-place")) and tokens.count() >= 3
    assert tokens.last.get_attribute("aria-pressed") == "true" and tokens.last.inner_text().lstrip("×✓ ").startswith("place ")
    assert page.inner_text("#mesh-lens .ft-lens-verdict") and int(page.evaluate(f"{VIEW}.candidates")) > 0
    tokens.first.click()
    page.wait_for_selector(f"{card}:not([data-at='{at}'])")
    assert "first corner" in page.inner_text("#mesh-lens .ft-lens-place") and tokens.first.get_attribute("aria-pressed") == "true"
    page.click("#mesh-forks [data-do=fork]")  # the candidates of the next token, in words
    assert page.locator("#mesh-forks .ft-fork-tokens button").first.inner_text().startswith(("place ", "block ", "new fan"))


@pytest.mark.browser
@pytest.mark.panel
def test_the_sliders_move_the_bars_alone_and_say_what_would_have_happened(raced: Any) -> None:
    page = raced
    place = next(
        i for i in range(64) if page.evaluate("at => { window.dispatchEvent(new CustomEvent('foretoken:point', { detail: at })); "
        "return document.querySelector('#lens .ft-lens-why').textContent }", i).startswith("Guess and model")
    )  # fmt: skip
    page.click("#lens summary")
    bars, picture = ("s => document.querySelector(s).toDataURL()", x) if (x := "#lens .ft-lens-bars") else None, "#canvas-fast .ft-picture"
    before, drawn = page.evaluate(*bars), page.evaluate(bars[0], picture)
    drag(page.locator("#lens [data-if=temperature]"), 2)
    assert "dice the guess would" in page.inner_text("#lens .ft-lens-if") and page.locator(AT.format(place)).count() == 1
    assert page.evaluate(*bars) != before and page.evaluate(bars[0], picture) == drawn
    drag(page.locator("#lens [data-if=temperature]"), 1)
    assert page.evaluate(*bars) == before


@pytest.mark.browser
def test_an_untouched_page_plays_a_pass_until_something_is_pointed_at(open_page: Any) -> None:
    page = open_page()
    choose(page, "settings", "size", "64 px")
    page.click("#generate")
    finish(page)
    first = page.get_attribute("#lens .ft-lens", "data-at")
    page.wait_for_selector(f"#lens .ft-lens:not([data-at='{first}'])")
    assert page.inner_text("#lens [data-do=play]") == "Pause"
    page.locator(FRAME).hover(position={"x": 5, "y": 5})
    page.wait_for_selector(AT.format(0))
    assert page.inner_text("#lens [data-do=play]") == "Play a pass"


@pytest.mark.browser
@pytest.mark.panel
def test_a_coin_decides_and_a_tree_shows_its_guesses(open_page: Any) -> None:
    page = open_page()
    page.uncheck("#compare input")
    choose(page, "settings", "size", "64 px")
    for name, words in (("sjd", "The coin falls anywhere under the guess's bar"), ("eagle", "A tree guesses several patches")):
        take(page, name)
        if name == "sjd":
            choose(page, "knobs", "verify", "residual")
        page.click("#generate")
        finish(page)
        page.wait_for_function(
            "words => [...Array(64).keys()].some((detail) => {"
            "window.dispatchEvent(new CustomEvent('foretoken:point', { detail }));"
            "return document.querySelector('#lens .ft-lens-why').textContent.includes(words); })",
            arg=words,
        )
        pass_tree = page.locator("#lens .ft-lens-tree")
        assert pass_tree.is_visible() == (name == "eagle")
    assert re.match(r"This pass guessed \d+ in a tree and kept (\d+|none)\. ", pass_tree.get_attribute("aria-label"))
    assert page.inner_text("#lens .ft-lens-why").startswith("A tree")
    at = page.get_attribute("#lens .ft-lens", "data-at")
    pass_tree.click(position={"x": 2, "y": 2})  # the first level: the first place of the pass
    assert re.search(r"pass \d+", page.inner_text("#lens .ft-lens-place")) and page.get_attribute("#lens .ft-lens", "data-at") <= at


@pytest.mark.browser
def test_on_a_phone_a_touch_opens_a_sheet_that_closes(browser: Any, served: Any) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, reduced_motion="reduce")
    page = context.new_page()
    page.goto(served.address)
    page.get_by_role("button", name="64 px").click()
    page.click("#generate")
    finish(page)
    assert page.inner_text("#lens [data-do=play]") == "Play a pass"  # reduced motion: nothing plays by itself
    page.locator(FRAME).tap()
    sheet = page.locator("#lens .ft-lens")
    expect(sheet).to_have_css("position", "fixed")
    assert page.locator(FRAME).bounding_box()["y"] >= 0
    page.wait_for_function(
        "document.querySelector('#canvas-fast .ft-frame').getBoundingClientRect().bottom <= "
        "document.querySelector('#lens .ft-lens').getBoundingClientRect().top"
    )  # the sheet leaves the picture in sight
    page.click("#lens [data-do=close]")
    expect(sheet).to_have_css("position", "static")
    context.close()
