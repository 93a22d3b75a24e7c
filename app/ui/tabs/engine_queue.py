"""A tab's access to the engine: Generate, Cancel, messages, tickets, and the results of a run.

One generator drives a run: it occupies the engine's only slot, and each yield updates all changed panels. Everything else (knobs,
Cancel, the place in the queue) bypasses Gradio's queue, where handlers would wait for the run to end. A second handler fetches the
results (downloads, messages), because Gradio processes every output of the generator at each yield.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gradio as gr
from gradio.components import Component

from app.live.session import GOING, Sessions
from app.requests import validation
from app.requests.limits import LARGEST_SEED
from app.ui.panels import live, notice, verdict
from engine.errors import BadPrompt, ForetokenError

# "preprocess": Gradio's checks could end an event between ticket and run; app/requests converts invalid values to messages
# "show_progress_on": the browser copies the value of a component with progress, even if hidden, at each update of any event
DIRECT = {"queue": False, "show_progress": "hidden", "show_progress_on": [], "api_visibility": "private", "preprocess": False}
LATEST = DIRECT | {"trigger_mode": "always_last"}
# Delays a request by 60 ms, so that it reaches the server after the run that was requested before it
BEHIND = "() => new Promise((go) => setTimeout(() => go([]), 60))"
# "multiple": a new wait may begin while Gradio still runs the event of an abandoned one
ENGINE = DIRECT | {"queue": True, "concurrency_id": "engine", "concurrency_limit": 1, "trigger_mode": "multiple"}
READING = DIRECT | {"queue": True, "concurrency_id": "reading", "concurrency_limit": 1}


def fill(parts: Mapping[str, Component], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return value of a handler with these outputs: the named values, no change for other outputs."""
    assert values.keys() <= parts.keys(), f"not outputs: {values.keys() - parts.keys()}"
    return tuple(values.get(name, gr.skip()) for name in parts)


class EngineQueue:
    """Components and handlers through which a tab uses the engine.

    prefix  : of the ids of its components; also names the tab in the sessions
    idle    : value of the line above the results after an error
    replays : the tab shows a race that can be replayed while a visitor waits
    offers  : components updated after a run, by name, in addition to `messages`
    waits_for, hints : for a visitor, what a run must wait for before it is queued (a sentence, "" = nothing), and notices to show
                       while it waits and runs
    """

    def __init__(self, sessions: Sessions, prefix: str, idle: Mapping[str, Any] = verdict.IDLE, replays: bool = False):
        self.sessions, self.prefix, self.idle, self.replays = sessions, prefix, idle, replays
        self.offers: dict[str, Component] = {}
        self.waits_for: Callable[[str], str] = lambda visitor: ""
        self.hints: Callable[[str], list[dict[str, Any]]] = lambda visitor: []

    def build_buttons(self, start: str = "Generate", stop: str = "Cancel") -> None:
        """Builds the button that starts a run and the one that replaces it during the run."""
        look = {"scale": 0, "min_width": 132, "elem_classes": "ft-go"}
        self.go = gr.Button(start, variant="primary", elem_id=f"{self.prefix}generate", **look)
        self.cancel = gr.Button(stop, variant="stop", elem_id=f"{self.prefix}cancel", visible=False, **look)

    def build_notices(self) -> None:
        """Builds the error messages and the notice of the place in the queue."""
        self.messages = notice.build(f"{self.prefix}messages")
        self.line = notice.build(f"{self.prefix}line")
        self.clock = gr.Timer(1.0, active=False)
        self.ticket = gr.Number(0, visible="hidden", elem_id=f"{self.prefix}ticket")  # sent with the run's request

    @property
    def controls(self) -> dict[str, Component]:
        """Components that change when a run starts or ends."""
        return {"go": self.go, "cancel": self.cancel, "line": self.line, "clock": self.clock}

    @property
    def results(self) -> dict[str, Component]:
        """Components that a run updates when it ends."""
        return {"messages": self.messages, **self.offers}

    def wire(
        self, asking: list[Callable], run: Callable, inputs: list[Component], screen: Component,
        seed: Component | None = None, keep: Component | None = None,
    ) -> Any:  # fmt: skip
        """Connects the events that start and stop a run; returns the event after its end.

        The fields are sent with the request for a ticket, not with the run, because the browser copies the inputs of a queued event at
        each update. run : generator, given the ticket and the fields; screen : its output; seed, keep : the field of `inputs` that gets
        a new seed unless the box is ticked
        """
        between = list(self.controls.values())
        self.seed_at = inputs.index(seed) if seed is not None else None
        enter, first, ticket_outputs = (
            (self.enter, [keep], [self.ticket, seed]) if seed is not None else (self.enter_turn, [], [self.ticket])
        )
        self.cancel.click(self.stop, None, between, **DIRECT)
        self.clock.tick(self.tell_place, None, between, **DIRECT)
        return self._wire_run(gr.on(asking, enter, [*first, *inputs], ticket_outputs, trigger_mode="once", **DIRECT), run, screen)

    def wire_start(
        self, asking: list[Callable], run: Callable, inputs: list[Component], screen: Component, enter: Callable | None = None
    ) -> Any:  # fmt: skip
        """Connects other events that start a run, with inputs of their own; see `wire`. enter : instead of `enter_turn`"""
        return self._wire_run(gr.on(asking, enter or self.enter_turn, inputs, self.ticket, trigger_mode="once", **DIRECT), run, screen)

    def _wire_run(self, starts: Any, run: Callable, screen: Component) -> Any:
        """Connects what follows a request for a ticket; returns the event after the end of the run."""
        between, outputs = list(self.controls.values()), list(self.results.values())
        ran = starts.success(self.with_fields(run), self.ticket, screen, **ENGINE)
        late = {"trigger_mode": "multiple", **DIRECT}  # the event of an abandoned wait may still run
        starts.success(self.show_entered, None, [*between, *outputs], js=BEHIND, **late)
        ran.then(self.restore, None, between, **late)
        ran.failure(self.restore, None, between, **late)
        return ran.success(self.deliver, None, outputs, **late)

    def with_fields(self, decode: Callable) -> Callable:
        """Returns a generator that calls `decode` with the fields sent with its ticket."""

        def run(ticket: object, request: gr.Request) -> Iterator[dict[str, Any]]:
            fields = self.sessions.fields(request.session_hash, validation.ticket(ticket))
            if fields is None:
                yield live.Screen().show()
            else:
                yield from decode(ticket, *fields, request)

        return run

    # --- before a run ---------------------------------------------------------------------------------------------

    def enter(self, request: gr.Request, keep: object, *fields: object) -> tuple[Any, ...]:
        """Returns a ticket (0 = none), and a new seed unless the old one is locked. Other updates are queued for `show_entered`: they take
        the page so long that they would delay the run."""
        visitor = request.session_hash
        if waits := self.waits_for(visitor):
            self.sessions.want(visitor, self.prefix)
            parked = {"go": gr.Button(visible=False), "cancel": gr.Button(visible=True), "line": notice.hint(waits)}
            return self._queue_updates(visitor, {**parked, "clock": gr.Timer(active=False)}), gr.skip()
        self.sessions.want(visitor, "")
        values, new_seed = list(fields), gr.skip()
        try:
            if not validation.flag(keep):
                new_seed = values[self.seed_at] = secrets.randbelow(LARGEST_SEED)
        except ForetokenError as e:
            return self._queue_updates(visitor, {"messages": notice.error(e)}), gr.skip()
        number = self.enter_turn(request, *values)
        return number, new_seed if number else gr.skip()

    def enter_turn(self, request: gr.Request, *fields: object) -> int:
        """Returns the number of a new ticket, 0 if the visitor has a run; queues the page's updates for `show_entered`."""
        visitor = request.session_hash
        number = self.sessions.enter(visitor, self.prefix, fields=fields)
        if number is None:
            return self._queue_updates(visitor, {"messages": notice.error(BadPrompt(GOING))})
        self.sessions.take_results(visitor, self.prefix)  # discards results that no page fetched
        buttons = {"go": gr.Button(visible=False), "cancel": gr.Button(visible=True), "clock": gr.Timer(active=True)}
        notices = {"line": self.place_of(visitor), "messages": self.hints(visitor)}
        withdrawn = {name: gr.DownloadButton(interactive=False) for name in self.offers}
        return self._queue_updates(visitor, {**buttons, **notices, **withdrawn, "runs": True}, number)

    def _queue_updates(self, visitor: str, updates: Mapping[str, Any], number: int = 0) -> int:
        self.sessions.leave_results(visitor, f"{self.prefix}entered", updates)
        return number

    def show_entered(self, request: gr.Request) -> tuple[Any, ...]:
        """Returns the updates that `enter` queued; none for a run that has already ended, because it may have queued an error since."""
        visitor = request.session_hash
        updates = self.sessions.take_results(visitor, f"{self.prefix}entered")
        over = updates.pop("runs", False) and not self.sessions.is_busy(visitor, self.prefix)
        return fill(self.controls | self.results, {} if over else updates)

    def tell_place(self, request: gr.Request) -> tuple[Any, ...]:
        """Updates the visitor's place in the queue; restores the buttons if their ticket is gone."""
        visitor = request.session_hash
        if not self.sessions.is_busy(visitor, self.prefix):
            go, cancel, *_ = self.restore(request)
            return go, cancel, *self.notice_of_place(visitor)
        ahead = self.sessions.place(visitor)
        return gr.skip(), gr.skip(), self.place_of(visitor), gr.skip() if ahead else gr.Timer(active=False)

    def notice_of_place(self, visitor: str) -> tuple[Any, Any]:
        """Notice for a visitor who is not waiting, and whether the timer continues, to show when the machine becomes free."""
        if self.sessions.wants(visitor, self.prefix):
            return gr.skip(), gr.skip()
        ahead, seconds = self.sessions.ahead()
        return notice.busy_machine(ahead, seconds), gr.Timer(active=ahead > 0)

    def place_of(self, visitor: str) -> list[dict[str, str]]:
        """Notice of a visitor's place in the queue."""
        return notice.queue_place(self.sessions.place(visitor), self.sessions.wait(visitor), self.replays)

    # --- during and after a run -------------------------------------------------------------------------------

    def hold(self, visitor: str, ticket: object, race: Callable[[int], Iterator[dict[str, Any]]]) -> Iterator[dict[str, dict[str, Any]]]:
        """Runs a race in the engine's slot and yields its updates; if the visitor stops it, the committed tokens remain.

        race : given the ticket's number, yields new values of panels by name
        """
        number, screen, idle = validation.ticket(ticket), live.Screen(), {}
        if not self.sessions.begin(visitor, number):
            yield screen.show()
            return
        try:
            for update in race(number):
                self.sessions.renew(visitor, number)
                idle = {"verdict": self.idle}
                yield screen.show(**update)
        except ForetokenError as e:
            self.leave(visitor, {"messages": notice.error(e)})
            yield screen.show(**idle)  # a refused request leaves the last result on the page
        except Exception:
            yield screen.show(**idle)
            raise
        finally:
            self.sessions.end(visitor, number)

    def leave(self, visitor: str, values: Mapping[str, Any]) -> None:
        """Queues values of `results` for the page, and under "boards" the race from which larger files are written."""
        self.sessions.leave_results(visitor, self.prefix, values)

    def deliver(self, request: gr.Request) -> Any:
        """Returns the updates that the finished run queued. A single one is not a tuple, because Gradio would show it as the value."""
        results = self.sessions.take_results(request.session_hash, self.prefix)
        if boards := results.pop("boards", None):
            self.sessions.leave_results(request.session_hash, f"{self.prefix}boards", {"boards": boards})
        values = fill(self.results, results)
        return values if len(values) > 1 else values[0]

    def take_boards(self, visitor: str) -> Any:
        """Takes the last race, to write larger files; None if there is none or another handler took it."""
        return self.sessions.take_results(visitor, f"{self.prefix}boards").get("boards")

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """Restores the buttons after a run, unless the visitor has already requested the next one."""
        if self.sessions.is_busy(request.session_hash, self.prefix) or self.sessions.wants(request.session_hash, self.prefix):
            return (gr.skip(),) * 4
        return gr.Button(visible=True), gr.Button(visible=False), [], gr.Timer(active=False)

    def stop(self, request: gr.Request) -> tuple[Any, ...]:
        """Stops the run, keeping its committed tokens, or the wait for it."""
        self.sessions.want(request.session_hash, "")
        self.sessions.stop(request.session_hash)
        return self.restore(request)
