"""The tab that turns a prompt into two pictures: plain decoding on the left, an accelerated method on the right.

One generator drives a run: it holds the engine's only slot, and one yield updates every panel that changed. Everything else
(knobs, cancel, the place in the line) goes around the queue, because a handler in the queue would wait until the run is over.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import gradio as gr

from app import history
from app.stream import Board, Throttle, updates
from app.ui import knobs as knob_panel
from app.ui.panels import canvas, notice, overlay, verdict
from app.ui.place import Place
from engine.core import Backbone, Knob, Method, Prompt, Sampling
from engine.errors import ForetokenError
from engine.methods import METHODS, PRESETS, find
from engine.run import Run, generate

EXAMPLES = (
    "a rocket above the moon, night sky",
    "two cats under a red umbrella, night sky",
    "a red apple on a blue background",
    "three drums on a grey background",
    "a big turtle in outer space",
)
PLAIN = "ar"
FAVOURITE = "sjdpp"
LARGEST_SEED = 2**31 - 1
DIRECT = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
LEFT = ("plain", "Plain decoding", "One token at a time.")
RIGHT = "Many tokens at a time, each one checked."


def build(place: Place) -> None:
    """The tab's controls and panels, and what connects them."""
    ImageTab(place).wire(place.page)


def settings(backbone: Backbone) -> tuple[Knob, ...]:
    """What a run takes apart from the method's own knobs, declared like them so that one panel shows both."""
    sampling = backbone.sampling
    sizes = tuple(f"{s} px" for s in getattr(backbone, "sizes", ()))
    knobs = [
        Knob("guidance", "", sampling.guidance, 1, 10, 0.1, help="How strictly the picture follows the prompt.", live=False),
        Knob("temperature", "", sampling.temperature, 0, 2, 0.05, help="0: always the most probable token.", live=False),
    ]
    if len(sizes) > 1:
        middle = min(sizes, key=lambda s: abs(int(s.split()[0]) - 128))
        knobs.append(Knob("size", "", middle, choices=sizes, help="Larger pictures have more tokens.", live=False))
    return tuple(knobs)


def choices(backbone: Backbone) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that work on a backbone, plain decoding left out: it is the other side."""
    methods = {n: m for n, m in METHODS.items() if m.needs <= backbone.capabilities and n != PLAIN}
    presets = [(preset_title(name), name) for name, (method, _) in PRESETS.items() if method in methods]
    return [(m.title, n) for n, m in methods.items()] + presets


def preset_title(name: str) -> str:
    """A preset's name behind its method's title: "SJD++ (published)"."""
    method = PRESETS[name][0]
    return f"{METHODS[method].title} ({name.removeprefix(method).strip('_').replace('_', ' ')})"


def start_values(name: str) -> tuple[Method, dict[str, Any]]:
    """A method and the knobs it starts with here: a preset's own, else verified by the seed, so that both pictures are the same."""
    method, given = find(name)
    if name in METHODS and any(k.name == "verify" for k in method.knobs):
        given["verify"] = "match seed"
    return method, given


def read_prompt(text: str, seed: float, values: Mapping[str, Any], backbone: Backbone) -> Prompt:
    """The Prompt of what stands on the page."""
    own = backbone.sampling
    sampling = Sampling(float(values["temperature"]), own.top_k, own.top_p, float(values["guidance"]))
    size = int(str(values["size"]).split()[0]) if "size" in values else None
    return Prompt(text, seed=int(seed or 0), size=size, sampling=sampling)


def warm(run: Run) -> None:
    """One unmeasured step: the first pass of a shape pays for allocations that belong to nobody's speed."""
    try:
        next(run, None)
    finally:
        run.close()


class ImageTab:
    """The components of the tab and their handlers."""

    def __init__(self, place: Place):
        self.backbone, self.sessions = place.backbone, place.sessions
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage()

    def _build_request(self) -> None:
        with gr.Row(elem_classes="ft-ask"):
            self.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Say what to draw", lines=1, max_lines=1, elem_id="prompt",
                show_label=False, container=False, scale=1, max_length=1200,
            )  # fmt: skip
            self.go = gr.Button("Generate", variant="primary", elem_id="generate", scale=0, min_width=132)
            self.cancel = gr.Button("Cancel", variant="stop", elem_id="cancel", visible=False, scale=0, min_width=132)
        with gr.Row(elem_classes="ft-chips"):
            self.chips = [gr.Button(text, size="sm", elem_classes="ft-chip") for text in EXAMPLES]
        self.hints = notice.build("hints")
        self.messages = notice.build("messages")
        self.line = notice.build("line")
        self.clock = gr.Timer(1.0, active=False)

    def _build_settings(self) -> None:
        method, given = start_values(FAVOURITE)
        gr.HTML("<h2>Method</h2>", elem_classes="ft-heading")
        self.method = gr.Dropdown(
            choices(self.backbone), value=FAVOURITE, label="Method", show_label=False, container=False,
            elem_id="method", filterable=False,
        )  # fmt: skip
        self.badge = gr.HTML(badge_html(method, given), elem_id="badge", apply_default_css=False)
        self.knobs = knob_panel.build(knob_panel.encode(FAVOURITE, method.knobs, given), "knobs")
        gr.HTML("<h2>Picture</h2>", elem_classes="ft-heading")
        with gr.Row(elem_classes="ft-seed"):
            self.seed = gr.Number(7, label="Seed", precision=0, minimum=0, maximum=LARGEST_SEED, elem_id="seed", scale=1, min_width=90)
            self.dice = gr.Button("Roll", size="sm", elem_id="dice", scale=0, min_width=72)
            self.keep = gr.Checkbox(True, label="Keep", elem_id="keep", scale=0, min_width=72, interactive=True)
        self.settings = knob_panel.build(knob_panel.encode("settings", settings(self.backbone)), "settings")
        self.compare = gr.Checkbox(True, label="Compare with plain decoding", elem_id="compare", interactive=True)

    def _build_stage(self) -> None:
        self.verdict = verdict.build()
        with gr.Row(elem_classes="ft-sides"):
            self.left = canvas.build(*LEFT)
            self.right = canvas.build("fast", METHODS[FAVOURITE].title, RIGHT)
        with gr.Row(elem_classes="ft-tools"):
            overlay.build()
            self.download = gr.DownloadButton("Download PNG", size="sm", elem_id="download", interactive=False, scale=0, min_width=140)

    def wire(self, page: gr.Blocks) -> None:
        """Connects the handlers."""
        waits = [self.seed, self.go, self.cancel, self.messages, self.line, self.clock]
        asking = [self.go.click, self.prompt.submit]
        asked = gr.on(asking, self.enter, self.keep, waits, trigger_mode="once", **DIRECT)
        inputs = [self.prompt, self.seed, self.method, self.knobs, self.settings, self.compare]
        screen = [self.left, self.right, self.verdict, self.messages, self.download, self.line, self.clock]
        screen += [self.go, self.cancel]
        # "multiple": a second wait may begin while Gradio still holds the event of one that was given up
        engine = DIRECT | {"queue": True, "concurrency_id": "engine", "concurrency_limit": 1, "trigger_mode": "multiple"}
        ran = asked.success(self.run, inputs, screen, **engine)
        between = [self.go, self.cancel, self.line, self.clock]
        ran.then(self.restore, None, between, **DIRECT)
        self.cancel.click(self.stop, None, between, **DIRECT)
        self.clock.tick(self.tell_place, None, [self.line], **DIRECT)
        self.knobs.input(self.move, self.knobs, self.badge, trigger_mode="always_last", **DIRECT)
        self.method.input(self.choose, self.method, [self.knobs, self.badge], **DIRECT)
        self.dice.click(lambda: secrets.randbelow(LARGEST_SEED), None, self.seed, **DIRECT)
        self.prompt.change(self.look_up, self.prompt, self.hints, trigger_mode="always_last", **DIRECT)
        for chip in self.chips:
            chip.click(lambda text=chip.value: text, None, self.prompt, **DIRECT)
        page.unload(self.leave)

    def enter(self, keep: bool, request: gr.Request) -> tuple[Any, ...]:
        """Takes a place in the line, and a new seed if the old one is not kept."""
        visitor = request.session_hash
        if not self.sessions.enter(visitor):
            raise gr.Error("Your last picture is still being made. Cancel it first.", print_exception=False)
        fresh = gr.skip() if keep else secrets.randbelow(LARGEST_SEED)
        line = notice.place(self.sessions.place(visitor))
        return fresh, gr.Button(visible=False), gr.Button(visible=True), [], line, gr.Timer(active=True)

    def restore(self, request: gr.Request) -> tuple[Any, ...]:
        """The buttons as they are between runs; not for a visitor who has asked for the next one meanwhile."""
        if self.sessions.busy(request.session_hash):
            return (gr.skip(),) * 4
        return gr.Button(visible=True), gr.Button(visible=False), [], gr.Timer(active=False)

    def stop(self, request: gr.Request) -> tuple[Any, ...]:
        """Ends the run, which then shows what it has; or the wait for it, which ends at once."""
        self.sessions.stop(request.session_hash)
        return self.restore(request)

    def leave(self, request: gr.Request) -> None:
        """The page was closed."""
        self.sessions.leave(request.session_hash)

    def tell_place(self, request: gr.Request) -> Any:
        """Where the visitor stands in the line."""
        return notice.place(self.sessions.place(request.session_hash))

    def look_up(self, text: str) -> list[dict[str, str]]:
        """Names the words that the model does not know."""
        look = getattr(self.backbone, "unknown_words", None)
        return notice.unknown(self.backbone.name, look(text)) if look else []

    def choose(self, name: str) -> tuple[Any, str]:
        """Shows the knobs of a method or a preset."""
        method, given = start_values(name)
        return knob_panel.encode(name, method.knobs, given), badge_html(method, given)

    def move(self, value: dict[str, Any], request: gr.Request) -> str:
        """Writes a moved knob into the runs that are going; the badge follows."""
        method, _ = find(value["name"])
        try:
            self.sessions.move(request.session_hash, method.name, value["values"])
        except ForetokenError as e:
            raise gr.Error(str(e), print_exception=False) from e
        return badge_html(method, value["values"])

    def run(
        self,
        text: str,
        seed: float,
        name: str,
        knobs: dict[str, Any],
        values: dict[str, Any],
        compare: bool,
        request: gr.Request,
    ) -> Iterator[tuple[Any, ...]]:
        """The generator of one comparison; it ends where the visitor stops it, and what was drawn stays."""
        visitor = request.session_hash
        if not self.sessions.begin(visitor):
            yield self.show()
            return
        try:
            prompt = read_prompt(text, seed, values["values"], self.backbone)
            method, _ = find(name)
            yield from self.compare_runs(visitor, prompt, method, knobs["values"], compare)
        except ForetokenError as e:
            yield self.show(messages=notice.error(str(e)), verdict=verdict.IDLE)
        except Exception:
            # The controls come back, here because Gradio calls no `then` after an error; the bug keeps its traceback.
            yield self.show(verdict=verdict.IDLE, go=gr.Button(visible=True), cancel=gr.Button(visible=False))
            raise
        finally:
            self.sessions.end(visitor)

    def compare_runs(
        self, visitor: str, prompt: Prompt, method: Method, knobs: Mapping[str, Any], compare: bool
    ) -> Iterator[tuple[Any, ...]]:
        """Races plain decoding against a method and shows both."""
        plain, _ = find(PLAIN)
        yield self.show(
            left=canvas.waiting(*LEFT[:2], LEFT[2] if compare else "Not compared."),
            right=canvas.waiting("fast", method.title, RIGHT),
            verdict={"state": "running", "live": "Reading the prompt"}, messages=[], line=[], clock=gr.Timer(active=False),
            download=gr.DownloadButton(interactive=False),
        )  # fmt: skip
        for each, given in ((plain, {}), (method, knobs)):
            warm(generate(self.backbone, each, prompt, given))
        runs = [generate(self.backbone, method, prompt, knobs)]
        if compare:
            runs.append(generate(self.backbone, plain, prompt))
        self.sessions.hold(visitor, runs)
        boards = [Board(run) for run in runs]
        for changed in updates(boards, Throttle()):
            yield self.draw(boards, changed)
        if boards[0].count and self.sessions.present(visitor):
            yield self.show(download=self.keep_run(visitor, runs[0]))

    def draw(self, boards: list[Board], changed: set[int]) -> tuple[Any, ...]:
        """The panels of the boards that changed, and the line above them."""
        scales = canvas.scales(boards)
        panels = {}
        for which in changed:
            board = boards[which]
            if board.count:
                side, title = ("fast", board.run.method.title) if which == 0 else LEFT[:2]
                badge = run_badge(board.run) if which == 0 else None
                panels["right" if which == 0 else "left"] = canvas.encode(board, board.picture(), scales, side, title, badge)
        return self.show(verdict=verdict.encode(boards[0], boards[1] if len(boards) > 1 else None), **panels)

    def keep_run(self, visitor: str, run: Run) -> Any:
        """Writes the run into the history and offers its picture; a disk that refuses costs the history, not the download."""
        file = self.sessions.folder(visitor) / f"foretoken-{run.method.name}-{run.prompt.seed}.png"
        history.picture_with_settings(run.result(), history.describe(run), file)
        try:
            history.save(run)
        except ForetokenError as e:
            gr.Warning(str(e))
        return gr.DownloadButton(value=str(file), interactive=True)

    def show(self, **panels: Any) -> tuple[Any, ...]:
        """One yield: a value for each named panel, the others untouched."""
        names = ("left", "right", "verdict", "messages", "download", "line", "clock", "go", "cancel")
        return tuple(panels.get(name, gr.skip()) for name in names)


def run_badge(run: Run) -> dict[str, Any]:
    """Exact or not, of all the steps that a run has made, with the sentence of its newest knobs."""
    return {"exact": run.exact, "why": knob_panel.badge(run.method, run.steps[-1].knobs)["why"]}


def badge_html(method: Method, values: Mapping[str, Any]) -> str:
    """The badge below the method. Method sentences are ours, so they may stand in a template."""
    found = knob_panel.badge(method, values)
    word = "exact" if found["exact"] else "not exact"
    mark = f'<span class="ft-badge" data-exact="{str(found["exact"]).lower()}">{word}</span>'
    return f'<p class="ft-exact">{mark} {explain(found["why"])}</p>'


def explain(why: str) -> str:
    """A method's sentence without the word that the badge has said already."""
    rest = why.split(":", 1)[-1].strip()
    return rest[:1].upper() + rest[1:]
