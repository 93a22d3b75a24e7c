"""The Mesh tab: turns a point cloud or a mesh into two low-polygon meshes, by two methods, in one 3D view."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np
from gradio.components import Component

from app.live.boards.mesh import MeshBoard
from app.requests import validation
from app.requests.meshes import FAVOURITE, NO_GUIDE, UNLIMITED, WARM_STEPS, guided, misses_guide, read_prompt, settings
from app.requests.sides import CLASSICAL, ONCE, Sides, start_values
from app.runs import replay_page
from app.runs.mesh_files import FILES, classical_surface, shrinkwrapped_vertices, write_classical, write_shrinkwrapped
from app.runs.mesh_pictures import SketchedMesh, draw_race, write_race, write_turntable
from app.ui import knobs as knob_panel
from app.ui import mesh_side, race_panels
from app.ui.mesh_side import MEASURING, MadeMesh, classical_side, without_a_face
from app.ui.method_menu import PLAIN_SIDE, badge, choices, choices_for, classical_card, side_words, title_of, with_auto
from app.ui.panels import axes, bar, forks, mesh, notice, runs, unseen, verdict
from app.ui.tab_context import TabContext
from app.ui.tabs import mesh_nine, mesh_outcome, quality_table, restoring
from app.ui.tabs.decoder import LONGEST_WAIT, DecodedRace
from app.ui.tabs.engine_queue import DIRECT, LATEST, fill
from app.ui.tabs.forking import FORKED, FUTURES, read_fork
from app.ui.tabs.mesh_input import MeshInput, refusal_notice, shown_points
from app.ui.tabs.method_form import form_updates
from app.ui.tabs.race import EndedRace, Files, RaceOutcome, RaceRequest, RaceTab, left_run
from app.ui.tabs.seed_grid import SeedGrid
from app.ui.tabs.speeds import speeds_here
from engine.backbones.lowpoly import Lowpoly
from engine.core import PLAIN, Backbone, Prompt, Sampling
from engine.errors import BadPrompt, ForetokenError, NotSupported
from engine.mesh.fit import fit_of
from engine.mesh.read import Input
from engine.methods import METHODS
from engine.run import Run
from engine.sandbox import Unwanted

FIRST_METHOD = "xspecmesh_exact"  # until the model is loaded; exact, so that an early click gets the same distribution
IDLE = {
    "state": "empty",
    "headline": "Same model, same points. How much faster?",
    "detail": "Left: the usual way, one token per pass. Right: several tokens guessed and checked in one pass. Press Generate.",
}
NO_HEADS = "{} has no draft heads on this machine, so XSpecMesh is not available."
NO_INPUT = "There is no input yet. Pick an example or drop a file."
LOADING = "Loading {}. You can already choose an input."
SHOWN_AS = {"shrinkwrapped": mesh.SNAPPED, "classical": mesh.CLASSICAL}  # downloads, as surfaces of the view
OPENED = "opened"  # key of a visitor's form that waits for the model
# the form stored in the browser, and whether the view shows the last race from before a reload
REMEMBERED = "(name, other, kept, shown) => [name, other, kept, Boolean(sessionStorage.getItem('foretoken-race-mesh'))]"


def build(context: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    RaceTab(context, MeshRace(context)).wire()


def settings_panel(sampling: Sampling) -> dict[str, Any]:
    """Value of the settings panel."""
    return knob_panel.encode("settings", settings(sampling), words=UNLIMITED)


def favourite_first(menu: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The menu with the favourite method and its presets first."""
    return sorted(menu, key=lambda choice: not choice[1].startswith(FAVOURITE))


class MeshRace:
    """The race of meshes."""

    kind, prefix, idle, replays, warm, board = runs.MESHES, "mesh-", IDLE, False, WARM_STEPS, SketchedMesh
    right_words = "Several tokens at a time, each one checked."
    form_names, key = restoring.MESH, "foretoken-mesh-form"
    suits = Lowpoly.suits  # known before the model is loaded
    now: Mapping[str, str] = {name: label for name, (label, _, _) in FILES.items()} | {"nine": "PNG of nine"}
    late: Mapping[str, tuple[str, str]] = {  # written in the background: (label, ending of the file)
        "shrinkwrapped": ("Shrinkwrapped", "-shrinkwrapped.glb"),
        "classical": ("Classical", "-classical.glb"),
        "html": ("HTML replay", ".html"),
        "race": ("Race GIF", "-race.gif"),
        "mp4": ("Race MP4", "-race.mp4"),
        "turntable": ("Turntable", "-turntable.gif"),
        "folders": ("Trace (ZIP)", "-runs.zip"),
    }
    late_panels = ("quality", "runs")
    buttons = ("mesh-download-", 100)
    # one at a time: the drawing process takes some hundred megabytes
    filing = DIRECT | {"queue": True, "concurrency_id": "drawing", "concurrency_limit": 1, "trigger_mode": "multiple"}
    page, below = replay_page.MESHES, race_panels.MESHES
    around: Mapping[str, gr.HTML] = {}

    def __init__(self, context: TabContext):
        self.context, self.model = context, context.studio.mesh
        self.model_name = self.model.name

    # --- parts ----------------------------------------------------------------------------------------------------

    def build_request(self, tab: RaceTab) -> None:
        """Builds the input, its up axis, the seed and the notes."""
        self.sessions = tab.sessions
        self.input = MeshInput(tab.queue, self.right_words)
        tab.queue.waits_for, tab.queue.hints = self.input.waits_for, self.input.hints_of
        with gr.Row(elem_classes="ft-ask ft-give"):
            self.input.build_choice()
            self.nine = SeedGrid(tab, mesh_nine.MESHES)
            self.nine.build_button()
            tab.queue.build_buttons()
        with gr.Row(elem_classes="ft-bar"):
            bar.build("mesh-settings", "mesh-bar", words=False)
            self.input.axis = axes.build("mesh-axis")
            tab.form.build_seed()
        with gr.Column(elem_classes="ft-messages ft-noted"):  # messages are next to the notes on the input
            self.input.notes = notice.build("mesh-notes")
            tab.queue.build_notices()

    def build_settings(self, tab: RaceTab) -> None:
        """Builds the methods, the settings and the left side."""
        menu = favourite_first(choices_for(frozenset({"mesh_heads"})))
        tab.form.build_method(menu, FIRST_METHOD, sheet=True)
        self.cards = unseen.menu_cards("mesh-cards")
        gr.HTML("<h2>Mesh</h2>", elem_classes="ft-heading")
        tab.form.settings = knob_panel.build(settings_panel(Lowpoly.sampling), "mesh-settings")
        tab.form.build_left(menu, [classical_card()])

    def build_views(self, tab: RaceTab) -> dict[str, gr.HTML]:
        """Builds the view of both meshes, and the grid that replaces it."""
        accelerated, several = mesh.Side.empty(title_of(FIRST_METHOD), self.right_words), self.nine.build()
        viewer = mesh.build(mesh.encode({"plain": mesh.Side.empty(*PLAIN_SIDE), "accelerated": accelerated}))
        return {"viewer": viewer, "grid": several}

    def build_below(self, tab: RaceTab) -> None:
        """Builds the forks and the downloads."""
        self.forks = forks.build(self.kind, [(PLAIN_SIDE[0], PLAIN), *choices_for(frozenset({"mesh_heads", "vertices"}))], "mesh-forks")
        words = "<p>Downloads of the accelerated mesh, in the position, size and axes of the input:</p>"
        gr.HTML(words, elem_classes="ft-kinds", apply_default_css=False)
        tab.build_files()
        self.shown = gr.Checkbox(False, visible="hidden", elem_id="mesh-shown")
        self.input.build_waiting()

    def wire(self, tab: RaceTab) -> None:
        """Connects the input, nine at once, the table of runs, the model and the stored form."""
        form, messages = tab.form, tab.queue.messages
        self.nine.wire()
        tab.wire_start([self.forks.input], self.read_fork, [self.forks])
        self.input.wire(form.method, form.other, tab.live)
        parts = form.parts(self.form_names)
        memory = form.remember(self.key, parts | {"tiles": self.input.tiles})
        menu = form.parts(("method", "knobs", "badge", "settings", "other")) | {"cards": self.cards}
        self.clock = gr.Timer(2.0, active=False)  # while the model is being measured
        self.filling = parts | menu | {"messages": messages, "ready": tab.ready, "clock": self.clock}
        self.clock.tick(lambda name: self.refresh(tab, name), form.method, list(self.filling.values()), **DIRECT)
        self.restored = self.filling | self.input.table
        self.menus_of = lambda backbone, menu, values: self.menus(tab, backbone, menu, values)
        shown = [*self.input.table.values(), tab.queue.line, tab.queue.clock]
        opened = self.context.tab.select(self.open, [form.method, form.other, memory, self.shown], shown, js=REMEMBERED, **DIRECT)
        opened.then(self.load, None, list(self.filling.values()), **DIRECT)
        tab.runs.input(self.restore_run, [tab.runs, form.method, form.other], list(self.restored.values()), **LATEST)

    def fields(self) -> list[Component]:
        """No fields: the session stores the input."""
        return []

    def submit_events(self) -> list[Callable]:
        """The end of a wait for a file."""
        return [self.input.resumed.change]

    # --- the model and the form -----------------------------------------------------------------------------------

    def open(self, name: object, other: object, memory: object, shown: object, request: gr.Request) -> tuple[Any, ...]:
        """Sets an example as input when a visitor first opens the tab; `load` follows."""
        visitor, queue = request.session_hash, self.input.queue
        line = (gr.skip(), gr.skip()) if self.sessions.is_busy(visitor, self.prefix) else queue.notice_of_place(visitor)
        if self.sessions.input_of(visitor) is not None:
            return *fill(self.input.table, {}), *line
        values = self.input.take_first(visitor, memory, shown is True, name, other)
        self.sessions.leave_results(visitor, OPENED, {"form": memory, "messages": values.get("messages", [])})
        return *fill(self.input.table, values | {"messages": notice.hint(LOADING.format(self.model.name))}), *line

    def load(self, request: gr.Request) -> tuple[Any, ...]:
        """Loads the model after a visitor has opened the tab, and fills the form as their browser stored it."""
        visit = self.sessions.take_results(request.session_hash, OPENED)
        if not visit:
            return fill(self.filling, {})
        try:
            backbone = self.model.get()
        except ForetokenError as e:
            return fill(self.filling, {"messages": [*visit["messages"], *notice.error(e)], "ready": restoring.READY})
        own = backbone.sampling
        menu = self.menu(backbone)
        form = restoring.from_memory(visit["form"], backbone, settings_panel(own), settings(own), menu[0][1])
        values = self.menus_of(backbone, menu, form)
        return fill(self.filling, values | {"messages": [*visit["messages"], *values["messages"]], "ready": restoring.READY})

    def menu(self, backbone: Backbone) -> list[tuple[str, str]]:
        """(title, name) of the methods, the fastest one here first."""
        return with_auto(favourite_first(choices(backbone)), self.context.studio.background.fastest(backbone), backbone)

    def refresh(self, tab: RaceTab, name: object) -> tuple[Any, ...]:
        """The menu while the loaded model is measured."""
        backbone = self.model.get()
        speeds = speeds_here(tab.studio.run_store.folder, backbone)
        before = with_auto(favourite_first(choices(backbone)), None, backbone)[0][1]
        clock = gr.Timer(active=self.context.studio.background.fastest(backbone) is None)
        return fill(self.filling, tab.form.menu_values(self.menu(backbone), speeds, name, before) | {"clock": clock})

    def menus(self, tab: RaceTab, backbone: Backbone, menu: list[tuple[str, str]], form: Mapping[str, Any]) -> dict[str, Any]:
        """Updates of the form for a loaded model. menu : its methods; form : values stored in the browser, others get defaults"""
        name = form.get("method", menu[0][1])
        method, start = start_values(name, self.suits)
        values = form["knobs"]["values"] if "knobs" in form else start
        speeds = speeds_here(tab.studio.run_store.folder, backbone)
        missing = METHODS[FAVOURITE].needs - backbone.capabilities
        return {
            "knobs": knob_panel.encode(name, method.knobs, values),
            "settings": settings_panel(backbone.sampling),
            **{part: value for part, value in form.items() if part in self.form_names},
            "method": name,
            "badge": badge(name, values),
            "other": form.get("other", PLAIN),
            **tab.form.menu_values(menu, speeds),
            "clock": gr.Timer(active=self.context.studio.background.fastest(backbone) is None),
            "messages": notice.hint(NO_HEADS.format(backbone.name)) if missing else [],
        }

    def restore_run(self, value: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Fills the form, or only the left side, from the settings of a run, and sets its input if available."""
        try:
            backbone = self.model.get()
            own = backbone.sampling
            updates, origin = restoring.from_run(value, backbone, settings_panel(own), settings(own))
            changed = self.input.wish(request.session_hash, origin.name, origin.up, updates["method"], other) if origin else {}
        except ForetokenError as e:
            return fill(self.restored, {"messages": notice.error(e)})
        runs_itself = {} if changed.get("messages") else restoring.ready_to_run(value)  # not with another input
        return fill(self.restored, form_updates(updates) | changed | runs_itself)

    # --- the race -------------------------------------------------------------------------------------------------

    def read(self, visitor: str, fields: Sequence[object], seed: object, values: object) -> RaceRequest:
        """Checks a request for a race of meshes."""
        own = self.sessions.input_of(visitor)
        if own is None:
            raise BadPrompt(NO_INPUT)
        backbone = self.model.get()
        prompt = guided(backbone, read_prompt(own.shape, seed, values, backbone.sampling))
        return RaceRequest(backbone, prompt, validation.knobs(values, settings(backbone.sampling)), own.shape, shown_points(own.shape))

    def read_fork(self, visitor: str, value: object) -> tuple[RaceRequest, Sides]:
        """Checks a request to go on from a finished run in another way."""
        backbone = self.model.get()

        def read(form: Mapping[str, Any], origin: restoring.WishedInput | None) -> tuple[Prompt, Input]:
            shape = self.input.shape_of(visitor, origin)
            return guided(backbone, read_prompt(shape, form.get("seed"), form["settings"], backbone.sampling)), shape

        fork, prompt, sides = read_fork(value, backbone, settings(backbone.sampling), read)
        return RaceRequest(backbone, prompt, {"repeat": ONCE}, fork.shape, shown_points(fork.shape), fork=fork), sides

    def empty_panels(self, tab: RaceTab, request: RaceRequest, right: str) -> dict[str, Any]:
        """Values of the view with only the points."""
        left, own = side_words(request.left, self.right_words), (title_of(right), self.right_words)
        if request.fork:
            left, own = ((title, FORKED) for title in FUTURES)
        sides = {"plain": mesh.Side.empty(*left) if request.left else None, "accelerated": mesh.Side.empty(*own)}
        viewer = mesh.encode(sides, request.points)
        return {"viewer": viewer, "grid": None, "verdict": {"state": "running", "live": verdict.READY}}

    def draw(self, boards: Sequence[MeshBoard], changed: set[int], request: RaceRequest, ends: bool = True) -> dict[str, Any]:
        """Values of the view, its charts and the line above it."""
        panels = mesh_side.draw_race(boards, request.points, changed, classical_side(None) if request.left == CLASSICAL else None)
        if request.fork:
            for name, title in zip(mesh.SIDES, FUTURES, strict=True):
                panels["viewer"]["sides"][name]["title"] = title
            if "verdict" in panels:
                panels["verdict"] = verdict.with_fork(panels["verdict"], boards, request.fork.tokens, request.fork.at)
        return panels

    def outcome(self, tab: RaceTab, raced: DecodedRace, request: RaceRequest) -> Generator[dict[str, Any], None, RaceOutcome]:
        """Measurements of the finished meshes."""
        yield {"verdict": MEASURING}
        boards, measurements = raced.boards, mesh_outcome.measure(raced.boards, request.shape, request.left)
        line = mesh_outcome.summary(boards, measurements, raced.seconds, request.fork)
        line |= {"costs": verdict.costs_in_words(boards, raced.costs)}
        panels = {"verdict": line, "quality": quality_table.encode(measurements.sides), **self.below.end_values(mesh_side.frame_of(boards))}
        if measurements.classical:
            left = classical_side(measurements.classical)
            panels["viewer"] = mesh_side.draw_race(boards, request.points, set(), left)["viewer"]
        kept = boards[:1] if request.fork else boards  # the old future has its row
        return RaceOutcome(panels, mesh_outcome.rows(kept, measurements, request.shape), measurements)

    def without_result(self, board: MeshBoard) -> dict[str, Any]:
        """Cause and advice."""
        return {"verdict": without_a_face(board.run)}

    # --- files ----------------------------------------------------------------------------------------------------

    def offers(self, tab: RaceTab, visitor: str, boards: Sequence[MeshBoard], request: RaceRequest) -> dict[str, Any]:
        """Writes the downloads and saves the run."""
        folder, current = tab.sessions.folder(visitor) / "mesh", tab.sessions.input_of(visitor)
        notices = refusal_notice(current) if current is not None else []
        if misses_guide(request.backbone, request.prompt):
            notices += notice.hint(NO_GUIDE)
        return mesh_outcome.offers(
            boards[0], request.shape, folder, tab.studio.run_store, notices, None if request.fork else left_run(boards)
        )

    def files(self, tab: RaceTab, ended: EndedRace, visitor: str) -> Iterator[Files]:
        """Other surfaces for the view and the table of quality, then larger files; of a mesh without faces, only the first."""
        boards, shape, outcome = ended.boards, ended.request.shape, ended.made
        tab.sessions.wait_until_free(LONGEST_WAIT)

        def is_shown() -> bool:  # else the visitor left or started another race
            return tab.sessions.shows(visitor, self.prefix, ended.ticket)

        fast, table, made = boards[0].run, ended.panels["quality"], {}
        meshes, notices = more_meshes(fast, outcome.classical)
        for name, each in meshes.items():
            numbers, _ = quality_table.numbers_of(*each, shape)
            table = table and quality_table.with_column(table, self.late[name][0], numbers)
            made[SHOWN_AS[name]] = MadeMesh(*each, fit_of(numbers))
        surfaces = mesh.encode_surfaces(mesh_side.surfaces_of(boards[0], outcome.fit, made))
        writers = {name: mesh_writer(name, fast, each, shape) for name, each in meshes.items()}
        panels = {"quality": table} if is_shown() else {}
        yield Files(writers, panels | {"runs": runs.with_surfaces(ended.race, surfaces)}, notices)
        if not len(boards[0].faces):
            return
        viewer = ended.panels.get("viewer") or self.draw(boards, set(), ended.request)["viewer"]
        replayed = ended._replace(panels={**ended.panels, "viewer": mesh.with_surfaces(viewer, surfaces)})
        writers = tab.common_files(replayed, shape.name)
        try:
            frames = draw_race(boards, wanted=is_shown)
        except Unwanted:
            return
        except NotSupported as e:
            yield Files(writers, notices=notice.hint(f"There are no pictures of the meshes: {e}"))
            return
        titles = [title_of(board.run.name) for board in boards]
        writers |= {
            "race": lambda path: write_race(frames, boards, titles, path),
            "mp4": lambda path: write_race(frames, boards, titles, path),
            "turntable": lambda path: write_turntable(frames, path),
        }
        yield Files(writers)


def more_meshes(run: Run, classical: MadeMesh | str | None = None) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[dict[str, str]]]:
    """Vertices and faces of the downloads that are other meshes than the run's, by name; and why there is no classical one. classical :
    if it was made before"""
    own = run.result()
    meshes = {"shrinkwrapped": (shrinkwrapped_vertices(run), own.faces)} if len(own.faces) else {}
    if isinstance(classical, MadeMesh):
        return meshes | {"classical": (classical.vertices, classical.faces)}, []
    try:
        return meshes | {"classical": classical_surface(run, behind=True)}, []
    except NotSupported as e:
        return meshes, notice.hint(str(e))


def mesh_writer(name: str, run: Run, mesh: tuple[np.ndarray, np.ndarray], shape: Input) -> Callable[[Path], Path]:
    """The writer of a download of `more_meshes`."""
    if name == "shrinkwrapped":
        return lambda path: write_shrinkwrapped(run, mesh[0], shape, path)
    return lambda path: write_classical(run, mesh, shape, path)
