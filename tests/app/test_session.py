"""Visitors: a fair line, handles that reach only their own runs, nothing left behind."""

from __future__ import annotations

import pytest

from app.session import Sessions
from engine.core import Prompt
from engine.decoding.initializers import WINDOW
from engine.errors import BadKnob
from engine.methods import find
from engine.run import generate


def run_of(picto, name: str = "sjdpp"):
    return generate(picto, find(name)[0], Prompt("a cat", size=64))


def test_the_line_is_fair_and_nobody_stands_in_it_twice():
    sessions = Sessions()
    assert sessions.enter("a") and sessions.enter("b") and not sessions.enter("b")
    assert (sessions.place("a"), sessions.place("b"), sessions.place("c")) == (0, 1, 0)
    assert sessions.begin("a")
    assert sessions.place("b") == 1
    assert not sessions.enter("a")  # has a run
    sessions.end("a")
    assert sessions.place("b") == 0
    assert sessions.enter("a")


def test_who_stops_or_leaves_while_waiting_never_begins():
    sessions = Sessions()
    sessions.enter("a")
    sessions.enter("b")
    sessions.stop("a")
    sessions.leave("b")
    assert not sessions.busy("a")
    assert sessions.enter("a")
    assert not sessions.begin("a"), "the generator of the place that was given up must not take the new one"
    assert not sessions.begin("b")
    assert sessions.begin("a")


def test_runs_of_a_page_that_was_closed_do_not_start(picto):
    sessions = Sessions()
    sessions.enter("a")
    sessions.begin("a")
    sessions.leave("a")
    run = run_of(picto)
    sessions.hold("a", [run])
    assert list(run) == [] and not sessions.present("a")
    sessions.end("a")
    assert not sessions.busy("a")


def test_knobs_reach_the_visitors_own_runs_of_that_method(picto):
    sessions = Sessions()
    mine, other = run_of(picto), run_of(picto)
    for visitor, run in (("a", mine), ("b", other)):
        sessions.enter(visitor)
        sessions.begin(visitor)
        sessions.hold(visitor, [run, run_of(picto, "ar")])
    sessions.move("a", "sjdpp", {"window": 5, "verify": "match seed"})
    sessions.move("a", "sjd", {"window": 7})
    assert mine.live.read()["window"] == 5
    assert mine.live.read()["verify"] == "residual"  # read at the start only
    assert other.live.read()["window"] == WINDOW.default
    with pytest.raises(BadKnob):
        sessions.move("a", "sjdpp", {"window": 0})


def test_a_stop_that_comes_before_the_runs_still_counts(picto):
    sessions = Sessions()
    sessions.enter("a")
    sessions.begin("a")
    sessions.stop("a")
    run = run_of(picto)
    sessions.hold("a", [run])
    assert list(run) == []


def test_end_frees_the_caches_and_leave_the_folder(picto):
    sessions = Sessions()
    sessions.enter("a")
    sessions.begin("a")
    run = run_of(picto)
    sessions.hold("a", [run])
    next(run)
    folder = sessions.folder("a")
    (folder / "x.png").write_bytes(b"x")
    sessions.end("a")
    assert run.sequence is None
    sessions.leave("a")
    assert not folder.exists()
    sessions.leave("a")
