"""A panel below a race: how it is built, its value without a run, and what it draws of one.

The tables in `app/ui/race_panels.py` list those of each tab. What a race needs of a panel follows from its entry: its place on the
page, its reset, its values while a run goes on and at its end, and its place in the HTML replay.
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
    """A race as its panels see it.

    boards  : the right one first, which has a step; limit : tokens of a whole run
    patches : draws the tokens of a picture; words : says what a token of a mesh stands for
    here    : the model is in this process, so that it can be asked once more
    """

    boards: Sequence[Growth]
    limit: int
    patches: Patches | None = None
    words: Callable[[int], str] | None = None
    here: bool = True

    @property
    def fast(self) -> Growth:
        """The right board."""
        return self.boards[0]

    @property
    def state(self) -> str:
        """The state of the right run, as panels name it."""
        return state(self.fast)

    @cached_property
    def caption(self) -> dict[str, str]:
        """Settings of the right run."""
        return made_with(self.fast.run)


@dataclass(frozen=True)
class RacePanel:
    """One panel below a race.

    build : makes it, for an id; idle : its value without a run, and elsewhere : the same where runs are decoded in another process
    live_value : of a frame while the right run goes on; end_value : of a finished race, None = nothing to show
    stays : a new run leaves its value as it is
    """

    name: str
    build: Callable[[str], gr.HTML]
    idle: Any = None
    elsewhere: Any = None
    live_value: Callable[[RaceFrame], Any] | None = None
    end_value: Callable[[RaceFrame], Any] | None = None
    stays: bool = False


@dataclass(frozen=True)
class RacePanels:
    """The panels of a tab, from top to bottom. prefix : of their ids"""

    prefix: str
    entries: tuple[RacePanel, ...]

    def build(self, here: bool = True) -> dict[str, gr.HTML]:
        """The panels by name, with their values without a run."""
        panels = {}
        for each in self.entries:
            panels[each.name] = each.build(f"{self.prefix}{each.name}")
            if not here and each.elsewhere is not None:
                panels[each.name].value = each.elsewhere
        return panels

    def idle_values(self, here: bool = True) -> dict[str, Any]:
        """The values at the start of a run."""
        return {p.name: p.idle if here or p.elsewhere is None else p.elsewhere for p in self.entries if not p.stays}

    def live_values(self, frame: RaceFrame) -> dict[str, Any]:
        """The values of a frame."""
        return {each.name: each.live_value(frame) for each in self.entries if each.live_value}

    def end_values(self, frame: RaceFrame) -> dict[str, Any]:
        """The values that only a finished race has."""
        values = {each.name: each.end_value(frame) for each in self.entries if each.end_value}
        return {name: value for name, value in values.items() if value is not None}
