"""Boards record every step, and the throttle never drops the last picture."""

from __future__ import annotations

import numpy as np
import pytest

from app.live.boards.growing import MISSING, Growing
from app.live.boards.picture import Board
from app.live.stream import ACCEPTED, CORRECTED, OWN, PENDING, RaceCosts, Throttle, updates, verdicts
from engine.core import Step
from engine.trace import Trace
from tests.app.boards import picture_run


def test_throttle_says_yes_once_a_period():
    times = iter([0.0, 0.05, 0.1, 0.11, 0.25])
    throttle = Throttle(0.1, lambda: next(times))
    assert [throttle.ready() for _ in range(5)] == [True, False, True, False, True]


def test_steps_that_are_long_do_not_make_updates_rarer():
    times = iter([0.03 * i for i in range(1001)])  # a step takes 0.03 s, and a period of 0.1 s ends within one
    throttle = Throttle(0.1, lambda: next(times))
    assert 298 <= sum(throttle.ready() for _ in range(1001)) <= 302
    times = iter([0.0, 5.0, 5.03, 5.06, 5.09])  # after a long step, missed updates are not made up for
    throttle = Throttle(0.1, lambda: next(times))
    assert [throttle.ready() for _ in range(5)] == [True, True, False, True, False]


def test_throttle_takes_only_its_share_of_the_time():
    now = 0.0
    throttle = Throttle(0.1, lambda: now, share=0.1)
    assert throttle.ready()
    now = 0.03
    throttle.finish()
    now = 0.29  # the period is over, but drawing would exceed its share
    assert not throttle.ready()
    now = 0.31
    assert throttle.ready()


def test_one_dear_update_does_not_delay_the_next():
    now = 0.0
    throttle = Throttle(0.1, lambda: now, share=0.1)
    for cost in (0.02, 0.02, 5.0):
        now += 1.0
        assert throttle.ready()
        now += cost
        throttle.finish()
    assert throttle.cost == pytest.approx(0.02)
    assert throttle.ready()


def test_a_board_has_all_steps_when_it_is_drawn_and_lags_between(picto):
    boards = [Board(picture_run(picto, "ar"))]
    seen = []

    def race(runs):
        for step in runs[0]:
            yield 0, step
            seen.append((boards[0].count, len(runs[0].steps)))

    times = iter(range(10_000))
    for _ in updates(boards, Throttle(10.0, lambda: next(times), share=1e9), race):
        assert boards[0].count == len(boards[0].run.steps)
    assert any(count < steps for count, steps in seen)


@pytest.mark.parametrize("period", [0.0, 1e9])
def test_the_last_picture_always_comes_and_no_number_is_lost(picto, period):
    boards = [Board(picture_run(picto, "sjdpp", window=8)), Board(picture_run(picto, "ar"))]
    seen = list(updates(boards, Throttle(period, share=1e9)))
    assert seen[-1] == {0, 1}
    for board in boards:
        assert board.run.finished
        assert board.token.tolist() == [t for _, t in sorted(zip(board.run.positions, board.run.tokens, strict=True))]
        assert (board.verdict != PENDING).all()
        assert board.count == len(board.run.steps)
        assert sorted(set(board.step)) == list(range(board.count))
    assert len(seen) == (2 if period else sum(b.count for b in boards) + 1)


def test_an_ended_side_is_shown_once_more_while_the_other_goes_on(picto):
    boards = [Board(picture_run(picto, "ar")), Board(picture_run(picto, "ar"))]
    runs = updates(boards, Throttle(0.0, share=1e9))
    for _ in runs:
        if boards[0].run.tokens:
            boards[0].run.stop()
            break
    shown = [0 in changed for changed in list(runs)[:-1]]
    assert sum(shown) <= 2  # the last picture, without rendering unchanged ones again


def test_verdicts_tell_drafts_from_the_models_own_tokens():
    step = Step([5, 6, 7], [0, 1, 2], drafted=2, trace=Trace([True, False, False]))
    assert verdicts(step).tolist() == [ACCEPTED, CORRECTED, OWN]
    assert verdicts(Step([5], [0], trace=Trace([False]))).tolist() == [OWN]


def test_drafts_are_shown_until_they_are_committed(picto):
    board = Board(picture_run(picto, "sjdpp", window=8))
    board.add(next(board.run))
    tokens, positions = board.shown_draft()
    assert len(tokens) == len(positions) > 0
    assert all(board.verdict[p] == PENDING for p in positions)
    assert board.picture().shape == (64, 64, 3)
    board.run.stop()
    assert board.shown_draft() == ([], [])


def test_a_partial_picture_shows_what_is_missing(picto):
    board = Board(picture_run(picto, "ar"))
    board.add(next(board.run))
    picture = board.picture()
    assert len(np.unique(picture[8:, 8:].reshape(-1, 3), axis=0)) == 1
    assert picture[:8, :8].std() > 0
    opacity = board.growing()[..., 3]
    assert (opacity[:8, :8] == 255).all() and opacity[8:].max() == opacity[:, 8:].max() == 0


def test_only_what_changed_is_sketched_and_fine_pictures_take_a_share(picto, monkeypatch):
    """Rows without a change are not decoded; the picture equals a whole rendering; the fine decoder waits for its share."""
    now, calls = 0.0, []

    def sketch(grid, rows, fine):
        nonlocal now
        now += 0.1 if fine else 0.0
        calls.append((fine, rows))
        return real(grid, rows, fine)

    real = picto.sketch
    monkeypatch.setattr(picto, "sketch", sketch)
    growing = Growing(picto, 128, (16, 16), clock=lambda: now)
    grid = np.full((16, 16), MISSING, np.int64)
    for seconds, place in ((0.01, 0), (0.02, 17), (0.3, 40), (0.4, 41), (10.1, 60), (10.2, 61)):
        grid.flat[place] = 5 + place
        shown = growing.draw(grid, seconds)
    assert calls[0] == (False, range(16))  # the first is the whole picture
    assert [rows for fine, rows in calls[1:] if not fine] == [range(0, 4), range(0, 5), range(0, 5), range(1, 6), range(1, 6)]
    assert [rows for fine, rows in calls if fine] == [range(16), range(1, 5)]  # at 0.3 s, and again when 2 % of the run's time allow it
    coarse, fine = real(grid, range(16), False), real(grid, range(16), True)
    cell = np.s_[24:32, 8 * 12 : 8 * 13], np.s_[24:32, 8 * 13 : 8 * 14]
    assert np.abs(shown[cell[0]].astype(int) - fine[cell[0]]).max() < 40  # its neighbour changed later
    assert np.abs(shown[cell[1]].astype(int) - coarse[cell[1]]).max() <= 1
    assert (shown[64:] == coarse[64:]).all()


def test_the_first_fine_picture_waits_until_the_run_has_paid_for_it(picto, monkeypatch):
    now, fines = 0.0, []

    def sketch(grid, rows, fine):
        nonlocal now
        now += 0.01
        fines.append(fine)
        return real(grid, rows, fine)

    real = picto.sketch
    monkeypatch.setattr(picto, "sketch", sketch)
    growing, grid = Growing(picto, 64, (8, 8), clock=lambda: now), np.full((8, 8), MISSING, np.int64)
    for place, seconds in enumerate((0.3, 5.0, 10.1)):  # twenty sketches are 0.2 s, which is 2 % of 10 s
        grid.flat[place] = place
        growing.draw(grid, seconds)
    assert fines == [False, False, False, True]


def test_equal_pictures_are_decoded_once(picto, monkeypatch):
    fast, plain = Board(picture_run(picto, "sjdpp", window=8, verify="match seed")), Board(picture_run(picto, "ar"))
    other = Board(picture_run(picto, "ar", 4, "a cat"))
    for board in (fast, plain, other):
        for step in board.run:
            board.add(step)
    decoded = []
    monkeypatch.setattr(type(picto), "render", lambda self, *sampling: decoded.append(sampling) or np.zeros((64, 64, 3), np.uint8))
    boards = [fast, plain, other]
    shown = [board.picture(others=boards) for board in boards]
    assert shown[0] is shown[1] and shown[2] is not shown[0]
    assert len(decoded) == 2
    assert fast.picture() is shown[0]


def test_a_sketch_made_of_changes_is_the_sketch_of_the_whole(picto, monkeypatch):
    monkeypatch.setattr("app.live.boards.growing.FIRST_FINE", float("inf"))
    growing, grid, random = Growing(picto, 256, (32, 32)), np.full((32, 32), MISSING, np.int64), np.random.default_rng(0)
    for place in random.permutation(32 * 32)[:40]:
        grid.flat[place] = random.integers(0, 125)
        shown = growing.draw(grid, 1.0)
    assert np.abs(shown.astype(int) - picto.sketch(grid, range(32), False)).max() <= 1


def test_a_model_that_cannot_sketch_is_drawn_when_its_share_allows(picto, monkeypatch):
    monkeypatch.setattr(picto, "capabilities", picto.capabilities - {"sketch"})
    growing, grid = Growing(picto, 64, (8, 8)), np.full((8, 8), MISSING, np.int64)
    first = growing.draw(grid, 0.0)
    grid[0, 0] = 7
    assert growing.draw(grid, 0.1) is first
    assert (growing.draw(grid, 1e9) == picto.render([7], [0], False, 64)).all()


def test_costs_are_what_is_left_of_the_time():
    times = iter([0.0, 1.0, 1.25, 1.5, 2.0, 2.5, 2.75])
    costs = RaceCosts(lambda: next(times))
    for _ in range(2):
        costs.record_drawing(costs.now())
        costs.record_sending()
    assert (costs.drawing, costs.sending, costs.whole) == (0.75, 0.5, 2.75)
