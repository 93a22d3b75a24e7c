"""What the tabs share whose runs have no sides: a place in the queue for one long run, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.components import Component

from app.ui.tabs.racing import Racing


class Turns(Racing):
    """The handlers of the Bench tab and the Lab tab. Subclasses build the components and the generator."""

    def wire_turn(self, asking: list[Callable], run: Callable, inputs: list[Component]) -> None:
        """Connects what starts and stops a run. run: the generator; inputs: its arguments after the ticket"""
        self.wire_start(asking, self.enter_turn, inputs, [self.ticket], run, [self.messages, *self.offers.values()])

    def enter_turn(self, request: gr.Request, *fields: object) -> int:
        """Takes a ticket; 0 if there is none. What changes on the page is left for `show_entered`."""
        return self.take_ticket(request.session_hash, fields)

    def deliver(self, request: gr.Request) -> Any:
        """What the run has left for the page. Gradio would take a tuple of one as the value itself."""
        found = super().deliver(request)
        return found if len(found) > 1 else found[0]
