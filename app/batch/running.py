"""Runs a batch: skips finished inputs, makes the rest, retries failures, and writes the table periodically."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from app.batch import table
from app.batch.folder import BatchFolder, Row, failed_row, with_entry
from app.batch.inputs import BatchInput
from app.batch.progress import ProgressLine

PERIOD = 10.0  # seconds between two writes of the table
UNTRIED = "It was not tried yet. Start the batch again."

Make = Callable[[Sequence[BatchInput]], Iterable[Row]]  # makes inputs and yields their rows, in any order


@dataclass
class Batch:
    """Inputs of a batch and their rows so far.


    retries : further attempts after a failure; before : number of inputs finished before this start
    """

    folder: BatchFolder
    entries: Sequence[BatchInput]
    retries: int
    clock: Callable[[], float] = time.monotonic
    rows: dict[int, Row] = field(default_factory=dict)
    before: int = 0

    def find_unfinished(self) -> list[BatchInput]:
        """Reads the finished results; returns the inputs to make."""
        waiting = []
        for entry in self.entries:
            if entry.problem:
                self.rows[entry.number] = with_entry(failed_row(entry, entry.problem), entry)
            elif (row := self.folder.checked_row(entry)) is not None:
                self.rows[entry.number] = with_entry(row, entry)
                self.before += 1
            else:
                waiting.append(entry)
        return waiting

    def run(self, make: Make, progress: ProgressLine | None = None) -> None:
        """Makes the unfinished inputs. The table is written even after an interrupt."""
        waiting = self.find_unfinished()
        progress = progress or ProgressLine(len(self.entries), self.before)
        progress.failed += sum(bool(entry.problem) for entry in self.entries)
        by_number = {entry.number: entry for entry in waiting}
        self.write()
        try:
            for attempt in range(1, self.retries + 2):
                if not waiting:
                    break
                for row in self._write_table_between(make(waiting)):
                    self.rows[row["number"]] = row | {"attempts": attempt}
                    progress.add(row, is_last=attempt > self.retries)
                waiting = [entry for number, entry in by_number.items() if self.rows.get(number, {}).get("status") != "done"]
        finally:
            progress.end()
            self.write()

    def _write_table_between(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Yields the same rows and writes the table every PERIOD seconds."""
        last = self.clock()
        for row in rows:
            yield row
            if self.clock() - last >= PERIOD:
                self.write()
                last = self.clock()

    def table(self) -> list[Row]:
        """One row per input; an input not yet tried counts as failed."""
        return [self.rows.get(e.number) or with_entry(failed_row(e, UNTRIED), e) for e in self.entries]

    def write(self) -> None:
        """Writes results.csv."""
        table.write(self.table(), self.folder.root)

    @property
    def failures(self) -> list[Row]:
        """Rows of inputs without a result."""
        return [row for row in self.table() if row["status"] != "done"]
