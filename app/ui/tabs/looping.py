"""A Lab loop: settings, inputs of the next run, display."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.live.boards.loop import LoopBoard
from app.live.boards.mesh import MeshBoard
from app.live.boards.picture import Board
from app.live.stream import Growth
from app.ui import knobs as knob_panel
from app.ui import mesh_side
from app.ui.method_menu import run_badge, title_of
from app.ui.panels import lab, mesh
from app.ui.tabs import subject
from app.ui.tabs.subject import LabSubject
from engine.core import Knob, Prompt

CHANGING, STAYING = "one after another", "one, new seeds"
TEMPI = {"as fast as it goes": 0.0, "5 steps a second": 0.2, "1 step a second": 1.0}  # minimum seconds per step
NO_MESH = mesh.encode({"accelerated": mesh.Side.empty("The mesh grows here", "Choose a cloud and start the loop.")})


def settings(work: LabSubject) -> tuple[Knob, ...]:
    """Settings of the loop: inputs, tempo, size."""
    turn = Knob(
        work.series, "", CHANGING, choices=(CHANGING, STAYING), help="One after another: yours, then the examples in turn.", live=False
    )
    tempo = Knob(
        "tempo", "", next(iter(TEMPI)), choices=tuple(TEMPI), help="Pauses between steps. The clock does not count them.", live=True
    )
    return (turn, tempo) if work.size is None else (turn, tempo, work.size)


def settings_panel(work: LabSubject) -> dict[str, Any]:
    """Value of the settings panel."""
    return knob_panel.encode(f"lab-{work.kind}", settings(work), words=subject.panel_words(work)) | {"loops": True}


@dataclass
class Loop:
    """Inputs of a visitor's loop, written by handlers and read by the generator before each picture or mesh.

    first : the first prompt or cloud
    """

    name: str
    knobs: Mapping[str, float | str]
    chosen: Mapping[str, float | str]
    first: str
    seed: int
    work: LabSubject
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, number: int) -> tuple[str, Mapping[str, float | str], Prompt]:
        """Method, knobs and prompt of a picture or mesh. number : from 0"""
        with self.lock:
            others = [thing for thing in self.work.things if thing != self.first]
            turn = [self.first, *others] if self.chosen[self.work.series] == CHANGING else [self.first]
            return self.name, self.knobs, self.work.prompt(turn[number % len(turn)], self.seed + number, self.chosen)

    def set(self, **values: Any) -> None:
        """Sets `name`, `knobs` or `chosen`."""
        with self.lock:
            for name, value in values.items():
                setattr(self, name, value)

    @property
    def pause(self) -> float:
        """Minimum seconds per step."""
        return TEMPI[str(self.chosen["tempo"])]


@dataclass
class LoopView:
    """Display of a loop. facts : caption; plain : tokens per second of plain decoding, None = unknown; last : the latest board"""

    board: LoopBoard
    identity: str
    facts: dict[str, str]
    kind: str
    plain: float | None = None
    last: Growth | None = None

    def show(self, growing: Growth | None) -> dict[str, Any]:
        """Values of the panels. growing : the current board, None = the loop has ended"""
        state = "running" if growing else "stopped"
        self.last = growing or self.last
        picture = growing if isinstance(growing, Board) else None
        panels = {"verdict": lab.encode(self.board, picture, self.plain, self.identity, self.facts, state) | {"kind": self.kind}}
        if not isinstance(self.last, MeshBoard) or not self.last.count:
            return panels
        run = self.last.run
        side = mesh_side.side_of(self.last, title_of(run.name), run_badge(run))
        return panels | {"viewer": mesh.encode({"accelerated": side}, subject.shown_points(run.prompt))}
