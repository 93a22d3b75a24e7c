"""The Mesh tab: turns a point cloud or a mesh into two low-polygon meshes, by plain decoding and by a method, in one 3D view."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
import torch

from app.boards.mesh import MeshBoard
from app.fit_line import fit_of
from app.mesh_files import FILES, write_files
from app.stream import Throttle, updates
from app.ui import asked, quality_table, restoring
from app.ui import knobs as knob_panel
from app.ui.keep import keep
from app.ui.mesh_input import AXIS, EXAMPLES, FIRST, ORDER, Given, adopt, axis, describe, example_clouds, example_name, shown_points
from app.ui.method_menu import PLAIN, badge, choices, choices_for, run_badge, start_values, title_of, with_auto
from app.ui.panels import canvas, clouds, live, mesh, notice, trace, tree, verdict, wanted
from app.ui.panels.made import bpt_words, made_with
from app.ui.place import Place
from app.ui.racing import DIRECT, READING, Racing, fill
from app.uploads import SECONDS, WAIT, read_upload
from engine.backbones.lowpoly import Lowpoly
from engine.core import Backbone, Knob, Prompt, Sampling
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.mesh.read import READERS, Input, read
from engine.methods import METHODS
from engine.run import Run

FAVOURITE = "xspecmesh"
WARM_STEPS = 3  # the first pass of a method has no draft yet
SPAN = 128  # the number of tokens of a mesh is not known before, so the trace is drawn over a multiple of this
BUDGET = Knob(
    "face_budget", "", 0, 0, 512, 8, "log", live=False, help="Most faces of the mesh. The model is told, and stops before it exceeds it."
)
PLAIN_SIDE = ("Plain decoding", "One token at a time.")
RIGHT = "Several tokens at a time, each one verified."
WORDS = verdict.Words("Reading the points", "The downloads contain the accelerated mesh.")
IDLE = {
    "state": "empty",
    "headline": "Same model, same points. How much faster?",
    "detail": "Left, plain decoding: one pass of the model for every token. Right: several tokens are drafted and verified in one pass.",
}
NO_HEADS = "{} has no draft heads on this machine, so XSpecMesh is not in the menu. Train them: python launch.py train mesh-heads{}."
NO_INPUT = "There is no input yet. Pick an example or drop a file."
STILL = "{} is still being read. Press Generate when its points are shown."
STAYS = "This run uses {}, because {} could not be read."
BUSY = "A run is in progress. Cancel it, or choose again when it is done."


def build(place: Place) -> None:
    """Builds the tab's controls and panels and connects them."""
    MeshTab(place).wire(place.tab)


def settings(sampling: Sampling) -> tuple[Knob, ...]:
    """The settings of a run besides the method's own knobs, declared like them."""
    temperature = Knob(
        "temperature", "", sampling.temperature, 0, 2, 0.05, help="Randomness. 0: always the most probable token.", live=False
    )
    return temperature, BUDGET


def settings_panel(sampling: Sampling) -> dict[str, Any]:
    """The value of the settings panel."""
    return knob_panel.encode("settings", settings(sampling), words={"face_budget": {0: "off"}})


def offered(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The methods and presets of the menu, the favourite first."""
    return sorted(found, key=lambda choice: not choice[1].startswith(FAVOURITE))


def read_prompt(given: Input, seed: object, values: object, own: Sampling) -> Prompt:
    """The Prompt that the page's fields describe; raises BadPrompt or BadKnob. own: the model's sampling, where the page has no control"""
    chosen = asked.knobs(values, settings(own))
    sampling = Sampling(float(chosen["temperature"]), own.top_k, own.top_p, own.guidance, own.temperature_last)
    return Prompt(points=torch.from_numpy(given.points), seed=asked.seed(seed), size=int(chosen["face_budget"]) or None, sampling=sampling)


def made(run: Run) -> str:
    """How many tokens a run has, in words."""
    return f"{len(run.tokens):,} token{'' if len(run.tokens) == 1 else 's'}"


def stays(given: Given) -> list[dict[str, Any]]:
    """A notice if the newest file could not be read."""
    return notice.hint(STAYS.format(given.shape.name, given.refused)) if given.refused else []


def without_a_face(run: Run) -> dict[str, Any]:
    """The line above the view for a run without a face: what happened, and what to try."""
    if run.stopped and not run.finished:
        detail = f"It had {made(run)}. Let it run longer before you cancel."
        return {"state": "stopped", "headline": "Stopped before the first face", "detail": detail}
    ended = bool(run.tokens) and run.tokens[-1] == run.backbone.end
    what = "ended the mesh" if ended else "reached the length limit"
    detail = f"{run.method.title} {what} after {made(run)}. Roll another seed, choose another up axis, or give points with "
    return {"state": "done", "tone": "bad", "headline": "The mesh has no faces", "detail": f"{detail}normals that point outward."}


def side_of(board: MeshBoard, title: str, badge: Mapping[str, Any] | None) -> mesh.Side:
    """A board's side of the view."""
    empty = f"No faces in {made(board.run)}." if board.ended and not len(board.faces) else ""
    return mesh.Side(
        board.faces, board.accepted, board.depth, board.step, board.tokens, board.ghosts,
        title=title, state=canvas.state(board), badge=badge, counters=board.run.totals, text=empty,
    )  # fmt: skip


def draw_course(board: MeshBoard) -> dict[str, Any]:
    """The values of the trace panel and the tree panel."""
    method, state = board.run.method, canvas.state(board)
    limit = -(-len(board.trail.positions) // SPAN) * SPAN
    made = made_with(board.run)
    drawn = tree.encode(board.trail, method, state, made=made, words=bpt_words)
    return {"trace": trace.encode(board.trail, method, state, limit, made), "tree": drawn}


def download(name: str, label: str) -> gr.DownloadButton:
    """The button of a file that does not exist yet."""
    return gr.DownloadButton(label, size="sm", elem_id=f"mesh-download-{name}", interactive=False, min_width=100)


class MeshTab(Racing):
    """The components of the tab and their handlers."""

    prefix = "mesh-"
    idle = IDLE

    def __init__(self, place: Place):
        super().__init__(place)
        self.model = place.mesh
        self.suits = Lowpoly.suits  # known before the model is loaded
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage()
        self.panels = {name: getattr(self, name) for name in ("viewer", "verdict", "trace", "tree")}
        self.offers = {"results": self.results, "quality": self.quality} | self.downloads
        self.live = live.build(self.panels, "mesh-live")
        self.wanted = wanted.build("mesh-wanted", "#mesh-examples [aria-pressed=true]")
        names = ("live", "notes", "tiles", "axis", "results", "messages")
        self.table = {name: getattr(self, name) for name in names}  # what a new file changes
        self.menu = {name: getattr(self, name) for name in ("method", "knobs", "badge", "settings")}  # what depends on the model

    @property
    def model_name(self) -> str:
        """The name of the model that makes meshes."""
        return self.model.name

    def _build_request(self) -> None:
        kinds = ", ".join(kind[1:].upper() for kind in READERS)
        with gr.Row(elem_classes="ft-ask ft-give"):
            with gr.Column(elem_classes="ft-own", scale=0, min_width=288):
                # No `file_types`: a file of another kind gets our own message, and phones would hide kinds that they do not know.
                self.file = gr.File(
                    label="A point cloud or a mesh", show_label=False, elem_id="mesh-file", elem_classes="ft-drop", height=58
                )
                gr.HTML(f"<p>{kinds}</p>", elem_classes="ft-kinds", apply_default_css=False)
            self.tiles = clouds.build(example_clouds(), "mesh-examples")
            self.build_buttons()
        self.notes = notice.build("mesh-notes")
        self.build_notices()

    def _build_settings(self) -> None:
        self.build_method(offered(choices_for(frozenset({"mesh_heads"}))), FAVOURITE)
        gr.HTML("<h2>Mesh</h2>", elem_classes="ft-heading")
        self.build_seed()
        self.settings = knob_panel.build(settings_panel(Lowpoly.sampling), "mesh-settings")
        self.axis = knob_panel.build(axis(), "mesh-axis")
        self.build_compare()

    def _build_stage(self) -> None:
        self.verdict = verdict.build(IDLE, "mesh-verdict")
        waiting = {"plain": mesh.Side.waiting(*PLAIN_SIDE), "accelerated": mesh.Side.waiting(METHODS[FAVOURITE].title, RIGHT)}
        self.viewer = mesh.build(mesh.encode(waiting))
        with gr.Row(elem_classes="ft-results", visible=False) as self.results:
            self.quality = gr.HTML("", elem_id="mesh-quality", apply_default_css=False)
            with gr.Column(elem_classes="ft-downloads", scale=0, min_width=240):
                gr.HTML(
                    "<h2>Download</h2><p>The accelerated mesh, in the position, size and axes of the input.</p>", elem_classes="ft-heading"
                )
                self.downloads = {name: download(name, label) for name, (label, _, _) in FILES.items()}
        self.trace = trace.build("mesh-trace")
        self.tree = tree.build("mesh-tree")

    def wire(self, tab: gr.Tab) -> None:
        """Connects the handlers."""
        inputs = [self.seed, self.method, self.knobs, self.settings, self.compare]
        self.wire_race([self.go.click], self.run, inputs)
        outputs = list(self.table.values())
        tab.select(self.open, self.method, [*outputs, *self.menu.values()], **DIRECT)
        self.tiles.input(self.pick, [self.tiles, self.method], outputs, **DIRECT)
        waits = READING | {"show_progress": "minimal", "show_progress_on": self.file, "preprocess": True}  # a large file takes a while
        told = self.file.upload(self.announce, self.file, self.messages, **(DIRECT | {"preprocess": True}))
        told.then(self.drop, [self.file, self.method], [*outputs, self.file], **waits)
        self.axis.input(self.turn, [self.axis, self.method], outputs, **READING)
        restored = [self.method, self.knobs, self.badge, self.messages]
        self.wanted.input(self.restore_settings, self.wanted, restored, **DIRECT)

    def restore_settings(self, value: object) -> tuple[Any, ...]:
        """Sets the method and its knobs as a row of the Bench tab has them."""
        try:
            name, panel = restoring.mesh(value, self.model.get())
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)
        return name, panel, badge(name, panel["values"]), []

    # --- the input ------------------------------------------------------------------------------------------------

    def open(self, name: object, request: gr.Request) -> tuple[Any, ...]:
        """Loads the model and takes an example as input when a visitor first opens the tab."""
        visitor = request.session_hash
        fresh = self.sessions.given(visitor) is None
        values = self.take(visitor, EXAMPLES / f"{FIRST}.ply", "auto", name) if fresh else {}
        try:
            backbone = self.model.get()
            if fresh:
                values |= self.menus(backbone)
        except ForetokenError as e:
            values["messages"] = notice.error(e)
        return fill(self.table | self.menu, values)

    def menus(self, backbone: Backbone) -> dict[str, Any]:
        """Updates of the method menu and the settings for a loaded model."""
        found = with_auto(offered(choices(backbone)), backbone)
        name = found[0][1]
        method, given = start_values(name, self.suits)
        missing = METHODS[FAVOURITE].needs - backbone.capabilities
        option = "" if backbone.name == "lowpoly" else " --backbone NAME"
        return {
            "method": gr.Dropdown(found, value=name),
            "knobs": knob_panel.encode(name, method.knobs, given),
            "badge": badge(name, given),
            "settings": settings_panel(backbone.sampling),
            "messages": notice.hint(NO_HEADS.format(backbone.name, option)) if missing else [],
        }

    def pick(self, example: object, name: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes an example as input."""
        known = example in ORDER  # the page's text becomes a path
        return fill(self.table, self.take(request.session_hash, EXAMPLES / f"{example}.ply", "auto", name) if known else {})

    def announce(self, file: object, request: gr.Request) -> Any:
        """Announces that a file will be read; until then the visitor cannot generate from the one before."""
        visitor = request.session_hash
        try:
            name = asked.upload(file).name
        except ForetokenError as e:
            return notice.error(e)
        if self.sessions.busy(visitor):
            return gr.skip()  # it will be refused
        self.sessions.reads(visitor, name, WAIT)
        return notice.hint(f"Reading {name}. This can take up to {SECONDS:.0f} seconds.")

    def drop(self, file: object, name: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes the visitor's own file as input and empties the drop zone."""
        visitor = request.session_hash
        own = self.sessions.folder(visitor) / f"upload-{secrets.token_hex(8)}"
        try:
            values = self.take(visitor, adopt(asked.upload(file), own), "auto", name)
        except ForetokenError as e:
            values = {"messages": notice.error(e)}
        finally:
            self.sessions.has_read(visitor)
        for folder in own.parent.glob("upload-*"):  # a visitor keeps only one file
            given = self.sessions.given(visitor)
            if given is None or folder != given.path.parent:
                shutil.rmtree(folder, ignore_errors=True)
        return *fill(self.table, values), None

    def turn(self, value: object, name: object, request: gr.Request) -> tuple[Any, ...]:
        """Reads the file again with another up axis."""
        visitor = request.session_hash
        given = self.sessions.given(visitor)
        if given is None:
            return fill(self.table, {})
        try:
            up = str(asked.knobs(value, (AXIS,))["up_axis"])
        except ForetokenError as e:
            return fill(self.table, {"axis": axis(given.up), "messages": notice.error(e)})
        self.sessions.reads(visitor, given.shape.name, WAIT)
        try:
            return fill(self.table, self.take(visitor, given.path, up, name))
        finally:
            self.sessions.has_read(visitor)

    def take(self, visitor: str, path: Path, up: str, name: object) -> dict[str, Any]:
        """Reads a file and shows its points; if it cannot be read, only the message changes. name: the method's."""
        before, known = self.sessions.given(visitor), self.sessions.present(visitor)
        try:
            chosen, _ = asked.method(name)
            self.check_idle(visitor)
            shape = read(path, up) if path.parent == EXAMPLES else read_upload(path, up)
            self.check_idle(visitor)
        except ForetokenError as e:
            if before is not None and isinstance(e, BadFile):
                self.sessions.give(visitor, before._replace(refused=path.name))
            back = {"axis": axis(before.up)} if before else {}
            return {"tiles": example_name(before), "messages": notice.error(e), **back}
        if known and not self.sessions.present(visitor):
            return {}  # they left while it was read, so nothing of theirs may be kept
        self.sessions.give(visitor, given := Given(path, shape, up))
        sides = {"plain": mesh.Side.waiting(*PLAIN_SIDE), "accelerated": mesh.Side.waiting(title_of(chosen), RIGHT)}
        viewer = mesh.encode(sides, shown_points(shape))
        return {
            "live": live.Screen().show(viewer=viewer, verdict=IDLE, trace=trace.IDLE, tree=tree.IDLE),
            "notes": describe(shape),
            "tiles": example_name(given),
            "axis": axis(up),
            "results": gr.Row(visible=False),
            "messages": [],
        }

    def check_idle(self, visitor: str) -> None:
        """Raises BadPrompt while the visitor waits or has a run: its input must not change."""
        if self.sessions.busy(visitor):
            raise BadPrompt(BUSY)

    def check_ready(self, visitor: str) -> None:
        """Raises BadPrompt while a file is being read: the page does not show it yet."""
        if name := self.sessions.reading(visitor):
            raise BadPrompt(STILL.format(name))

    def hints_of(self, visitor: str) -> list[dict[str, Any]]:
        """Says which input a run uses if the newest one could not be read."""
        given = self.sessions.given(visitor)
        return stays(given) if given else []

    def withdrawn(self, name: str) -> Any:
        """The update of an offer at the start of a run."""
        if name == "results":
            return gr.Row(visible=False)
        return gr.skip() if name == "quality" else super().withdrawn(name)

    # --- the run --------------------------------------------------------------------------------------------------

    def run(
        self, ticket: object, seed: object, name: object, knobs: object, values: object, compare: object, request: gr.Request
    ) -> Iterator[dict[str, Any]]:
        """The generator of one comparison."""
        visitor = request.session_hash

        def race(number: int) -> Iterator[dict[str, Any]]:
            given = self.sessions.given(visitor)
            if given is None:
                raise BadPrompt(NO_INPUT)
            backbone = self.model.get()
            prompt = read_prompt(given.shape, seed, values, backbone.sampling)
            chosen, method = asked.method(name, backbone)
            moved = asked.knobs(knobs, method.knobs)
            yield from self.compare_runs(visitor, number, backbone, given, prompt, chosen, moved, asked.flag(compare))

        yield from self.hold_engine(visitor, ticket, race)

    def compare_runs(
        self,
        visitor: str,
        number: int,
        backbone: Backbone,
        given: Given,
        prompt: Prompt,
        name: str,
        knobs: Mapping[str, Any],
        compare: bool,
    ) -> Iterator[dict[str, Any]]:
        """Races plain decoding against a method, shows both, measures the meshes and offers the files. number: the ticket's"""
        points = shown_points(given.shape)
        sides = {"plain": mesh.Side.waiting(*PLAIN_SIDE) if compare else None, "accelerated": mesh.Side.waiting(title_of(name), RIGHT)}
        reading = {"state": "running", "live": WORDS.reading}
        yield {"viewer": mesh.encode(sides, points), "verdict": reading, "trace": trace.IDLE, "tree": tree.IDLE}
        chosen = [(name, knobs), (PLAIN, {})][: 2 if compare else 1]
        runs = self.start_runs(visitor, number, backbone, prompt, chosen, WARM_STEPS)
        boards = [MeshBoard(run) for run in runs]
        for changed in updates(boards, Throttle(), self.runner.race):
            yield self.draw(boards, points, changed)
        if boards[0].count and self.sessions.present(visitor):
            done, told = self.finish(visitor, boards, given.shape, stays(given))
            self.sessions.leave_results(visitor, self.prefix, done)
            if told:
                yield {"verdict": told}

    def draw(self, boards: list[MeshBoard], points: np.ndarray, changed: set[int]) -> dict[str, Any]:
        """Updates the view of both boards, the line above it, and the charts of the accelerated one if it changed."""
        fast, plain = boards[0], boards[1] if len(boards) > 1 else None
        badge = run_badge(fast.run) if fast.count else None
        sides = {
            "plain": side_of(plain, PLAIN_SIDE[0], None) if plain else None,
            "accelerated": side_of(fast, title_of(fast.run.name), badge),
        }
        over = all(board.ended for board in boards)
        said = without_a_face(fast.run) if over and not len(fast.faces) else verdict.encode(fast, plain, WORDS)
        courses = draw_course(fast) if 0 in changed and fast.count else {}
        return {"viewer": mesh.encode(sides, points), "verdict": said, **courses}

    def finish(
        self, visitor: str, boards: list[MeshBoard], given: Input, said: list[dict[str, str]]
    ) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Measures the meshes, offers the files and saves the run in the history; if the disk refuses one, the rest is still done. Returns
        the values of `offers`, and the verdict with the fit of a mesh that has faces.

        said: notices to keep on the page
        """
        fast = boards[0]
        sides = [quality_table.measure(b, "fast" if b is fast else "plain", given) for b in reversed(boards) if b.count]
        files, lost = keep("downloads", lambda: write_files(fast.run, given, self.sessions.folder(visitor) / "mesh"))
        _, unkept = keep("history", lambda: self.shelf.keep(fast.run, given))
        found = files or {}
        offers = {name: gr.DownloadButton(value=str(found.get(name, "")) or None, interactive=name in found) for name in FILES}
        shown = any(side.numbers["faces"] for side in sides)
        mistakes = notice.error(*lost, *unkept)
        told = self.fitting(boards, given, sides[-1].numbers) if sides[-1].side == "fast" and len(fast.faces) else None
        return {"results": gr.Row(visible=shown), "quality": quality_table.table(sides), "messages": [*said, *mistakes], **offers}, told

    def fitting(self, boards: list[MeshBoard], given: Input, numbers: Mapping[str, Any]) -> dict[str, Any] | None:
        """The verdict with how well the accelerated mesh fits its input, or why that is not known. numbers: its row of the quality table"""
        fast = boards[0]
        fits, unknown = fit_of(fast.run.backbone, given, fast.run.result(), numbers)
        told = verdict.encode(fast, boards[1] if len(boards) > 1 else None, WORDS)
        if fits:
            return verdict.with_fit(told, fits)
        return told | {"fit": notice.without_paths(unknown)} if unknown else None
