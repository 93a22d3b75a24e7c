"""A tab that races two methods: the chosen one on the right, plain decoding or another method on the left.

A subject defines what differs between pictures and meshes: image_tab.py and mesh_tab.py. The Lab and the Bench reuse the queue, the
form and the decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gradio as gr
import numpy as np
from gradio.components import Component

from app.live.stream import Growth
from app.requests.sides import CLASSICAL, Sides, checked_sides, times_of
from app.runs import history, replay_page, video
from app.runs.race_files import write_folders
from app.ui.panels import live, notice, replay, runs, verdict
from app.ui.panels.race import RacePanels
from app.ui.tab_context import TabContext
from app.ui.tabs.decoder import DecodedRace, TabRuns, write_files
from app.ui.tabs.engine_queue import LATEST, EngineQueue, fill
from app.ui.tabs.forking import Fork
from app.ui.tabs.method_form import MethodForm
from app.ui.tabs.multi_race import Lanes
from app.ui.tabs.saving import try_save
from engine.core import Backbone, Prompt, Suits
from engine.errors import BadOutput
from engine.mesh.read import Input
from engine.run import Run


class RaceRequest(NamedTuple):
    """A checked request.

    chosen : settings other than the methods' knobs; shape, points : the cloud or mesh of the prompt, and its points in the view
    left   : method of the left side or CLASSICAL, None = not compared; fork : see forking.py
    """

    backbone: Backbone
    prompt: Prompt
    chosen: Mapping[str, float | str]
    shape: Input | None = None
    points: np.ndarray | None = None
    left: str | None = None
    fork: Fork | None = None


class EndedRace(NamedTuple):
    """An ended race, from which files are written in the background: ticket; boards, the right one first; values of the panels
    that need its end; id in the table of runs; request; see RaceOutcome.made."""

    ticket: int
    boards: Sequence[Any]
    panels: Mapping[str, Any]
    race: str
    request: RaceRequest
    made: Any = None


class RaceOutcome(NamedTuple):
    """Results of a race: values of the panels that need its end, and rows of the table of runs, the right side first. made : what its
    subject uses again for the files"""

    panels: dict[str, Any]
    rows: Sequence[runs.RunRow]
    made: Any = None


class Files(NamedTuple):
    """Writers of some larger files of a race, values of panels that change with them, and notices."""

    writers: Mapping[str, Callable[[Path], Path]]
    panels: Mapping[str, Any] = MappingProxyType({})
    notices: Sequence[dict[str, Any]] = ()


def left_run(boards: Sequence[Growth]) -> Run | None:
    """The finished run of the left side; None if there is none."""
    return boards[1].run if len(boards) > 1 and boards[1].run.finished else None


class RaceSubject(Protocol):
    """Subject of a race tab.

    kind, prefix : of the table of runs, and of the ids; idle : initial value of the line above the results; replays : see EngineQueue
    suits, model_name : of its model; right_words : text of an empty right side
    now, late  : labels of the immediate files by name; (label, ending) of the late files; buttons : id prefix and minimum width
    late_panels : panels that change with the late files
    filing     : event options for making the late files
    board, warm : shows a run; warm-up steps before the first run of a method
    page, around : first rows of the HTML replay, and panels in it without values; below : panels below the race
    """

    kind: runs.RunsTable
    prefix: str
    idle: Mapping[str, Any]
    replays: bool
    suits: Suits
    model_name: str
    right_words: str
    now: Mapping[str, str]
    late: Mapping[str, tuple[str, str]]
    late_panels: tuple[str, ...]
    buttons: tuple[str, int]
    filing: Mapping[str, Any]
    board: Callable[[Run], Growth]
    warm: int
    page: Sequence[Any]
    around: Mapping[str, gr.HTML]
    below: RacePanels

    # build the parts above the stage, the settings, the results by panel name, and the downloads
    def build_request(self, tab: RaceTab) -> None: ...
    def build_settings(self, tab: RaceTab) -> None: ...
    def build_views(self, tab: RaceTab) -> dict[str, gr.HTML]: ...
    def build_below(self, tab: RaceTab) -> None: ...

    # connect own handlers; fields other than the form; events that start a run besides the button
    def wire(self, tab: RaceTab) -> None: ...
    def fields(self) -> list[Component]: ...
    def submit_events(self) -> list[Callable]: ...

    # a checked request, and values of panels: before the first step, for changed boards (ends : the last picture also ends the race),
    # after the race, and after a race without tokens
    def read(self, visitor: str, fields: Sequence[object], seed: object, values: object) -> RaceRequest: ...
    def empty_panels(self, tab: RaceTab, request: RaceRequest, right: str) -> dict[str, Any]: ...
    def draw(self, boards: Sequence[Any], changed: set[int], request: RaceRequest, ends: bool = True) -> dict[str, Any]: ...
    def outcome(self, tab: RaceTab, raced: DecodedRace, request: RaceRequest) -> Generator[dict[str, Any], None, RaceOutcome]: ...
    def without_result(self, board: Any) -> dict[str, Any]: ...

    # updates with the immediate files and messages; larger files, a part after the other
    def offers(self, tab: RaceTab, visitor: str, boards: Sequence[Any], request: RaceRequest) -> dict[str, Any]: ...
    def files(self, tab: RaceTab, ended: EndedRace, visitor: str) -> Iterator[Files]: ...


class RaceTab:
    """Components of the tab and their handlers."""

    def __init__(self, context: TabContext, subject: RaceSubject):
        self.context, self.studio, self.subject = context, context.studio, subject
        self.sessions, prefix = context.studio.sessions, subject.prefix
        self.queue = EngineQueue(self.sessions, prefix, subject.idle, subject.replays)
        self.form = MethodForm(self.sessions, prefix, subject.suits, subject.model_name)
        self.decoder = TabRuns(self.sessions, self.studio.runner)
        subject.build_request(self)
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                subject.build_settings(self)
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage(prefix)
        self.live = live.build(self.panels, f"{prefix}live")

    def _build_stage(self, prefix: str) -> None:
        self.lanes = Lanes(self.subject.kind)
        line = verdict.build(self.subject.idle, f"{prefix}verdict")
        views = self.subject.build_views(self)
        self.bar = replay.build(f"{prefix}replay")
        self.subject.build_below(self)
        below = self.subject.below.build()
        self.runs = below["runs"]
        self.ready = gr.HTML("", elem_id=f"{prefix}ready", elem_classes="ft-unseen", apply_default_css=False)
        self.panels = {**views, "verdict": line, **below}

    def build_files(self) -> None:
        """Builds the download buttons; if MP4 is not installed, its button explains how to install it, unless the page is shared."""
        prefix, width = self.subject.buttons
        labels = {**self.subject.now, **{name: label for name, (label, _) in self.subject.late.items()}}
        with gr.Row(elem_classes="ft-files"):
            for name, label in labels.items():
                look = {"size": "sm", "elem_id": f"{prefix}{name}", "scale": 0, "min_width": width}
                if name != "mp4" or video.is_there():
                    self.queue.offers[name] = gr.DownloadButton(label, interactive=False, **look)
                elif not self.studio.limits.shared:  # the visitor can install packages on this machine
                    button = gr.Button(label, **look)
                    button.click(lambda: gr.Button(video.MISSING, interactive=False), None, button, **LATEST)

    @property
    def late(self) -> dict[str, Component]:
        """Buttons of the larger files."""
        return {name: button for name, button in self.queue.offers.items() if name in self.subject.late}

    def wire(self) -> None:
        """Connects the handlers."""
        form, messages = self.form, self.queue.messages
        inputs = [*self.subject.fields(), form.seed, form.method, form.knobs, form.settings, form.compare, form.other, form.other_knobs]
        asking = [self.queue.go.click, *self.subject.submit_events()]
        delivered = self.queue.wire(asking, self.run, inputs, self.live, form.seed, form.keep)
        self.filing = self.late | {name: self.panels[name] for name in self.subject.late_panels} | {"messages": messages}
        self._wire_files(delivered)
        form.wire(messages)
        self.lanes.wire(self.sessions, messages)
        self.subject.wire(self)

    def wire_start(self, asking: list[Callable], read: Callable[..., tuple[RaceRequest, Sides]], inputs: list[Component]) -> None:
        """Connects other events that start a race. read : checks the values of `inputs` of a visitor"""

        def run(ticket: object, *fields: object) -> Iterator[dict[str, Any]]:
            *own, request = fields
            visitor = request.session_hash
            yield from self.queue.hold(visitor, ticket, lambda number: self.race(visitor, number, *read(visitor, *own)))

        self._wire_files(self.queue.wire_start(asking, run, inputs, self.live))

    def _wire_files(self, delivered: Any) -> None:
        delivered.success(self.write_more, None, list(self.filing.values()), **self.subject.filing)

    # --- the run --------------------------------------------------------------------------------------------------

    def run(self, ticket: object, *fields: object) -> Iterator[dict[str, Any]]:
        """Runs a race; yields values of panels. fields : of the subject, of the form, and Gradio's request"""
        *own, seed, name, knobs, values, compare, other, other_knobs, request = fields
        visitor = request.session_hash

        def race(number: int) -> Iterator[dict[str, Any]]:
            checked = self.subject.read(visitor, own, seed, values)
            yield from self.race(visitor, number, checked, checked_sides(checked.backbone, name, knobs, compare, other, other_knobs))

        yield from self.queue.hold(visitor, ticket, race)

    def race(self, visitor: str, number: int, request: RaceRequest, sides: Sides) -> Iterator[dict[str, Any]]:
        """Races two methods, repeats the runs without drawing, and offers the files. number : of the ticket"""
        subject, times = self.subject, times_of(request.chosen)
        request = request._replace(left=sides[1][0] if len(sides) > 1 else None)
        yield subject.below.idle_values() | subject.empty_panels(self, request, sides[0][0])
        sides = [side for side in sides if side[0] != CLASSICAL]  # it has no run

        def draw(boards: Sequence[Any], changed: set[int]) -> dict[str, Any]:
            return subject.draw(boards, changed, request, times == 1)

        raced = yield from self.decoder.race(
            visitor, number, request.backbone, request.prompt, sides, subject.board, draw, times, subject.warm,
            request.fork and request.fork.before,
        )  # fmt: skip
        boards = raced.boards
        if not boards[0].count or not self.sessions.is_present(visitor):
            yield subject.without_result(boards[0])
            return
        outcome = yield from subject.outcome(self, raced, request)
        table = runs.encode(subject.kind, outcome.rows, raced.seconds[: len(outcome.rows)], subject.suits)
        self.queue.leave(visitor, {"boards": EndedRace(number, boards, outcome.panels, table["id"], request, outcome.made)})
        yield {**outcome.panels, "runs": table}  # before writing to disk
        self.queue.leave(visitor, subject.offers(self, visitor, boards, request))

    # --- files ----------------------------------------------------------------------------------------------------

    def write_more(self, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        """Writes the larger files after the page shows the result, and sends each part; a disk error affects only these."""
        visitor, notices = request.session_hash, []
        if not (ended := self.queue.take_boards(visitor)):
            yield fill(self.filing, {})  # of an event that yields nothing Gradio empties the outputs
            return
        for files in self.subject.files(self, ended, visitor):
            run = ended.boards[0].run
            writers = {name: write for name, write in files.writers.items() if name in self.late}
            paths = {name: self.path_of(visitor, run, self.subject.late[name][1]) for name in writers}
            offers, mistakes = write_files(self.sessions, self.subject.prefix, visitor, ended.ticket, writers, paths.__getitem__)
            notices += [*files.notices, *notice.error(*mistakes)]
            yield fill(self.filing, {**files.panels, **offers, **({"messages": notices} if notices else {})})

    def path_of(self, visitor: str, run: Run, ending: str) -> Path:
        """Path of a run's file in the visitor's folder."""
        return self.sessions.folder(visitor) / f"foretoken-{history.file_name(run)}-{run.prompt.seed}{ending}"

    def write_picture(
        self, visitor: str, run: Run, ending: str, picture: np.ndarray, settings: dict[str, Any]
    ) -> tuple[gr.DownloadButton, list[BadOutput]]:  # fmt: skip
        """Writes a picture with its settings; returns its button, and the disk's error."""
        path = self.path_of(visitor, run, ending)
        _, lost = try_save("download", lambda: history.picture_with_settings(picture, settings, path))
        return gr.DownloadButton(interactive=False) if lost else gr.DownloadButton(value=str(path), interactive=True), lost

    def common_files(self, ended: EndedRace, title: str) -> dict[str, Callable[[Path], Path]]:
        """Writers of the HTML replay and of the archive of runs. title : of the replay"""
        boards, request = ended.boards, ended.request

        def write_page(path: Path) -> Path:
            values = self.subject.draw(boards, set(range(len(boards))), request) | dict(ended.panels)
            parts = {**self.panels, "replay": self.bar, **self.subject.around}
            texts = replay_page.page_text(boards, title, history.describe(boards[0].run, request.shape))
            return replay_page.write(path, self.subject.page, parts, values, texts)

        return {"html": write_page, "folders": lambda path: write_folders([board.run for board in boards], path, request.shape)}
