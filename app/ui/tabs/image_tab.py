"""The tab that turns a prompt into two pictures, by two methods: on the left plain decoding or another method, on the right the chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from app.live.boards.patches import Patches
from app.live.boards.picture import Board
from app.live.stream import pair
from app.live.worker import Here
from app.requests import validation as asked
from app.requests.limits import LONGEST_PROMPT
from app.requests.pictures import EXAMPLES, read_prompt, settings
from app.requests.sides import PLAIN, checked_sides, start_values, times_of
from app.runs import history, race_files, replay_page, video
from app.ui import knobs as knob_panel
from app.ui import race_panels
from app.ui.method_menu import PLAIN_SIDE, choices, title_of, with_auto
from app.ui.panels import bar, canvas, live, notice, overlay, replay, runs, verdict, words
from app.ui.panels import example as example_panel
from app.ui.picture_side import draw_race, frame_of
from app.ui.tab_context import TabContext
from app.ui.tabs import example, restoring, video_button, vocabulary
from app.ui.tabs.comparing import Comparing, Ended
from app.ui.tabs.multi_race import Lanes
from app.ui.tabs.racing import DIRECT, fill
from app.ui.tabs.saving import keep
from app.ui.tabs.speeds import speedups
from engine.core import Backbone, Prompt
from engine.errors import ForetokenError
from engine.run import Run

FILES = {  # name of the offer: (label, ending of the file)
    "download": ("PNG", ".png"),
    "large": ("PNG, 4× as large", "-4x.png"),
    "both": ("Both sides", "-both.png"),
    "gif": ("GIF of the race", ".gif"),
    "mp4": ("MP4 of the race", ".mp4"),
    "html": ("HTML replay", ".html"),
    "folders": ("Trace (ZIP)", "-runs.zip"),
}
LOOKED_UP = 40  # words of a prompt that are looked up while the user types; more than a model reads
LONGEST_WORD = 40  # characters


def build(place: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    ImageTab(place).wire()


def unknown(backbone: Backbone, text: object) -> list[dict[str, Any]]:
    """A notice of the words that a model does not know, among the first of a prompt that is being typed."""
    if not isinstance(text, str):
        return []
    asked_for = " ".join(word[:LONGEST_WORD] for word in text[:LONGEST_PROMPT].split()[:LOOKED_UP])
    warning = backbone.warning(asked_for) if asked_for else ""
    return notice.unknown(backbone.name, backbone.unknown_words(asked_for), warning=warning)


class ImageTab(Comparing):
    """The components of the tab and their handlers."""

    form_names = restoring.PICTURE
    replays = True

    def __init__(self, place: TabContext):
        super().__init__(place)
        self.backbone = place.studio.backbone
        self.suits = self.backbone.suits
        self.patches = Patches(self.backbone)
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage()
        self.panels = {"left": self.left, "right": self.right, "verdict": self.verdict} | self.below
        self.offers = self.downloads
        self.live = live.build(self.panels, "live")
        self.page = place.page
        self.shown_first = self._example(place.studio.examples)
        self.example = example_panel.build("example")

    @property
    def model_name(self) -> str:
        """The name of the model that draws."""
        return self.backbone.name

    def _build_request(self) -> None:
        with gr.Row(elem_classes="ft-ask"):
            self.prompt = gr.Textbox(
                EXAMPLES[0], label="Prompt", placeholder="Describe what to draw", lines=1, max_lines=1, elem_id="prompt",
                show_label=False, container=False, scale=1, max_length=LONGEST_PROMPT,
            )  # fmt: skip
            self.build_buttons()
        with gr.Row(elem_classes="ft-bar"):
            bar.build("settings")
            self.build_seed()
        drawable = vocabulary.groups(self.backbone)
        words.build(drawable, "prompt")
        with gr.Column(elem_classes="ft-said"):  # one message at a time, where the examples stand
            with gr.Row(elem_classes="ft-chips"):
                self.chips = [gr.Button(text, size="sm", elem_classes="ft-chip") for text in EXAMPLES]
            self.hints = notice.build("hints")
            self.build_notices()

    def _build_settings(self) -> None:
        found = with_auto(choices(self.backbone), self.backbone)
        self.favourite = found[0][1]
        self.build_cards(found, self.favourite, speedups(self.shelf.folder, self.backbone.name, self.backbone.weights_hash), sheet=True)
        gr.HTML("<h2>Picture</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(knob_panel.encode("settings", settings(self.backbone)), "settings")
        self.build_left(found)

    def _build_stage(self) -> None:
        self.lanes = Lanes(runs.PICTURES)
        self.verdict = verdict.build()
        with gr.Row(elem_classes="ft-sides"):
            self.left = canvas.build("plain", *PLAIN_SIDE)
            self.right = canvas.build("fast", title_of(self.favourite), self.right_words)
        self.replay = replay.build()
        self.overlay = overlay.build()
        with gr.Row(elem_classes="ft-files"):
            self.downloads = self._build_downloads()
        self.below = race_panels.PICTURES.build(self.is_here)
        self.runs = self.below["runs"]
        self.ready = gr.HTML("", elem_id="ready", elem_classes="ft-unseen", apply_default_css=False)

    def _build_downloads(self) -> dict[str, gr.DownloadButton]:
        found = {}
        for name, (label, _) in FILES.items():
            if name != "mp4" or video.is_there():
                found[name] = gr.DownloadButton(label, size="sm", elem_id=name, interactive=False, scale=0, min_width=120)
            elif self.may_install:
                video_button.build(label, name)
        return found

    def wire(self) -> None:
        """Connects the handlers."""
        inputs = [self.prompt, self.seed, self.method, self.knobs, self.settings, self.compare, self.other, self.other_knobs]
        delivered = self.wire_race([self.go.click, self.prompt.submit], self.run, inputs)
        enlarged = [button for name, button in self.downloads.items() if name != "download"]
        delivered.success(self.write_more, None, [*enlarged, self.messages], trigger_mode="multiple", **DIRECT)
        self.prompt.change(self.look_up, self.prompt, self.hints, trigger_mode="always_last", **DIRECT)
        # what was wrong with the prompt before goes at once, by the browser: a late answer would wipe a newer message
        self.prompt.change(None, None, self.messages, js="() => [[]]", **DIRECT)
        for chip in self.chips:
            chip.click(lambda text=chip.value: text, None, self.prompt, **DIRECT)
        self.wire_left()
        self.lanes.wire(self.sessions, self.messages)
        kept = self.remember("foretoken-form")
        self.restored = self.form | {"badge": self.badge, "messages": self.messages, "ready": self.ready}
        outputs = list(self.restored.values())
        self.runs.input(self.restore_run, self.runs, outputs, trigger_mode="always_last", **DIRECT)
        self.page.load(self.recall, kept, outputs, **DIRECT)
        if self.shown_first:
            self.page.load(lambda: self.shown_first, None, self.example, **DIRECT)

    def look_up(self, text: object) -> list[dict[str, Any]]:
        """A notice of the words that the model does not know, among the first LOOKED_UP: a prompt may be very long."""
        return unknown(self.backbone, text)

    # --- the first sight of the page ------------------------------------------------------------------------------

    def _example(self, folder: Path | None) -> dict[str, Any]:
        """The panels of a finished race by their ids, for a page that has none; {} without a folder to keep it in, or for a slow model."""
        if folder is None:
            return {}
        prompt = read_prompt(EXAMPLES[0], 7, {"values": {}}, self.backbone)
        sides = [(self.favourite, start_values(self.favourite, self.suits)[1]), (PLAIN, {})]
        asked_for = {"prompt": prompt.text, "seed": prompt.seed, "size": prompt.size, "sides": sides}
        found = example.read(folder, self.backbone, asked_for, lambda: self._race_once(prompt, sides))
        return {self.panels[name].elem_id: value for name, value in found.items()}

    def _race_once(self, prompt: Prompt, sides: list[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
        """The values of the panels after a race that nobody watches; {} if it would take too long."""
        here = Here()
        for side in sides:
            here.warm(self.backbone, prompt, side)
        boards = [Board(run) for run in here.start(self.backbone, prompt, sides)]
        for _ in example.race(boards):
            pass
        if not all(board.run.finished for board in boards):
            return {}
        found = self.draw(boards, {0, 1}) | self.ended(boards)
        found["verdict"] |= {"costs": f"An example, drawn on this machine: “{prompt.text}”. Generate draws yours."}
        return found

    # --- settings that come back ----------------------------------------------------------------------------------

    def restore_run(self, value: object) -> tuple[Any, ...]:
        """Fills the form, or only the left side, from the settings of a run."""
        try:
            found = restoring.picture(value, self.backbone, settings(self.backbone))
        except ForetokenError as e:
            return fill(self.restored, {"messages": notice.error(e)})
        return fill(self.restored, self.filled(found))

    def recall(self, value: object) -> tuple[Any, ...]:
        """Fills the form as it was when this browser last had it; what no longer fits is left out."""
        declared = settings(self.backbone)
        found = restoring.form(value, self.backbone, knob_panel.encode("settings", declared), declared, self.favourite)
        return fill(self.restored, self.filled(found) | {"ready": restoring.READY})

    # --- the run --------------------------------------------------------------------------------------------------

    def run(
        self, ticket: object, text: object, seed: object, name: object, knobs: object, values: object, compare: object, other: object,
        other_knobs: object, request: gr.Request,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """The generator of one comparison."""
        visitor = request.session_hash

        def race(number: int) -> Iterator[dict[str, Any]]:
            prompt = read_prompt(text, seed, values, self.backbone)
            sides = checked_sides(self.backbone, name, knobs, compare, other, other_knobs)
            times = times_of(asked.knobs(values, settings(self.backbone)))
            yield from self.compare_runs(visitor, number, prompt, sides, times)

        yield from self.hold_engine(visitor, ticket, race)

    def compare_runs(
        self, visitor: str, number: int, prompt: Prompt, sides: list[tuple[str, Mapping[str, Any]]], times: int = 1
    ) -> Iterator[dict[str, Any]]:
        """Races two methods and shows both, then repeats them without showing. number: the ticket's; sides: the right one first"""
        left = sides[1][0] if len(sides) > 1 else PLAIN
        yield {
            "left": canvas.waiting("plain", title_of(left), self.left_words(left) if len(sides) > 1 else "Not compared."),
            "right": canvas.waiting("fast", title_of(sides[0][0]), self.right_words),
            "verdict": {"state": "running", "live": "Reading the prompt"},
        } | race_panels.PICTURES.idle(self.is_here)

        def draw(boards: list[Board], changed: set[int]) -> dict[str, Any]:
            return self.draw(boards, changed, ends=times == 1)

        boards, seconds, costs = yield from self.race_sides(visitor, number, self.backbone, prompt, sides, Board, draw, times)
        if boards[0].count and self.sessions.present(visitor):
            self.sessions.leave_results(visitor, self.prefix, self.keep_run(visitor, boards[0].run))
            said = verdict.encode(*pair(boards), seconds=seconds) | {"costs": verdict.costs_in_words(boards, costs)}
            race = runs.encode(runs.PICTURES, [runs.picture(b) for b in boards], seconds, self.suits)
            late = {**self.ended(boards), "verdict": said}
            self.sessions.leave_results(visitor, self.prefix, {"boards": Ended(number, boards, late)})
            yield {**late, "runs": race}

    @property
    def is_here(self) -> bool:
        """True if runs are decoded in this process."""
        return isinstance(self.runner, Here)

    def ended(self, boards: list[Board]) -> dict[str, Any]:
        """The panels that only a finished race fills, and the picture whose maps they complete."""
        found = race_panels.PICTURES.ended(frame_of(boards, self.patches, self.is_here))
        return found and {"right": self.draw(boards, {0})["right"], **found}

    def draw(self, boards: list[Board], changed: set[int], ends: bool = True) -> dict[str, Any]:
        """Updates the panels of the changed boards and the line above them. ends: the last picture is also the end of the run"""
        return draw_race(boards, changed, self.patches, ends)

    def keep_run(self, visitor: str, run: Run) -> dict[str, Any]:
        """Offers the picture of a run and saves the run in the history; if the disk refuses one, the other is still written."""

        def offered() -> Path:
            file = self.file_of(visitor, run, "download")
            history.picture_with_settings(run.result(), history.describe(run), file)
            return file

        file, lost = keep("download", offered)
        _, unkept = keep("history", lambda: self.shelf.keep(run))
        offer = gr.DownloadButton(value=str(file), interactive=True) if file else gr.DownloadButton(interactive=False)
        return {"download": offer, "messages": notice.error(*lost, *unkept)}

    def file_of(self, visitor: str, run: Run, name: str) -> Path:
        """Where an offer's file lies."""
        return self.sessions.folder(visitor) / f"foretoken-{history.file_name(run)}-{run.prompt.seed}{FILES[name][1]}"

    def write_more(self, request: gr.Request) -> tuple[Any, ...]:
        """Writes the larger downloads, once the page shows the result; a disk that refuses costs only these."""
        visitor = request.session_hash
        offers = {name: button for name, button in self.downloads.items() if name != "download"} | {"messages": self.messages}
        ended = self.sessions.take_results(visitor, f"{self.prefix}boards").get("boards")
        if not ended or not all(board.run.finished for board in ended.boards):
            return fill(offers, {})
        run = ended.boards[0].run
        values, mistakes = self.write_files(visitor, ended.ticket, self.writers(ended), lambda name: self.file_of(visitor, run, name))
        return fill(offers, values | ({"messages": notice.error(*mistakes)} if mistakes else {}))

    def writers(self, ended: Ended) -> dict[str, Callable[[Path], Path]]:
        """What writes each of the larger downloads of a race."""
        boards = ended.boards
        shown, settings = boards[::-1], history.describe(boards[0].run)
        titles, told = [title_of(board.run.name) for board in shown], json.dumps(settings, ensure_ascii=False)

        def write_page(file: Path) -> Path:
            values = draw_race(boards, set(range(len(boards))), self.patches) | ended.panels
            parts = {name: getattr(self, name) for name in ("left", "right", "verdict", "replay", "overlay")} | self.below
            text = replay_page.told(boards, boards[0].run.prompt.text or "", settings)
            return replay_page.write(file, replay_page.PICTURES, parts, values, text)

        found = {
            "large": lambda file: race_files.write_large(boards[0], told, file),
            "both": lambda file: race_files.write_both(shown, titles, told, file),
            "gif": lambda file: race_files.write_gif(shown, titles, file),
            "mp4": lambda file: race_files.write_video(shown, titles, file),
            "html": write_page,
            "folders": lambda file: race_files.write_folders([board.run for board in boards], file),
        }
        return {name: write for name, write in found.items() if name in self.downloads}
