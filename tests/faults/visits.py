"""A studio and its visitors: a visitor's actions, and whether they can still generate."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.sentences import LONGEST
from tests.faults.visitor import Page, Transport, Visitor


@contextmanager
def home(folder: Path) -> Iterator[Path]:
    """The folder that the runs of this process are kept in meanwhile."""
    before = os.environ["FORETOKEN_HOME"]  # of all tests; see tests/conftest.py
    os.environ["FORETOKEN_HOME"] = str(folder)
    try:
        yield folder / "runs"
    finally:
        os.environ["FORETOKEN_HOME"] = before


@dataclass
class Studio:
    """A studio, the way to it, and the folder that keeps its runs."""

    way: Transport
    page: Page
    runs: Path

    def visitor(self) -> Visitor:
        """A new visitor, who wants small pictures without a comparison."""
        made = Visitor(self.page, self.way)
        self.calm(made)
        return made

    def calm(self, visitor: Visitor) -> None:
        """Sets a visitor's size of pictures and number of faces, and asks for no comparison."""
        for name in ("compare", "mesh-compare"):
            visitor.values[self.component(name)] = False
        for name, knob, value in (("settings", "size", "64 px"), ("mesh-settings", "face_budget", 8)):
            panel = visitor.values[self.component(name)]
            visitor.values[self.component(name)] = panel | {"values": panel["values"] | {knob: value}}

    def component(self, name: str) -> int:
        """The number of a component."""
        return next(i for i in self.page.components if self.page.name(i) == name)

    def saved(self) -> int:
        """How many runs the history holds."""
        return len(list(self.runs.glob("[0-9]*")))


def ends(page: Page, handler: dict[str, Any]) -> bool:
    """Whether a handler's work ends soon: the Lab's loop goes on until it is stopped, and a benchmark of the page takes minutes."""
    first = page.handlers[page.chain(handler)[0]]
    near = [*first["inputs"], *first["outputs"], *(target[0] for target in first["targets"])]
    return not any(i in page.components and page.name(i).startswith(("lab-", "bench-")) for i in near)


def can_generate(studio: Studio, visitor: Visitor, tab: str) -> str:
    """Generate, as a person clicks it: "" if a run was made and kept, else what went wrong."""
    before = studio.saved()
    answers = visitor.fire(studio.page.of(f"{tab}generate", "click"))
    if bad := next((a for a in answers if not a.ok), None):
        return f"{studio.page.title(studio.page.handlers[bad.handler])} said {bad.status}: {bad.error[:LONGEST]}"
    if len(answers) < 3:
        return f"only {len(answers)} handlers of Generate were called"
    return "" if studio.saved() == before + 1 else "the run was not made, or not kept"


def opened(studio: Studio, tab: str) -> Visitor:
    """A visitor who has opened a tab."""
    visitor = studio.visitor()
    if tab:
        assert all(a.ok for a in visitor.fire(studio.page.opening("Mesh")))
        studio.calm(visitor)  # opening the tab has set the model's own
    return visitor
