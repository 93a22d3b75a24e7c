"""The Mesh tab's input: an example or a visitor's file, read and shown; what a new visitor finds, and what Generate waits for."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from app.live.uploads import SECONDS, WAIT, adopt, read_upload
from app.requests import validation as asked
from app.requests.meshes import EXAMPLES, FIRST, ORDER
from app.sentences import brief, without_paths
from app.ui import race_panels
from app.ui.method_menu import title_of
from app.ui.panels import live, mesh, notice
from app.ui.tabs.comparing import Comparing
from app.ui.tabs.mesh_input import Given, axis, describe, example_name, shown_points
from app.ui.tabs.racing import DIRECT, READING, fill
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.read import read

BUSY = "A run is in progress. Cancel it, or choose again when it is done."
STAYS = "This run uses {}, because {} could not be read."
AGAIN = "Files are not kept when the page is loaded anew. Drop yours again to go on with it; until then the input is {}."
WITHOUT = "These settings are of a run on {}, which is not in the file. Drop that file, too, to repeat the run; until then the input is {}."


class MeshInput(Comparing):
    """The input's handlers. Subclasses have the components `file`, `tiles`, `axis`, `notes` and the panels."""

    table: dict[str, Any]  # what a new input changes

    def wire_input(self) -> None:
        """Connects the examples, the drop zone and the axis."""
        outputs, sides = list(self.table.values()), [self.method, self.other]
        self.tiles.input(self.pick, [self.tiles, *sides], outputs, trigger_mode="always_last", **DIRECT)
        waits = READING | {"show_progress": "minimal", "show_progress_on": self.file, "preprocess": True}  # a large file takes a while
        told = self.file.upload(self.announce, self.file, self.messages, **(DIRECT | {"preprocess": True}))
        dropped = told.then(self.drop, [self.file, *sides], [*outputs, self.file], **waits)
        turned = self.axis.input(self.turn, [self.axis, *sides], outputs, trigger_mode="always_last", **READING)
        between = [self.go, self.cancel, self.line, self.clock]
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
            name = asked.upload(file).name
        except ForetokenError as e:
            return notice.error(e)
        if self.sessions.busy(visitor, self.prefix):
            return gr.skip()  # it will be refused
        self.sessions.reads(visitor, name, WAIT)
        return notice.hint(f"Reading {name}. This can take up to {SECONDS:.0f} seconds.")

    def drop(self, file: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes the visitor's own file as input and empties the drop zone."""
        visitor = request.session_hash
        own = self.sessions.folder(visitor) / f"upload-{secrets.token_hex(8)}"
        try:
            values = self.take(visitor, adopt(asked.upload(file), own), "auto", name, other)
        except ForetokenError as e:
            values = {"messages": notice.error(e)}
        finally:
            self.sessions.has_read(visitor)
        for folder in own.parent.glob("upload-*"):  # a visitor keeps only one file
            given = self.sessions.given(visitor)
            if given is None or folder != given.path.parent:
                shutil.rmtree(folder, ignore_errors=True)
        return *fill(self.table, values), None

    def turn(self, value: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Reads the file again with another up axis."""
        visitor = request.session_hash
        given = self.sessions.given(visitor)
        if given is None:
            return fill(self.table, {})
        try:
            up = asked.axis(value)
        except ForetokenError as e:
            return fill(self.table, {"axis": axis(given), "messages": notice.error(e)})
        self.sessions.reads(visitor, given.shape.name, WAIT)
        try:
            return fill(self.table, self.take(visitor, given.path, up, name, other))
        finally:
            self.sessions.has_read(visitor)

    def resume(self, count: object, request: gr.Request) -> tuple[Any, ...]:
        """Starts the run that waited for a file, if there is one; without the file it does not start."""
        visitor = request.session_hash
        given = self.sessions.given(visitor)
        if self.sessions.wants(visitor, self.prefix) and not self.sessions.reading(visitor) and given and not given.refused:
            return (count if isinstance(count, int) else 0) + 1, *(gr.skip(),) * 4
        self.sessions.want(visitor, "")
        return gr.skip(), *self.restore(request)

    def take(self, visitor: str, path: Path, up: str, name: object, other: object) -> dict[str, Any]:
        """Reads a file and shows its points; if it cannot be read, only the message changes. name, other: the sides' methods"""
        before, known = self.sessions.given(visitor), self.sessions.present(visitor)
        try:
            chosen, left = asked.method(name)[0], asked.method(other)[0]
            self.check_idle(visitor)
            shape = read(path, up) if path.parent == EXAMPLES else read_upload(path, up)
            self.check_idle(visitor)
        except ForetokenError as e:
            if before is not None and isinstance(e, BadFile):
                self.sessions.give(visitor, before._replace(refused=path.name))
            back = {"axis": axis(before)} if before else {}
            return {"tiles": example_name(before), "messages": notice.error(e), **back}
        if known and not self.sessions.present(visitor):
            return {}  # they left while it was read, so nothing of theirs may be kept
        self.sessions.give(visitor, given := Given(path, shape, up))
        sides = {
            "plain": mesh.Side.waiting(title_of(left), self.left_words(left)),
            "accelerated": mesh.Side.waiting(title_of(chosen), self.right_words),
        }
        viewer = mesh.encode(sides, shown_points(shape))
        return {
            "live": live.Screen().show(viewer=viewer, verdict=self.idle, **race_panels.MESHES.idle()),
            "notes": describe(shape),
            "tiles": example_name(given),
            "axis": axis(given),
            "messages": [],
        }

    def take_first(self, visitor: str, kept: object, is_shown: bool, name: object, other: object) -> dict[str, Any]:
        """What a new visitor finds: the example that this browser had last, else the first.

        kept: the form as the browser remembers it; is_shown: the view shows the last race of before the page was loaded anew
        """
        had = kept if isinstance(kept, Mapping) else {}
        example = had.get("tiles") if had.get("tiles") in ORDER else FIRST
        values = self.take(visitor, EXAMPLES / f"{example}.ply", "auto", name, other)
        if is_shown:
            values.pop("live", None)
        if had.get("tiles") == "" and "notes" in values:
            values["messages"] = notice.hint(AGAIN.format(f"{example}.ply"))
        return values

    def wish(self, visitor: str, name: str, up: str, method: object, other: object) -> dict[str, Any]:
        """The updates for the input of a run that comes back: an example or the visitor's file if it is that one, else a notice."""
        given = self.sessions.given(visitor)
        example = name.removesuffix(".ply")
        is_here = given is not None and given.shape.name == name
        if is_here and given.shape.frame.up == up:
            return {}
        if is_here or example in ORDER:  # the text of a file becomes a path
            return self.take(visitor, given.path if is_here else EXAMPLES / f"{example}.ply", asked.axis(up), method, other)
        now = given.shape.name if given is not None else f"{FIRST}.ply"
        return {"messages": notice.hint(without_paths(WITHOUT.format(brief(name), now)))}

    def check_idle(self, visitor: str) -> None:
        """Raises BadPrompt while the visitor waits or has a run on this tab: its input must not change."""
        if self.sessions.busy(visitor, self.prefix):
            raise BadPrompt(BUSY)

    def hints_of(self, visitor: str) -> list[dict[str, Any]]:
        """Says which input a run uses if the newest one could not be read."""
        given = self.sessions.given(visitor)
        return stays(given) if given else []


def stays(given: Given) -> list[dict[str, Any]]:
    """A notice if the newest file could not be read."""
    return notice.hint(STAYS.format(given.shape.name, given.refused)) if given.refused else []
