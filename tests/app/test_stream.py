"""Boards lose no number, and the throttle never drops the last picture."""

from __future__ import annotations

import numpy as np
import pytest

from app.boards.picture import Board
from app.stream import ACCEPTED, CORRECTED, OWN, PENDING, Throttle, updates, verdicts
from engine.core import Prompt, Step
from engine.methods import find
from engine.run import generate
from engine.trace import Trace

PROMPT = Prompt("a red apple on snow", seed=3, size=64)


def start(picto, name: str, **knobs):
    """A run on the tiny model."""
    method, given = find(name)
    return generate(picto, method, PROMPT, given | knobs)


def test_throttle_says_yes_once_a_period():
    times = iter([0.0, 0.05, 0.1, 0.11, 0.25])
    throttle = Throttle(0.1, lambda: next(times))
    assert [throttle.ready() for _ in range(5)] == [True, False, True, False, True]


def test_throttle_leaves_half_of_the_time_to_the_run():
    now = 0.0
    throttle = Throttle(0.1, lambda: now)
    assert throttle.ready()
    now = 0.3  # drawing took longer than a period
    throttle.done()
    assert not throttle.ready()
    now = 0.59
    assert not throttle.ready()
    now = 0.61
    assert throttle.ready()


@pytest.mark.parametrize("period", [0.0, 1e9])
def test_the_last_picture_always_comes_and_no_number_is_lost(picto, period):
    boards = [Board(start(picto, "sjdpp", window=8)), Board(start(picto, "ar"))]
    seen = list(updates(boards, Throttle(period)))
    assert seen[-1] == {0, 1}
    for board in boards:
        assert board.run.finished
        assert board.token.tolist() == [t for _, t in sorted(zip(board.run.positions, board.run.tokens, strict=True))]
        assert (board.verdict != PENDING).all()
        assert board.count == len(board.run.steps)
        assert sorted(set(board.step)) == list(range(board.count))
    assert len(seen) == (2 if period else sum(b.count for b in boards) + 1)


def test_an_ended_side_is_shown_once_more_while_the_other_goes_on(picto):
    boards = [Board(start(picto, "ar")), Board(start(picto, "ar"))]
    runs = updates(boards, Throttle(0.0))
    for _ in runs:
        if boards[0].run.tokens:
            boards[0].run.stop()
            break
    shown = [0 in changed for changed in list(runs)[:-1]]
    assert sum(shown) <= 2  # its last picture, and no rendering again of what does not change


def test_verdicts_tell_drafts_from_the_models_own_tokens():
    step = Step([5, 6, 7], [0, 1, 2], drafted=2, trace=Trace([True, False, False]))
    assert verdicts(step).tolist() == [ACCEPTED, CORRECTED, OWN]
    assert verdicts(Step([5], [0], trace=Trace([False]))).tolist() == [OWN]


def test_drafts_are_shown_until_they_are_committed(picto):
    board = Board(start(picto, "sjdpp", window=8))
    board.add(next(board.run))
    tokens, positions = board.drafted()
    assert len(tokens) == len(positions) > 0
    assert all(board.verdict[p] == PENDING for p in positions)
    assert board.picture().shape == (64, 64, 3)
    board.run.stop()
    assert board.drafted() == ([], [])


def test_a_partial_picture_shows_what_is_missing(picto):
    board = Board(start(picto, "ar"))
    board.add(next(board.run))
    picture = board.picture()
    assert len(np.unique(picture[8:, 8:].reshape(-1, 3), axis=0)) == 1
    assert picture[:8, :8].std() > 0
