"""Nine at once: pictures or meshes of nine seeds, decoded together, the best one framed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

import pytest
from PIL import Image
from playwright.sync_api import expect

from app.live.one_thread import in_one_thread
from app.requests import meshes
from app.ui.tabs import mesh_nine, picture_nine, seed_grid
from engine.core import Knob
from engine.mesh.fit import Fit, sentence, verdict_of
from engine.recognition.picture_judge import ObjectCount
from tests.app.race_page import ROWS, RacePage, choose, finish, move


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
    assert picture_nine.best_of(counts) == best


@pytest.mark.parametrize(
    ("value", "three"),
    [(1.0, [0.75, 1.0, 1.25]), (0.125, [0.0, 0.125, 0.375]), (0.0, [0.0, 0.25, 0.5]), (2.0, [1.5, 1.75, 2.0])],
    ids=["the middle", "near an end", "the first stop", "the last stop"],
)
def test_a_knob_has_three_values_around_its_own(value, three):
    knob = Knob("temperature", "", 1.0, 0, 2, 0.125)
    assert seed_grid.three_values(knob, value) == [pytest.approx(each) for each in three]


def fit(over_floor: float) -> Fit:
    return Fit(verdict_of(over_floor), over_floor, sentence(over_floor))


def test_the_nearest_mesh_is_best_and_its_distance_is_said():
    made = mesh_nine.judged([fit(2.5), None, fit(1.25), fit(1.3)], [9, 0, 5, 7])
    assert made.best == 2 and made.words == ["2.5 sampling floors", "No area", "1.2 sampling floors", "1.3 sampling floors"]
    assert made.headline == "2 of 4 match your points well" and made.more == {"faces": 5, "fit": "good"}
    assert made.framed == "Framed: the nearest. Good match: 1.2 times as far from your points as a perfect mesh would be."


def test_without_a_mesh_none_is_framed_and_a_way_out_is_named():
    made = mesh_nine.judged([None] * 9, [0] * 9)
    assert made.best is None and made.headline == "None of the nine is a mesh" and "Try another seed" in made.framed


def test_a_cell_names_its_values():
    assert seed_grid.text_of({"guide": 1.5, "face_budget": 0}, meshes.UNLIMITED) == "guide 1.5, face budget off"


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
        assert sheet.size == (3 * 64 + 4 * seed_grid.GAP,) * 2 and settings["seeds"] == list(range(7, 16))
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


@pytest.mark.browser
def test_nine_meshes_grow_together_and_a_click_races_one(open_page, served):
    mesh = RacePage(open_page(1024, 768), "mesh").open()
    page, cells = mesh.page, mesh.part("grid", ".ft-grid-cells button")
    assert page.is_hidden("#mesh-download-nine")
    move(page, "mesh-settings", "face_budget", 4)
    page.click("#mesh-nine")
    expect(mesh.rows).to_have_count(1)
    page.wait_for_selector("#mesh-generate")
    expect(cells).to_have_count(9)
    assert [cells.nth(i).get_attribute("data-seed") for i in range(9)] == [str(seed) for seed in range(7, 16)]
    assert page.is_hidden("#mesh") and mesh.rows.locator("td[data-column=Seed]").inner_text() == "7–15"
    expect(mesh.part("verdict", ".ft-headline")).to_contain_text("match your points well")
    best = mesh.part("grid", "[data-best=true]")
    shown = cells.locator("small").all_inner_texts()
    assert float(best.locator("small").inner_text().split()[0]) == min(float(text.split()[0]) for text in shown if text != "No area")
    with page.expect_download() as caught:
        page.click("#mesh-download-nine")
    with Image.open(caught.value.path()) as sheet:
        settings = json.loads(sheet.text["foretoken"])
        assert settings["seeds"] == list(range(7, 16)) and settings["prompt"] == "chair.ply"
    cells.nth(4).click()
    expect(mesh.rows).to_have_count(3)
    mesh.finish()
    assert page.input_value("#mesh-seed input") == "11" and page.is_visible("#mesh") and page.is_hidden("#mesh-grid .ft-grid")
    raced = json.loads((served.runs()[-1] / "run.json").read_text())
    assert raced["seed"] == 11 and raced["method"] == settings["method"] and raced["sampling"] == settings["sampling"]
    mesh.rows.locator(".ft-thumbnail").last.click()  # the grid again
    page.get_by_label("Across").locator("visible=true").select_option("temperature")
    page.get_by_label("Down").locator("visible=true").select_option("guide")
    page.click("#mesh-grid .ft-grid-axes button")
    expect(mesh.rows).to_have_count(4)
    assert cells.nth(0).locator("span > span").inner_text().startswith("temperature 0")
