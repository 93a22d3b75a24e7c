"""Number of threads that a compiled pass gets while other programs use the cores."""

from __future__ import annotations

import pytest

from engine.kernels.cpu import library as native

MILLISECOND = 1_000_000  # nanoseconds


@pytest.fixture
def functions():
    """A team, and the library's functions with times that the test sets."""
    library, reason = native.build()
    if library is None:
        pytest.skip(reason)
    return lambda: library.ffi.new("Team *"), library.blocks.team_at, library.blocks.waited_at


def test_a_long_wait_takes_a_thread_away_until_a_rest_is_over(functions):
    begun, team_at, waited_at = functions
    team = begun()
    assert team_at(team, 4, 0) == 4
    waited_at(team, 4, MILLISECOND, MILLISECOND, 10 * MILLISECOND)  # as long as the work: shares are not all alike
    assert team_at(team, 4, 11 * MILLISECOND) == 4
    waited_at(team, 4, MILLISECOND, 2 * MILLISECOND, 20 * MILLISECOND)
    assert [team_at(team, threads, 21 * MILLISECOND) for threads in (1, 2, 3, 4, 16)] == [1, 2, 3, 3, 3]
    assert team_at(team, 4, 41 * MILLISECOND) == 4 and team_at(team, 4, 42 * MILLISECOND) == 4


def test_each_failed_try_doubles_the_rest_up_to_a_second(functions):
    begun, team_at, waited_at = functions
    team, now, rests = begun(), 0, []
    for _ in range(8):
        assert team_at(team, 2, now) == 2
        waited_at(team, 2, 0, 5 * MILLISECOND, now)
        rests.append((team.until - now) // MILLISECOND)
        assert team_at(team, 2, team.until - 1) == 1
        now = team.until
    assert rests == [20, 40, 80, 160, 320, 640, 1000, 1000]
    now += 3000 * MILLISECOND  # a quiet time: the next one starts from zero
    assert team_at(team, 2, now) == 2
    now += 2500 * MILLISECOND
    waited_at(team, 2, 0, 5 * MILLISECOND, now)
    assert team.until - now == 20 * MILLISECOND


def test_one_thread_stays_one_and_never_becomes_none(functions):
    begun, team_at, waited_at = functions
    team = begun()
    waited_at(team, 1, 0, 5 * MILLISECOND, 0)
    assert team_at(team, 2, 0) == 2
    for now in range(20):
        waited_at(team, team_at(team, 2, now), 0, 5 * MILLISECOND, now)
    assert team_at(team, 2, 20) == 1 and team_at(team, 8, 20) == 1
