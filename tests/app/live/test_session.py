"""Visitors: a fair queue of tickets, access only to their own runs, complete cleanup, and nobody locked out."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from app.live.session import IDLE, PATIENCE, SILENCE, Sessions
from engine.decoding.initializers import WINDOW
from engine.errors import BadKnob
from tests.app.boards import picture_run

VISITORS = ("a", "b", "c", "d")


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def begin(sessions: Sessions, visitor: str) -> int:
    """Gives a visitor the engine; returns the number of their ticket."""
    number = sessions.enter(visitor)
    assert sessions.begin(visitor, number)
    return number


def can_run(sessions: Sessions, visitor: str) -> bool:
    """True if a visitor gets the engine now and returns it."""
    number = sessions.enter(visitor)
    if number is None or not sessions.begin(visitor, number):
        return False
    sessions.end(visitor, number)
    return not sessions.is_busy(visitor)


# ---------------------------------------------------------------- the line


def test_the_line_is_fair_and_nobody_stands_in_it_twice():
    sessions = Sessions()
    a, b = sessions.enter("a"), sessions.enter("b")
    assert (sessions.place("a"), sessions.place("b"), sessions.place("c")) == (0, 1, 0)
    assert sessions.begin("a", a)
    assert sessions.place("b") == 1
    assert sessions.enter("a") is None  # has a run
    later = sessions.enter("b")
    assert sessions.place("b") == 1 and not sessions.begin("b", b), "the newer ticket took the place of the older one"
    sessions.end("a", a)
    assert sessions.place("b") == 0 and sessions.begin("b", later)


def test_a_wait_is_estimated_from_the_last_runs_and_from_how_long_this_one_lasts():
    clock = Clock()
    sessions = Sessions(clock)
    for seconds in (4.0, 10.0, 6.0):
        number = begin(sessions, "a")
        sessions.hold("a", number, [Run()])
        clock.now += seconds
        sessions.end("a", number)
    number = begin(sessions, "a")
    for visitor in "bc":
        sessions.enter(visitor)
    assert (sessions.wait("a"), sessions.wait("b"), sessions.wait("c")) == (None, 6.0, 12.0)
    assert sessions.ahead() == (3, 18.0), "of one who does not wait yet"
    clock.now += 5.0
    assert (sessions.wait("b"), sessions.wait("c")) == (1.0, 7.0)
    clock.now += 5.0
    sessions.renew("a", number)
    assert (sessions.wait("b"), sessions.wait("c")) == (0.0, 6.0)
    assert sessions.ahead() == (3, 12.0), "a run that lasts longer than usual ends soon"
    sessions.stop("b")
    assert sessions.wait("b") is None and sessions.wait("c") == 0.0


def test_a_wait_is_not_guessed_before_a_run_has_ended():
    sessions = Sessions(Clock())
    assert sessions.ahead() == (0, None)
    number = begin(sessions, "a")
    assert sessions.ahead() == (1, None)
    sessions.enter("b")
    assert sessions.wait("b") is None
    sessions.end("a", number)  # it was given back without a run
    begin(sessions, "c")
    assert sessions.wait("b") is None


def test_who_stops_or_leaves_while_waiting_never_begins():
    sessions = Sessions()
    a, b = sessions.enter("a"), sessions.enter("b")
    sessions.stop("a")
    sessions.leave("b")
    assert not sessions.is_busy("a") and not sessions.is_busy("b")
    again = sessions.enter("a")
    assert not sessions.begin("a", a), "the generator of the place that was given up must not take the new one"
    assert not sessions.begin("b", b)
    assert sessions.begin("a", again)


def test_a_ticket_that_nobody_takes_while_the_engine_is_free_expires():
    clock = Clock()
    sessions = Sessions(clock)
    held = begin(sessions, "a")
    lost = sessions.enter("b")
    clock.now += 10 * PATIENCE
    sessions.renew("a", held)
    assert sessions.place("b") == 1, "a wait behind a long run is no reason to expire"
    sessions.end("a", held)
    clock.now += PATIENCE / 2
    assert sessions.is_busy("b")
    clock.now += PATIENCE
    assert not sessions.is_busy("b") and not sessions.begin("b", lost)


def test_a_run_that_gives_no_sign_loses_the_engine_and_one_that_does_keeps_it():
    clock = Clock()
    sessions = Sessions(clock)
    number = begin(sessions, "a")
    clock.now += SILENCE
    sessions.renew("a", number)
    clock.now += SILENCE
    assert sessions.enter("a") is None
    clock.now += 1
    assert can_run(sessions, "a")


def test_tabs_know_their_own_tickets():
    sessions = Sessions()
    sessions.enter("a", "mesh-")
    assert sessions.is_busy("a", "mesh-") and not sessions.is_busy("a", "") and sessions.is_busy("a")


# ---------------------------------------------------------------- the runs


def test_runs_of_a_page_that_was_closed_do_not_start(picto):
    sessions = Sessions()
    number = begin(sessions, "a")
    sessions.leave("a")
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    assert list(run) == [] and not sessions.is_present("a")
    sessions.end("a", number)
    assert not sessions.is_busy("a")


def test_knobs_reach_the_visitors_own_runs_of_that_method(picto):
    sessions = Sessions()
    mine = picture_run(picto, "sjdpp")
    sessions.hold("a", begin(sessions, "a"), [mine, picture_run(picto, "ar")])
    sessions.move("a", "sjdpp", {"window": 5, "verify": "match seed"})
    sessions.move("a", "sjd", {"window": 7})
    sessions.move("b", "sjdpp", {"window": 9})
    assert mine.live.read()["window"] == 5 != WINDOW.default
    assert mine.live.read()["verify"] == "residual"  # read at the start only
    with pytest.raises(BadKnob):
        sessions.move("a", "sjdpp", {"window": 0})


def test_a_stop_that_comes_before_the_runs_still_counts(picto):
    sessions = Sessions()
    number = begin(sessions, "a")
    sessions.stop("a")
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    assert list(run) == []


def test_end_frees_the_caches_and_leave_the_folder(picto, tmp_path):
    sessions = Sessions(folder=tmp_path)
    number = begin(sessions, "a")
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    next(run)
    folder = sessions.folder("a")
    (folder / "x.png").write_bytes(b"x")
    sessions.end("a", number)
    assert run.sequence is None
    sessions.leave("a")
    assert list(tmp_path.iterdir()) == []
    sessions.leave("a")


def test_closing_stops_all_and_waits_for_the_one_that_goes(picto, tmp_path):
    sessions = Sessions(folder=tmp_path)
    number = begin(sessions, "a")
    run = picture_run(picto, "sjdpp")
    sessions.hold("a", number, [run])
    waiting = sessions.enter("b")
    sessions.folder("b")
    sessions.close()
    assert list(run) == [] and not sessions.begin("b", waiting) and list(tmp_path.iterdir()) == []
    assert not sessions.wait_until_free(0)
    sessions.end("a", number)
    assert sessions.wait_until_free(0)


# ---------------------------------------------------------------- files


def test_a_file_counts_as_being_read_until_it_is_or_too_much_time_has_passed():
    clock = Clock()
    sessions = Sessions(clock)
    sessions.begin_reading("a", "big.obj", 60)
    assert (sessions.reading("a"), sessions.reading("b")) == ("big.obj", "")
    sessions.end_reading("a")
    assert sessions.reading("a") == ""
    sessions.begin_reading("a", "big.obj", 60)
    sessions.begin_reading("a", "second.obj", 60)
    sessions.end_reading("a", "big.obj")
    assert sessions.reading("a") == "second.obj"  # which wins
    clock.now += 60
    assert sessions.reading("a") == ""


def test_what_a_visitor_gave_is_forgotten_with_them_and_after_a_day(tmp_path):
    clock = Clock()
    sessions = Sessions(clock, tmp_path)
    for visitor in "ab":
        sessions.set_input(visitor, "a cloud")
        sessions.folder(visitor)
    sessions.leave("a")
    assert (sessions.input_of("a"), sessions.input_of("b")) == (None, "a cloud")
    clock.now += IDLE + 1
    sessions.enter("c")
    assert sessions.input_of("b") is None and list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------- anything in any order


class Run:
    """The parts of a run that sessions use."""

    def __init__(self) -> None:
        self.stopped, self.stays, self.closed = False, False, 0
        self.method, self.backbone = SimpleNamespace(name="x", knobs=()), SimpleNamespace(name="y")

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        self.closed += 1

    def set(self, **_: float) -> None:
        assert not self.closed, "a knob was written into a run that had ended"


class Story:
    """Random events of some visitors, with checks after each. Gradio starts what was asked for in order, one at a time, and
    loses some of it."""

    def __init__(self, seed: int):
        self.random, self.clock = random.Random(seed), Clock()
        self.sessions = Sessions(self.clock)
        self.queue: list[tuple[str, int]] = []  # requests that Gradio will start
        self.going: tuple[str, int] | None = None
        self.runs: list[Run] = []
        self.dropped: dict[int, list[Run]] = {}  # by the number of the ticket
        self.said: list[str] = []

    def step(self) -> None:
        visitor = self.random.choice(VISITORS)
        event = self.random.choice((self.ask, self.ask, self.start, self.start, self.hold, self.finish, self.move, self.stop, self.leave,
                                    self.lose, self.drop, self.forge, self.wait))  # fmt: skip
        self.said.append(f"{event.__name__}({visitor})")
        event(visitor)
        self.check()

    def ask(self, visitor: str) -> None:
        number = self.sessions.enter(visitor)
        if number is not None:
            self.queue.append((visitor, number))

    def start(self, _: str) -> None:
        if self.going is None and self.queue:
            visitor, number = self.queue.pop(0)
            if self.sessions.begin(visitor, number):
                self.going, self.runs = (visitor, number), []
                assert all(run.stopped for runs in self.dropped.values() for run in runs)

    def hold(self, _: str) -> None:
        if self.going and not self.runs:
            self.runs = [Run(), Run()]
            self.sessions.hold(*self.going, self.runs)

    def finish(self, _: str) -> None:
        if self.going:
            (visitor, number), self.going = self.going, None
            self.sessions.end(visitor, number)
            assert all(run.closed == 1 for run in self.runs)

    def move(self, visitor: str) -> None:
        self.sessions.move(visitor, "x", {})

    def stop(self, visitor: str) -> None:
        self.sessions.stop(visitor)
        if self.going and self.going[0] == visitor:
            assert all(run.stopped for run in self.runs)

    def leave(self, visitor: str) -> None:
        self.sessions.leave(visitor)
        assert not self.sessions.is_present(visitor) and not self.sessions.place(visitor)
        if self.going and self.going[0] == visitor:
            assert all(run.stopped for run in self.runs)

    def lose(self, _: str) -> None:
        """Loses a generator before its start."""
        if self.queue:
            self.queue.pop(self.random.randrange(len(self.queue)))

    def drop(self, _: str) -> None:
        """Drops a generator without closing it."""
        if self.going:
            self.dropped[self.going[1]] = self.runs
        self.going, self.runs = None, []

    def forge(self, visitor: str) -> None:
        mine = {number for who, number in self.queue if who == visitor}
        wrong = self.random.randrange(-2, 1000)
        if wrong not in mine:
            assert not self.sessions.begin(visitor, wrong)
        if self.going != (visitor, wrong):
            self.sessions.end(visitor, wrong)

    def wait(self, _: str) -> None:
        self.clock.now += self.random.choice((0.1, 1, PATIENCE / 2, PATIENCE + 1, SILENCE + 1))

    def check(self) -> None:
        places = [self.sessions.place(v) for v in VISITORS]
        waiting = [p for p in places if p]
        assert len(set(waiting)) == len(waiting) and max(places) <= len(VISITORS), places
        for visitor in VISITORS:
            if self.sessions.place(visitor):
                assert self.sessions.is_busy(visitor)
        held = set(self.dropped) | ({self.going[1]} if self.going else set())
        assert set(self.sessions._begun) <= held, "a ticket that was given back is still kept"

    def end(self) -> None:
        """Ends all runs: the queue is empty, and each visitor can run."""
        self.finish("")
        while self.queue:
            self.start("")
            self.finish("")
        self.clock.now += SILENCE + PATIENCE + 1
        assert not any(self.sessions.is_busy(v) or self.sessions.place(v) for v in VISITORS)
        assert all(can_run(self.sessions, v) for v in VISITORS)
        assert self.sessions.wait_until_free(0)


@pytest.mark.parametrize("block", range(4))
def test_after_any_events_in_any_order_the_line_is_empty_and_a_visitor_can_run(block):
    for seed in range(1000 * block, 1000 * block + 1000):
        story = Story(seed)
        try:
            for _ in range(story.random.randrange(1, 60)):
                story.step()
            story.end()
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {' '.join(story.said)}") from e


def test_a_visitor_without_a_run_can_ask_at_any_moment():
    for seed in range(1000):
        story = Story(seed)
        for _ in range(30):
            story.step()
            holder = story.sessions._running
            for visitor in VISITORS:
                if holder is None or holder.visitor != visitor:
                    number = story.sessions.enter(visitor)
                    assert number is not None, f"seed {seed}: {' '.join(story.said)}"
                    story.queue = [entry for entry in story.queue if entry[0] != visitor] + [(visitor, number)]
