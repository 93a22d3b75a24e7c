"""What the tabs share whose runs have no sides: a place in the queue for one long run, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gradio as gr
from gradio.components import Component

from app.ui.panels import notice
from app.ui.racing import DIRECT, ENGINE, GOING, Racing
from engine.errors import BadPrompt


class Turns(Racing):
    """The handlers of the Bench tab and the Lab tab. Subclasses build the components and the generator."""

    def wire_turn(self, asking: list[Callable], run: Callable, inputs: list[Component]) -> None:
        """Connects what starts and stops a run. run: the generator; inputs: its arguments after the ticket"""
        between = [self.go, self.cancel, self.line, self.clock]
        offers = [self.messages, *self.offers.values()]
        starts = gr.on(asking, self.enter_turn, None, [self.ticket, *between, *offers], trigger_mode="once", **DIRECT)
        ran = starts.success(run, [self.ticket, *inputs], self.live, **ENGINE)
        late = {"trigger_mode": "multiple", **DIRECT}  # the event of an abandoned wait may still be running
        ran.then(self.restore, None, between, **late)
        ran.failure(self.restore, None, between, **late)
        ran.success(self.deliver, None, offers, **late)
        self.cancel.click(self.stop, None, between, **DIRECT)
        self.clock.tick(self.tell_place, None, between, **DIRECT)

    def enter_turn(self, request: gr.Request) -> tuple[Any, ...]:
        """Takes a ticket; shows why if there is none."""
        visitor = request.session_hash
        number = self.sessions.enter(visitor, self.prefix)
        if number is None:
            return 0, *(gr.skip(),) * 4, notice.error(BadPrompt(GOING)), *(gr.skip() for _ in self.offers)
        self.sessions.take_results(visitor, self.prefix)  # of a run whose page did not wait
        line = notice.place(self.sessions.place(visitor))
        between = gr.Button(visible=False), gr.Button(visible=True), line, gr.Timer(active=True)
        return number, *between, [], *(self.withdrawn(name) for name in self.offers)

    def deliver(self, request: gr.Request) -> Any:
        """What the run has left for the page. Gradio would take a tuple of one as the value itself."""
        found = super().deliver(request)
        return found if len(found) > 1 else found[0]
