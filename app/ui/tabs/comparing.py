"""What the tabs that compare any two methods share besides the race: the left side, repeated runs, and a form that comes back.

The left side is plain decoding or any other method with knobs of its own. The form is filled from a row of the table of runs, from a
dropped file, from a link, or from what this browser remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import gradio as gr
from gradio.components import Component

from app.live.stream import Costs, Shown, Throttle, updates
from app.requests.sides import PLAIN, Sides
from app.ui import knobs as knob_panel
from app.ui.method_menu import PLAIN_SIDE, cards
from app.ui.panels import methods, notice
from app.ui.tabs import restoring
from app.ui.tabs.racing import DIRECT, Racing
from engine.core import Backbone, Prompt
from engine.errors import ForetokenError
from engine.mesh.read import Input
from engine.run import Run


class Raced(NamedTuple):
    """A finished race: the boards, the right one first; the seconds of every run of each side; where the page's time went."""

    boards: list[Any]
    seconds: list[list[float]]
    costs: Costs


class Ended(NamedTuple):
    """What is left of a race for the files that are made of it behind the page: its ticket; the boards, the right one first; the panels
    that only its end could fill; its id in the table of runs; the cloud or mesh of its prompt."""

    ticket: int
    boards: list[Any]
    panels: Mapping[str, Any]
    race: str = ""
    given: Input | None = None


class Comparing(Racing):
    """The left side, repeats and the form's memory.

    form_names : of the components that are the form, in the order of its handlers' outputs
    right_words : what an empty right side says
    """

    form_names: tuple[str, ...] = ()
    right_words = "Many tokens at a time, each one verified."

    # --- the left side --------------------------------------------------------------------------------------------

    def build_left(self, found: list[tuple[str, str]]) -> None:
        """The checkbox for a left side, its menu of methods and its knobs. found: (title, name) of the methods besides plain decoding"""
        gr.HTML("<h2>Left side</h2>", elem_classes="ft-heading")
        self.compare = gr.Checkbox(True, label="Compare", elem_id=self._id("compare"), elem_classes="ft-check", interactive=True)
        self.other = methods.build(PLAIN, self.left_cards(found), self._id("other"))
        self.other_knobs = knob_panel.build(knob_panel.encode(PLAIN, ()), self._id("other-knobs"))

    def left_cards(self, found: list[tuple[str, str]]) -> list[dict[str, Any]]:
        """The cards of the left side's menu."""
        return cards([(PLAIN_SIDE[0], PLAIN), *found], self.suits)

    def wire_left(self) -> None:
        """Connects the left side's handlers."""
        self.other.input(
            self.choose_other, [self.other, self.other_knobs], [self.other_knobs, self.messages], trigger_mode="always_last", **DIRECT
        )
        self.other_knobs.input(self.move_other, self.other_knobs, self.messages, trigger_mode="always_last", **DIRECT)

    def choose_other(self, name: object, before: object) -> tuple[Any, ...]:
        """Shows the knobs of the left side's method."""
        try:
            return self.chosen_knobs(name, before), gr.skip()
        except ForetokenError as e:
            return gr.skip(), notice.error(e)

    def move_other(self, value: object, request: gr.Request) -> Any:
        """Writes a moved knob into the visitor's run on the left."""
        return self.steer(value, request.session_hash, side=1)

    def left_words(self, name: str) -> str:
        """What an empty left side says."""
        return PLAIN_SIDE[1] if name == PLAIN else self.right_words

    # --- the race -------------------------------------------------------------------------------------------------

    def race_sides(
        self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sides, board_of: Callable[[Run], Shown],
        draw: Callable[[list[Shown], set[int]], dict[str, Any]], times: int = 1, steps: int = 1,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Races the sides, shows them, then repeats them without showing. Returns a Raced.

        number : the ticket's; draw : the panels of boards of which some changed; times : runs of every side; steps : unmeasured ones
        """
        boards = [board_of(run) for run in self.start_runs(visitor, number, backbone, prompt, sides, steps)]
        costs = Costs()
        for changed in updates(boards, Throttle(), self.runner.race):
            begun = costs.now()
            update = draw(boards, changed)
            costs.drew(begun)
            yield update
            costs.sent()
        seconds = [[board.run.seconds] for board in boards]
        if all(board.run.finished for board in boards):
            for again in range(2, times + 1):
                said = {"state": "running", "live": f"Repeat {again} of {times}", "detail": "The same runs again, without drawing."}
                yield {"verdict": said}
                if not self.repeat(visitor, number, backbone, prompt, sides, seconds):
                    break
        return Raced(boards, seconds, costs)

    def repeat(self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sides, seconds: list[list[float]]) -> bool:
        """Runs every side once more, one after the other, and notes its seconds; False if the visitor has stopped it."""
        again = self.runner.start(backbone, prompt, sides)
        self.sessions.hold(visitor, number, again)
        self.runner.finish(again)
        if not all(run.finished for run in again):
            return False
        for each, run in zip(seconds, again, strict=True):
            each.append(run.seconds)
        return True

    # --- settings that come back ----------------------------------------------------------------------------------

    def remember(self, key: str, also: tuple[str, ...] = ()) -> gr.BrowserState:
        """Keeps the form in the browser whenever it changes; returns what it keeps.

        key : the name in the browser's storage; also : other components that are kept
        """
        self.form: dict[str, Component] = {name: getattr(self, name) for name in self.form_names}
        kept = gr.BrowserState({}, storage_key=key, secret="foretoken")  # not secret: the key only has to outlive the server
        parts = self.form | {name: getattr(self, name) for name in also}
        changes = [part.change for part in parts.values()]
        gr.on(changes, None, list(parts.values()), kept, js=restoring.remember(parts), **DIRECT)
        return kept

    def filled(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The updates of the form, of the badge and of the messages for the form's new values."""
        badge = {}
        if "knobs" in values:
            badge = {"badge": self.badge_of(values["knobs"]["name"], values["knobs"]["values"])}
        return {**values, **badge, "messages": []}
