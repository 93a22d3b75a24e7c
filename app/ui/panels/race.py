"""Panels below a race: how they are built, and their values without, during and after a run.

`app/ui/race_panels.py` lists the panels of each tab. From these entries follow the layout of the page, the reset of panels, their
values during and after a run, and their place in the HTML replay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gradio as gr

from app.live.boards.patches import Patches
from app.live.stream import Growth
from app.ui.panels.canvas import state
from app.ui.panels.captions import made_with


@dataclass(frozen=True)
class RaceFrame:
    """Input of the panels of a race.

    boards  : the right one first, which has a step; limit : tokens of a complete run
    patches : draws the tokens of a picture; words : describes a token of a mesh
    """

    boards: Sequence[Growth]
    limit: int
    patches: Patches | None = None
    words: Callable[[int], str] | None = None

    @property
    def fast(self) -> Growth:
        """The right board."""
        return self.boards[0]

    @property
    def state(self) -> str:
        """State of the right run: running, done or stopped."""
        return state(self.fast)

    @cached_property
    def caption(self) -> dict[str, str]:
        """Caption of the right run, see captions.py."""
        return made_with(self.fast.run)


@dataclass(frozen=True)
class RacePanel:
    """One panel below a race.

    build : builds it, given an id; idle : value without a run
    live_value : value during the right run; end_value : value after the race, None = nothing to show
    stays : a new run keeps its value
    """

    name: str
    build: Callable[[str], gr.HTML]
    idle: Any = None
    live_value: Callable[[RaceFrame], Any] | None = None
    end_value: Callable[[RaceFrame], Any] | None = None
    stays: bool = False


@dataclass(frozen=True)
class RacePanels:
    """The panels of a tab, from top to bottom. prefix : of the ids"""

    prefix: str
    entries: tuple[RacePanel, ...]

    def build(self) -> dict[str, gr.HTML]:
        """Builds the panels, by name, with their values without a run."""
        return {each.name: each.build(f"{self.prefix}{each.name}") for each in self.entries}

    def idle_values(self) -> dict[str, Any]:
        """Values at the start of a run, by panel."""
        return {each.name: each.idle for each in self.entries if not each.stays}

    def live_values(self, frame: RaceFrame) -> dict[str, Any]:
        """Values during a race, by panel."""
        return {each.name: each.live_value(frame) for each in self.entries if each.live_value}

    def end_values(self, frame: RaceFrame) -> dict[str, Any]:
        """Values after a race, by panel, of the panels that have any."""
        values = {each.name: each.end_value(frame) for each in self.entries if each.end_value}
        return {name: value for name, value in values.items() if value is not None}
