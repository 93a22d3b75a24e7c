"""The Lab tab: decodes pictures or meshes in a loop while the user moves knobs and watches their effects."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any
from weakref import WeakValueDictionary

import gradio as gr

from app.live.boards.loop import LoopBoard
from app.live.boards.picture import Board
from app.live.stream import Throttle
from app.requests import validation
from app.requests.limits import LARGEST_SEED, LONGEST_PROMPT
from app.requests.meshes import FIRST
from app.requests.pictures import EXAMPLES
from app.requests.sides import start_values
from app.ui import knobs as knob_panel
from app.ui.method_menu import badge, cards, title_of
from app.ui.panels import clouds, elsewhere, kinds, lab, live, mesh, notice, unseen
from app.ui.panels.runs import thumbnail
from app.ui.tab_context import TabContext
from app.ui.tabs import lab_example, subject
from app.ui.tabs.decoder import TabRuns
from app.ui.tabs.engine_queue import DIRECT, LATEST, EngineQueue, fill
from app.ui.tabs.looping import NO_MESH, Loop, LoopView, settings, settings_panel
from app.ui.tabs.mesh_input import example_clouds
from app.ui.tabs.method_form import MethodForm
from app.ui.tabs.subject import LabSubject
from engine.core import PLAIN, Knobs, Method
from engine.errors import BadKnob, ForetokenError
from engine.methods import PRESETS, find
from engine.run import Run
from engine.tuning.auto import resolve
from engine.tuning.prepare import to_stderr_once

PAUSED, WAITING = "lab-paused", "lab-waiting"  # a loop that makes way for another visitor, before and after the page knows
NAP = 0.05  # seconds; lets Stop interrupt a slow tempo
SAME, FASTEST = "Same picture", "Exact, fastest"
SEEDED = "match seed"
NO_SEED = "This rule may differ from plain decoding, so Check is now “same odds as plain”."
FASTEST_IS = "{}: the fastest exact method as measured on this machine."
# A Lab that already shows a loop keeps it; "none" marks a page that wants no examples.
IS_EMPTY = """() => [(document.querySelector("#lab-stage .ft-lab")?.dataset.state ?? "empty") === "empty"
  && sessionStorage.getItem("foretoken-race") !== "none"]"""
NOTHING_FASTER = "No exact method is faster than plain decoding on this machine."


def build(place: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    LabTab(place).wire()


class LabTab:
    """Components of the tab and their handlers. loops : the running and the paused loops, by visitor"""

    prefix = "lab-"

    def __init__(self, place: TabContext):
        self.sessions = place.studio.sessions
        self.queue = EngineQueue(self.sessions, self.prefix, lab.IDLE)
        self.form = MethodForm(self.sessions, self.prefix, place.studio.backbone.suits, place.studio.backbone.name)
        self.decoder = TabRuns(self.sessions, place.studio.runner)
        self.backbone, self.suits, self.mesh = place.studio.backbone, place.studio.backbone.suits, place.studio.mesh
        self.pictures = subject.pictures(place.studio.backbone)
        self.loops: WeakValueDictionary[str, Loop] = WeakValueDictionary()
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self.viewer = mesh.build(NO_MESH, "lab-view")
                self.stage = lab.build("lab-stage")
        self.panels = {"verdict": self.stage, "viewer": self.viewer}  # this tab's line above the results is the stage
        self.live = live.build(self.panels, "lab-live")
        self.wanted = unseen.wanted_settings("lab-wanted")
        self.paused = gr.Number(0, visible="hidden", elem_id="lab-paused")  # the pauses so far
        self.tab, self.is_empty = place.tab, gr.Checkbox(False, visible="hidden", elem_id="lab-is-empty")
        self.examples = place.studio.examples
        if self.examples:
            busy = self.sessions.is_wanted
            place.studio.background.add(lambda: lab_example.make(self.examples, self.backbone, busy))

    def _build_request(self) -> None:
        with gr.Row(elem_classes="ft-ask"):
            self.kind = kinds.build("lab-kind")
            self.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Describe what to draw", lines=1, max_lines=1, elem_id="lab-prompt",
                elem_classes="ft-prompt", show_label=False, container=False, scale=1, max_length=LONGEST_PROMPT,
            )  # fmt: skip
            self.queue.build_buttons("Start loop", "Stop")
        with gr.Column(visible=False, elem_id="lab-tiles") as self.table:
            self.tiles = clouds.build(example_clouds(), "lab-clouds")
        self.queue.build_notices()

    def _build_settings(self) -> None:
        gr.HTML("<h2>Presets</h2>", elem_classes="ft-heading")
        with gr.Row(elem_classes="ft-chips ft-presets"):
            titles = {SAME: SAME, FASTEST: FASTEST} | {name: title_of(name) for name in PRESETS}
            self.presets = {
                key: gr.Button(
                    title, size="sm", elem_classes="ft-chip", elem_id=f"lab-preset-{i}", visible=self.has_preset(key, self.pictures)
                )
                for i, (key, title) in enumerate(titles.items())
            }
        first = self.pictures.favourite
        self.form.build_method(list(self.pictures.menu), first)
        self.cards = unseen.menu_cards("lab-cards")
        method, start = start_values(first, self.suits)
        self.form.knobs.value = self.panel_of(first, method, start)
        gr.HTML("<h2>Loop</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(settings_panel(self.pictures), "lab-settings")
        self.seed = gr.Number(
            7, label="First seed", precision=0, elem_id="lab-seed", minimum=0, maximum=LARGEST_SEED, elem_classes="ft-first-seed"
        )

    def wire(self) -> None:
        """Connects the handlers."""
        self.method, self.knobs, self.badge, self.messages = self.form.method, self.form.knobs, self.form.badge, self.queue.messages
        inputs = [self.method, self.knobs, self.settings, self.prompt, self.seed, self.kind, self.tiles]
        begun = self.queue.wire([self.queue.go.click, self.prompt.submit], self.run, inputs, self.live)
        again = self.queue.wire_start([self.paused.change], self.go_on, [], self.live, self.join_again)
        for loop in (begun, again):
            loop.then(self.number_of_pause, None, self.paused, **DIRECT)
        outputs = [self.method, self.knobs, self.badge, self.messages]
        self.knobs.input(self.move, [self.knobs, self.kind], outputs[1:], **LATEST)
        self.method.input(self.change, [self.method, self.knobs, self.kind], outputs, **LATEST)
        self.settings.input(self.tune, [self.settings, self.kind], self.messages, **LATEST)
        self.wanted.input(self.recall, [self.wanted, self.kind], outputs, **LATEST)
        names = ("kind", "prompt", "table", "tiles", "method", "knobs", "badge", "cards", "settings", "stage", "viewer", "messages")
        self.switched = {name: getattr(self, name) for name in names} | self.presets
        self.kind.input(self.switch, self.kind, list(self.switched.values()), **LATEST)
        if self.examples:
            self.tab.select(self.greet, self.is_empty, self.stage, js=IS_EMPTY, **DIRECT)
        for key, button in self.presets.items():
            button.click(self.preset_handler(key), [self.method, self.kind], outputs, **DIRECT)

    def greet(self, is_empty: object) -> Any:
        """Shows the example when the tab is opened for the first time."""
        return lab_example.read(self.examples, self.backbone) if is_empty is True else gr.skip()

    def preset_handler(self, key: str) -> Callable[..., tuple[Any, ...]]:
        """Returns the handler of a preset's button."""

        def press(name: object, kind: object, request: gr.Request) -> tuple[Any, ...]:
            return self.choose_preset(key, name, kind, request)

        return press

    # --- pictures or meshes ---------------------------------------------------------------------------------------

    def subject(self, kind: object) -> LabSubject:
        """Subject of the loop, by kind; raises BadPrompt, MissingWeights."""
        return self.pictures if kind == kinds.PICTURES else subject.for_kind(kind, self.backbone, self.mesh)

    def has_preset(self, key: str, work: LabSubject) -> bool:
        """True if a subject's model supports a preset."""
        return key in (SAME, FASTEST) or find(key)[0].needs <= work.backbone.capabilities

    def switch(self, kind: object) -> tuple[Any, ...]:
        """Shows the methods, settings and examples of the other kind."""
        try:
            work = self.subject(kind)
        except ForetokenError as e:
            return fill(self.switched, {"kind": kinds.PICTURES, "messages": notice.error(e)})
        are_pictures, name = work.kind == kinds.PICTURES, work.favourite
        method, start = start_values(name, work.backbone.suits)
        values = {
            "prompt": gr.Textbox(visible=are_pictures),
            "table": gr.Column(visible=not are_pictures),
            "tiles": FIRST,
            "method": name,
            "cards": {self.method.elem_id: cards(work.menu, work.backbone.suits)},
            "knobs": self.panel_of(name, method, start),
            "badge": badge(name, start),
            "settings": settings_panel(work),
            "stage": lab.IDLE | {"kind": work.kind},
            "viewer": NO_MESH,
            "messages": [],
        }
        presets: dict[str, Any] = {key: gr.Button(visible=self.has_preset(key, work)) for key in self.presets}
        presets[SAME] = gr.Button(SAME if are_pictures else "Same mesh")
        return fill(self.switched, values | presets)

    # --- knobs ----------------------------------------------------------------------------------------------------

    def panel_of(self, name: str, method: Method, values: Mapping[str, Any]) -> dict[str, Any]:
        """Value of the panel of a method's knobs; all can be moved during a loop."""
        return knob_panel.encode(name, method.knobs, values) | {"loops": True}

    def move(self, value: object, kind: object, request: gr.Request) -> tuple[Any, ...]:
        """Applies moved knobs: live ones at the next step, others at the next picture. A relaxed rule cannot match the seed, so `verify` is
        then changed instead of stopping the loop."""
        name = value.get("name") if isinstance(value, Mapping) else value
        try:
            work = self.subject(kind)
            name, method = validation.method(name, work.backbone)
            values = validation.knobs(value, method.knobs)
            panel, notices = gr.skip(), []
            if values.get("verify") == SEEDED and not method.exact(Knobs(values)):
                values |= {"verify": "residual"}
                panel, notices = self.panel_of(name, method, values), notice.hint(NO_SEED)
            self.use(request.session_hash, work, name, method, values)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), notice.error(e)
        return panel, badge(name, values), notices

    def use(self, visitor: str, work: LabSubject, name: str, method: Method, values: Mapping[str, float | str]) -> None:
        """Applies a method and its knobs to the visitor's loop, if one runs on this subject."""
        loop = self.loops.get(visitor)
        if loop is None or loop.work.kind != work.kind:
            return
        loop.set(name=name, knobs=values)
        self.sessions.move(visitor, method.name, values, work.backbone.name, 0)

    def apply_change(
        self, visitor: str, work: LabSubject, name: str, values: Mapping[str, Any], notices: list[dict[str, Any]] | None = None
    ) -> tuple[Any, ...]:
        """Applies a change to the loop; returns method, knobs, badge and messages."""
        name, method = validation.method(name, work.backbone)
        panel = self.panel_of(name, method, values)
        self.use(visitor, work, name, method, validation.knobs(panel, method.knobs))
        return name, panel, badge(name, panel["values"]), notices or []

    def change(self, name: object, before: object, kind: object, request: gr.Request) -> tuple[Any, ...]:
        """Shows the knobs of another method."""
        try:
            work = self.subject(kind)
            panel = self.form.chosen_knobs(name, before, work.backbone.suits)
            updates = self.apply_change(request.session_hash, work, str(name), panel["values"])
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)
        return updates[0], updates[1] | {"left": panel["left"]}, *updates[2:]

    def choose_preset(self, key: str, name: object, kind: object, request: gr.Request) -> tuple[Any, ...]:
        """Applies a preset: one from the table of methods, the same picture as plain decoding, or the fastest exact method."""
        try:
            work = self.subject(kind)
            preset, values, notices = self.preset_values(key, name, work)
            return self.apply_change(request.session_hash, work, preset, values, notices)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)

    def preset_values(self, key: str, name: object, work: LabSubject) -> tuple[str, Mapping[str, Any], list[dict[str, Any]]]:
        """(method or preset, knobs, messages) of a preset's button. name : the current method"""
        suits = work.backbone.suits
        if key == SAME:
            seeded = [validation.method(name, work.backbone)[1].name, work.favourite, *(other for _, other in work.menu)]
            offers = ((other, start_values(other, suits)) for other in seeded)
            return next((start[0].name, start[1], []) for _, start in offers if start[1].get("verify") == SEEDED)
        if key != FASTEST:
            return key, start_values(key, suits)[1], []
        fastest = resolve(work.backbone, to_stderr_once)
        method, values = start_values(fastest, suits)
        if method.name == PLAIN:
            return work.favourite, {}, notice.hint(NOTHING_FASTER)
        return method.name, values, notice.hint(FASTEST_IS.format(title_of(fastest)))

    def recall(self, value: object, kind: object, request: gr.Request) -> tuple[Any, ...]:
        """Restores a snapshot."""
        try:
            if not isinstance(value, Mapping):
                raise BadKnob("The snapshot arrived incomplete. Keep it again.")
            work = self.subject(kind)
            name, method = validation.method(value.get("name"), work.backbone)
            return self.apply_change(request.session_hash, work, name, validation.knobs({"values": value.get("knobs")}, method.knobs))
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)

    def tune(self, value: object, kind: object, request: gr.Request) -> Any:
        """Applies a new tempo at once, new prompts and a new size at the next picture."""
        try:
            work = self.subject(kind)
            chosen = validation.knobs(value, settings(work))
        except ForetokenError as e:
            return notice.error(e)
        loop = self.loops.get(request.session_hash)
        if loop is not None and loop.work.kind == work.kind:
            loop.set(chosen=chosen)
        return gr.skip()

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(
        self, ticket: object, name: object, knobs: object, values: object, text: object, seed: object, kind: object, cloud: object,
        request: gr.Request,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Runs a loop; yields values of panels."""
        visitor = request.session_hash

        def decode(number: int) -> Iterator[dict[str, Any]]:
            work = self.subject(kind)
            chosen, method = validation.method(name, work.backbone)
            knob_values = validation.knobs(knobs, method.knobs)
            loop = Loop(chosen, knob_values, validation.knobs(values, settings(work)), work.thing(text, cloud), validation.seed(seed), work)
            board = LoopBoard(elsewhere.sizes(work.backbone))
            view = LoopView(board, secrets.token_hex(8), lab.made_with(work.backbone, loop.seed), work.kind)
            self.loops[visitor] = loop
            view.plain = yield from self.plain_speed(visitor, number, loop)
            yield from self.loop_on(visitor, number, loop, view)

        yield from self.queue.hold(visitor, ticket, decode)

    def go_on(self, ticket: object, loop: Loop, view: LoopView, request: gr.Request) -> Iterator[dict[str, Any]]:
        """Continues a paused loop; yields values of panels."""
        visitor = request.session_hash
        yield from self.queue.hold(visitor, ticket, lambda number: self.loop_on(visitor, number, loop, view))

    def number_of_pause(self, request: gr.Request) -> Any:
        """Returns another number if the loop that has just ended is paused; then the page joins the queue again."""
        pause = self.sessions.take_results(request.session_hash, PAUSED)
        self.sessions.leave_results(request.session_hash, WAITING, pause)
        return time.monotonic_ns() % LARGEST_SEED if pause else gr.skip()

    def join_again(self, request: gr.Request) -> int:
        """Returns the number of a ticket with the paused loop, 0 if there is none."""
        pause = self.sessions.take_results(request.session_hash, WAITING)
        return self.queue.enter_turn(request, pause["loop"], pause["view"]) if pause else 0

    def loop_on(self, visitor: str, number: int, loop: Loop, view: LoopView) -> Iterator[dict[str, Any]]:
        """Decodes pictures or meshes until the visitor stops the loop, or pauses it because another visitor waits."""
        board, throttle, work = view.board, Throttle(), loop.work
        while view.plain is not None:
            chosen, values, prompt = loop.take(board.pictures)
            (run,) = self.decoder.start(visitor, number, work.backbone, prompt, [(chosen, values)], work.warm)
            growing, ready = work.board(run), time.monotonic()
            for _, step in self.decoder.runner.race([run]):
                growing.add(step)
                board.add(run, step)
                if throttle.ready():
                    yield view.show(growing)
                    throttle.finish()
                ready = self.wait(run, ready + loop.pause)
            if not run.finished:
                break
            board.finish(run, thumbnail(growing.final()) if isinstance(growing, Board) else "")
            yield view.show(growing)
            if self.sessions.waiting():
                self.sessions.leave_results(visitor, PAUSED, {"loop": loop, "view": view})
                return
        yield view.show(None) if board.samples else {"verdict": lab.IDLE | {"kind": work.kind}}

    def plain_speed(self, visitor: str, number: int, loop: Loop) -> Generator[dict[str, Any], None, float | None]:
        """Runs plain decoding at the loop's size and shows its progress; returns tokens per second, None if stopped."""
        work, (_, _, prompt) = loop.work, loop.take(0)
        waiting = {"kind": work.kind}
        yield {"verdict": lab.waiting_value("Plain decoding first, for comparison") | waiting, "viewer": NO_MESH}
        (run,), throttle = self.decoder.start(visitor, number, work.backbone, prompt, [(PLAIN, {})], work.warm), Throttle()
        for _ in self.decoder.runner.race([run]):
            if throttle.ready():
                yield {"verdict": lab.waiting_value(f"Plain decoding first, for comparison: {len(run.tokens):,} tokens") | waiting}
                throttle.finish()
        return run.totals["tokens_per_second"] if run.finished else None

    def wait(self, run: Run, until: float) -> float:
        """Waits until a time of the monotonic clock, or until the run is stopped; returns the current time."""
        while (remaining := until - time.monotonic()) > 0 and not run.stopped:
            time.sleep(min(remaining, NAP))
        return time.monotonic()
