"""Traces of a run on the page: the table, restored settings, replay, dropped files, and all of them after a reload."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from playwright.sync_api import expect

from app.requests.sides import TIMES
from app.runs import video
from app.ui.panels.verdict import quartiles
from engine.decoding.initializers import WINDOW
from tests.app.race_page import PROMPT, ROWS, choose, drag, drop, move, pixels, small, take

CARD = "#canvas-{} .ft-card"


@pytest.mark.browser
def test_the_result_stands_alone_and_the_map_comes_when_asked(open_page, tmp_path):
    page = open_page()
    page.fill(PROMPT, "two cats on snow")
    page.fill("#seed input", "41")
    page.press("#seed input", "Tab")
    small(page)
    overlay = page.locator("#canvas-fast .ft-overlay")
    assert overlay.evaluate("c => c.style.opacity") == "0"
    page.hover("#overlay [data-do=hold]")
    page.mouse.down()
    assert overlay.evaluate("c => c.style.opacity") == "0.35"
    page.mouse.up()
    assert overlay.evaluate("c => c.style.opacity") == "0"
    page.click("#overlay [data-do=keep]")
    assert overlay.evaluate("c => c.style.opacity") == "0.35"
    page.click("#overlay [data-do=wipe]")
    expect(page.locator("#canvas-plain")).to_be_hidden()
    assert (pixels(page, "fast", ".ft-other") == pixels(page, "plain", ".ft-picture")).all()
    drag(page.locator("#canvas-fast .ft-wipe"), 250)
    assert page.locator("#canvas-fast .ft-other").evaluate("c => c.style.clipPath") == "inset(0px 75% 0px 0px)"
    page.wait_for_selector("#gif:not([disabled])")
    with page.expect_download() as download:
        page.click("#download")
    assert download.value.suggested_filename == "foretoken-auto-sjdpp-41.png"
    download.value.save_as(tmp_path / "picture.png")
    picture = Image.open(tmp_path / "picture.png")
    settings = json.loads(picture.text["foretoken"])
    assert picture.size == (64, 64) and settings["knobs"]["window"] == WINDOW.default
    assert (settings["prompt"], settings["seed"], settings["size"]) == ("two cats on snow", 41, 64)
    files = {"large": "-4x.png", "both": "-both.png", "gif": ".gif", "html": ".html", "folders": "-runs.zip"}
    for name, ending in files.items() | ({("mp4", ".mp4")} if video.is_there() else set()):
        with page.expect_download() as download:
            page.click(f"#{name}")
        assert download.value.suggested_filename == f"foretoken-auto-sjdpp-41{ending}"
        if name == "html":
            text = download.value.path().read_text(encoding="utf-8")
    assert all(f'boot("{panel}"' in text for panel in ("verdict", "canvas-plain", "canvas-fast", "replay", "lens", "trace"))
    choose(page, "settings", "size", "128 px")
    drop(page, "race.html", text.encode())  # the page takes its settings from it
    expect(page.locator("#settings .ft-knob[data-knob=size] select")).to_have_value("64 px")


@pytest.mark.browser
def test_a_replay_is_the_race_again_without_the_server(raced):
    page, urls = raced, []
    page.on("request", lambda r: urls.append(r.url))
    seen = {}
    for value in (0, 300, 700):
        drag(page.locator("#replay input"), value)
        for side in ("fast", "plain"):
            mask = pixels(page, side, ".ft-mask")
            count = int(page.locator(CARD.format(side)).get_attribute("data-replayed"))
            assert (mask[..., 3] == 255).sum() == 64 - count  # uncommitted tokens are covered
            seen[value, side] = count
        passes = page.locator(f"{CARD.format('plain')} [data-key=forwards] dd").inner_text()
        assert int(passes) == seen[value, "plain"]  # plain decoding: a pass for every token
    for side in ("fast", "plain"):
        assert 0 == seen[0, side] <= seen[300, side] <= seen[700, side] <= 64
    drag(page.locator("#replay input"), 300)
    assert int(page.locator("#trace .ft-chart").get_attribute("data-tokens")) == seen[300, "fast"]
    page.click("#replay [data-do=on]")
    counts = [int(page.locator(CARD.format(side)).get_attribute("data-replayed")) for side in ("fast", "plain")]
    assert counts[0] > seen[300, "fast"] or counts[1] == seen[300, "plain"] + 1
    page.click("#replay [data-do=play]")
    page.wait_for_function("document.querySelector('#canvas-plain .ft-card').dataset.replayed === ''")  # it has come to the end
    assert page.locator("#trace .ft-chart").get_attribute("data-tokens") == "64"
    assert urls == []


@pytest.mark.browser
def test_knobs_are_as_they_were_left(open_page):
    page = open_page()
    take(page, "sjdpp")
    assert page.locator("#canvas-fast h3").inner_text() == "SJD++"  # the empty side says what Generate will use
    move(page, "knobs", "window", 4)
    take(page, "cross_regression")
    take(page, "sjdpp")
    assert page.locator("#knobs .ft-knob[data-knob=window] output").inner_text() == "5"


@pytest.mark.browser
def test_a_row_races_on_the_left_is_found_and_is_deleted(open_page):
    page = open_page()
    page.fill(PROMPT, "three bears")
    move(page, "knobs", "window", 4)
    small(page)
    assert page.locator(ROWS).count() == 2
    assert "window 5" in page.locator(ROWS).first.inner_text()
    take(page, "cross_regression")
    page.fill(PROMPT, "a red apple")
    page.locator(ROWS).first.get_by_role("button", name="Compare with").click()
    page.wait_for_selector("#other-knobs .ft-knob[data-knob=window]")
    assert page.locator("#other .ft-picked b").inner_text() == "SJD++"
    assert page.locator("#other-knobs .ft-knob[data-knob=window] output").inner_text() == "5"
    small(page)
    assert page.locator("#canvas-plain h3").inner_text() == "SJD++" and page.locator("#canvas-fast h3").inner_text() == "Cross-Regression"
    assert page.locator(ROWS).count() == 4
    page.fill(".ft-runs input", "red apple")
    expect(page.locator(ROWS)).to_have_count(2)
    page.fill(".ft-runs input", "")
    page.locator(ROWS).first.get_by_role("button", name="Delete").click()
    expect(page.locator(ROWS)).to_have_count(2)


@pytest.mark.browser
def test_repeated_runs_are_told_with_their_quartiles(open_page):
    page = open_page()
    choose(page, "settings", "repeat", "5 times")
    small(page)
    assert f"Medians of {TIMES} runs" in page.inner_text("#verdict .ft-detail")
    assert "–" in page.locator(f"{ROWS} >> nth=0").locator("td[data-column=Seconds]").inner_text()


def test_quartiles_are_those_of_the_numbers():
    assert quartiles([5.0, 1.0, 2.0, 4.0, 3.0]) == (2.0, 3.0, 4.0)
