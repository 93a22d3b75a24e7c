"""One visitor's runs: a ticket for the engine, live knobs, stop, and freeing on disconnect.

The engine belongs to one visitor at a time. Gradio keeps the line of generators; this module knows who stands where, so that a
person can be told, and holds the handles through which a slider or the cancel button reaches a run that is already going.

A place in the line is a ticket. Gradio may never start the generator that a ticket was given for: it refused an input, the request was
lost, the page is gone. So nothing relies on its start. A ticket that nobody takes while the engine is free expires, a visitor who asks
again gets a new ticket for the old one, and a run that gives no sign of life for long loses its own.
"""

from __future__ import annotations

import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir
from typing import Any

from engine.run import Run

PATIENCE = 30.0  # seconds for which the engine is free before a ticket that nobody took expires
SILENCE = 600.0  # seconds without a sign from a run before its ticket expires
IDLE = 86_400.0  # seconds after which what a visitor gave is forgotten, if their page was never seen to close


@dataclass(eq=False)
class Ticket:
    """A place in the line, then the right to the engine. tab: which one asked; seen: when it last gave a sign."""

    number: int
    visitor: str
    tab: str
    seen: float
    stopped: bool = False
    runs: list[Run] = field(default_factory=list)


@dataclass
class Visit:
    """What belongs to one visitor: a folder for their files, what they gave to work on, and the file that is being read for them."""

    seen: float
    folder: Path | None = None
    given: Any = None
    reading: tuple[str, float] | None = None  # its name, and until when it counts


class Sessions:
    """All visits, keyed by the browser's session. Handlers run in several threads, so every access takes the lock.

    clock  : seconds that only grow
    folder : where the visitors' folders are made
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, folder: Path | str | None = None) -> None:
        self._lock = threading.RLock()
        self._free = threading.Condition(self._lock)
        self._clock = clock
        self._root = Path(folder or gettempdir())
        self._visits: dict[str, Visit] = {}
        self._line: list[Ticket] = []
        self._running: Ticket | None = None
        self._begun: dict[int, Ticket] = {}  # until their generators end, also those that lost the engine before
        self._free_since = clock()
        self._numbers = 0

    # --- the line -------------------------------------------------------------------------------------------------

    def enter(self, visitor: str, tab: str = "") -> int | None:
        """A ticket at the end of the line, by its number; an older one that waits is given up for it. None if they have a run."""
        with self._lock:
            self._expire()
            if self._running is not None and self._running.visitor == visitor:
                return None
            self._visit(visitor)
            self._line = [ticket for ticket in self._line if ticket.visitor != visitor]
            self._numbers += 1
            self._line.append(Ticket(self._numbers, visitor, tab, self._clock()))
            return self._numbers

    def place(self, visitor: str) -> int:
        """How many runs end before this visitor's begins; 0 if they do not wait."""
        with self._lock:
            self._expire()
            waiting = [ticket.visitor for ticket in self._line]
            return waiting.index(visitor) + (self._running is not None) if visitor in waiting else 0

    def begin(self, visitor: str, number: int) -> bool:
        """Takes the engine with a ticket; False if it was given up, has expired or is not this visitor's.

        Gradio starts one generator at a time. So where another ticket still holds the engine, its generator was dropped and will not
        give it back: it is taken over.
        """
        with self._lock:
            self._expire()
            found = [ticket for ticket in self._line if (ticket.number, ticket.visitor) == (number, visitor)]
            if not found:
                return False
            if self._running is not None:
                self._stop_running()
            self._line.remove(found[0])
            self._running = self._begun[number] = found[0]
            self._running.seen = self._clock()
            return True

    def renew(self, visitor: str, number: int) -> None:
        """A sign of life from a run."""
        with self._lock:
            if ticket := self._of(visitor, number):
                ticket.seen = self._clock()

    def busy(self, visitor: str, tab: str | None = None) -> bool:
        """True while a visitor waits or has a run. tab: only one that was asked for there"""
        with self._lock:
            self._expire()
            tickets = [*self._line, *([self._running] if self._running else [])]
            return any(t.visitor == visitor and tab in (None, t.tab) for t in tickets)

    def end(self, visitor: str, number: int) -> None:
        """Gives a ticket back, whatever became of it, and frees the caches of its runs."""
        with self._lock:
            ticket = self._of(visitor, number)
            if ticket is not None:
                del self._begun[number]
            self._line = [t for t in self._line if (t.number, t.visitor) != (number, visitor)]
        try:
            for run in ticket.runs if ticket else []:
                run.close()
        finally:
            with self._lock:
                if ticket is not None and self._running is ticket:
                    self._release(self._clock())

    # --- the runs -------------------------------------------------------------------------------------------------

    def hold(self, visitor: str, number: int, runs: list[Run]) -> None:
        """Keeps the handles of the runs that are about to go; a stop or a farewell that came earlier still counts."""
        with self._lock:
            ticket = self._of(visitor, number)
            if ticket is not None:
                ticket.runs = runs
            if ticket is None or ticket.stopped:
                for run in runs:
                    run.stop()

    def move(self, visitor: str, method: str, values: Mapping[str, float | str], backbone: str | None = None) -> None:
        """Writes live knobs into the visitor's runs of a method; they act on the next step. Raises BadKnob.

        backbone: only runs of the model of this name
        """
        with self._lock:
            mine = self._running is not None and self._running.visitor == visitor
            runs = list(self._running.runs) if mine else []
        for run in runs:
            if run.method.name == method and backbone in (None, run.backbone.name):
                live = {k.name for k in run.method.knobs if k.live}
                run.set(**{name: value for name, value in values.items() if name in live})

    def stop(self, visitor: str) -> None:
        """Ends the visitor's runs before their next step, or their wait; what was committed stays."""
        with self._lock:
            self._line = [ticket for ticket in self._line if ticket.visitor != visitor]
            if self._running is not None and self._running.visitor == visitor:
                self._stop_running()

    def close(self) -> None:
        """Ends all that waits or goes: the studio is about to."""
        with self._lock:
            self._line = []
            if self._running is not None:
                self._stop_running()
            gone = list(self._visits)
        for visitor in gone:
            self.leave(visitor)

    def wait_until_free(self, seconds: float) -> bool:
        """True once no run goes any more; False if one still does after some seconds."""
        with self._free:
            return self._free.wait_for(lambda: self._running is None, seconds)

    # --- what belongs to a visitor --------------------------------------------------------------------------------

    def present(self, visitor: str) -> bool:
        """False once the page was closed."""
        with self._lock:
            return visitor in self._visits

    def folder(self, visitor: str) -> Path:
        """A folder for the visitor's files; it goes when they leave."""
        with self._lock:
            visit = self._visit(visitor)
            if visit.folder is None:
                visit.folder = self._root / f"foretoken-{secrets.token_hex(16)}"
            visit.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return visit.folder

    def give(self, visitor: str, given: Any) -> None:
        """Keeps what a visitor gave to work on; it goes when they leave."""
        with self._lock:
            self._visit(visitor).given = given

    def given(self, visitor: str) -> Any:
        """What a visitor gave last, None if nothing."""
        with self._lock:
            visit = self._visits.get(visitor)
            return visit.given if visit else None

    def reads(self, visitor: str, name: str, seconds: float) -> None:
        """A file is being read for a visitor; forgotten after some seconds if nobody says that it was read."""
        with self._lock:
            self._visit(visitor).reading = (name, self._clock() + seconds)

    def has_read(self, visitor: str) -> None:
        """The file was read, or refused."""
        with self._lock:
            if visitor in self._visits:
                self._visits[visitor].reading = None

    def reading(self, visitor: str) -> str:
        """The name of the file that is being read for a visitor; "" if there is none."""
        with self._lock:
            visit = self._visits.get(visitor)
            if visit is None or visit.reading is None or visit.reading[1] <= self._clock():
                return ""
            return visit.reading[0]

    def leave(self, visitor: str) -> None:
        """The page was closed: runs stop, place and folder are given up. The generator closes its runs by itself."""
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

    def _of(self, visitor: str, number: int) -> Ticket | None:
        """The ticket of a generator that has begun and not ended."""
        ticket = self._begun.get(number)
        return ticket if ticket is not None and ticket.visitor == visitor else None

    def _stop_running(self) -> None:
        self._running.stopped = True
        for run in self._running.runs:
            run.stop()

    def _release(self, since: float) -> None:
        self._running = None
        self._free_since = since
        self._free.notify_all()

    def _expire(self) -> None:
        """Drops tickets that nobody will take or give back, and visits that nobody has seen for a day."""
        now = self._clock()
        if self._running is not None and now - self._running.seen > SILENCE:
            self._stop_running()
            self._release(self._running.seen + SILENCE)
        if self._running is None:
            self._line = [t for t in self._line if now - max(t.seen, self._free_since) <= PATIENCE]
        active = {t.visitor for t in self._line} | ({self._running.visitor} if self._running else set())
        for visitor in [v for v, visit in self._visits.items() if now - visit.seen > IDLE and v not in active]:
            self.leave(visitor)
