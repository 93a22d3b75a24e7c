"""The Image tab: draws a prompt with two methods."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import gradio as gr
from gradio.components import Component

from app.live.boards.patches import Patches
from app.live.boards.picture import Board
from app.live.stream import pair
from app.live.worker import LocalRunner
from app.requests import validation
from app.requests.limits import LONGEST_PROMPT
from app.requests.pictures import EXAMPLES, read_prompt, settings
from app.requests.sides import ONCE, Sides, start_values
from app.runs import history, race_files, replay_page
from app.ui import knobs as knob_panel
from app.ui import race_panels
from app.ui.method_menu import PLAIN_SIDE, choices, side_words, title_of, with_auto
from app.ui.panels import bar, canvas, forks, notice, overlay, runs, unseen, verdict, words
from app.ui.picture_side import draw_race, frame_of
from app.ui.tab_context import TabContext
from app.ui.tabs import example, picture_nine, restoring, vocabulary
from app.ui.tabs.decoder import DecodedRace
from app.ui.tabs.engine_queue import DIRECT, LATEST, fill
from app.ui.tabs.forking import FORKED, FUTURES, read_fork
from app.ui.tabs.method_form import form_updates
from app.ui.tabs.race import EndedRace, Files, RaceOutcome, RaceRequest, RaceTab, left_run
from app.ui.tabs.saving import try_save
from app.ui.tabs.seed_grid import SeedGrid
from app.ui.tabs.speeds import speeds_here
from engine.core import PLAIN, Backbone, Prompt
from engine.errors import ForetokenError
from engine.recognition import picture_judge
from engine.recognition.picture_judge import Judge, ObjectCount

LOOKED_UP = 40  # words looked up while the user types; more than a model reads
LONGEST_WORD = 40  # characters
JUDGED = 128  # pixels: the smallest pictures that the judge was compared with the eye on
EXAMPLE_NOTE = "An example, recorded on {}: “{}”. Press Generate to draw yours."


def build(context: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    RaceTab(context, PictureRace(context)).wire()


def understood_notice(backbone: Backbone, text: object, before: object = None) -> list[dict[str, Any]]:
    """Notice of how the start of a prompt that is being typed is understood. before : the notices shown so far"""
    typed = " ".join(word[:LONGEST_WORD] for word in text[:LONGEST_PROMPT].split()[:LOOKED_UP]) if isinstance(text, str) else ""
    if not typed or typed in EXAMPLES:  # whose buttons the notice would cover
        return []
    kept = notice.kept_words(before)
    return notice.understood(backbone.name, backbone.understand(typed, kept), kept)


class PictureRace:
    """The race of pictures."""

    kind, prefix, idle, replays, warm, board = runs.PICTURES, "", verdict.IDLE, True, 1, Board
    right_words = "Many tokens at a time, each one checked."
    form_names, key = restoring.PICTURE, "foretoken-form"
    now: Mapping[str, str] = {"download": "PNG"}
    late: Mapping[str, tuple[str, str]] = {  # name of the offer: (label, ending of the file)
        "large": ("PNG, 4× as large", "-4x.png"),
        "both": ("Both sides", "-both.png"),
        "gif": ("GIF of the race", ".gif"),
        "mp4": ("MP4 of the race", ".mp4"),
        "html": ("HTML replay", ".html"),
        "folders": ("Trace (ZIP)", "-runs.zip"),
    }
    late_panels: tuple[str, ...] = ()
    buttons, filing = ("", 120), DIRECT | {"trigger_mode": "multiple"}
    page, below = replay_page.PICTURES, race_panels.PICTURES

    def __init__(self, context: TabContext):
        self.context, self.backbone = context, context.studio.backbone
        self.suits, self.model_name = self.backbone.suits, self.backbone.name
        self.patches = Patches(self.backbone)

    # --- parts ----------------------------------------------------------------------------------------------------

    def build_request(self, tab: RaceTab) -> None:
        """Builds the prompt, the seed, the vocabulary and the examples."""
        with gr.Row(elem_classes="ft-ask"):
            self.prompt = tab.form.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Describe what to draw", lines=1, max_lines=1, elem_id="prompt",
                show_label=False, container=False, scale=1, max_length=LONGEST_PROMPT,
            )  # fmt: skip
            self.nine = SeedGrid(tab, picture_nine.kind(self.count))
            self.nine.build_button()
            tab.queue.build_buttons()
        with gr.Row(elem_classes="ft-bar"):
            bar.build("settings")
            tab.form.build_seed()
        words.build(vocabulary.groups(self.backbone), "prompt")
        with gr.Column(elem_classes="ft-messages"):  # messages replace the examples
            with gr.Row(elem_classes="ft-chips"):
                self.chips = [gr.Button(text, size="sm", elem_classes="ft-chip") for text in EXAMPLES]
            self.hints = notice.build("hints")
            tab.queue.build_notices()

    def build_settings(self, tab: RaceTab) -> None:
        """Builds the methods, the settings and the left side."""
        menu = self.menu()
        self.favourite = menu[0][1]
        tab.form.build_method(menu, self.favourite, sheet=True)
        self.cards = unseen.menu_cards("cards")
        gr.HTML("<h2>Picture</h2>", elem_classes="ft-heading")
        tab.form.settings = knob_panel.build(knob_panel.encode("settings", settings(self.backbone)), "settings")
        tab.form.build_left(menu)

    def build_views(self, tab: RaceTab) -> dict[str, gr.HTML]:
        """Builds both pictures, and the grid that replaces them."""
        several = self.nine.build()
        with gr.Row(elem_classes="ft-sides"):
            left = canvas.build("plain", *PLAIN_SIDE)
            return {"left": left, "right": canvas.build("fast", title_of(self.favourite), self.right_words), "grid": several}

    def build_below(self, tab: RaceTab) -> None:
        """Builds the overlay's controls and the downloads."""
        self.forks = forks.build(self.kind, [(PLAIN_SIDE[0], PLAIN), *self.menu()], "forks")
        self.around = {"overlay": overlay.build()}
        tab.build_files()

    def wire(self, tab: RaceTab) -> None:
        """Connects the prompt, the table of runs and the stored form."""
        gr.on([self.prompt.change, self.hints.input], self.look_up, [self.prompt, self.hints], self.hints, **LATEST)
        # the browser removes old errors at once: a late answer of the server could remove a newer message
        self.prompt.change(None, None, tab.queue.messages, js="() => [[]]", **DIRECT)
        for chip in self.chips:
            chip.click(lambda text=chip.value: text, None, self.prompt, **DIRECT)
        self.nine.wire()
        tab.wire_start([self.forks.input], self.read_fork, [self.forks])
        form = tab.form.parts(self.form_names)
        memory = tab.form.remember(self.key, form)
        self.restored = form | {"badge": tab.form.badge, "messages": tab.queue.messages, "ready": tab.ready}
        outputs = list(self.restored.values())
        tab.runs.input(self.restore_run, tab.runs, outputs, **LATEST)
        self.clock = gr.Timer(2.0, active=False)  # while the machine is being measured
        self.measured = form | {"badge": tab.form.badge, "cards": self.cards, "clock": self.clock}
        self.context.page.load(self.recall, memory, outputs, **DIRECT)
        fresh = list(self.measured.values())
        gr.on([self.context.page.load, self.clock.tick], lambda name: self.refresh(tab, name), tab.form.method, fresh, **DIRECT)
        if tab.studio.examples:
            tab.studio.background.add(lambda: self._make_example(tab))
            self.context.page.example = lambda: self._example(tab)
            unseen.example("example")

    def fields(self) -> list[Component]:
        """The prompt field, and the notice of how it is understood."""
        return [self.prompt, self.hints]

    def submit_events(self) -> list[Callable]:
        """Enter in the prompt field."""
        return [self.prompt.submit]

    def look_up(self, text: object, before: object) -> list[dict[str, Any]]:
        """Notice of how a prompt is understood."""
        return understood_notice(self.backbone, text, before)

    # --- example of a new page ----------------------------------------------------------------------------------

    def _example_inputs(self) -> tuple[Prompt, Sides, dict[str, Any]]:
        """Prompt and sides of the example race, and everything that it depends on."""
        prompt, name = read_prompt(EXAMPLES[0], 7, {"values": {}}, self.backbone), self.menu()[0][1]
        sides = [(name, start_values(name, self.suits)[1]), (PLAIN, {})]
        return prompt, sides, {"prompt": prompt.text, "seed": prompt.seed, "size": prompt.size, "sides": sides}

    def _example(self, tab: RaceTab) -> dict[str, Any]:
        """Values of the example race's panels, by id."""
        prompt, _, inputs = self._example_inputs()
        values, machine = example.shown(tab.studio.examples, self.backbone, inputs, "race")
        values["verdict"]["note"] = EXAMPLE_NOTE.format(machine, prompt.text)
        return {tab.panels[name].elem_id: value for name, value in values.items()}

    def _make_example(self, tab: RaceTab) -> None:
        """Races the example on this machine once, after the method of auto is known."""
        prompt, sides, inputs = self._example_inputs()
        busy = tab.sessions.is_wanted
        example.make(tab.studio.examples, self.backbone, inputs, lambda: self._race_once(prompt, sides, busy))

    def _race_once(self, prompt: Prompt, sides: Sides, interrupted: Callable[[], object]) -> dict[str, Any]:
        """Values of the panels after the example race; {} if it would take too long or was interrupted."""
        here = LocalRunner()
        for side in sides:
            here.warm(self.backbone, prompt, side)
        boards = [Board(run) for run in here.start(self.backbone, prompt, sides)]
        for _ in example.race(boards, interrupted):
            pass
        if not all(board.run.finished for board in boards):
            return {}
        return draw_race(boards, {0, 1}, self.patches) | self.end_panels(boards)

    # --- the menu -------------------------------------------------------------------------------------------------

    def menu(self) -> list[tuple[str, str]]:
        """(title, name) of the methods, the fastest one here first."""
        return with_auto(choices(self.backbone), self.context.studio.background.fastest(self.backbone), self.backbone)

    def refresh(self, tab: RaceTab, name: object) -> tuple[Any, ...]:
        """Cards with the speeds measured here so far; once the fastest method is known, it replaces the one that was chosen until then."""
        menu = self.menu()
        speeds = speeds_here(tab.studio.run_store.folder, self.backbone)
        clock = gr.Timer(active=self.context.studio.background.fastest(self.backbone) is None)
        return fill(self.measured, tab.form.menu_values(menu, speeds, name, self.favourite) | {"clock": clock})

    # --- restored settings ----------------------------------------------------------------------------------------

    def restore_run(self, value: object) -> tuple[Any, ...]:
        """Fills the form, or only the left side, from the settings of a run."""
        try:
            declared = settings(self.backbone)
            values, _ = restoring.from_run(value, self.backbone, knob_panel.encode("settings", declared), declared)
        except ForetokenError as e:
            return fill(self.restored, {"messages": notice.error(e)})
        return fill(self.restored, form_updates(values) | restoring.ready_to_run(value))

    def recall(self, value: object) -> tuple[Any, ...]:
        """Fills the form as this browser stored it, without values that no longer fit."""
        declared = settings(self.backbone)
        values = restoring.from_memory(value, self.backbone, knob_panel.encode("settings", declared), declared, self.menu()[0][1])
        return fill(self.restored, form_updates(values) | {"ready": restoring.READY})

    # --- the race -------------------------------------------------------------------------------------------------

    def read(self, visitor: str, fields: Sequence[object], seed: object, values: object) -> RaceRequest:
        """Checks a request for a race of pictures."""
        prompt = read_prompt(fields[0], seed, values, self.backbone)
        prompt = replace(prompt, text=self.backbone.understand(prompt.text, notice.kept_words(fields[1])).text)
        self.backbone.added_words(prompt)  # raises BadPrompt before the last result is removed
        return RaceRequest(self.backbone, prompt, validation.knobs(values, settings(self.backbone)))

    def read_fork(self, visitor: str, value: object) -> tuple[RaceRequest, Sides]:
        """Checks a request to go on from a finished run in another way."""
        fork, prompt, sides = read_fork(value, self.backbone, settings(self.backbone), self.read_form)
        return RaceRequest(self.backbone, prompt, {"repeat": ONCE}, fork=fork), sides

    def read_form(self, form: Mapping[str, Any], origin: object) -> tuple[Prompt, None]:
        """The prompt of a run's values of the form."""
        return read_prompt(form.get("prompt"), form.get("seed"), form["settings"], self.backbone), None

    def empty_panels(self, tab: RaceTab, request: RaceRequest, right: str) -> dict[str, Any]:
        """Values of both sides without a picture."""
        left, own = side_words(request.left, self.right_words), (title_of(right), self.right_words)
        if request.fork:
            left, own = ((title, FORKED) for title in FUTURES)
        return {
            "left": canvas.empty_value("plain", *left),
            "right": canvas.empty_value("fast", *own),
            "grid": None,
            "verdict": {"state": "running", "live": verdict.READY},
        }

    def draw(self, boards: Sequence[Board], changed: set[int], request: RaceRequest, ends: bool = True) -> dict[str, Any]:
        """Values of the changed panels and of the line above them."""
        panels = draw_race(boards, changed, self.patches, ends)
        if request.fork is None:
            return panels
        panels |= {side: {**panels[side], "title": title} for side, title in zip(("left", "right"), FUTURES, strict=True) if side in panels}
        line = {"verdict": verdict.with_fork(panels["verdict"], boards, request.fork.tokens, request.fork.at)}
        return panels | (line if "verdict" in panels else {})

    def outcome(self, tab: RaceTab, raced: DecodedRace, request: RaceRequest) -> Generator[dict[str, Any], None, RaceOutcome]:
        """Speed-up of the race, and the values that only its end has."""
        boards = raced.boards
        line = verdict.encode(*pair(boards), seconds=raced.seconds)
        if request.fork:
            line = verdict.with_fork(line, boards, request.fork.tokens, request.fork.at)
        line |= {"costs": verdict.costs_in_words(boards, raced.costs)}
        line = verdict.with_objects(line, self.count(boards[0]), self.backbone.understand(boards[0].run.prompt.text or ""))
        yield from ()
        panels = self.end_panels(boards)
        if request.fork and "right" in panels:
            panels["right"] = {**panels["right"], "title": FUTURES[1]}
        kept = boards[:1] if request.fork else boards  # the old future has its row
        return RaceOutcome({**panels, "verdict": line}, [runs.picture(board) for board in kept])

    @cached_property
    def judge(self) -> Judge:
        """The judge of pictures; raises MissingWeights."""
        return picture_judge.load()

    def count(self, board: Board) -> ObjectCount | None:
        """The requested objects that the judge sees in a finished picture; None if it cannot tell: it does not know
        an object, or was never compared with the eye on pictures so small."""
        wanted = self.backbone.understand(board.run.prompt.text or "").objects
        if not board.run.finished or not wanted or board.columns * board.factor < JUDGED or not wanted.keys() <= set(self.judge.names):
            return None
        return picture_judge.count_objects(self.judge.read([board.final()])[0], wanted)

    def without_result(self, board: Board) -> dict[str, Any]:
        """{}: the line above the pictures is enough."""
        return {}

    def end_panels(self, boards: Sequence[Board]) -> dict[str, Any]:
        """Values of the panels that need a finished race."""
        return self.below.end_values(frame_of(boards, self.patches))

    # --- files ----------------------------------------------------------------------------------------------------

    def offers(self, tab: RaceTab, visitor: str, boards: Sequence[Board], request: RaceRequest) -> dict[str, Any]:
        """Offers the picture as a download and saves the run; if the disk refuses one, the other is still written."""
        run, other = boards[0].run, None if request.fork else left_run(boards)
        button, lost = tab.write_picture(visitor, run, ".png", run.result(), history.describe(run))
        _, unkept = try_save("history", lambda: tab.studio.run_store.save(run, other=other))
        return {"download": button, "messages": notice.error(*lost, *unkept)}

    def files(self, tab: RaceTab, ended: EndedRace, visitor: str) -> Iterator[Files]:
        """Larger files of a finished race; none for a stopped one."""
        boards = ended.boards
        if not all(board.run.finished for board in boards):
            yield Files({})
            return
        left_to_right = boards[::-1]
        titles = [title_of(board.run.name) for board in left_to_right]
        settings_of_run = history.describe(boards[0].run)
        own = {
            "large": lambda file: race_files.write_large(boards[0], settings_of_run, file),
            "both": lambda file: race_files.write_both(left_to_right, titles, settings_of_run, file),
            "gif": lambda file: race_files.write_race(left_to_right, titles, file),
            "mp4": lambda file: race_files.write_race(left_to_right, titles, file),
        }
        yield Files(own | tab.common_files(ended, boards[0].run.prompt.text or ""))
