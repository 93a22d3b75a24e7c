"""Each visitor's runs: a ticket for the engine, live knobs, stop, and cleanup on disconnect.

One visitor uses the engine at a time. Gradio queues the generators; this module tracks the order, so that the page can show a visitor's
place, and stores the runs in progress, so that sliders and the Cancel button can reach them.

A place in the queue is a ticket. Gradio may never start the generator of a ticket: it refused an input, the request was lost, or the
page was closed. So tickets expire: an unused one while the engine is free, and that of a run without activity. A new request replaces
the visitor's waiting ticket.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from typing import Any, Protocol

from engine.run import Run

PATIENCE = 30.0  # seconds that the engine may be free before an unused ticket expires
SILENCE = 600.0  # seconds without activity of a run before its ticket expires
REMEMBERED = 20  # runs from which the duration of the next one is estimated
GOING = "Your last run is still in progress. Cancel it first."
IDLE = 86_400.0  # seconds after which a visit expires if its page never reported that it closed


@dataclass(eq=False)
class Ticket:
    """A place in the queue, then the right to use the engine. tab: that requested it; seen: time of its last activity; requested, began,
    held: times of the request, of taking the engine, and of its first runs; first: one of these runs; fields: values of the page."""

    number: int
    visitor: str
    tab: str
    seen: float
    fields: tuple[object, ...] = ()
    requested: float = 0.0
    began: float = 0.0
    held: float = 0.0
    stopped: bool = False
    runs: list[Run] = field(default_factory=list)
    first: Run | None = None


@dataclass
class Visit:
    """State of one visitor: a folder for their files, their input, and the file that is being read for them."""

    seen: float
    folder: Path | None = None
    input: Any = None
    reading: tuple[str, float] | None = None  # name of the file, and expiry time of the entry
    wants: str = ""  # the tab that starts a run when the file is read
    results: dict[str, dict[str, Any]] = field(default_factory=dict)  # by tab, updates that its last run queued for the page
    newest: dict[str, int] = field(default_factory=dict)  # by tab, the number of its newest ticket
    forkable: Run | None = None  # the newest run whose cache stays


class RunWatcher(Protocol):
    """Observer of every run: see app/server/metrics.py."""

    def count(self, runs: list[Run]) -> None:
        """Called with runs that have ended."""
        ...

    def request(self, runs: list[Run], waited: float, first: float, lasted: float) -> None:
        """Called when a ticket with runs is returned. waited, first, lasted : seconds until it had the engine, its first token, its end"""
        ...


class Sessions:
    """All visits, keyed by the browser's session. Handlers run in several threads, so every access takes the lock.

    clock  : monotonic, in seconds
    folder : parent of the visitors' folders
    idle   : seconds after which a visit expires if its page never reported that it closed
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, folder: Path | str | None = None, idle: float = IDLE) -> None:
        self._lock = threading.RLock()
        self._free = threading.Condition(self._lock)
        self._clock, self._idle = clock, idle
        self._root = Path(folder or gettempdir())
        self._visits: dict[str, Visit] = {}
        self._line: list[Ticket] = []
        self._running: Ticket | None = None
        self._begun: dict[int, Ticket] = {}  # until their generators end, even after they lost the engine
        self._free_since = clock()
        self._lasted: deque[float] = deque(maxlen=REMEMBERED)  # seconds that the last runs held the engine
        self._numbers = 0
        self._queued: Callable[[], int] = lambda: 0
        self._watcher: RunWatcher | None = None

    # --- the queue ------------------------------------------------------------------------------------------------

    def enter(self, visitor: str, tab: str = "", since: float | None = None, fields: Sequence[object] = ()) -> int | None:
        """Adds a ticket at the end of the queue, replacing the visitor's waiting one; returns its number. None if they have a run.

        since : time of the request, by the clock; None = now; fields : unchecked values of the request
        """
        with self._lock:
            self._expire()
            if self._running is not None and self._running.visitor == visitor:
                return None
            self._line = [ticket for ticket in self._line if ticket.visitor != visitor]
            self._numbers += 1
            self._visit(visitor).newest[tab] = self._numbers
            now = self._clock()
            self._line.append(Ticket(self._numbers, visitor, tab, now, tuple(fields), now if since is None else since))
            return self._numbers

    def fields(self, visitor: str, number: int) -> tuple[object, ...] | None:
        """Fields of a waiting ticket; None if it is not the visitor's, was given up or has expired."""
        with self._lock:
            self._expire()
            return next((ticket.fields for ticket in self._line if (ticket.number, ticket.visitor) == (number, visitor)), None)

    def place(self, visitor: str) -> int:
        """Number of runs before this visitor's; 0 if they are not waiting."""
        with self._lock:
            self._expire()
            waiting = [ticket.visitor for ticket in self._line]
            return waiting.index(visitor) + (self._running is not None) if visitor in waiting else 0

    def wait(self, visitor: str) -> float | None:
        """Estimated seconds until this visitor's run begins, from the median of the last runs; None if the visitor is not waiting or no run
        has ended yet."""
        with self._lock:
            ahead = self.place(visitor)
            if not ahead or not self._lasted:
                return None
            usual = median(self._lasted)
            if self._running is None:
                return ahead * usual
            return max(0.0, usual - (self._clock() - self._running.began)) + (ahead - 1) * usual

    def ahead(self) -> tuple[int, float | None]:
        """(number of runs before a new request, estimated seconds until it begins or None)."""
        with self._lock:
            self._expire()
            count = len(self._line) + (self._running is not None)
            if not count or not self._lasted:
                return count, None
            usual, running = median(self._lasted), self._running
            return count, count * usual - (min(usual, self._clock() - running.began) if running else 0.0)

    def waiting(self) -> int:
        """Number of visitors and API calls that wait for the engine; calls get their tickets only when their turn comes."""
        with self._lock:
            self._expire()
            return max(len(self._line), self._queued())

    def count_also(self, queued: Callable[[], int]) -> None:
        """Sets the function that counts the requests for the engine in Gradio's queue, with or without a ticket."""
        self._queued = queued

    def running(self) -> int:
        """1 while the engine is in use, else 0."""
        with self._lock:
            self._expire()
            return int(self._running is not None)

    def is_wanted(self) -> bool:
        """True while a run is in progress or waits, for which the studio's own work makes room."""
        return self.running() > 0 or self.waiting() > 0

    def watch(self, watcher: RunWatcher) -> None:
        """Sets the observer of every run."""
        self._watcher = watcher

    def begin(self, visitor: str, number: int) -> bool:
        """Takes the engine with a ticket; False if the ticket was given up, has expired or is another visitor's.

        Gradio runs one generator at a time. So if another ticket still has the engine, its generator was dropped and will not release
        it: this ticket takes over.
        """
        with self._lock:
            self._expire()
            tickets = [ticket for ticket in self._line if (ticket.number, ticket.visitor) == (number, visitor)]
            if not tickets:
                return False
            if self._running is not None:
                self._stop_running()
            self._line.remove(tickets[0])
            self._running = self._begun[number] = tickets[0]
            self._running.seen = self._running.began = self._clock()
            return True

    def renew(self, visitor: str, number: int) -> None:
        """Records that a run is active."""
        with self._lock:
            if ticket := self._ticket(visitor, number):
                ticket.seen = self._clock()

    def is_busy(self, visitor: str, tab: str | None = None) -> bool:
        """True while a visitor is waiting or has a run. tab: only for requests from this tab"""
        with self._lock:
            self._expire()
            tickets = [*self._line, *([self._running] if self._running else [])]
            return any(t.visitor == visitor and tab in (None, t.tab) for t in tickets)

    def end(self, visitor: str, number: int) -> None:
        """Returns a ticket in any state and frees the caches of its runs, but for one that stays as long as the visit."""
        with self._lock:
            ticket = self._ticket(visitor, number)
            if ticket is not None:
                del self._begun[number]
            self._line = [t for t in self._line if (t.number, t.visitor) != (number, visitor)]
            visit, ended = self._visits.get(visitor), ticket.runs if ticket else []
            forkable = ended[0] if visit and ended and ended[0].stays else None
            if forkable:
                visit.forkable = forkable
        try:
            for run in ended:
                if run is not forkable:
                    run.close()
            if ticket is not None:
                self._report(ticket)
        finally:
            with self._lock:
                if ticket is not None and self._running is ticket:
                    if ticket.runs:
                        self._lasted.append(self._clock() - ticket.began)
                    self._release(self._clock())

    # --- the runs -------------------------------------------------------------------------------------------------

    def hold(self, visitor: str, number: int, runs: list[Run]) -> None:
        """Stores the runs that are about to start; stops them if the visitor has stopped or left."""
        with self._lock:
            ticket = self._ticket(visitor, number)
            before = ticket.runs if ticket is not None else []
            if ticket is not None:
                ticket.runs = runs
            if ticket is not None and ticket.first is None:
                ticket.first, ticket.held = runs[0], self._clock()
            if before and self._watcher is not None:  # they have ended, because others begin
                self._watcher.count(before)
            if ticket is None or ticket.stopped:
                for run in runs:
                    run.stop()

    def move(
        self, visitor: str, method: str, values: Mapping[str, float | str], backbone: str | None = None, side: int | None = None
    ) -> None:
        """Sets live knobs of the visitor's runs of a method, from the next step on. Raises BadKnob.

        backbone: only runs of the model with this name; side: only this one of the visitor's runs
        """
        with self._lock:
            mine = self._running is not None and self._running.visitor == visitor
            runs = list(self._running.runs) if mine else []
        for run in runs if side is None else runs[side : side + 1]:
            if run.method.name == method and backbone in (None, run.backbone.name):
                live = {k.name for k in run.method.knobs if k.live}
                run.set(**{name: value for name, value in values.items() if name in live})

    def stop(self, visitor: str) -> None:
        """Stops the visitor's runs before their next step and drops their waiting ticket; committed tokens stay."""
        with self._lock:
            self._line = [ticket for ticket in self._line if ticket.visitor != visitor]
            if self._running is not None and self._running.visitor == visitor:
                self._stop_running()

    def close(self) -> None:
        """Stops all runs and waiting tickets, before the studio ends."""
        with self._lock:
            self._line = []
            if self._running is not None:
                self._stop_running()
            gone = list(self._visits)
        for visitor in gone:
            self.leave(visitor)

    def wait_until_free(self, seconds: float | None) -> bool:
        """Wait until no run is in progress; False if one still is after this many seconds (None: no limit)."""
        with self._free:
            return self._free.wait_for(lambda: self._running is None, seconds)

    # --- a visitor's state ----------------------------------------------------------------------------------------

    def is_present(self, visitor: str) -> bool:
        """True until the visitor's page is closed."""
        with self._lock:
            return visitor in self._visits

    def shows(self, visitor: str, tab: str, number: int) -> bool:
        """True while a visitor's tab shows the run of this ticket: the page is open and the tab has not requested another run."""
        with self._lock:
            return visitor in self._visits and self._visits[visitor].newest.get(tab) == number

    def folder(self, visitor: str) -> Path:
        """A folder for the visitor's files, deleted when they leave."""
        with self._lock:
            visit = self._visit(visitor)
            if visit.folder is None:
                visit.folder = self._root / f"foretoken-{secrets.token_hex(16)}"
            visit.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return visit.folder

    def new_folder(self, visitor: str) -> Path:
        """A new path among the visitor's files for the folder of one upload."""
        return self.folder(visitor) / f"upload-{secrets.token_hex(8)}"

    def set_input(self, visitor: str, value: Any) -> None:
        """Stores a visitor's input until they leave."""
        with self._lock:
            self._visit(visitor).input = value

    def input_of(self, visitor: str) -> Any:
        """The visitor's newest input, None if there is none."""
        with self._lock:
            visit = self._visits.get(visitor)
            return visit.input if visit else None

    def leave_results(self, visitor: str, tab: str, values: Mapping[str, Any]) -> None:
        """Queues updates of a tab's run for the page, until they are taken."""
        with self._lock:
            if visitor in self._visits:
                self._visits[visitor].results.setdefault(tab, {}).update(values)

    def take_results(self, visitor: str, tab: str) -> dict[str, Any]:
        """Removes and returns the updates that a tab's run queued; {} if there are none."""
        with self._lock:
            visit = self._visits.get(visitor)
            return visit.results.pop(tab, {}) if visit else {}

    def begin_reading(self, visitor: str, name: str, seconds: float) -> None:
        """Records that a file is being read for a visitor, until `end_reading` or for this many seconds."""
        with self._lock:
            self._visit(visitor).reading = (name, self._clock() + seconds)

    def end_reading(self, visitor: str, name: str = "") -> None:
        """Records that a file was read or refused, unless another one is being read now. name : of the file, "" = any"""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit and visit.reading and name in ("", visit.reading[0]):
                visit.reading = None

    def want(self, visitor: str, tab: str) -> None:
        """Records the tab that starts a run once the visitor's file has been read; "" = none."""
        with self._lock:
            if tab or visitor in self._visits:
                self._visit(visitor).wants = tab

    def wants(self, visitor: str, tab: str) -> bool:
        """True if the tab starts a run once the visitor's file has been read."""
        with self._lock:
            return visitor in self._visits and bool(tab) and self._visits[visitor].wants == tab

    def reading(self, visitor: str) -> str:
        """The name of the file that is being read for a visitor; "" if there is none."""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit is None or visit.reading is None or visit.reading[1] <= self._clock():
                return ""
            return visit.reading[0]

    def leave(self, visitor: str) -> None:
        """Handles a closed page: stops the runs, drops the ticket, deletes the folder. The generator closes its runs itself."""
        with self._lock:
            self.stop(visitor)
            visit = self._visits.pop(visitor, None)
        if visit and visit.folder:
            shutil.rmtree(visit.folder, ignore_errors=True)

    # --- under the lock -------------------------------------------------------------------------------------------

    def _visit(self, visitor: str) -> Visit:
        now = self._clock()
        visit = self._visits.setdefault(visitor, Visit(now))
        visit.seen = now
        return visit

    def _ticket(self, visitor: str, number: int) -> Ticket | None:
        """The visitor's ticket with this number if its generator has begun and not ended, else None."""
        ticket = self._begun.get(number)
        return ticket if ticket is not None and ticket.visitor == visitor else None

    def _report(self, ticket: Ticket) -> None:
        """Reports a returned ticket to the watcher, unless it had no runs."""
        if self._watcher is None or not ticket.runs:
            return
        self._watcher.count(ticket.runs)
        if ticket.first is not None and ticket.first.steps:
            first = ticket.held - ticket.requested + ticket.first.steps[0].seconds
            self._watcher.request(ticket.runs, ticket.began - ticket.requested, first, self._clock() - ticket.requested)

    def _stop_running(self) -> None:
        self._running.stopped = True
        for run in self._running.runs:
            run.stop()

    def _release(self, since: float) -> None:
        self._running = None
        self._free_since = since
        self._free.notify_all()

    def _expire(self) -> None:
        """Drops tickets that nobody will use or return, and visits without recent activity."""
        now = self._clock()
        if self._running is not None and now - self._running.seen > SILENCE:
            self._stop_running()
            self._release(self._running.seen + SILENCE)
        if self._running is None:
            self._line = [t for t in self._line if now - max(t.seen, self._free_since) <= PATIENCE]
        active = {t.visitor for t in self._line} | ({self._running.visitor} if self._running else set())
        for visitor in [v for v, visit in self._visits.items() if now - visit.seen > self._idle and v not in active]:
            self.leave(visitor)
