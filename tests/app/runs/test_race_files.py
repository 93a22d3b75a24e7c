"""Files of a finished race: they show what the runs made, and contain their settings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageSequence

from app.live.boards.picture import Board
from app.runs import history, race_files
from tests.app.boards import board_of, picture_run


@pytest.fixture
def boards(picto) -> list[Board]:
    """Plain decoding, then SJD++, both finished, with artificial clocks, so that times map to steps."""
    return [board_of(picture_run(picto, name, seed=3), seconds=seconds) for name, seconds in (("ar", 0.1), ("sjdpp", 0.05))]


def test_the_large_picture_is_the_picture_with_its_settings(boards, tmp_path):
    settings = history.describe(boards[1].run)
    with Image.open(race_files.write_large(boards[1], settings, tmp_path / "large.png")) as large:
        assert large.size == (256, 256) and json.loads(large.text["foretoken"])["method"] == "sjdpp"
        small = np.asarray(large.resize((64, 64), Image.Resampling.BOX)).astype(int)
    assert np.abs(small - boards[1].final()).mean() < 6


def test_both_sides_stand_in_one_picture(boards, tmp_path):
    path = race_files.write_both(boards, ["Plain", "SJD++"], {}, tmp_path / "both.png")
    with Image.open(path) as both:
        shown = np.asarray(both).astype(int)
    gap = round(race_files.GAP * 256 / race_files.SIDE)
    for number, board in enumerate(boards):
        left = gap + number * (256 + gap)
        part = shown[gap : gap + 256, left : left + 256]
        assert (part == np.asarray(race_files.enlarge(board.final()))).all()


def test_the_gif_shows_each_side_on_its_own_clock(boards, tmp_path):
    with Image.open(race_files.write_race(boards, ["Plain", "SJD++"], tmp_path / "race.gif")) as gif:
        assert gif.n_frames == race_files.FRAMES
        gif.seek(gif.n_frames // 2)
        middle = np.asarray(gif.convert("RGB")).astype(int)
        gif.seek(gif.n_frames - 1)
        last = np.asarray(gif.convert("RGB")).astype(int)
    gap, side, head = race_files.GAP, race_files.SIDE, race_files.BAND - race_files.GAP
    assert (last[:head] != race_files.PAGE).any()  # the prompt and the speed-up
    prompt, speed = race_files.heading_of(boards)
    assert prompt == boards[1].run.prompt.text and speed.endswith("× as fast")
    bottom = [
        np.s_[head + gap + side - 20 : head + gap + side - 4, gap + n * (side + gap) + 4 : gap + n * (side + gap) + side - 4]
        for n in (0, 1)
    ]
    assert (np.ptp(middle[bottom[0]].reshape(-1, 3), axis=0) == 0).all()  # plain decoding has not reached this time
    assert np.abs(middle[bottom[1]] - last[bottom[1]]).mean() < 3  # the other has ended
    assert np.abs(last[bottom[0]] - middle[bottom[0]]).mean() > 3


@pytest.mark.parametrize(("seconds", "count"), [(0.0, 0), (0.05, 0), (0.1 + 1e-9, 1), (3.2 + 1e-9, 32), (99.0, 64)])
def test_a_time_of_the_clock_is_a_number_of_tokens(boards, seconds, count):
    assert race_files.token_count_at(boards[0], seconds) == count


def test_a_gif_shows_every_frame_as_it_was_given(tmp_path: Path) -> None:
    """Only changes are written, even if there are none."""
    page = np.zeros((12, 20, 3), np.uint8)
    frames = []
    for column in (0, 3, 3, 9, 19):
        page[2:7, :column] = race_files.LANES[column % 2]
        frames.append(Image.fromarray(page.copy()))
    page[2:7, :4] = 0  # earlier pixels may be covered again
    frames.append(Image.fromarray(page))
    path = race_files.write_frames(frames, tmp_path / "race.gif", 2.0)
    with Image.open(path) as gif:
        shown = [(each.info["duration"], np.asarray(each.convert("RGB"))) for each in ImageSequence.Iterator(gif)]
    each = round(1000 * race_files.SECONDS / len(frames))
    at = np.repeat(np.arange(len(shown)), [round(lasts / each) for lasts, _ in shown])  # a longer frame replaces several
    assert len(at) >= len(frames)  # the last one is shown longer
    for frame, index in zip(frames, at, strict=False):
        assert (np.asarray(frame) == shown[index][1]).all()
