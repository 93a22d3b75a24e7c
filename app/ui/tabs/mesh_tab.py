"""The Mesh tab: turns a point cloud or a mesh into two low-polygon meshes, by two methods, in one 3D view: on the left plain decoding or
another method, on the right the chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from app.live.boards.mesh import MeshBoard
from app.live.worker import Here
from app.requests import validation as asked
from app.requests.limits import LARGEST_SEED
from app.requests.meshes import FAVOURITE, WARM_STEPS, read_prompt, settings
from app.requests.sides import PLAIN, checked_sides, start_values, times_of
from app.runs import history, replay_page, video
from app.runs.mesh_files import FILES, wrapped, write_shrinkwrapped
from app.runs.mesh_pictures import Drawn, draw_race, write_race, write_turntable, write_video
from app.runs.race_files import write_folders
from app.ui import knobs as knob_panel
from app.ui import mesh_side, race_panels
from app.ui.mesh_side import MEASURING, WORDS, without_a_face
from app.ui.method_menu import PLAIN_SIDE, badge, cards, choices, choices_for, title_of, with_auto
from app.ui.panels import axes, bar, clouds, live, mesh, notice, replay, runs, verdict, wanted
from app.ui.panels import offered as offered_panel
from app.ui.tab_context import TabContext
from app.ui.tabs import mesh_outcome, mesh_seeds, quality_table, restoring, video_button
from app.ui.tabs.comparing import Ended
from app.ui.tabs.mesh_given import MeshInput, stays
from app.ui.tabs.mesh_input import Given, example_clouds, shown_points
from app.ui.tabs.multi_race import Lanes
from app.ui.tabs.racing import DIRECT, ENGINE, GIVES_WAY, fill
from app.ui.tabs.speeds import speedups
from engine.backbones.lowpoly import Lowpoly
from engine.core import Backbone, Prompt, Sampling
from engine.errors import BadPrompt, ForetokenError, NotSupported
from engine.mesh.read import READERS
from engine.methods import METHODS
from engine.nearest import nearest, try_seeds

FIRST_METHOD = "xspecmesh_exact"  # until the model is loaded: an impatient click must not get another distribution
IDLE = {
    "state": "empty",
    "headline": "Same model, same points. How much faster?",
    "detail": "Left, plain decoding: one pass of the model for every token. Right: several tokens are drafted and verified in one pass.",
}
NO_HEADS = "{} has no draft heads on this machine, so XSpecMesh is not in the menu."
NO_INPUT = "There is no input yet. Pick an example or drop a file."
STILL = "{} is still being read. Your run starts when its points are shown; Cancel gives it up."
LOADING = "Loading {}. You can choose an input meanwhile."
DRAWN = {  # of a race, made behind the page: (label, ending of the file)
    "shrinkwrapped": ("Shrinkwrapped", "-shrinkwrapped.glb"),
    "html": ("HTML replay", ".html"),
    "race": ("Race GIF", "-race.gif"),
    "mp4": ("Race MP4", "-race.mp4"),
    "turntable": ("Turntable", "-turntable.gif"),
    "folders": ("Trace (ZIP)", "-runs.zip"),
}
# one at a time: a process that draws takes some hundred megabytes
DRAWING = DIRECT | {"queue": True, "concurrency_id": "drawing", "concurrency_limit": 1, "trigger_mode": "multiple"}
OPENED = "opened"  # under this name a visitor's form waits for the model
# the form as the browser keeps it, and whether the view shows the last race of before the page was loaded anew
REMEMBERED = "(name, other, kept, shown) => [name, other, kept, Boolean(sessionStorage.getItem('foretoken-race-mesh'))]"


def build(place: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    MeshTab(place).wire(place.tab)


def settings_panel(sampling: Sampling) -> dict[str, Any]:
    """The value of the settings panel."""
    return knob_panel.encode("settings", settings(sampling), words={"face_budget": {0: "off"}})


def offered(found: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The methods and presets of the menu, the favourite first."""
    return sorted(found, key=lambda choice: not choice[1].startswith(FAVOURITE))


def download(name: str, label: str) -> gr.DownloadButton:
    """The button of a file that does not exist yet."""
    return gr.DownloadButton(label, size="sm", elem_id=f"mesh-download-{name}", interactive=False, scale=0, min_width=100)


class MeshTab(MeshInput):
    """The components of the tab and their handlers."""

    prefix = "mesh-"
    idle = IDLE
    form_names = restoring.MESH
    right_words = "Several tokens at a time, each one verified."

    def __init__(self, place: TabContext):
        super().__init__(place)
        self.model = place.studio.mesh
        self.suits = Lowpoly.suits  # known before the model is loaded
        self._build_request()
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self._build_stage()
        self.panels = {"viewer": self.viewer, "verdict": self.verdict} | self.below
        self.offers = self.downloads | self.drawn
        self.live = live.build(self.panels, "mesh-live")
        self.wanted = wanted.build("mesh-wanted", "#mesh-ready i")
        names = ("live", "notes", "tiles", "axis", "messages")
        self.table = {name: getattr(self, name) for name in names}  # what a new file changes
        names = ("method", "knobs", "badge", "settings", "other", "cards")
        self.menu = {name: getattr(self, name) for name in names}  # what depends on the model

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
        with gr.Row(elem_classes="ft-bar"):
            bar.build("mesh-settings", "mesh-bar", words=False)
            self.axis = axes.build("mesh-axis")
            self.build_seed()
        with gr.Column(elem_classes="ft-said ft-noted"):  # one message at a time, beside the notes on the input
            self.notes = notice.build("mesh-notes")
            self.build_notices()

    def build_seed(self) -> None:
        """The seed, as on both tabs, and a button that tries several and takes the one whose mesh lies nearest."""
        super().build_seed()
        with self.seed_row:
            self.best = gr.Button(
                f"Best of {mesh_seeds.TRIED}", size="sm", elem_id="mesh-best", elem_classes="ft-dice", scale=0, min_width=88,
                visible=isinstance(self.runner, Here),
            )  # fmt: skip

    def _build_settings(self) -> None:
        found = offered(choices_for(frozenset({"mesh_heads"})))
        self.build_cards(found, FIRST_METHOD, sheet=True)
        self.cards = offered_panel.build("mesh-cards")
        gr.HTML("<h2>Mesh</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(settings_panel(Lowpoly.sampling), "mesh-settings")
        self.build_left(found)

    def _build_stage(self) -> None:
        self.lanes = Lanes(runs.MESHES)
        self.verdict = verdict.build(IDLE, "mesh-verdict")
        waiting = {
            "plain": mesh.Side.waiting(*PLAIN_SIDE),
            "accelerated": mesh.Side.waiting(title_of(FIRST_METHOD), self.right_words),
        }
        self.viewer = mesh.build(mesh.encode(waiting))
        self.replay = replay.build("mesh-replay")
        gr.HTML(
            "<p>The accelerated mesh, in the position, size and axes of the input:</p>", elem_classes="ft-kinds", apply_default_css=False
        )
        with gr.Row(elem_classes="ft-files"):
            self.downloads = {name: download(name, label) for name, (label, _, _) in FILES.items()}
            self.drawn = {name: download(name, label) for name, (label, _) in DRAWN.items() if name != "mp4" or video.is_there()}
            if "mp4" not in self.drawn and self.may_install:
                video_button.build(DRAWN["mp4"][0], "mesh-download-mp4")
        self.below = race_panels.MESHES.build()
        self.runs = self.below["runs"]
        self.shown = gr.Checkbox(False, visible="hidden", elem_id="mesh-shown")
        self.ready = gr.HTML("", elem_id="mesh-ready", elem_classes="ft-unseen", apply_default_css=False)
        self.resumed = gr.Number(0, visible="hidden", elem_id="mesh-resumed")  # counts the runs that waited for a file

    def wire(self, tab: gr.Tab) -> None:
        """Connects the handlers."""
        inputs = [self.seed, self.method, self.knobs, self.settings, self.compare, self.other, self.other_knobs]
        delivered = self.wire_race([self.go.click, self.resumed.change], self.run, inputs)
        delivered.success(self.draw_pictures, None, [*self.drawn.values(), self.runs, self.messages], **DRAWING)
        names = ("seed", "keep", "knobs", "badge", "messages")
        self.choosing = {name: getattr(self, name) for name in names}  # what the choice of a seed changes
        asking = [self.seed, self.settings, self.method, self.knobs]
        self.best.click(self.choose_seed, asking, list(self.choosing.values()), **ENGINE | {"trigger_mode": "once"})
        self.wire_left()
        self.lanes.wire(self.sessions, self.messages)
        self.wire_input()
        kept = self.remember("foretoken-mesh-form", ("tiles",))
        self.filling = self.form | self.menu | {"messages": self.messages, "ready": self.ready}
        outputs = list(self.filling.values())
        first = [self.method, self.other, kept, self.shown]
        shown = [*self.table.values(), self.line, self.clock]
        opened = tab.select(self.open, first, shown, js=REMEMBERED, **DIRECT)
        opened.then(self.load, None, outputs, **DIRECT)
        self.restored = self.filling | self.table
        self.runs.input(
            self.restore_run, [self.runs, self.method, self.other], list(self.restored.values()), trigger_mode="always_last", **DIRECT
        )
        self.wanted.input(
            self.restore_settings, self.wanted, [self.method, self.knobs, self.badge, self.messages], trigger_mode="always_last", **DIRECT
        )

    def choose_seed(self, seed: object, values: object, name: object, knobs: object, request: gr.Request) -> tuple[Any, ...]:
        """Decodes several seeds of the visitor's input together, and puts the one with the nearest mesh into the field. A method that can
        make the mesh of a seed is told to."""
        visitor = request.session_hash
        try:
            given = self.sessions.given(visitor)
            if given is None or self.waits_for(visitor):
                raise BadPrompt(self.waits_for(visitor) or NO_INPUT)
            backbone = self.model.get()
            prompt = read_prompt(given.shape, min(asked.seed(seed), LARGEST_SEED + 1 - mesh_seeds.TRIED), values, backbone.sampling)
            panel = mesh_seeds.with_seed(name, knobs, backbone)
            found = try_seeds(backbone, prompt, mesh_seeds.TRIED)
        except ForetokenError as e:
            return fill(self.choosing, {"messages": notice.error(e)})
        if nearest(found).chamfer is None:
            return fill(self.choosing, {"messages": notice.error(BadPrompt(mesh_seeds.NONE.format(mesh_seeds.TRIED, prompt.seed)))})
        changed = {"knobs": panel, "badge": badge(str(name), panel["values"])} if panel else {}
        said = mesh_seeds.best_of(found) + ("" if panel else mesh_seeds.OTHER)
        return fill(self.choosing, changed | {"seed": nearest(found).seed, "keep": True, "messages": notice.hint(said)})

    def restore_settings(self, value: object) -> tuple[Any, ...]:
        """Sets the method and its knobs as a row of the Bench tab has them."""
        try:
            name, panel = restoring.mesh(value, self.model.get())
        except ForetokenError as e:
            return gr.skip(), gr.skip(), gr.skip(), notice.error(e)
        return name, panel, badge(name, panel["values"]), []

    # --- the model and the form -----------------------------------------------------------------------------------

    def open(self, name: object, other: object, kept: object, shown: object, request: gr.Request) -> tuple[Any, ...]:
        """Takes an example as input when a visitor first opens the tab; the model is loaded behind it."""
        visitor = request.session_hash
        line = (gr.skip(), gr.skip()) if self.sessions.busy(visitor, self.prefix) else self.found_taken(visitor)
        if self.sessions.given(visitor) is not None:
            return *fill(self.table, {}), *line
        values = self.take_first(visitor, kept, shown is True, name, other)
        self.sessions.leave_results(visitor, OPENED, {"form": kept, "said": values.get("messages", [])})
        return *fill(self.table, values | {"messages": notice.hint(LOADING.format(self.model.name))}), *line

    def load(self, request: gr.Request) -> tuple[Any, ...]:
        """Loads the model for a visitor who has just opened the tab, and fills the form as their browser remembers it."""
        left = self.sessions.take_results(request.session_hash, OPENED)
        if not left:
            return fill(self.filling, {})
        try:
            backbone = self.model.get()
        except ForetokenError as e:
            return fill(self.filling, {"messages": [*left["said"], *notice.error(e)], "ready": restoring.READY})
        own = backbone.sampling
        found = with_auto(offered(choices(backbone)), backbone)
        form = restoring.form(left["form"], backbone, settings_panel(own), settings(own), found[0][1])
        values = self.menus(backbone, found, form)
        return fill(self.filling, values | {"messages": [*left["said"], *values["messages"]], "ready": restoring.READY})

    def menus(self, backbone: Backbone, found: list[tuple[str, str]], form: Mapping[str, Any]) -> dict[str, Any]:
        """Updates of the form for a loaded model. found: its methods; form: the values that the browser remembers, the others start anew"""
        name = form.get("method", found[0][1])
        method, given = start_values(name, self.suits)
        if "knobs" in form:
            given = form["knobs"]["values"]
        speeds = speedups(self.shelf.folder, backbone.name, backbone.weights_hash)
        missing = METHODS[FAVOURITE].needs - backbone.capabilities
        values = {
            "knobs": knob_panel.encode(name, method.knobs, given),
            "settings": settings_panel(backbone.sampling),
            **{part: value for part, value in form.items() if part in self.form},
            "method": name,
            "badge": badge(name, given),
            "other": form.get("other", PLAIN),
            "cards": {self.method.elem_id: cards(found, self.suits, speeds), self.other.elem_id: self.left_cards(found)},
            "messages": notice.hint(NO_HEADS.format(backbone.name)) if missing else [],
        }
        return values

    def restore_run(self, value: object, name: object, other: object, request: gr.Request) -> tuple[Any, ...]:
        """Fills the form, or only the left side, from the settings of a run, and takes its input if it is at hand."""
        try:
            backbone = self.model.get()
            own = backbone.sampling
            found, wished = restoring.mesh_run(value, backbone, settings_panel(own), settings(own))
            changed = self.wish(request.session_hash, wished.name, wished.up, found["method"], other) if wished else {}
        except ForetokenError as e:
            return fill(self.restored, {"messages": notice.error(e)})
        return fill(self.restored, self.filled(found) | changed)

    def waits_for(self, visitor: str) -> str:
        """A run waits for a file that is being read: the page does not show it yet."""
        name = self.sessions.reading(visitor)
        return STILL.format(name) if name else ""

    # --- pictures -------------------------------------------------------------------------------------------------

    def draw_pictures(self, request: gr.Request) -> tuple[Any, ...]:
        """Makes the files of the race and draws the thumbnails once the page shows the result; a disk that refuses costs only these."""
        visitor = request.session_hash
        parts = self.drawn | {"runs": self.runs, "messages": self.messages}
        ended = self.sessions.take_results(visitor, f"{self.prefix}boards").get("boards")
        if not ended or not len(ended.boards[0].faces):
            return fill(parts, {})
        self.sessions.wait_until_free(GIVES_WAY)
        if not self.sessions.present(visitor):
            return fill(parts, {})
        drawn, notices = None, []
        try:
            drawn = draw_race(ended.boards)
        except NotSupported as e:
            notices = notice.hint(f"There are no pictures of the meshes: {e}")
        if not self.sessions.present(visitor):  # they left meanwhile
            return fill(parts, {})
        folder, run = self.sessions.folder(visitor), ended.boards[0].run
        values: dict[str, Any] = {"runs": runs.with_thumbnails(ended.race, drawn.thumbnails)} if drawn else {}
        name_of = f"foretoken-{history.file_name(run)}-{run.prompt.seed}"
        writers = self.writers(ended, drawn)
        files, mistakes = self.write_files(visitor, ended.ticket, writers, lambda name: folder / f"{name_of}{DRAWN[name][1]}")
        notices += notice.error(*mistakes)
        return fill(parts, values | files | ({"messages": notices} if notices else {}))

    def writers(self, ended: Ended, drawn: Drawn | None) -> dict[str, Callable[[Path], Path]]:
        """What writes each file of a race. drawn: its pictures, if there are any"""
        boards, given = ended.boards, ended.given
        titles = [title_of(board.run.name) for board in boards]

        def write_page(path: Path) -> Path:
            values = mesh_side.draw_race(boards, shown_points(given), set(range(len(boards)))) | ended.panels
            parts = {name: getattr(self, name) for name in ("viewer", "verdict", "replay")} | self.below
            told = replay_page.told(boards, given.name, history.describe(boards[0].run, given))
            return replay_page.write(path, replay_page.MESHES, parts, values, told)

        fast = boards[0].run
        found = {
            "shrinkwrapped": lambda path: write_shrinkwrapped(fast, wrapped(fast), given, path),
            "html": write_page,
            "folders": lambda path: write_folders([board.run for board in boards], path, given),
        }
        if drawn:
            found |= {
                "race": lambda path: write_race(drawn, boards, titles, path),
                "mp4": lambda path: write_video(drawn, boards, titles, path),
                "turntable": lambda path: write_turntable(drawn, path),
            }
        return {name: write for name, write in found.items() if name in self.drawn}

    # --- the run --------------------------------------------------------------------------------------------------

    def run(
        self, ticket: object, seed: object, name: object, knobs: object, values: object, compare: object, other: object,
        other_knobs: object, request: gr.Request,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """The generator of one comparison."""
        visitor = request.session_hash

        def race(number: int) -> Iterator[dict[str, Any]]:
            given = self.sessions.given(visitor)
            if given is None:
                raise BadPrompt(NO_INPUT)
            backbone = self.model.get()
            prompt = read_prompt(given.shape, seed, values, backbone.sampling)
            sides = checked_sides(backbone, name, knobs, compare, other, other_knobs)
            times = times_of(asked.knobs(values, settings(backbone.sampling)))
            yield from self.compare_runs(visitor, number, backbone, given, prompt, sides, times)

        yield from self.hold_engine(visitor, ticket, race)

    def compare_runs(
        self, visitor: str, number: int, backbone: Backbone, given: Given, prompt: Prompt, sides: list[tuple[str, Mapping[str, Any]]],
        times: int = 1,
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Races two methods and shows both, repeats them without showing, measures the meshes and offers the files. number: the ticket's"""
        points = shown_points(given.shape)
        left = sides[1][0] if len(sides) > 1 else PLAIN
        waiting = {
            "plain": mesh.Side.waiting(title_of(left), self.left_words(left)) if len(sides) > 1 else None,
            "accelerated": mesh.Side.waiting(title_of(sides[0][0]), self.right_words),
        }
        reading = {"state": "running", "live": WORDS.reading}
        yield {"viewer": mesh.encode(waiting, points), "verdict": reading, **race_panels.MESHES.idle()}

        def draw(boards: list[MeshBoard], changed: set[int]) -> dict[str, Any]:
            return mesh_side.draw_race(boards, points, changed)

        raced = yield from self.race_sides(visitor, number, backbone, prompt, sides, MeshBoard, draw, times, WARM_STEPS)
        boards = raced.boards
        if not boards[0].count or not self.sessions.present(visitor):
            yield {"verdict": without_a_face(boards[0].run)}
            return
        yield {"verdict": MEASURING}
        outcome = mesh_outcome.measured(boards, given.shape)
        said = mesh_outcome.said(boards, outcome, raced.seconds) | {"costs": verdict.costs_in_words(boards, raced.costs)}
        race = runs.encode(runs.MESHES, mesh_outcome.rows(boards, outcome, given.shape), raced.seconds, self.suits)
        late = {"verdict": said, "quality": quality_table.encode(outcome.sides), **race_panels.MESHES.ended(mesh_side.frame_of(boards))}
        self.sessions.leave_results(visitor, self.prefix, {"boards": Ended(number, boards, late, race["id"], given.shape)})
        yield {**late, "runs": race}  # the page need not wait for the disk
        folder = self.sessions.folder(visitor) / "mesh"
        self.sessions.leave_results(visitor, self.prefix, mesh_outcome.offers(boards[0], given.shape, folder, self.shelf, stays(given)))
