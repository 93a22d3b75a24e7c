"""A tab's place in the queue: Generate, Cancel, messages, the ticket of a run, and what a run leaves for the page.

One generator drives a run: it holds the engine's only slot, and one yield updates every panel that changed. Everything else
(knobs, Cancel, the place in the queue) bypasses Gradio's queue, where a handler would wait until the run is over. What a run leaves
(downloads, messages) is fetched by a second handler: Gradio prepares every output at every yield.
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

# "preprocess": Gradio's own checks would end an event between the ticket and the run; app/requests turns wrong values into messages
# "show_progress_on": the browser copies all that a component holds which shows progress, hidden or not, at each update of any event
DIRECT = {"queue": False, "show_progress": "hidden", "show_progress_on": [], "api_visibility": "private", "preprocess": False}
LATEST = DIRECT | {"trigger_mode": "always_last"}
# The page holds a request back for 60 ms that would reach the server before the run, which was asked for first
BEHIND = "() => new Promise((go) => setTimeout(() => go([]), 60))"
# "multiple": a second wait may begin while Gradio still holds the event of one that was given up
ENGINE = DIRECT | {"queue": True, "concurrency_id": "engine", "concurrency_limit": 1, "trigger_mode": "multiple"}
READING = DIRECT | {"queue": True, "concurrency_id": "reading", "concurrency_limit": 1}


def fill(parts: Mapping[str, Component], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The return value of a handler with these outputs: a value for each named one, no change for the others."""
    assert values.keys() <= parts.keys(), f"not among the outputs: {values.keys() - parts.keys()}"
    return tuple(values.get(name, gr.skip()) for name in parts)


class EngineQueue:
    """The components and handlers with which a tab asks for the engine.

    prefix  : of the ids of its components, and the tab's name among the visits
    idle    : what the line above the results says when a run has failed
    replays : the tab shows a race that can be played while a visitor waits
    offers  : the components that are updated after a run, by name, besides `messages`
    waits_for, hints : for a visitor, what a run must wait for before it takes its place in line (a sentence, "" = nothing), and notices
                       to show while it waits and goes
    """

    def __init__(self, sessions: Sessions, prefix: str, idle: Mapping[str, Any] = verdict.IDLE, replays: bool = False):
        self.sessions, self.prefix, self.idle, self.replays = sessions, prefix, idle, replays
        self.offers: dict[str, Component] = {}
        self.waits_for: Callable[[str], str] = lambda visitor: ""
        self.hints: Callable[[str], list[dict[str, Any]]] = lambda visitor: []

    def build_buttons(self, start: str = "Generate", stop: str = "Cancel") -> None:
        """The button that starts a run, replaced during it by the one that stops it."""
        look = {"scale": 0, "min_width": 132, "elem_classes": "ft-go"}
        self.go = gr.Button(start, variant="primary", elem_id=f"{self.prefix}generate", **look)
        self.cancel = gr.Button(stop, variant="stop", elem_id=f"{self.prefix}cancel", visible=False, **look)

    def build_notices(self) -> None:
        """Error messages and the place in the queue."""
        self.messages = notice.build(f"{self.prefix}messages")
        self.line = notice.build(f"{self.prefix}line")
        self.clock = gr.Timer(1.0, active=False)
        self.ticket = gr.Number(0, visible="hidden", elem_id=f"{self.prefix}ticket")  # sent with the request that it belongs to

    @property
    def controls(self) -> dict[str, Component]:
        """The components that change between runs."""
        return {"go": self.go, "cancel": self.cancel, "line": self.line, "clock": self.clock}

    @property
    def results(self) -> dict[str, Component]:
        """The components that a run leaves something for."""
        return {"messages": self.messages, **self.offers}

    def wire(
        self, asking: list[Callable], run: Callable, inputs: list[Component], screen: Component,
        seed: Component | None = None, keep: Component | None = None,
    ) -> Any:  # fmt: skip
        """Connects what starts and stops a run, and returns the event behind it.

        The fields go with the request for a ticket, not with the run: the browser copies what a queued event was given at each of its
        updates. run : the generator, given the ticket and the fields; screen : gets all that it shows; seed, keep : the field of `inputs`
        that gets a new seed unless the box is ticked
        """
        between, outputs = list(self.controls.values()), list(self.results.values())
        self.seed_at = inputs.index(seed) if seed is not None else None
        enter, first, ticket_outputs = (
            (self.enter, [keep], [self.ticket, seed]) if seed is not None else (self.enter_turn, [], [self.ticket])
        )
        starts = gr.on(asking, enter, [*first, *inputs], ticket_outputs, trigger_mode="once", **DIRECT)
        ran = starts.success(self.with_fields(run), self.ticket, screen, **ENGINE)
        late = {"trigger_mode": "multiple", **DIRECT}  # the event of an abandoned wait may still be running
        starts.success(self.show_entered, None, [*between, *outputs], js=BEHIND, **late)
        ran.then(self.restore, None, between, **late)
        ran.failure(self.restore, None, between, **late)
        self.cancel.click(self.stop, None, between, **DIRECT)
        self.clock.tick(self.tell_place, None, between, **DIRECT)
        return ran.success(self.deliver, None, outputs, **late)

    def with_fields(self, decode: Callable) -> Callable:
        """The generator of a ticket: `decode` with the fields that came with it."""

        def run(ticket: object, request: gr.Request) -> Iterator[dict[str, Any]]:
            fields = self.sessions.fields(request.session_hash, validation.ticket(ticket))
            if fields is None:
                yield live.Screen().show()
            else:
                yield from decode(ticket, *fields, request)

        return run

    # --- before a run ---------------------------------------------------------------------------------------------

    def enter(self, request: gr.Request, keep: object, *fields: object) -> tuple[Any, ...]:
        """Takes a ticket (0: there is none), and a new seed if the old one is not kept. The rest of what changes on the page is left for
        `show_entered`, because the page needs long to take that in, and its run would begin behind it."""
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
        """The number of a new ticket, 0 if the visitor has a run; what the page shows then is left for `show_entered`."""
        visitor = request.session_hash
        number = self.sessions.enter(visitor, self.prefix, fields=fields)
        if number is None:
            return self._queue_updates(visitor, {"messages": notice.error(BadPrompt(GOING))})
        self.sessions.take_results(visitor, self.prefix)  # of a run whose page did not wait
        buttons = {"go": gr.Button(visible=False), "cancel": gr.Button(visible=True), "clock": gr.Timer(active=True)}
        notices = {"line": self.place_of(visitor), "messages": self.hints(visitor)}
        withdrawn = {name: gr.DownloadButton(interactive=False) for name in self.offers}
        return self._queue_updates(visitor, {**buttons, **notices, **withdrawn, "runs": True}, number)

    def _queue_updates(self, visitor: str, updates: Mapping[str, Any], number: int = 0) -> int:
        self.sessions.leave_results(visitor, f"{self.prefix}entered", updates)
        return number

    def show_entered(self, request: gr.Request) -> tuple[Any, ...]:
        """Updates that `enter` queued for the page; none for a run that has ended, because it may have queued an error since."""
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
        """The line for a visitor who does not wait, and whether the clock goes on: it shows when the machine is free."""
        if self.sessions.wants(visitor, self.prefix):
            return gr.skip(), gr.skip()
        ahead, seconds = self.sessions.ahead()
        return notice.busy_machine(ahead, seconds), gr.Timer(active=ahead > 0)

    def place_of(self, visitor: str) -> list[dict[str, str]]:
        """The notice of a visitor's place in the queue."""
        return notice.queue_place(self.sessions.place(visitor), self.sessions.wait(visitor), self.replays)

    # --- during a run, and behind it ------------------------------------------------------------------------------

    def hold(self, visitor: str, ticket: object, race: Callable[[int], Iterator[dict[str, Any]]]) -> Iterator[dict[str, dict[str, Any]]]:
        """The generator of one run, holding the engine with a ticket; when the visitor stops it, the committed tokens stay.

        race : with the ticket's number, yields the new values of panels by name
        """
        number, screen = validation.ticket(ticket), live.Screen()
        if not self.sessions.begin(visitor, number):
            yield screen.show()
            return
        try:
            for update in race(number):
                self.sessions.renew(visitor, number)
                yield screen.show(**update)
        except ForetokenError as e:
            self.leave(visitor, {"messages": notice.error(e)})
            yield screen.show(verdict=self.idle)
        except Exception:
            yield screen.show(verdict=self.idle)
            raise
        finally:
            self.sessions.end(visitor, number)

    def leave(self, visitor: str, values: Mapping[str, Any]) -> None:
        """Leaves values of `results` for the page, and under "boards" what more is made of behind it."""
        self.sessions.leave_results(visitor, self.prefix, values)

    def deliver(self, request: gr.Request) -> Any:
        """Updates that the finished run queued for the page. Gradio would take a tuple of one as the value itself."""
        results = self.sessions.take_results(request.session_hash, self.prefix)
        if boards := results.pop("boards", None):
            self.sessions.leave_results(request.session_hash, f"{self.prefix}boards", {"boards": boards})
        values = fill(self.results, results)
        return values if len(values) > 1 else values[0]

    def take_boards(self, visitor: str) -> Any:
        """Boards of the last run for larger files; None without any, or if another handler has taken them."""
        return self.sessions.take_results(visitor, f"{self.prefix}boards").get("boards")

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """Restores the buttons between runs, unless the visitor has already requested the next one."""
        if self.sessions.is_busy(request.session_hash, self.prefix) or self.sessions.wants(request.session_hash, self.prefix):
            return (gr.skip(),) * 4
        return gr.Button(visible=True), gr.Button(visible=False), [], gr.Timer(active=False)

    def stop(self, request: gr.Request) -> tuple[Any, ...]:
        """Ends the run, which keeps its committed tokens, or the wait for it."""
        self.sessions.want(request.session_hash, "")
        self.sessions.stop(request.session_hash)
        return self.restore(request)
