"""The input of the Mesh tab: an example or a visitor's own file, read, described and shown; what a new visitor finds, and what Generate
waits for."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
from gradio.components import Component

from app.live.uploads import SECONDS, WAIT, adopt, read_upload
from app.requests import validation
from app.requests.meshes import EXAMPLES, FIRST, ORDER
from app.sentences import brief, without_paths
from app.ui import race_panels
from app.ui.method_menu import side_words, title_of
from app.ui.panels import axes, clouds, live, mesh, notice
from app.ui.tabs.engine_queue import DIRECT, LATEST, READING, EngineQueue, fill
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.formats import ply
from engine.mesh.formats.source import Source
from engine.mesh.read import READERS, Input, read, sample

SHOWN = 4096  # most points in the view
STILL = "Reading {}; your run starts right after."
BUSY = "A run is in progress. Cancel it, or choose again when it has ended."
STAYS = "{} could not be read, so this is still {}."
AGAIN = "Files are lost when the page is reloaded. Drop yours again to continue with it; until then the input is {}."
WITHOUT = "These settings are of a run on {}, which the file does not contain. Drop that file too to repeat it; until then the input is {}."


class VisitorInput(NamedTuple):
    """A visitor's input, the file it was read from, the axis that is up, and the name of a file that was refused after it."""

    path: Path
    shape: Input
    up: str = "auto"
    refused: str = ""


def axis_value(own: VisitorInput) -> dict[str, Any]:
    """The value of the up-axis panel for an input."""
    return axes.encode(own.shape.points, own.shape.frame.up, own.up)


def describe(shape: Input) -> list[dict[str, str]]:
    """Notices: what was read, and one line for everything that was cleaned or guessed."""
    if shape.surface is None:
        what = f"{shape.name}: a point cloud of {len(shape.points):,} points."
    else:
        what = f"{shape.name}: a mesh of {len(shape.surface[1]):,} faces; {len(shape.points):,} points were sampled from its surface."
    return notice.notes([what, *shape.notes])


def shown_points(shape: Input) -> np.ndarray:
    """The points [N, 6] that the view shows of an input."""
    return sample(shape, min(SHOWN, len(shape.points)))


def example_clouds() -> dict[str, np.ndarray]:
    """The points and normals of the examples, [N, 6] by name, not cleaned: cleaning all would delay the page."""
    raw = {name: ply.read(Source(EXAMPLES / f"{name}.ply")) for name in ORDER}
    return {name: np.concatenate([cloud.points, cloud.normals], 1) for name, cloud in raw.items()}


def example_name(own: VisitorInput | None) -> str:
    """The name of the example that a visitor works on; "" for their own file."""
    return own.path.stem if own is not None and own.path.parent == EXAMPLES else ""


def refusal_notice(own: VisitorInput) -> list[dict[str, Any]]:
    """A notice if the newest file could not be read."""
    return notice.hint(STAYS.format(own.refused, own.shape.name)) if own.refused else []


class MeshInput:
    """The components of the input and their handlers. right_words : what an empty right side says

    table : the components that a new input changes, by name, the panels among them
    """

    def __init__(self, queue: EngineQueue, right_words: str):
        self.queue, self.sessions, self.right_words = queue, queue.sessions, right_words
        self.table: dict[str, Component] = {}

    def build_choice(self) -> None:
        """The drop zone and the examples."""
        kinds = ", ".join(kind[1:].upper() for kind in READERS)
        with gr.Column(elem_classes="ft-own", scale=0, min_width=288):
            # No `file_types`: a file of another kind gets our own message, and phones would hide kinds that they do not know.
            self.file = gr.File(label="A point cloud or a mesh", show_label=False, elem_id="mesh-file", elem_classes="ft-drop", height=58)
            gr.HTML(f"<p>{kinds}</p>", elem_classes="ft-kinds", apply_default_css=False)
        self.tiles = clouds.build(example_clouds(), "mesh-examples")

    def build_waiting(self) -> None:
        """Counter of the runs that waited for a file."""
        self.resumed = gr.Number(0, visible="hidden", elem_id="mesh-resumed")

    def wire(self, method: Component, other: Component, screen: Component) -> None:
        """Connects the examples, the drop zone and the axis. method, other : the menus of the sides; screen : gets all that panels show"""
        messages = self.queue.messages
        self.table = {"live": screen, "notes": self.notes, "tiles": self.tiles, "axis": self.axis, "messages": messages}
        outputs, sides = list(self.table.values()), [method, other]
        self.tiles.input(self.pick, [self.tiles, *sides], outputs, **LATEST)
        waits = READING | {"show_progress": "minimal", "show_progress_on": self.file, "preprocess": True}  # a large file takes a while
        announced = self.file.upload(self.announce, self.file, messages, **(DIRECT | {"preprocess": True}))
        dropped = announced.then(self.drop, [self.file, *sides], [*outputs, self.file], **waits)
        turned = self.axis.input(self.turn, [self.axis, *sides], outputs, trigger_mode="always_last", **READING)
        between = list(self.queue.controls.values())
        for read_one in (dropped, turned):
            read_one.then(self.resume, self.resumed, [self.resumed, *between], **DIRECT)

    def pick(self, example: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes an example as input."""
        known = example in ORDER  # the page's text becomes a path
        return fill(self.table, self.take(request.session_hash, EXAMPLES / f"{example}.ply", "auto", name, other) if known else {})

    def announce(self, file: object, request: gr.Request) -> Any:
        """Announces that a file will be read; until then the visitor cannot generate from the one before."""
        visitor = request.session_hash
        try:
            name = validation.upload(file).name
        except ForetokenError as e:
            return notice.error(e)
        if self.sessions.is_busy(visitor, self.queue.prefix):
            return gr.skip()  # it will be refused
        self.sessions.begin_reading(visitor, name, WAIT)
        return notice.hint(f"Reading {name}. This can take up to {SECONDS:.0f} seconds.")

    def drop(self, file: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes the visitor's own file as input and empties the drop zone."""
        visitor = request.session_hash
        own = self.sessions.new_folder(visitor)
        try:
            values = self.take(visitor, adopt(validation.upload(file), own), "auto", name, other)
        except ForetokenError as e:
            values = {"messages": notice.error(e)}
        finally:
            self.sessions.end_reading(visitor)
        for folder in own.parent.glob("upload-*"):  # a visitor keeps only one file
            current = self.sessions.input_of(visitor)
            if current is None or folder != current.path.parent:
                shutil.rmtree(folder, ignore_errors=True)
        return *fill(self.table, values), None

    def turn(self, value: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Reads the file again with another up axis."""
        visitor = request.session_hash
        current = self.sessions.input_of(visitor)
        if current is None:
            return fill(self.table, {})
        try:
            up = validation.axis(value)
        except ForetokenError as e:
            return fill(self.table, {"axis": axis_value(current), "messages": notice.error(e)})
        self.sessions.begin_reading(visitor, current.shape.name, WAIT)
        try:
            return fill(self.table, self.take(visitor, current.path, up, name, other))
        finally:
            self.sessions.end_reading(visitor)

    def resume(self, count: object, request: gr.Request) -> tuple[Any, ...]:
        """Starts the run that waited for a file, if there is one; without the file it does not start."""
        visitor = request.session_hash
        current = self.sessions.input_of(visitor)
        if self.sessions.wants(visitor, self.queue.prefix) and not self.sessions.reading(visitor) and current and not current.refused:
            return (count if isinstance(count, int) else 0) + 1, *(gr.skip(),) * 4
        self.sessions.want(visitor, "")
        return gr.skip(), *self.queue.restore(request)

    def take(self, visitor: str, path: Path, up: str, name: object, other: object) -> dict[str, Any]:
        """Reads a file and shows its points; if it cannot be read, only the message changes. name, other: the sides' methods"""
        before, known = self.sessions.input_of(visitor), self.sessions.is_present(visitor)
        try:
            right, left = validation.method(name)[0], validation.method(other)[0]
            self.check_idle(visitor)
            shape = read(path, up) if path.parent == EXAMPLES else read_upload(path, up)
            self.check_idle(visitor)
        except ForetokenError as e:
            if before is not None and isinstance(e, BadFile):
                self.sessions.set_input(visitor, before._replace(refused=path.name))
            back = {"axis": axis_value(before)} if before else {}
            return {"tiles": example_name(before), "messages": notice.error(e), **back}
        if known and not self.sessions.is_present(visitor):
            return {}  # they left while it was read, so nothing of theirs may be kept
        self.sessions.set_input(visitor, current := VisitorInput(path, shape, up))
        sides = {
            "plain": mesh.Side.empty(*side_words(left, self.right_words)),
            "accelerated": mesh.Side.empty(title_of(right), self.right_words),
        }
        viewer = mesh.encode(sides, shown_points(shape))
        return {
            "live": live.Screen().show(viewer=viewer, verdict=self.queue.idle, **race_panels.MESHES.idle_values()),
            "notes": describe(shape),
            "tiles": example_name(current),
            "axis": axis_value(current),
            "messages": [],
        }

    def take_first(self, visitor: str, memory: object, is_shown: bool, name: object, other: object) -> dict[str, Any]:
        """Input for a new visitor: the example that this browser had last, else the first.

        memory: the form as the browser remembers it; is_shown: the view shows the last race from before a reload
        """
        remembered = memory if isinstance(memory, Mapping) else {}
        example = remembered.get("tiles") if remembered.get("tiles") in ORDER else FIRST
        values = self.take(visitor, EXAMPLES / f"{example}.ply", "auto", name, other)
        if is_shown:
            values.pop("live", None)
        if remembered.get("tiles") == "" and "notes" in values:
            values["messages"] = notice.hint(AGAIN.format(f"{example}.ply"))
        return values

    def wish(self, visitor: str, name: str, up: str, method: object, other: object) -> dict[str, Any]:
        """The updates for the input of a run that comes back: an example or the visitor's file if it is that one, else a notice."""
        current = self.sessions.input_of(visitor)
        example = name.removesuffix(".ply")
        is_here = current is not None and current.shape.name == name
        if is_here and current.shape.frame.up == up:
            return {}
        if is_here or example in ORDER:  # the text of a file becomes a path
            return self.take(visitor, current.path if is_here else EXAMPLES / f"{example}.ply", validation.axis(up), method, other)
        now = current.shape.name if current is not None else f"{FIRST}.ply"
        return {"messages": notice.hint(without_paths(WITHOUT.format(brief(name), now)))}

    def check_idle(self, visitor: str) -> None:
        """Raises BadPrompt while the visitor waits or has a run on this tab: its input must not change."""
        if self.sessions.is_busy(visitor, self.queue.prefix):
            raise BadPrompt(BUSY)

    def waits_for(self, visitor: str) -> str:
        """Why a run does not begin: it waits for a file that is being read, and that the page does not show yet."""
        name = self.sessions.reading(visitor)
        return STILL.format(name) if name else ""

    def hints_of(self, visitor: str) -> list[dict[str, Any]]:
        """Says which input a run uses if the newest one could not be read."""
        current = self.sessions.input_of(visitor)
        return refusal_notice(current) if current else []
