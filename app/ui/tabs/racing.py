"""What the tabs that race two runs share: a place in the queue, the engine's only slot, live knobs, Cancel, error messages.

One generator drives a run: it holds the engine's only slot, and one yield updates every panel that changed. Everything else
(knobs, Cancel, the place in the queue) bypasses Gradio's queue, where a handler would wait until the run is over. What a run leaves
(downloads, messages) is fetched by a second handler: Gradio prepares every output at every yield.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.components import Component

from app.live.session import GOING, Sessions
from app.requests import validation as asked
from app.requests.limits import LARGEST_SEED
from app.requests.sides import start_values
from app.ui import knobs as knob_panel
from app.ui.method_menu import badge, cards
from app.ui.panels import badge as badge_panel
from app.ui.panels import live, methods, notice, verdict
from app.ui.tab_context import TabContext
from app.ui.tabs.saving import keep
from engine.core import ANY_SUIT, Backbone, Prompt, Suits
from engine.errors import BadKnob, BadOutput, BadPrompt, ForetokenError
from engine.run import Run

# "preprocess": Gradio's own checks would end an event between the ticket and the run; `asked` turns wrong values into messages
# "show_progress_on": the browser copies all that a component holds which shows progress, hidden or not, at each update of any event
DIRECT = {"queue": False, "show_progress": "hidden", "show_progress_on": [], "api_visibility": "private", "preprocess": False}
GIVES_WAY = 20.0  # seconds that a larger file waits for the end of a run, which would be less than half as fast beside it
# The page holds a request back for 60 ms that would reach the server before the run, which was asked for first
BEHIND = "() => new Promise((go) => setTimeout(() => go([]), 60))"
# "multiple": a second wait may begin while Gradio still holds the event of one that was given up
ENGINE = DIRECT | {"queue": True, "concurrency_id": "engine", "concurrency_limit": 1, "trigger_mode": "multiple"}
READING = DIRECT | {"queue": True, "concurrency_id": "reading", "concurrency_limit": 1}


def fill(parts: Mapping[str, Component], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """The return value of a handler with these outputs: a value for each named one, no change for the others."""
    assert values.keys() <= parts.keys(), f"not among the outputs: {values.keys() - parts.keys()}"
    return tuple(values.get(name, gr.skip()) for name in parts)


class Racing:
    """The components and handlers that both tabs have. Subclasses arrange the components and define the generator.

    prefix : of the ids of its components
    suits  : the knob values that suit its model
    panels : the panels that a run updates, by name
    offers : the components that are updated after a run, by name, besides `messages`
    replays : the tab shows a race that can be played while a visitor waits: the last one, or the example
    """

    prefix = ""
    suits: Suits = ANY_SUIT
    replays = False
    idle = verdict.IDLE
    panels: dict[str, Component]
    offers: dict[str, Component]

    def __init__(self, place: TabContext):
        self.sessions: Sessions = place.studio.sessions
        self.runner, self.shelf = place.studio.runner, place.studio.shelf
        self.may_install = not place.studio.limits.shared  # the visitor is at home on this machine
        self.warmed: set[tuple[Any, ...]] = set()

    # --- parts ----------------------------------------------------------------------------------------------------

    def _id(self, name: str) -> str:
        return f"{self.prefix}{name}"

    def build_buttons(self) -> None:
        """Generate, replaced by Cancel during a run."""
        look = {"scale": 0, "min_width": 132, "elem_classes": "ft-go"}
        self.go = gr.Button("Generate", variant="primary", elem_id=self._id("generate"), **look)
        self.cancel = gr.Button("Cancel", variant="stop", elem_id=self._id("cancel"), visible=False, **look)

    def build_notices(self) -> None:
        """Error messages and the place in the queue."""
        self.messages = notice.build(self._id("messages"))
        self.line = notice.build(self._id("line"))
        self.clock = gr.Timer(1.0, active=False)
        self.ticket = gr.Number(0, visible="hidden", elem_id=self._id("ticket"))  # sent with the request that it belongs to

    def build_cards(
        self, choices: list[tuple[str, str]], favourite: str, speedups: Mapping[str, float] | None = None, sheet: bool = False
    ) -> None:
        """The menu of methods with a card for every one, the badge and the knobs of the chosen one.

        speedups : by method, over plain decoding on this machine; sheet : on a phone the settings are a sheet, which a button closes
        """
        close = '<button type="button" class="ft-sheet">Done</button>' if sheet else ""
        gr.HTML(f"{close}<h2>Method</h2>", elem_classes="ft-heading")
        self.method = methods.build(favourite, cards(choices, self.suits, speedups), self._id("method"))
        self._build_knobs(favourite)

    def _build_knobs(self, favourite: str) -> None:
        method, given = start_values(favourite, self.suits)
        self.badge = badge_panel.build(badge(favourite, given), self._id("badge"))
        self.knobs = knob_panel.build(knob_panel.encode(favourite, method.knobs, given), self._id("knobs"))

    def build_seed(self) -> None:
        """The seed, a button that rolls another one, and a checkbox that keeps it."""
        with gr.Row(elem_classes="ft-seed") as self.seed_row:
            limits = {"minimum": 0, "maximum": LARGEST_SEED}
            self.seed = gr.Number(7, label="Seed", precision=0, elem_id=self._id("seed"), scale=1, min_width=90, **limits)
            self.dice = gr.Button("Roll", size="sm", elem_id=self._id("dice"), elem_classes="ft-dice", scale=0, min_width=72)
            self.keep = gr.Checkbox(
                True, label="Keep", elem_id=self._id("keep"), elem_classes="ft-check", scale=0, min_width=72, interactive=True
            )

    # --- handlers -------------------------------------------------------------------------------------------------

    def wire_race(self, asking: list[Callable], run: Callable, inputs: list[Component]) -> Any:
        """Connects what starts, stops and steers a run, and returns the event behind it. run: the generator; inputs: its arguments after
        the ticket. The fields are sent with the request for a ticket, see `wire_start`."""
        offers = {"messages": self.messages, **self.offers}
        self.seed_at = inputs.index(self.seed)
        delivered = self.wire_start(asking, self.enter, [self.keep, *inputs], [self.ticket, self.seed], run, list(offers.values()))
        self.knobs.input(self.move, self.knobs, [self.badge, self.messages], trigger_mode="always_last", **DIRECT)
        self.method.input(
            self.choose, [self.method, self.knobs], [self.knobs, self.badge, self.messages], trigger_mode="always_last", **DIRECT
        )
        self.dice.click(lambda: secrets.randbelow(LARGEST_SEED), None, self.seed, **DIRECT)
        return delivered

    def wire_start(
        self, asking: list[Callable], enter: Callable, inputs: list[Component], entered: list[Component], run: Callable,
        offers: list[Component],
    ) -> Any:  # fmt: skip
        """Connects what starts and stops a run, and returns the event behind it.

        The fields go with the request for a ticket, not with the run: the browser copies what a queued event was given at each of its
        updates. run : the generator, given the ticket and what `enter` kept of the fields
        """
        between = [self.go, self.cancel, self.line, self.clock]
        starts = gr.on(asking, enter, inputs, entered, trigger_mode="once", **DIRECT)
        ran = starts.success(self.with_fields(run), self.ticket, self.live, **ENGINE)
        late = {"trigger_mode": "multiple", **DIRECT}  # the event of an abandoned wait may still be running
        starts.success(self.show_entered, None, [*between, *offers], js=BEHIND, **late)
        ran.then(self.restore, None, between, **late)
        ran.failure(self.restore, None, between, **late)
        self.cancel.click(self.stop, None, between, **DIRECT)
        self.clock.tick(self.tell_place, None, between, **DIRECT)
        return ran.success(self.deliver, None, offers, **late)

    def with_fields(self, decode: Callable) -> Callable:
        """The generator of a ticket: `decode` with the fields that came with it."""

        def run(ticket: object, request: gr.Request) -> Iterator[dict[str, Any]]:
            fields = self.sessions.fields(request.session_hash, asked.ticket(ticket))
            if fields is None:
                yield live.Screen().show()
            else:
                yield from decode(ticket, *fields, request)

        return run

    def enter(self, request: gr.Request, keep: object, *fields: object) -> tuple[Any, ...]:
        """Takes a ticket (0: there is none), and a new seed if the old one is not kept. The rest of what changes on the page is left for
        `show_entered`, because the page needs long to take that in, and its run would begin behind it."""
        visitor = request.session_hash
        if waits := self.waits_for(visitor):
            self.sessions.want(visitor, self.prefix)
            parked = {"go": gr.Button(visible=False), "cancel": gr.Button(visible=True), "line": notice.hint(waits)}
            return self._entered(visitor, {**parked, "clock": gr.Timer(active=False)}), gr.skip()
        self.sessions.want(visitor, "")
        given, changed = list(fields), gr.skip()
        try:
            if not asked.flag(keep):
                changed = given[self.seed_at] = secrets.randbelow(LARGEST_SEED)
        except ForetokenError as e:
            return self._entered(visitor, {"messages": notice.error(e)}), gr.skip()
        number = self.take_ticket(visitor, given)
        return number, changed if number else gr.skip()

    def take_ticket(self, visitor: str, fields: Sequence[object]) -> int:
        """The number of a new ticket, 0 if the visitor has a run; what the page shows then is left for `show_entered`."""
        number = self.sessions.enter(visitor, self.prefix, fields=fields)
        if number is None:
            return self._entered(visitor, {"messages": notice.error(BadPrompt(GOING))})
        self.sessions.take_results(visitor, self.prefix)  # of a run whose page did not wait
        return self._entered(visitor, {**self.begun(visitor), "runs": True}, number)

    def begun(self, visitor: str) -> dict[str, Any]:
        """What the page shows as soon as a visitor has a ticket, by name."""
        buttons = {"go": gr.Button(visible=False), "cancel": gr.Button(visible=True), "clock": gr.Timer(active=True)}
        said = {"line": self.place_of(visitor), "messages": self.hints_of(visitor)}
        return {**buttons, **said, **{name: self.withdrawn(name) for name in self.offers}}

    def _entered(self, visitor: str, shown: Mapping[str, Any], number: int = 0) -> int:
        self.sessions.leave_results(visitor, f"{self.prefix}entered", shown)
        return number

    def show_entered(self, request: gr.Request) -> tuple[Any, ...]:
        """What `enter` has left for the page; nothing of a run that is over, because it may have left an error meanwhile."""
        visitor = request.session_hash
        parts = {"go": self.go, "cancel": self.cancel, "line": self.line, "clock": self.clock, "messages": self.messages, **self.offers}
        shown = self.sessions.take_results(visitor, f"{self.prefix}entered")
        over = shown.pop("runs", False) and not self.sessions.busy(visitor, self.prefix)
        return fill(parts, {} if over else shown)

    def hints_of(self, visitor: str) -> list[dict[str, Any]]:
        """Notices to show while a run that the visitor has requested waits and goes."""
        return []

    def withdrawn(self, name: str) -> Any:
        """The update of an offer at the start of a run."""
        return gr.DownloadButton(interactive=False)

    def deliver(self, request: gr.Request) -> tuple[Any, ...]:
        """What the run has left for the page."""
        parts = {"messages": self.messages, **self.offers}
        left = self.sessions.take_results(request.session_hash, self.prefix)
        if boards := left.pop("boards", None):  # for what is made of them behind this
            self.sessions.leave_results(request.session_hash, f"{self.prefix}boards", {"boards": boards})
        return fill(parts, left)

    def waits_for(self, visitor: str) -> str:
        """What a run must wait for before it takes its place in line, in a sentence; "" if for nothing."""
        return ""

    def write_files(
        self, visitor: str, ticket: int, writers: Mapping[str, Callable[[Path], Path]], path_of: Callable[[str], Path]
    ) -> tuple[dict[str, Any], list[BadOutput]]:
        """Writes the larger files of a race, and returns the offers of those that the disk took, and its errors. A file waits until no run
        is in progress, but not for ever. Nothing is written, and nothing offered, once the page is closed or shows another race.

        ticket : the race's; writers : by name of the offer; path_of : where the file of a name lies
        """
        offers, mistakes = {}, []
        for name, write in writers.items():
            self.sessions.wait_until_free(GIVES_WAY)
            if not self.sessions.shows(visitor, self.prefix, ticket):
                return {}, []
            file, lost = keep(name, lambda name=name, write=write: write(path_of(name)))
            offers |= {name: gr.DownloadButton(value=str(file), interactive=True)} if file else {}
            mistakes += lost
        return offers, mistakes

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """Restores the buttons between runs, unless the visitor has requested the next one meanwhile."""
        if self.sessions.busy(request.session_hash, self.prefix) or self.sessions.wants(request.session_hash, self.prefix):
            return (gr.skip(),) * 4
        return gr.Button(visible=True), gr.Button(visible=False), [], gr.Timer(active=False)

    def stop(self, request: gr.Request) -> tuple[Any, ...]:
        """Ends the run, which keeps its committed tokens, or the wait for it."""
        self.sessions.want(request.session_hash, "")
        self.sessions.stop(request.session_hash)
        return self.restore(request)

    def tell_place(self, request: gr.Request) -> tuple[Any, ...]:
        """Updates the visitor's place in the queue; restores the buttons if their ticket is gone."""
        visitor = request.session_hash
        if not self.sessions.busy(visitor, self.prefix):
            go, cancel, *_ = self.restore(request)
            return go, cancel, *self.found_taken(visitor)
        ahead = self.sessions.place(visitor)
        return gr.skip(), gr.skip(), self.place_of(visitor), gr.skip() if ahead else gr.Timer(active=False)

    def found_taken(self, visitor: str) -> tuple[Any, Any]:
        """The line for a visitor who does not wait, and whether the clock goes on: it tells when the machine is free."""
        if self.sessions.wants(visitor, self.prefix):
            return gr.skip(), gr.skip()
        ahead, seconds = self.sessions.ahead()
        return notice.taken(ahead, seconds), gr.Timer(active=ahead > 0)

    def place_of(self, visitor: str) -> list[dict[str, str]]:
        """The notice of a visitor's place in the queue."""
        return notice.place(self.sessions.place(visitor), self.sessions.wait(visitor), self.replays)

    def choose(self, name: object, before: object = None) -> tuple[Any, ...]:
        """Shows the knobs of a method or a preset. before: the panel's value, which knows how each method was left"""
        try:
            value = self.chosen_knobs(name, before)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), notice.error(e)
        return value, self.badge_of(str(name), value["values"]), gr.skip()

    def chosen_knobs(self, name: object, before: object = None, suits: Suits | None = None) -> dict[str, Any]:
        """The panel of a method's knobs: as they were when the visitor left it, else its initial values. Raises NotSupported. suits: of
        another model than the tab's"""
        asked.method(name)
        method, given = start_values(str(name), self.suits if suits is None else suits)
        known: dict[str, Any] = {}
        if isinstance(before, Mapping) and isinstance(before.get("left"), Mapping) and isinstance(before.get("name"), str):
            known = {**before["left"], before["name"]: before.get("values")}
        with suppress(BadKnob):  # what the page remembers may be another version's
            given = asked.knobs({"values": known[name]}, method.knobs) if name in known else given
        return knob_panel.encode(str(name), method.knobs, given) | {"left": known}

    def badge_of(self, name: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """The badge of a method with these knobs."""
        return badge(name, values)

    def move(self, value: object, request: gr.Request) -> tuple[Any, ...]:
        """Writes a moved knob into the visitor's run and updates the badge."""
        said = self.steer(value, request.session_hash, side=0)
        if said != []:
            return gr.skip(), said
        return self.badge_of(value["name"], value["values"]), gr.skip()

    def steer(self, value: object, visitor: str, side: int) -> list[dict[str, str]]:
        """Writes the knobs of a panel into one of the visitor's runs; returns a notice if they are wrong."""
        try:
            _, method = asked.method(value.get("name") if isinstance(value, Mapping) else value)
            self.sessions.move(visitor, method.name, asked.knobs(value, method.knobs), self.model_name, side)
        except ForetokenError as e:
            return notice.error(e)
        return []

    @property
    def model_name(self) -> str:
        """The name of the model whose runs the knobs steer: a run of the other tab may be in progress."""
        raise NotImplementedError

    def hold_engine(
        self, visitor: str, ticket: object, race: Callable[[int], Iterator[dict[str, Any]]]
    ) -> Iterator[dict[str, dict[str, Any]]]:
        """The generator of one race, holding the engine with a ticket; when the visitor stops it, the committed tokens stay.

        race : yields the new values of panels by name
        """
        number, screen = asked.ticket(ticket), live.Screen()
        if not self.sessions.begin(visitor, number):
            yield screen.show()
            return
        try:
            for update in race(number):
                self.sessions.renew(visitor, number)
                yield screen.show(**update)
        except ForetokenError as e:
            self.sessions.leave_results(visitor, self.prefix, {"messages": notice.error(e)})
            yield screen.show(verdict=self.idle)
        except Exception:
            yield screen.show(verdict=self.idle)
            raise
        finally:
            self.sessions.end(visitor, number)

    def start_runs(
        self, visitor: str, number: int, backbone: Backbone, prompt: Prompt, sides: Sequence[tuple[str, Mapping[str, Any]]], steps: int = 1
    ) -> list[Run]:
        """A run for every side, registered for the visitor's sliders and Cancel.

        number: the ticket's; sides: (method or preset, knobs), the accelerated one first; steps: number of unmeasured steps before the
        first run of these settings
        """
        for each, values in sides:
            shape = (backbone.name, each, prompt.size, tuple(sorted(values.items())))
            if shape not in self.warmed:
                self.runner.warm(backbone, prompt, (each, values), steps)
                self.warmed.add(shape)
        runs = self.runner.start(backbone, prompt, sides)
        self.sessions.hold(visitor, number, runs)
        return runs
