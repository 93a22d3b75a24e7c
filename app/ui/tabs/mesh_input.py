"""Input of the Mesh tab: reads, describes and shows an example or a visitor's file; also the first input of a new visitor, and the
wait of Generate for a file."""

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
from app.requests.sides import CLASSICAL
from app.sentences import brief, without_paths
from app.ui import race_panels
from app.ui.method_menu import side_words, title_of
from app.ui.panels import axes, clouds, live, mesh, notice
from app.ui.tabs.engine_queue import DIRECT, LATEST, READING, EngineQueue, fill
from app.ui.tabs.restoring import WishedInput
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.formats import ply
from engine.mesh.formats.source import Source
from engine.mesh.read import READERS, Input, read, sample
from engine.recognition.up import UNSURE

SHOWN = 4096  # maximum number of points in the view
STILL = "Reading {}; your run starts right after."
BUSY = "A run is in progress. Cancel it, or choose again after it ends."
STAYS = "{} could not be read, so this is still {}."
CHOOSE, CLICK = "Choose the axis that points up.", "Click the picture that stands upright."
AGAIN = "Reloading the page has discarded your file. Drop it again to continue with it; until then the input is {}."
WITHOUT = "This run used {}, which is not included in the file. Drop that input too to repeat the run; until then the input is {}."
ABSENT = "This mesh was made from {} with {} up, which is not the input now. Drop that file again to go on from it."


class VisitorInput(NamedTuple):
    """A visitor's input: its file, the up axis, and the name of a later file that could not be read."""

    path: Path
    shape: Input
    up: str = "auto"
    refused: str = ""


def axis_value(own: VisitorInput) -> dict[str, Any]:
    """Value of the up-axis panel for an input."""
    asks = any(note.startswith(UNSURE) for note in own.shape.notes)
    return axes.encode(own.shape.points, own.shape.frame.up, own.up) | {"asks": asks}


def describe(shape: Input) -> list[dict[str, str]]:
    """Notices about an input: its type and size, and what was cleaned or guessed."""
    if shape.surface is None:
        what = f"{shape.name}: a point cloud of {len(shape.points):,} points."
    else:
        what = f"{shape.name}: a mesh of {len(shape.surface[1]):,} faces; {len(shape.points):,} points were sampled from its surface."
    sure = [note for note in shape.notes if not note.startswith(UNSURE)]
    unsure = [note.replace(CHOOSE, CLICK) for note in shape.notes if note.startswith(UNSURE)]
    return [*notice.notes([what, *sure]), *(line for text in unsure for line in notice.hint(text))]


def shown_points(shape: Input) -> np.ndarray:
    """Sample [N, 6] of an input's points for the view."""
    return sample(shape, min(SHOWN, len(shape.points)))


def example_clouds() -> dict[str, np.ndarray]:
    """Points and normals of the examples, [N, 6] by name; not cleaned, which would delay the page."""
    raw = {name: ply.read(Source(EXAMPLES / f"{name}.ply")) for name in ORDER}
    return {name: np.concatenate([cloud.points, cloud.normals], 1) for name, cloud in raw.items()}


def example_name(own: VisitorInput | None) -> str:
    """Name of a visitor's example; "" for their own file."""
    return own.path.stem if own is not None and own.path.parent == EXAMPLES else ""


def refusal_notice(own: VisitorInput) -> list[dict[str, Any]]:
    """Notice that the newest file could not be read; [] if it could."""
    return notice.hint(STAYS.format(own.refused, own.shape.name)) if own.refused else []


class MeshInput:
    """Components of the input and their handlers. right_words : text of an empty right side

    table : components that a new input changes, by name, including the panels
    """

    def __init__(self, queue: EngineQueue, right_words: str):
        self.queue, self.sessions, self.right_words = queue, queue.sessions, right_words
        self.table: dict[str, Component] = {}

    def build_choice(self) -> None:
        """Builds the drop zone and the examples."""
        kinds = ", ".join(kind[1:].upper() for kind in READERS)
        with gr.Column(elem_classes="ft-own", scale=0, min_width=288):
            # No `file_types`: other files get our own message, and phones would hide files of unknown types.
            self.file = gr.File(label="A point cloud or a mesh", show_label=False, elem_id="mesh-file", elem_classes="ft-drop", height=58)
            gr.HTML(f"<p>{kinds}</p>", elem_classes="ft-kinds", apply_default_css=False)
        self.tiles = clouds.build(example_clouds(), "mesh-examples")

    def build_waiting(self) -> None:
        """Builds a hidden counter of runs that waited for a file; its change starts such a run."""
        self.resumed = gr.Number(0, visible="hidden", elem_id="mesh-resumed")

    def wire(self, method: Component, other: Component, screen: Component) -> None:
        """Connects the examples, the drop zone and the axis. method, other : menus of the sides; screen : output of all panels"""
        messages = self.queue.messages
        self.table = {"live": screen, "notes": self.notes, "tiles": self.tiles, "axis": self.axis, "messages": messages}
        outputs, sides = list(self.table.values()), [method, other]
        self.tiles.input(self.pick, [self.tiles, *sides], outputs, **LATEST)
        waits = READING | {
            "show_progress": "minimal",
            "show_progress_on": self.file,
            "preprocess": True,
            "trigger_mode": "multiple",
        }  # a large file takes long
        announced = self.file.upload(self.announce, self.file, messages, **(DIRECT | {"preprocess": True}))
        dropped = announced.then(self.drop, [self.file, *sides], [*outputs, self.file], **waits)
        turned = self.axis.input(self.turn, [self.axis, *sides], outputs, trigger_mode="always_last", **READING)
        between = list(self.queue.controls.values())
        for read_one in (dropped, turned):
            read_one.then(self.resume, self.resumed, [self.resumed, *between], **DIRECT)

    def pick(self, example: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Uses an example as input."""
        known = example in ORDER  # the text becomes part of a path
        return fill(self.table, self.take(request.session_hash, EXAMPLES / f"{example}.ply", "auto", name, other) if known else {})

    def announce(self, file: object, request: gr.Request) -> Any:
        """Announces that a file will be read; Generate waits for it."""
        visitor = request.session_hash
        try:
            name = validation.upload(file).name
        except ForetokenError as e:
            return notice.error(e)
        if self.sessions.is_busy(visitor, self.queue.prefix):
            return gr.skip()  # `drop` will refuse it
        self.sessions.begin_reading(visitor, name, WAIT)
        return notice.hint(f"Reading {name}. This can take up to {SECONDS:.0f} seconds.")

    def drop(self, file: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Uses the visitor's file as input and empties the drop zone."""
        visitor = request.session_hash
        own, reading = self.sessions.new_folder(visitor), ""
        try:
            reading = validation.upload(file).name
            values = self.take(visitor, adopt(validation.upload(file), own), "auto", name, other)
        except ForetokenError as e:
            values = {"messages": notice.error(e)}
        finally:
            self.sessions.end_reading(visitor, reading)
        if self.sessions.reading(visitor):  # a later file, which wins: it may not be cleared from the drop zone
            return *fill(self.table, {}), gr.skip()
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
            self.sessions.end_reading(visitor, current.shape.name)

    def resume(self, count: object, request: gr.Request) -> tuple[Any, ...]:
        """Starts the run that waited for a file, unless the file could not be read."""
        visitor = request.session_hash
        current = self.sessions.input_of(visitor)
        if self.sessions.wants(visitor, self.queue.prefix) and not self.sessions.reading(visitor) and current and not current.refused:
            return (count if isinstance(count, int) else 0) + 1, *(gr.skip(),) * 4
        if self.sessions.reading(visitor):  # a later file
            return (gr.skip(),) * 5
        self.sessions.want(visitor, "")
        return gr.skip(), *self.queue.restore(request)

    def take(self, visitor: str, path: Path, up: str, name: object, other: object) -> dict[str, Any]:
        """Reads a file and shows its points; on an error only the message changes. name, other : methods of the sides"""
        before, known = self.sessions.input_of(visitor), self.sessions.is_present(visitor)
        try:
            right, left = validation.method(name)[0], CLASSICAL if other == CLASSICAL else validation.method(other)[0]
            self.check_idle(visitor)
            shape = read(path, up) if path.parent == EXAMPLES else read_upload(path, up)
            self.check_idle(visitor)
        except ForetokenError as e:
            if before is not None and isinstance(e, BadFile):
                self.sessions.set_input(visitor, before._replace(refused=path.name))
            back = {"axis": axis_value(before)} if before else {}
            return {"tiles": example_name(before), "messages": notice.error(e), **back}
        if known and not self.sessions.is_present(visitor):
            return {}  # the visitor left in the meantime, so nothing may be stored
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
        """Sets the input of a new visitor: the last example in this browser, else the first.

        memory : the form stored in the browser; is_shown : the view shows the last race from before a reload
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
        """Sets the input of a restored run if it is an example or the visitor's file; otherwise returns a notice."""
        current = self.sessions.input_of(visitor)
        example = name.removesuffix(".ply")
        is_here = current is not None and current.shape.name == name
        if is_here and current.shape.frame.up == up:
            return {}
        if is_here or example in ORDER:  # untrusted text becomes part of a path
            return self.take(visitor, current.path if is_here else EXAMPLES / f"{example}.ply", validation.axis(up), method, other)
        now = current.shape.name if current is not None else f"{FIRST}.ply"
        return {"messages": notice.hint(without_paths(WITHOUT.format(brief(name), now)))}

    def shape_of(self, visitor: str, wished: WishedInput | None) -> Input:
        """The input of a run to go on from: the visitor's, or an example. Raises BadPrompt if it is neither."""
        current, name, up = self.sessions.input_of(visitor), wished.name if wished else "?", wished.up if wished else ""
        if current is not None and (current.shape.name, current.shape.frame.up) == (name, up):
            return current.shape
        if name.removesuffix(".ply") in ORDER:  # untrusted text becomes part of a path
            return read(EXAMPLES / f"{name.removesuffix('.ply')}.ply", validation.axis(up))
        raise BadPrompt(without_paths(ABSENT.format(brief(name), up)))

    def check_idle(self, visitor: str) -> None:
        """Raises BadPrompt if the visitor has a waiting or running run on this tab, whose input must not change."""
        if self.sessions.is_busy(visitor, self.queue.prefix):
            raise BadPrompt(BUSY)

    def waits_for(self, visitor: str) -> str:
        """Message that a run waits for a file; "" if no file is being read."""
        name = self.sessions.reading(visitor)
        return STILL.format(name) if name else ""

    def hints_of(self, visitor: str) -> list[dict[str, Any]]:
        """Notice of the input in use if the newest file could not be read."""
        current = self.sessions.input_of(visitor)
        return refusal_notice(current) if current else []
