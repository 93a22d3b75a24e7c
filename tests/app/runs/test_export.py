"""Files that replay saved runs: they show what the runs made, without the model, a server or a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from app import cli
from app.live.boards.mesh import MeshBoard
from app.live.boards.picture import Board
from app.runs import exporting, finished, history, mesh_pictures, race_files, video
from app.runs.finished import FinishedRun, grid
from app.runs.mesh_pictures import RaceFrames
from app.runs.replay_page import script_text
from app.ui.panels import canvas
from app.ui.panels.captions import made_with
from engine.errors import BadFile, NotSupported
from engine.mesh.read import read
from tests.app.boards import CHAIR, board_of, mesh_run, picture_run
from tests.app.conftest import Watched
from tests.app.race_page import drag

LARGEST = 4_000_000  # maximum bytes of a file to send to others
WORDS = "a <b>red</b> apple & </script> “two” cats"


@pytest.fixture(scope="module")
def pictures(picto, tmp_path_factory) -> list[Path]:
    """The folders of two pictures: SJD++, then plain decoding."""
    return [history.save(picture_run(picto, name, 3, WORDS).finish(), tmp_path_factory.mktemp(name)) for name in ("sjdpp", "ar")]


@pytest.fixture(scope="module")
def meshes(low, tmp_path_factory) -> list[Path]:
    """The folders of two meshes, likewise."""
    return [history.save(mesh_run(low, name, size=40).finish(), tmp_path_factory.mktemp(name), read(CHAIR)) for name in ("xspecmesh", "ar")]


def test_a_saved_picture_comes_back_without_its_model(picto, tmp_path):
    saved = board_of(picture_run(picto, "sjdpp", 3, WORDS, window=8))
    back = exporting.play_to_end(Board(FinishedRun.open(history.save(saved.run, tmp_path))))
    assert back.run.finished and back.ended and back.run.totals == pytest.approx(saved.run.totals)
    assert (back.verdict == saved.verdict).all() and (back.token == saved.token).all() and (back.step == saved.step).all()
    assert (back.final() == saved.final()).all() and (back.rows, back.columns, back.factor) == (8, 8, 8)
    assert made_with(back.run) == made_with(saved.run)
    scales = canvas.scales([saved])
    shown = [canvas.encode(board, board.picture(), scales, "fast", "SJD++", None) for board in (saved, back)]
    assert shown[0]["maps"] == shown[1]["maps"] and shown[0]["picture"] == shown[1]["picture"] and shown[0]["course"] == shown[1]["course"]


def test_a_saved_mesh_comes_back_without_its_model(low, meshes):
    board = board_of(mesh_run(low, "xspecmesh", size=40))
    back = exporting.play_to_end(MeshBoard(FinishedRun.open(meshes[0])))
    assert len(back.faces) and (back.records == board.records).all()


def test_what_cannot_be_replayed_is_a_sentence(picto, pictures, meshes, tmp_path):
    run = picture_run(picto, "ar")
    next(run)
    run.stop()
    with pytest.raises(BadFile, match="was stopped before its end"):
        FinishedRun.open(history.save(run, tmp_path / "stopped"))
    with pytest.raises(BadFile, match=r"run\.json cannot be read"):
        FinishedRun.open(tmp_path)
    broken = tmp_path / "broken"
    broken.mkdir()
    for name in ("run.json", "result.png", "trace.npz"):
        (broken / name).write_bytes((pictures[0] / name).read_bytes())
    (broken / "trace.npz").write_bytes(b"PK nothing")
    with pytest.raises(BadFile, match=r"trace\.npz is not the trace of a run"):
        FinishedRun.open(broken)
    np.savez(broken / "trace.npz", tokens=np.zeros(64, np.int32))
    with pytest.raises(BadFile, match=r"trace\.npz is not the trace of a run"):
        FinishedRun.open(broken)
    with pytest.raises(NotSupported, match="cannot be in one race"):
        exporting.write([pictures[0], meshes[0]], tmp_path / "both.html", ".html")


@pytest.mark.parametrize(("shape", "count", "expected"), [((64, 64, 3), 64, (8, 8)), ((64, 128, 3), 32, (4, 8)), ((96, 64, 3), 6, (3, 2))])
def test_tokens_fill_a_picture(shape, count, expected):
    assert grid(shape, count) == expected
    with pytest.raises(ValueError, match="do not fill"):
        grid(shape, count + 1)


def test_the_folders_in_the_archive_are_runs(picto, tmp_path):
    runs = [picture_run(picto, name, 3, WORDS).finish() for name in ("sjdpp", "ar")]
    with ZipFile(race_files.write_folders(runs, tmp_path / "runs.zip")) as file:
        file.extractall(tmp_path / "out")
    folders = sorted((tmp_path / "out").iterdir())
    assert [folder.name for folder in folders] == ["left-ar-3", "right-sjdpp-3"]
    assert FinishedRun.open(folders[1]).finish().tokens == runs[0].tokens
    assert finished.read_settings(folders[1]) == json.loads(json.dumps(history.describe(runs[0])))


def test_the_command_writes_the_kind_of_its_ending(pictures, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    link = tmp_path / "runs" / "mine"
    link.parent.mkdir()
    link.symlink_to(pictures[0])
    page = tmp_path / "race.html"
    assert cli.main(["export", "mine", str(pictures[1]), "--out", str(page), "--json"]) == 0
    line = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert line["bytes"] == page.stat().st_size < LARGEST and line["runs"] == [str(link), str(pictures[1])]
    assert cli.main(["export", str(pictures[0]), "--out", str(tmp_path / "race.gif")]) == 0
    with Image.open(tmp_path / "race.gif") as gif:
        assert 10 < gif.n_frames <= race_files.FRAMES  # equal runs are stored once
    capsys.readouterr()
    assert cli.main(["export", str(pictures[0]), "--out", str(tmp_path / "race.avi")]) == 2
    assert "has an unknown ending; choose one of .html, .gif, .mp4" in capsys.readouterr().err


def test_three_or_four_runs_race_in_one_file(picto, pictures, meshes, tmp_path, capsys):
    third = history.save(picture_run(picto, "jacobi", 3, WORDS).finish(), tmp_path / "third")
    folders = [*pictures, third]
    assert cli.main(["export", *map(str, folders), "--out", str(tmp_path / "race.gif")]) == 0
    with Image.open(tmp_path / "race.gif") as gif:
        assert gif.width == 3 * (race_files.SIDE + race_files.GAP) + race_files.GAP
    text = exporting.write(folders, tmp_path / "race.html", ".html").read_text(encoding="utf-8")
    places = [text.index(f'boot("canvas-lane{n}"') for n in (1, 2, 3)]
    assert places == sorted(places) and 'boot("canvas-fast"' not in text and "Settings of the first run" in text
    assert [text.index(f"<h4>{title}") for title in ("SJD++", "Plain", "Jacobi")] == sorted(m.start() for m in re.finditer("<h4>", text))
    text = exporting.write([*meshes, meshes[0]], tmp_path / "meshes.html", ".html").read_text(encoding="utf-8")
    assert 'boot("mesh-lanes-view"' in text and '"lane3": {"title": "XSpecMesh"' in text
    capsys.readouterr()
    assert cli.main(["export", *map(str, [*folders, *pictures]), "--out", str(tmp_path / "race.gif")]) == 2
    assert "5 runs are too many for one file; give at most 4" in capsys.readouterr().err


def test_without_the_encoder_the_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(video, "is_there", lambda: False)
    with pytest.raises(NotSupported, match="python -m pip install imageio-ffmpeg"):
        video.write_mp4([], tmp_path / "race.mp4", 24, 0)


@pytest.mark.skipif(not video.is_there(), reason="imageio-ffmpeg is not installed, so no MP4 can be written")
def test_an_mp4_has_the_frames_of_the_race(pictures, tmp_path):
    from imageio_ffmpeg import count_frames_and_secs, read_frames

    path = exporting.write(pictures, tmp_path / "race.mp4", ".mp4")
    assert count_frames_and_secs(str(path)) == (144, pytest.approx(race_files.SECONDS + race_files.HOLD))
    boards = [exporting.play_to_end(Board(FinishedRun.open(folder))) for folder in reversed(pictures)]
    wanted = {i: np.asarray(each).astype(int) for i, each in enumerate(race_files.frames(boards, ["Plain decoding", "SJD++"], 12))}
    high, wide = (side + side % 2 for side in wanted[0].shape[:2])
    with closing(read_frames(str(path))) as frames:
        assert next(frames)["source_size"] == (wide, high)
        for number, frame in enumerate(frames):
            if (number % 8 == 7 and number < 96) or number == 143:  # at these both show the same time
                shown = np.frombuffer(frame, np.uint8).reshape(high, wide, 3)[: len(wanted[0])]
                assert np.abs(shown - wanted[min(number // 8, 11)]).mean() < 4
    with Image.open(pictures[0] / "result.png") as picture:  # an odd size is padded by a line
        small = video.write_mp4([picture.resize((33, 65))] * 3, tmp_path / "small.mp4", 3, 0)
    with closing(read_frames(str(small))) as frames:
        assert next(frames)["source_size"] == (34, 66)


@pytest.mark.skipif(not video.is_there(), reason="imageio-ffmpeg is not installed, so no MP4 can be written")
def test_an_mp4_of_meshes_has_their_frames(meshes, tmp_path):
    from imageio_ffmpeg import count_frames_and_secs

    boards = [exporting.play_to_end(MeshBoard(FinishedRun.open(folder))) for folder in meshes]
    blank = np.zeros((mesh_pictures.SIDE, mesh_pictures.SIDE, 3), np.uint8)
    drawn = RaceFrames([[blank, blank]] * mesh_pictures.FRAMES, [blank])
    path = mesh_pictures.write_race(drawn, boards, ["XSpecMesh", "Plain decoding"], tmp_path / "race.mp4")
    assert count_frames_and_secs(str(path)) == (30, pytest.approx(race_files.SECONDS + race_files.HOLD))


def test_no_text_ends_a_script():
    assert "<" not in script_text({"prompt": "</script><!--"}) and json.loads(script_text({"a": "</b>"})) == {"a": "</b>"}


# --- in a browser, from the disk --------------------------------------------------------------------------------------


@pytest.fixture
def open_file(browser) -> Iterator[Callable[..., object]]:
    """A function that opens a file without a network; at the end there must have been no errors and no requests."""
    context, visits = browser.new_context(offline=True), []

    def visit(path: Path, width: int = 1440, height: int = 1000) -> object:
        visits.append(Watched(context, path.as_uri(), width, height, "", "html[data-shown=true]"))
        return visits[-1].page

    yield visit
    context.close()
    assert [line for each in visits for line in each.wrong] == []


def replayed_tokens(page, side: str) -> int:
    """Number of tokens that the replay shows of a picture."""
    return int(page.locator(f"#canvas-{side} .ft-card").get_attribute("data-replayed"))


@pytest.mark.browser
@pytest.mark.panel
def test_a_file_of_pictures_plays_from_the_disk(open_file, pictures, tmp_path):
    page = open_file(exporting.write(pictures, tmp_path / "race.html", ".html"))
    assert page.inner_text(".ft-caption h2") == WORDS and page.title() == WORDS
    assert [page.inner_text(f"#canvas-{side} h3") for side in ("plain", "fast")] == ["Plain decoding", "SJD++"]
    page.wait_for_selector("#canvas-fast .ft-card[data-pictures='1']", state="attached")
    steps = []
    for _ in range(4):
        page.click("#replay [data-do=on]")
        steps.append(replayed_tokens(page, "plain") + replayed_tokens(page, "fast"))
        assert page.locator("#trace .ft-chart").get_attribute("data-tokens") == str(replayed_tokens(page, "fast"))
    assert steps[0] > 0 and (np.diff(steps) > 0).all()
    drag(page.locator("#replay input"), 600)
    assert 0 < replayed_tokens(page, "plain") + replayed_tokens(page, "fast") < 128  # either side may be ahead on its clock
    page.locator("#replay select").select_option("2")
    page.click("#replay [data-do=play]")
    page.wait_for_selector("#canvas-fast .ft-card[data-replayed='']")
    page.click("#overlay [data-do=keep]")
    assert page.locator("#canvas-fast .ft-overlay").evaluate("c => c.style.opacity") == "0.35"
    page.locator("#trace canvas").first.focus()
    page.keyboard.press("Home")
    assert "number 1 of 64" in page.inner_text("#trace output")
    with page.expect_download() as waiting:
        page.click(".ft-made a")
    assert json.loads(waiting.value.path().read_text()) == finished.read_settings(pictures[0])


@pytest.mark.browser
@pytest.mark.panel
def test_a_file_of_meshes_plays_from_the_disk_on_a_phone(open_file, meshes, tmp_path):
    page = open_file(exporting.write(meshes, tmp_path / "race.html", ".html"), 390, 844)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    view = page.locator("#mesh .ft-mesh")
    whole = int(view.get_attribute("data-accelerated-faces"))
    assert whole > 0 and int(view.get_attribute("data-points")) + 1 > 0
    drag(page.locator("#mesh-replay input"), 0)
    assert view.get_attribute("data-accelerated-faces") == "0"
    page.click("#mesh-replay [data-do=play]")
    page.wait_for_selector("#mesh .ft-mesh[data-replayed='']")
    assert int(view.get_attribute("data-accelerated-faces")) == whole
    dark = page.locator("body").evaluate("b => b.classList.contains('dark')")
    page.click(".ft-theme")
    assert page.locator("body").evaluate("b => b.classList.contains('dark')") is not dark
