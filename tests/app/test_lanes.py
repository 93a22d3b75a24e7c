"""A race of finished runs chosen in the table: it plays in the browser, and its files show the same."""

from __future__ import annotations

import base64
import copy
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from app.live.boards.picture import Board
from app.runs import race_files, uploaded_runs, video
from app.ui import mesh_side
from app.ui.panels import canvas, runs
from app.ui.tabs.multi_race import Lanes, facts
from engine.errors import BadPrompt
from tests.app.boards import board_of, mesh_run, picture_run
from tests.app.conftest import settle
from tests.app.race_page import ROWS, drag, move, small, take
from tests.app.test_mesh_tab import open_mesh as open_mesh

ASK = "{} tbody tr >> nth={} >> css=[data-pick]"
FASTEST = "document.querySelector('#{} select').value = '2'"  # speeds of a replay
OPEN = "#lanes-race .ft-card[data-state=done]"


def lane(title: str, about: str, value: dict, method: str) -> dict:
    """A lane as a page sends it."""
    settings = {"method": method, "seed": 3, "prompt": "a red apple", "knobs": {"window": 8}, "backbone": "pictogram", "size": 64}
    return {"title": title, "about": about, "value": json.loads(json.dumps(value)), "settings": settings}


@pytest.fixture(scope="module")
def boards(picto) -> list[Board]:
    """Three finished pictures with artificial clocks."""
    names = {"ar": 0.125, "sjdpp": 0.0625, "jacobi": 0.25}
    return [board_of(picture_run(picto, name, seed=3), seconds=seconds) for name, seconds in names.items()]


@pytest.fixture(scope="module")
def race(boards) -> dict:
    """The lanes as a page sends them."""
    scales = canvas.scales(boards)
    values = [canvas.encode(each, each.picture(), scales, "fast", each.run.method.title, None) for each in boards]
    return {"lanes": [lane(each.run.method.title, "seed 3", value, each.run.name) for each, value in zip(boards, values, strict=True)]}


def test_what_a_page_sends_stands_in_for_its_boards(boards, race):
    runs = uploaded_runs.read_runs(race, meshes=False)
    assert [each.words for each in runs] == [f"{each.run.method.title} · seed 3" for each in boards]
    for each, board in zip(runs, boards, strict=True):
        assert (each.final() == board.final()).all() and (each.rows, each.columns) == (8, 8)
        assert each.run.seconds == board.run.seconds and each.run.positions == list(board.trail.positions)
        for now in (0.0, 0.3, 1.0, 99.0):
            assert race_files.token_count_at(each, now) == race_files.token_count_at(board, now)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lanes: lanes.pop(2) and lanes.pop(1),
        lambda lanes: lanes.extend(lanes[:2]),
        lambda lanes: lanes[0].pop("value"),
        lambda lanes: lanes[0].update(settings=[]),
        lambda lanes: lanes[0].update(title=7),
        lambda lanes: lanes[0]["settings"].update(prompt="\ud800"),
        lambda lanes: lanes[1]["value"].update(rows=10**9, columns=10**9),
        lambda lanes: lanes[1]["value"].update(picture="data:image/png;base64,AAAA"),
        lambda lanes: lanes[1]["value"].update(picture=lanes[1]["value"]["picture"] + "A" * uploaded_runs.LONGEST),
        lambda lanes: lanes[1]["value"].update(course=None),
        lambda lanes: lanes[1]["value"]["course"].update(end=base64.b64encode(np.full(64, np.nan, "<f4").tobytes()).decode()),
        lambda lanes: lanes[1]["value"]["course"].update(position=base64.b64encode(np.zeros(64, "<i4").tobytes()).decode()),
    ],
)
def test_what_is_no_race_is_a_sentence(race, spoil):
    wrong = copy.deepcopy(race)
    spoil(wrong["lanes"])
    with pytest.raises(BadPrompt, match=r"The chosen runs arrived incomplete \(.*\)\. Choose them again\."):
        uploaded_runs.read_runs(wrong, meshes=False)


def test_the_files_show_every_run_on_its_own_clock(boards, race, tmp_path):
    lanes = Lanes(runs.PICTURES)
    path, lost = lanes.make({**race, "make": "gif"}, tmp_path)
    assert path.name == "foretoken-race-of-3.gif" and lost == []
    with Image.open(path) as gif:
        gap, side = race_files.GAP, race_files.SIDE
        head = race_files.BAND - gap  # the prompt
        assert gif.size == (3 * (side + gap) + gap, head + side + gap + race_files.BAND)
        gif.seek(gif.n_frames - 1)
        last = np.asarray(gif.convert("RGB")).astype(int)
        gif.seek(0)
        first = np.asarray(gif.convert("RGB")).astype(int)
    titles = last[head + gap + side :]
    for colour in race_files.LANES[:3]:
        assert (np.abs(titles - colour).max(axis=-1) == 0).any()  # each title has its colour
    ends = [np.s_[head + side - 20 : head + side, gap + n * (side + gap) + 4 : gap + n * (side + gap) + side - 4] for n in range(3)]
    assert all((np.ptp(first[end].reshape(-1, 3), axis=0) == 0).all() for end in ends)  # their last rows are empty
    page, _ = lanes.make({**race, "make": "html"}, tmp_path)
    text = page.read_text(encoding="utf-8")
    assert all(f'boot("canvas-lane{n}"' in text for n in (1, 2, 3)) and 'boot("canvas-lane4"' not in text
    assert "Settings of the first run" in text and text.count("<h4>") == 3
    with pytest.raises(BadPrompt, match="Unknown file type for a race"):
        lanes.make({**race, "make": "exe"}, tmp_path)
    if video.is_there():
        assert lanes.make({**race, "make": "mp4"}, tmp_path)[0].stat().st_size > 1000


def test_four_pictures_stand_in_two_rows_and_a_long_title_is_cut():
    tile = Image.new("RGB", (race_files.SIDE, race_files.SIDE))
    page = race_files.sheet([tile] * 4, ["x" * 200] * 4, ["1 s"] * 4, race_files.LANES)
    assert page.size == (2 * 400 + 16, 2 * (384 + 16 + 46))
    assert race_files.shorten("abcdef", len, 4) == "abc…" and race_files.shorten("abc", len, 4) == "abc"


def test_meshes_that_a_page_sends_have_their_faces(low):
    made = board_of(mesh_run(low, "xspecmesh", size=40))
    side = mesh_side.draw_race([made], np.zeros((4, 3), np.float32), {0})["viewer"]["sides"]["accelerated"]
    runs = uploaded_runs.read_runs({"lanes": [lane("XSpecMesh", "", side, "xspecmesh")] * 2}, meshes=True)
    assert len(made.faces) and (runs[1].faces == made.faces).all() and (runs[1].step == made.step).all()
    assert len(runs[1].run.steps) == len(made.run.steps) and runs[0].words == "XSpecMesh"


def test_facts_say_only_what_the_settings_know():
    known = {"method": "sjdpp", "seed": 0, "size": 64, "knobs": {"reuse_ratio": 0.5}, "machine": {"processor": "EPYC"}, "input": None}
    assert facts(known, False) == {"seed": "0", "size": "64 px", "method": "SJD++", "knobs": "reuse ratio 0.5", "machine": "EPYC"}
    assert facts({"knobs": 3, "machine": []}, True) == {}


# --- in the browser ---------------------------------------------------------------------------------------------------


def choose_rows(page, table: str, *rows: int) -> None:
    """Selects rows of the table for a race."""
    for row in rows:
        page.locator(ASK.format(table, row)).click()


def open_lanes(page) -> None:
    """Races the two newest rows of the Image tab's table."""
    choose_rows(page, "#runs", 0, 1)
    page.click("#runs [data-do=race]")
    expect(page.locator(OPEN)).to_have_count(2)


def replayed_counts(page) -> list[int]:
    """Number of tokens that each lane of the Image tab shows in a replay."""
    return [int(each) for each in page.locator(OPEN).evaluate_all("cards => cards.map((c) => c.dataset.replayed)")]


@pytest.mark.browser
def test_three_and_four_chosen_runs_race_and_leave_as_files(open_page, tmp_path: Path):
    page = open_page(1440, 900)
    small(page)
    take(page, "sjdpp")
    move(page, "knobs", "window", 4)
    small(page)
    start = page.locator("#runs [data-do=race]")
    choose_rows(page, "#runs", 0)
    expect(start).to_be_hidden()
    choose_rows(page, "#runs", 1, 2)
    expect(start).to_have_text("Race 3 runs")
    assert page.locator("#runs [data-pick][aria-pressed=true]").count() == 3
    page.evaluate(FASTEST.format("lanes-replay"))
    urls = []
    page.on("request", lambda r: urls.append(r.url))
    start.click()
    expect(page.locator(OPEN)).to_have_count(3)
    expect(page.locator("#lanes h2")).to_have_text("Three runs, each on its own clock")
    assert "seed 7 · 64 px" in page.inner_text("#lanes .ft-lanes-shared")
    expect(page.locator("#canvas-fast")).to_be_hidden()
    page.wait_for_function("document.querySelector('#canvas-lane1 .ft-card').dataset.replayed === ''")  # it plays by itself to its end
    drag(page.locator("#lanes-replay input"), 400)
    seen = replayed_counts(page)
    assert all(0 <= count <= 64 for count in seen) and len(set(seen)) > 1
    page.click("#lanes-replay [data-do=on]")
    assert sum(replayed_counts(page)) > sum(seen)
    assert [url for url in urls if "heartbeat" not in url] == []  # no request to the server
    choose_rows(page, "#runs", 3)
    start.click()
    expect(page.locator(OPEN)).to_have_count(4)
    boxes = [each.bounding_box() for each in page.locator(OPEN).all()]
    assert len({box["y"] for box in boxes}) == 1 and page.evaluate("document.documentElement.scrollWidth") == 1440
    for kind in ("gif", "html", "mp4") if video.is_there() else ("gif", "html"):
        with page.expect_download() as waiting:
            page.click(f"#lanes [data-make={kind}]")
        assert waiting.value.suggested_filename == f"foretoken-race-of-4.{kind}"
        waiting.value.save_as(tmp_path / f"race.{kind}")
    with Image.open(tmp_path / "race.gif") as gif:
        assert gif.size == (816, 922)
    page.set_viewport_size({"width": 390, "height": 844})
    boxes = [each.bounding_box() for each in page.locator(OPEN).all()]
    assert len({round(box["y"]) for box in boxes}) == 2 and page.evaluate("document.documentElement.scrollWidth") == 390
    settle(page)
    page.reload()
    expect(page.locator(OPEN)).to_have_count(4)  # it is still there
    page.click("#lanes [data-do=close]")
    expect(page.locator("#canvas-fast")).to_be_visible()
    page.reload()
    page.wait_for_selector(ROWS)
    expect(page.locator("#canvas-fast .ft-card[data-state=done]")).to_be_visible()
    expect(page.locator(OPEN).first).to_be_hidden()


@pytest.mark.browser
def test_a_race_of_chosen_runs_ends_with_the_next_one(open_page):
    page = open_page()
    small(page)
    open_lanes(page)
    expect(page.locator("#lanes h2")).to_have_text("Two runs, each on its own clock")
    page.keyboard.press("Escape")
    expect(page.locator("#canvas-fast")).to_be_visible()
    page.click("#runs [data-do=race]")
    expect(page.locator("#canvas-fast")).to_be_hidden()
    small(page)
    expect(page.locator("#canvas-fast")).to_be_visible()
    choose_rows(page, "#runs", 0, 1)
    expect(page.locator("#runs [data-do=race]")).to_have_text("Race 4 runs")  # earlier rows are still selected
    choose_rows(page, "#runs", 2)
    expect(page.locator("#runs [data-do=race]")).to_have_text("Race 3 runs")
    page.locator(ROWS).last.get_by_role("button", name="Delete").click()
    expect(page.locator("#runs [data-do=race]")).to_have_text("Race 2 runs")


@pytest.mark.browser
def test_chosen_meshes_race_under_one_camera(open_mesh):
    page = open_mesh()
    move(page, "mesh-settings", "face_budget", 2)
    for rows in (2, 4):
        page.click("#mesh-generate")
        expect(page.locator("#mesh-runs tbody tr")).to_have_count(rows, timeout=60_000)
    choose_rows(page, "#mesh-runs", 0, 1, 2)
    page.evaluate(FASTEST.format("mesh-lanes-replay"))
    page.click("#mesh-runs [data-do=race]")
    view = page.locator("#mesh-lanes-view .ft-mesh")
    expect(view).to_have_attribute("data-views", "3")
    expect(view).to_have_attribute("data-context", "ok")
    expect(page.locator("#mesh")).to_be_hidden()
    page.wait_for_function("document.querySelector('#mesh-lanes-view .ft-mesh').dataset.replayed === ''")
    whole = [int(view.get_attribute(f"data-lane{n}-faces")) for n in (1, 2, 3)]
    drag(page.locator("#mesh-lanes-replay input"), 0)
    assert min(whole) > 0 and [view.get_attribute(f"data-lane{n}-faces") for n in (1, 2, 3)] == ["0"] * 3
    with page.expect_download() as waiting:
        page.click("#mesh-lanes [data-make=html]")
    assert 'boot("mesh-lanes-view"' in waiting.value.path().read_text(encoding="utf-8")
