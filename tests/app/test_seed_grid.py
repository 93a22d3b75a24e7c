"""Nine at once: pictures of nine seeds, decoded together, the judge's best framed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.live.one_thread import in_one_thread
from app.ui.tabs import seed_grid
from engine.core import Knob
from engine.recognition.picture_judge import ObjectCount
from tests.app.race_page import ROWS, choose, finish


def counted(detected: int, others: int = 0) -> ObjectCount:
    return ObjectCount(2, detected, others)


@pytest.mark.parametrize(
    ("counts", "best"),
    [
        ([None, None], None),
        ([None, counted(0)], 1),
        ([counted(1), counted(2, 3), counted(2, 1)], 2),
        ([counted(2), counted(2)], 0),
        ([counted(1), counted(2, 9)], 1),
    ],
    ids=["unjudged", "the judged", "fewest others", "the first", "objects before others"],
)
def test_the_picture_with_the_requested_objects_and_least_else_is_best(counts, best):
    assert seed_grid.best_of(counts) == best


@pytest.mark.parametrize(
    ("value", "three"),
    [(1.0, [0.75, 1.0, 1.25]), (0.125, [0.0, 0.125, 0.375]), (0.0, [0.0, 0.25, 0.5]), (2.0, [1.5, 1.75, 2.0])],
    ids=["the middle", "near an end", "the first stop", "the last stop"],
)
def test_a_knob_has_three_values_around_its_own(value, three):
    knob = Knob("temperature", "", 1.0, 0, 2, 0.125)
    assert seed_grid.three_values(knob, value) == [pytest.approx(each) for each in three]


def test_the_file_shows_all_pictures_in_rows():
    pictures = [np.full((4, 4, 3), shade, np.uint8) for shade in range(9)]
    sheet = seed_grid.joined(pictures)
    step = 4 + seed_grid.GAP
    assert sheet.shape == (2 * step + 4, 2 * step + 4, 3) and sheet[4, 4, 0] == 255
    assert sheet[::step, ::step, 0].tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_an_iterator_runs_in_one_thread_and_ends_there():
    seen = []

    def values():
        try:
            for i in range(3):
                seen.append(get_ident())
                yield i
        finally:
            seen.append(get_ident())

    given, taken = in_one_thread(values()), []
    for _ in range(2):
        with ThreadPoolExecutor(1) as other:
            taken.append(other.submit(next, given).result())
    given.close()
    assert taken == [0, 1] and len(seen) == 3 and len(set(seen)) == 1 and get_ident() not in seen
    with pytest.raises(ZeroDivisionError):
        list(in_one_thread(1 // (1 - i) for i in range(2)))


@pytest.mark.browser
def test_nine_pictures_grow_together_and_a_click_races_one(open_page):
    page = open_page()
    choose(page, "settings", "size", "64 px")
    page.click("#nine")
    page.wait_for_function("document.querySelectorAll('#runs tbody tr').length === 1")
    page.wait_for_selector("#generate")
    cells = page.locator("#grid .ft-grid-cells button")
    expect(cells).to_have_count(9)
    assert [cells.nth(i).get_attribute("data-seed") for i in range(9)] == [str(seed) for seed in range(7, 16)]
    assert page.is_hidden("#canvas-fast") and page.inner_text(f"{ROWS} td[data-column=Seed]") == "7–15"
    with page.expect_download() as caught:
        page.click("#download:not([disabled])")
    with Image.open(caught.value.path()) as sheet:
        settings = json.loads(sheet.text["foretoken"])
        assert sheet.size == (3 * 64 + 2 * seed_grid.GAP,) * 2 and settings["seeds"] == list(range(7, 16))
    small = cells.nth(4).locator("img").evaluate("(image) => image.naturalWidth")
    cells.nth(4).click()
    page.wait_for_function("document.querySelectorAll('#runs tbody tr').length === 3")
    finish(page)
    assert small == 64 and page.input_value("#seed input") == "11" and page.is_visible("#canvas-fast") and page.is_hidden("#grid .ft-grid")
    page.locator(f"{ROWS} .ft-thumbnail").last.click()  # the grid again
    page.wait_for_selector("#grid .ft-grid:not([hidden])")
    page.get_by_label("Across").select_option("guidance")
    page.get_by_label("Down").select_option("guidance")
    page.click("#grid .ft-grid-axes button")
    page.wait_for_selector("#messages p:has-text('two different knobs')")
    page.get_by_label("Down").select_option("temperature")
    page.click("#grid .ft-grid-axes button")
    page.wait_for_function("document.querySelectorAll('#runs tbody tr').length === 4")
    page.wait_for_selector("#generate")
    words = [cells.nth(i).locator("span > span").inner_text() for i in (0, 4, 8)]
    assert words == ["guidance 1, temperature 0.35", "guidance 1.8, temperature 0.6", "guidance 2.9, temperature 0.85"]
    cells.nth(8).click()
    page.wait_for_function("document.querySelectorAll('#runs tbody tr').length === 6")
    finish(page)
    assert page.input_value("#seed input") == "11"
    shown = [page.locator(f"#settings .ft-knob[data-knob={knob}] output").text_content() for knob in ("guidance", "temperature")]
    assert shown == ["2.9", "0.85"]
