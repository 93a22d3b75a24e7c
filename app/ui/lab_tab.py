"""The Lab tab: pictures without end, while somebody moves the knobs and sees what each of them costs and gains."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import gradio as gr

from app.boards.loop import LoopBoard
from app.boards.picture import Board
from app.stream import Throttle
from app.ui import asked
from app.ui import knobs as knob_panel
from app.ui.image_tab import EXAMPLES, FAVOURITE
from app.ui.method_menu import PLAIN, choices, preset_title, start_values
from app.ui.panels import lab, live, notice, wanted
from app.ui.panels.runs import thumbnail
from app.ui.place import Place
from app.ui.racing import DIRECT
from app.ui.turns import Turns
from engine.core import Backbone, Knob, Knobs, Method, Prompt
from engine.errors import BadKnob, ForetokenError
from engine.methods import PRESETS, auto_title
from engine.run import Run
from engine.tuning.auto import resolve
from engine.tuning.prepare import to_stderr_once

CHANGING, STAYING = "one after another", "one, new seeds"
TEMPI = {"as fast as it goes": 0.0, "5 steps a second": 0.2, "1 step a second": 1.0}  # least seconds of a step
NAP = 0.05  # seconds, so that a slow tempo can be ended
SAME, FASTEST = "Same picture", "Exact, fastest"
SEEDED = "match seed"
NO_SEED = "A relaxed rule cannot match the seed, so 'verify' is 'residual' now."
MADE_WAY = "Somebody waits for the engine, so the loop has ended after this picture. Start it again to stand in line."
FOUND = "{}: the fastest exact method on this machine, as far as it was measured."
NOTHING_FASTER = "No exact method is faster than plain decoding on this machine."


def build(place: Place) -> None:
    """Builds the tab's controls and panels and connects them."""
    LabTab(place).wire()


def settings(backbone: Backbone) -> tuple[Knob, ...]:
    """What the loop draws and how fast it goes."""
    knobs = [
        Knob(
            "prompts", "", CHANGING, choices=(CHANGING, STAYING), help="One after another: the examples in turn, yours first.", live=False
        ),
        Knob(
            "tempo", "", next(iter(TEMPI)), choices=tuple(TEMPI), help="Waits between the steps. The clock does not count them.", live=True
        ),
    ]
    sizes = tuple(f"{s} px" for s in backbone.sizes)
    if len(sizes) > 1:
        middle = min(sizes, key=lambda s: abs(int(s.split()[0]) - 128))
        knobs.append(Knob("size", "", middle, choices=sizes, help="Side length of the pictures.", live=False))
    return tuple(knobs)


@dataclass
class Loop:
    """What the next picture of a visitor's loop is made with. Handlers write it, the generator reads it between two pictures."""

    name: str
    knobs: Mapping[str, float | str]
    chosen: Mapping[str, float | str]
    text: str
    seed: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, number: int, sampling: Any) -> tuple[str, Mapping[str, float | str], Prompt]:
        """The method, its knobs and the prompt of a picture. number : from 0"""
        with self.lock:
            others = [text for text in EXAMPLES if text != self.text]
            turn = [self.text, *others] if self.chosen["prompts"] == CHANGING else [self.text]
            size = int(str(self.chosen["size"]).split()[0]) if "size" in self.chosen else None
            return self.name, self.knobs, Prompt(turn[number % len(turn)], seed=self.seed + number, size=size, sampling=sampling)

    def set(self, **values: Any) -> None:
        """Changes name, knobs or chosen."""
        with self.lock:
            for name, value in values.items():
                setattr(self, name, value)

    @property
    def pause(self) -> float:
        """Least seconds of a step."""
        return TEMPI[str(self.chosen["tempo"])]


class LabTab(Turns):
    """The components of the tab and their handlers. loops : by visitor, the loop in progress"""

    prefix = "lab-"
    idle = lab.IDLE

    def __init__(self, place: Place):
        super().__init__(place)
        self.backbone, self.suits = place.backbone, place.backbone.suits
        self.declared = settings(self.backbone)
        self.loops: dict[str, Loop] = {}
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self.stage = lab.build("lab-stage")
        self.panels = {"verdict": self.stage}  # this tab's line above the results is the stage itself
        self.offers = {}
        self.live = live.build(self.panels, "lab-live")
        self.wanted = wanted.build("lab-wanted")

    @property
    def model_name(self) -> str:
        """The name of the model that draws."""
        return self.backbone.name

    def _build_request(self) -> None:
        with gr.Row(elem_classes="ft-ask"):
            self.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Describe what to draw", lines=1, max_lines=1, elem_id="lab-prompt",
                elem_classes="ft-prompt", show_label=False, container=False, scale=1, max_length=asked.LONGEST_PROMPT,
            )  # fmt: skip
            self.build_buttons()
            self.go.value, self.cancel.value = "Start loop", "Stop"
        self.build_notices()

    def _build_settings(self) -> None:
        found = choices(self.backbone)
        names = [name for _, name in found]
        gr.HTML("<h2>Presets</h2>", elem_classes="ft-heading")
        with gr.Row(elem_classes="ft-chips ft-presets"):
            titles = {SAME: SAME, FASTEST: FASTEST} | {name: preset_title(name) for name in PRESETS if name in names}
            self.presets = {
                key: gr.Button(title, size="sm", elem_classes="ft-chip", elem_id=f"lab-preset-{i}")
                for i, (key, title) in enumerate(titles.items())
            }
        self.build_cards(found, FAVOURITE)
        method, given = start_values(FAVOURITE, self.suits)
        self.knobs.value = self.panel_of(FAVOURITE, method, given)
        gr.HTML("<h2>Loop</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(knob_panel.encode("lab", self.declared) | {"loops": True}, "lab-settings")
        self.seed = gr.Number(
            7, label="First seed", precision=0, elem_id="lab-seed", minimum=0, maximum=asked.LARGEST_SEED, elem_classes="ft-first-seed"
        )

    def wire(self) -> None:
        """Connects the handlers."""
        inputs = [self.method, self.knobs, self.settings, self.prompt, self.seed]
        self.wire_turn([self.go.click, self.prompt.submit], self.run, inputs)
        shown = [self.method, self.knobs, self.badge, self.messages]
        self.knobs.input(self.move, self.knobs, shown[1:], trigger_mode="always_last", **DIRECT)
        self.method.input(self.change, [self.method, self.knobs], shown, **DIRECT)
        self.settings.input(self.tune, self.settings, self.messages, trigger_mode="always_last", **DIRECT)
        self.wanted.input(self.recall, self.wanted, shown, **DIRECT)
        for key, button in self.presets.items():
            button.click(self.pressing(key), self.method, shown, **DIRECT)

    def pressing(self, key: str) -> Callable[..., tuple[Any, ...]]:
        """The handler of a preset's button."""

        def press(name: object, request: gr.Request) -> tuple[Any, ...]:
            return self.preset(key, name, request)

        return press

    # --- knobs ----------------------------------------------------------------------------------------------------

    def panel_of(self, name: str, method: Method, values: Mapping[str, Any]) -> dict[str, Any]:
        """The panel of a method's knobs; all can be moved during a loop."""
        return knob_panel.encode(name, method.knobs, values) | {"loops": True}

    def move(self, value: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes moved knobs: the live ones for the next step, all of them for the next picture. A rule that is relaxed cannot match the
        seed, so that is switched off then, instead of an end of the loop."""
        name = value.get("name") if isinstance(value, Mapping) else value
        try:
            name, method = asked.method(name, self.backbone)
            values = asked.knobs(value, method.knobs)
            panel, told = gr.skip(), []
            if values.get("verify") == SEEDED and not method.exact(Knobs(values)):
                values |= {"verify": "residual"}
                panel, told = self.panel_of(name, method, values), notice.hint(NO_SEED)
            self.use(request.session_hash, name, method, values)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), notice.error(e)
        return panel, self.badge_of(name, values), told

    def use(self, visitor: str, name: str, method: Method, values: Mapping[str, float | str]) -> None:
        """Gives a visitor's loop a method and its knobs, if there is one."""
        loop = self.loops.get(visitor)
        if loop is None:
            return
        loop.set(name=name, knobs=values)
        self.sessions.move(visitor, method.name, values, self.model_name, 0)

    def shown(self, visitor: str, name: str, values: Mapping[str, Any], told: list[dict[str, Any]] | None = None) -> tuple[Any, ...]:
        """Method, knobs, badge and messages after a change, which the loop takes too."""
        name, method = asked.method(name, self.backbone)
        panel = self.panel_of(name, method, values)
        self.use(visitor, name, method, asked.knobs(panel, method.knobs))
        return name, panel, self.badge_of(name, panel["values"]), told or []

    def change(self, name: object, before: object, request: gr.Request) -> tuple[Any, ...]:
        """Shows the knobs of another method."""
        try:
            panel = self.chosen_knobs(name, before)
            found = self.shown(request.session_hash, str(name), panel["values"])
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)
        return found[0], found[1] | {"left": panel["left"]}, *found[2:]

    def preset(self, key: str, name: object, request: gr.Request) -> tuple[Any, ...]:
        """Shows a preset: one of the table of methods, the same picture as plain decoding, or the fastest exact method."""
        try:
            chosen, values, told = self.values_of(key, name)
            return self.shown(request.session_hash, chosen, values, told)
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)

    def values_of(self, key: str, name: object) -> tuple[str, Mapping[str, Any], list[dict[str, Any]]]:
        """(method or preset, knobs, messages) of a preset's button. name : the method that is chosen now"""
        if key == SAME:
            method, given = start_values(asked.method(name, self.backbone)[1].name, self.suits)
            if given.get("verify") == SEEDED:
                return method.name, given, []
            return FAVOURITE, start_values(FAVOURITE, self.suits)[1], []
        if key != FASTEST:
            return key, start_values(key, self.suits)[1], []
        taken = resolve(self.backbone, to_stderr_once)
        method, given = start_values(taken, self.suits)
        if method.name == PLAIN:
            return FAVOURITE, {}, notice.hint(NOTHING_FASTER)
        return method.name, given, notice.hint(FOUND.format(auto_title(taken)))

    def recall(self, value: object, request: gr.Request) -> tuple[Any, ...]:
        """Brings a snapshot back."""
        try:
            if not isinstance(value, Mapping):
                raise BadKnob("The snapshot arrived incomplete. Keep it again.")
            name, method = asked.method(value.get("name"), self.backbone)
            return self.shown(request.session_hash, name, asked.knobs({"values": value.get("knobs")}, method.knobs))
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)

    def tune(self, value: object, request: gr.Request) -> Any:
        """Takes another tempo at once, other prompts and another size for the next picture."""
        try:
            chosen = asked.knobs(value, self.declared)
        except ForetokenError as e:
            return notice.error(e)
        if loop := self.loops.get(request.session_hash):
            loop.set(chosen=chosen)
        return gr.skip()

    # --- the loop -------------------------------------------------------------------------------------------------

    def run(
        self, ticket: object, name: object, knobs: object, values: object, text: object, seed: object, request: gr.Request
    ) -> Iterator[dict[str, Any]]:
        """The generator of one loop."""
        visitor = request.session_hash

        def pictures(number: int) -> Iterator[dict[str, Any]]:
            chosen, method = asked.method(name, self.backbone)
            given = asked.knobs(knobs, method.knobs)
            loop = Loop(chosen, given, asked.knobs(values, self.declared), asked.text(text), asked.seed(seed))
            self.loops[visitor] = loop
            try:
                yield from self.endless(visitor, number, loop)
            finally:
                self.loops.pop(visitor, None)

        yield from self.hold_engine(visitor, ticket, pictures)

    def endless(self, visitor: str, number: int, loop: Loop) -> Iterator[dict[str, Any]]:
        """Draws until the visitor stops it, or until somebody waits."""
        board, throttle, identity = LoopBoard(), Throttle(), secrets.token_hex(8)
        facts = lab.made_with(self.backbone, loop.seed)
        plain = yield from self.plain_speed(visitor, number, loop)
        while plain is not None:
            chosen, values, prompt = loop.take(board.pictures, self.backbone.sampling)
            (run,) = self.start_runs(visitor, number, self.backbone, prompt, [(chosen, values)])
            picture, ready = Board(run), time.monotonic()
            for _, step in self.runner.race([run]):
                picture.add(step)
                board.add(run, step)
                if throttle.ready():
                    yield {"verdict": lab.encode(board, picture, plain, identity, facts)}
                    throttle.done()
                ready = self.wait(run, ready + loop.pause)
            if not run.finished:
                break
            board.finish(run, thumbnail(picture.final()))
            yield {"verdict": lab.encode(board, picture, plain, identity, facts)}
            if self.sessions.waiting():
                self.sessions.leave_results(visitor, self.prefix, {"messages": notice.hint(MADE_WAY)})
                break
        ended = lab.encode(board, None, plain, identity, facts, "stopped") if board.samples else lab.IDLE
        yield {"verdict": ended}

    def plain_speed(self, visitor: str, number: int, loop: Loop) -> Generator[dict[str, Any], None, float | None]:
        """Shows how far plain decoding is, at the size of the loop; returns its tokens a second, None if the visitor has stopped it."""
        _, _, prompt = loop.take(0, self.backbone.sampling)
        yield {"verdict": lab.waiting("Plain decoding first, for comparison")}
        (run,), throttle = self.start_runs(visitor, number, self.backbone, prompt, [(PLAIN, {})]), Throttle()
        for _ in self.runner.race([run]):
            if throttle.ready():
                yield {"verdict": lab.waiting(f"Plain decoding first, for comparison: {len(run.tokens):,} tokens")}
                throttle.done()
        return run.totals["tokens_per_second"] if run.finished else None

    def wait(self, run: Run, until: float) -> float:
        """Waits until a time of the monotonic clock, or until the run is stopped; returns the time."""
        while (left := until - time.monotonic()) > 0 and not run.stopped:
            time.sleep(min(left, NAP))
        return time.monotonic()
