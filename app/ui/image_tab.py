"""The tab that turns a prompt into two pictures: plain decoding on the left, an accelerated method on the right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from app import history
from app.boards.picture import Board
from app.stream import Throttle, updates
from app.ui import asked
from app.ui import knobs as knob_panel
from app.ui.keep import keep
from app.ui.method_menu import choices, run_badge, title_of
from app.ui.panels import canvas, live, notice, overlay, trace, tree, verdict
from app.ui.place import Place
from app.ui.racing import DIRECT, Racing
from engine.core import Backbone, Knob, Prompt, Sampling
from engine.methods import METHODS
from engine.run import Run

EXAMPLES = (
    "a rocket above the moon, night sky",
    "two cats under a green balloon, night sky",
    "a red apple on a blue background",
    "three bears on a grey background",
    "one fire above a heart at sunset",
)
FAVOURITE = "sjdpp"
LOOKED_UP = 40  # words of a prompt that are looked up while the user types; more than a model reads
LONGEST_WORD = 40  # characters
LEFT = ("plain", "Plain decoding", "One token at a time.")
RIGHT = "Many tokens at a time, each one verified."


def build(place: Place) -> None:
    """Builds the tab's controls and panels and connects them."""
    ImageTab(place).wire()


def settings(backbone: Backbone) -> tuple[Knob, ...]:
    """The settings of a run besides the method's own knobs, declared like them so that one kind of panel shows both."""
    sampling = backbone.sampling
    sizes = tuple(f"{s} px" for s in backbone.sizes)
    knobs = [
        Knob("guidance", "", sampling.guidance, 1, 10, 0.1, help="How strongly the picture follows the prompt.", live=False),
        Knob("temperature", "", sampling.temperature, 0, 2, 0.05, help="Randomness. 0: always the most probable token.", live=False),
    ]
    if len(sizes) > 1:
        middle = min(sizes, key=lambda s: abs(int(s.split()[0]) - 128))
        knobs.append(Knob("size", "", middle, choices=sizes, help="Side length. Larger pictures have more tokens.", live=False))
    return tuple(knobs)


def read_prompt(text: object, seed: object, values: object, backbone: Backbone) -> Prompt:
    """The Prompt that the page's fields describe; raises BadPrompt or BadKnob for wrong values."""
    own, chosen = backbone.sampling, asked.knobs(values, settings(backbone))
    sampling = Sampling(float(chosen["temperature"]), own.top_k, own.top_p, float(chosen["guidance"]))
    size = int(str(chosen["size"]).split()[0]) if "size" in chosen else None
    return Prompt(asked.text(text), seed=asked.seed(seed), size=size, sampling=sampling)


class ImageTab(Racing):
    """The components of the tab and their handlers."""

    def __init__(self, place: Place):
        super().__init__(place)
        self.backbone = place.backbone
        self.suits = self.backbone.suits
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage()
        self.panels = {name: getattr(self, name) for name in ("left", "right", "verdict", "trace", "tree")}
        self.offers = {"download": self.download}
        self.live = live.build(self.panels, "live")

    @property
    def model_name(self) -> str:
        """The name of the model that draws."""
        return self.backbone.name

    def _build_request(self) -> None:
        with gr.Row(elem_classes="ft-ask"):
            self.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Describe what to draw", lines=1, max_lines=1, elem_id="prompt",
                show_label=False, container=False, scale=1, max_length=asked.LONGEST_PROMPT,
            )  # fmt: skip
            self.build_buttons()
        with gr.Row(elem_classes="ft-chips"):
            self.chips = [gr.Button(text, size="sm", elem_classes="ft-chip") for text in EXAMPLES]
        self.hints = notice.build("hints")
        self.build_notices()

    def _build_settings(self) -> None:
        self.build_method(choices(self.backbone), FAVOURITE)
        gr.HTML("<h2>Picture</h2>", elem_classes="ft-heading")
        self.build_seed()
        self.settings = knob_panel.build(knob_panel.encode("settings", settings(self.backbone)), "settings")
        self.build_compare()

    def _build_stage(self) -> None:
        self.verdict = verdict.build()
        with gr.Row(elem_classes="ft-sides"):
            self.left = canvas.build(*LEFT)
            self.right = canvas.build("fast", METHODS[FAVOURITE].title, RIGHT)
        with gr.Row(elem_classes="ft-tools"):
            overlay.build()
            self.download = gr.DownloadButton("Download PNG", size="sm", elem_id="download", interactive=False, scale=0, min_width=140)
        self.trace = trace.build()
        self.tree = tree.build()

    def wire(self) -> None:
        """Connects the handlers."""
        inputs = [self.prompt, self.seed, self.method, self.knobs, self.settings, self.compare]
        self.wire_race([self.go.click, self.prompt.submit], self.run, inputs)
        self.prompt.change(self.look_up, self.prompt, self.hints, trigger_mode="always_last", **DIRECT)
        for chip in self.chips:
            chip.click(lambda text=chip.value: text, None, self.prompt, **DIRECT)

    def look_up(self, text: object) -> list[dict[str, str]]:
        """A notice of the words that the model does not know, among the first LOOKED_UP: a prompt may be very long."""
        if not isinstance(text, str):
            return []
        words = [word[:LONGEST_WORD] for word in text[: asked.LONGEST_PROMPT].split()[:LOOKED_UP]]
        asked_for = " ".join(words)
        if warning := asked_for and self.backbone.warning(asked_for):
            return notice.hint(warning)
        return notice.unknown(self.backbone.name, self.backbone.unknown_words(asked_for))

    def run(
        self, ticket: object, text: object, seed: object, name: object, knobs: object, values: object, compare: object, request: gr.Request
    ) -> Iterator[dict[str, Any]]:
        """The generator of one comparison."""
        visitor = request.session_hash

        def race(number: int) -> Iterator[dict[str, Any]]:
            prompt = read_prompt(text, seed, values, self.backbone)
            chosen, method = asked.method(name, self.backbone)
            yield from self.compare_runs(visitor, number, prompt, chosen, asked.knobs(knobs, method.knobs), asked.flag(compare))

        yield from self.hold_engine(visitor, ticket, race)

    def compare_runs(
        self, visitor: str, number: int, prompt: Prompt, name: str, knobs: Mapping[str, Any], compare: bool
    ) -> Iterator[dict[str, Any]]:
        """Races plain decoding against a method and shows both. number: the ticket's"""
        yield {
            "left": canvas.waiting(*LEFT[:2], LEFT[2] if compare else "Not compared."),
            "right": canvas.waiting("fast", title_of(name), RIGHT),
            "verdict": {"state": "running", "live": "Reading the prompt"},
            "trace": trace.IDLE,
            "tree": tree.IDLE,
        }
        runs = self.start_runs(visitor, number, self.backbone, name, prompt, knobs, compare)
        boards = [Board(run) for run in runs]
        for changed in updates(boards, Throttle()):
            yield self.draw(boards, changed)
        if boards[0].count and self.sessions.present(visitor):
            self.sessions.leave_results(visitor, self.prefix, self.keep_run(visitor, runs[0]))

    def draw(self, boards: list[Board], changed: set[int]) -> dict[str, Any]:
        """Updates the panels of the changed boards and the line above them."""
        scales = canvas.scales(boards)
        panels = {}
        for which in changed:
            board = boards[which]
            if board.count:
                side, title = ("fast", title_of(board.run.name)) if which == 0 else LEFT[:2]
                badge = run_badge(board.run) if which == 0 else None
                panels["right" if which == 0 else "left"] = canvas.encode(board, board.picture(), scales, side, title, badge)
        fast = boards[0]
        if 0 in changed and fast.count:
            panels["trace"] = trace.encode(fast.trail, fast.run.method, canvas.state(fast), len(fast.verdict))
            panels["tree"] = tree.encode(fast.trail, fast.run.method, canvas.state(fast))
        return {"verdict": verdict.encode(fast, boards[1] if len(boards) > 1 else None), **panels}

    def keep_run(self, visitor: str, run: Run) -> dict[str, Any]:
        """Offers the picture of a run and saves the run in the history; if the disk refuses one, the other is still written."""

        def offered() -> Path:
            file = self.sessions.folder(visitor) / f"foretoken-{run.name}-{run.prompt.seed}.png"
            history.picture_with_settings(run.result(), history.describe(run), file)
            return file

        file, lost = keep("download", offered)
        _, unkept = keep("history", lambda: history.save(run))
        offer = gr.DownloadButton(value=str(file), interactive=True) if file else gr.DownloadButton(interactive=False)
        return {"download": offer, "messages": notice.error(*lost, *unkept)}
