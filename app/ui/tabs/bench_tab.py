"""The Bench tab: recorded benchmarks, a chart of speed against fidelity, and a benchmark of this machine."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Iterator
from typing import Any

import gradio as gr

from app.requests import validation
from app.sentences import duration
from app.ui import knobs as knob_panel
from app.ui.method_menu import choices, title_of
from app.ui.panels import elsewhere, kinds, live, notice, plane, progress
from app.ui.tab_context import TabContext
from app.ui.tabs import bench_rows, subject
from app.ui.tabs.engine_queue import LATEST, EngineQueue
from app.ui.tabs.saving import try_save
from app.ui.tabs.subject import LabSubject
from engine import assets
from engine.core import Backbone, Knob
from engine.errors import BadKnob, ForetokenError

BENCHMARKS = "research.bench.on_page"  # imported by name, because app does not import research
FIRST = {  # methods ticked initially
    kinds.PICTURES: ("sjdpp", "sjd", "zipar_verified"),
    kinds.MESHES: ("xspecmesh", "xspecmesh_exact", "sjdpp"),
}
MOST, MOST_ON_LOAN = 40, 8  # maximum number of prompts: on a private machine, and on a shared one
IDLE = progress.encode("Measure this machine", 0, 0, "Each method runs twice on every input, alternating with plain decoding.", "empty")
NONE = "This installation has no recorded tables. Measure one here."


def build(place: TabContext) -> None:
    """Builds the tab's controls and panels and connects them."""
    BenchTab(place).wire()


def settings(work: LabSubject, local: bool) -> tuple[Knob, ...]:
    """Settings of a benchmark, without the methods."""
    most = MOST if local else MOST_ON_LOAN
    count = Knob(work.series, "", 4, 1, most, 1, help=f"Held-out {work.series}. More of them narrow the interval.", live=False)
    return (count,) if work.size is None else (count, work.size)


def settings_panel(work: LabSubject, local: bool) -> dict[str, Any]:
    """Value of the settings panel."""
    return knob_panel.encode(f"bench-{work.kind}", settings(work, local), words=subject.panel_words(work))


def default_methods(work: LabSubject) -> list[str]:
    """Methods ticked initially."""
    return [name for name in FIRST[work.kind] if name in dict(map(reversed, work.menu))]


def chosen_methods(value: object, backbone: Backbone) -> list[str]:
    """Names of the ticked methods; raises NotSupported or BadKnob."""
    if not isinstance(value, list) or not value:
        raise BadKnob("No method is ticked. Tick at least one.")
    known = {name for _, name in choices(backbone)}
    names = list(dict.fromkeys(validation.method(name, backbone)[0] for name in value))
    if not set(names) <= known:
        raise BadKnob("Plain decoding is always measured; tick another method.")
    return names


class BenchTab:
    """Components of the tab and their handlers."""

    prefix = "bench-"

    def __init__(self, place: TabContext):
        self.sessions, self.runner = place.studio.sessions, place.studio.runner
        self.queue = EngineQueue(self.sessions, self.prefix, IDLE)
        self.backbone, self.mesh, self.local = place.studio.backbone, place.studio.mesh, place.studio.local
        self.models = {kinds.PICTURES: elsewhere.sizes(self.backbone), kinds.MESHES: elsewhere.of_recorded_meshes()}
        self.recorded = bench_rows.read_tables(assets.benches(), self.models)
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self.going = progress.build(IDLE, "bench-going")
                self.queue.build_notices()
                self.plane = plane.build(self.recorded)
                if not self.recorded:
                    gr.HTML(f'<p class="ft-words">{NONE}</p>')
        self.panels = {"verdict": self.going, "plane": self.plane}  # this tab's line above the results is the progress bar
        self.queue.offers = {"csv": self.csv}
        self.live = live.build(self.panels, "bench-live")

    def _build_settings(self) -> None:
        first = subject.pictures(self.backbone)
        self.kind = kinds.build("bench-kind")
        gr.HTML("<h2>Methods</h2>", elem_classes="ft-heading")
        self.methods = gr.CheckboxGroup(
            list(first.menu), value=default_methods(first), label="Methods", show_label=False, container=False,
            elem_id="bench-methods", elem_classes="ft-ticks", interactive=True,
        )  # fmt: skip
        gr.HTML("<h2>Inputs</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(settings_panel(first, self.local), "bench-settings")
        self.queue.build_buttons("Measure")
        self.csv = gr.DownloadButton("Rows as CSV", size="sm", elem_id="bench-csv", interactive=False)

    def wire(self) -> None:
        """Connects the handlers."""
        self.queue.wire([self.queue.go.click], self.run, [self.methods, self.settings, self.kind], self.live)
        self.kind.input(self.switch, self.kind, [self.kind, self.methods, self.settings, self.queue.messages], **LATEST)

    def switch(self, kind: object) -> tuple[Any, ...]:
        """Shows the methods and settings of the other kind."""
        try:
            work = subject.for_kind(kind, self.backbone, self.mesh)
        except ForetokenError as e:
            return kinds.PICTURES, gr.skip(), gr.skip(), notice.error(e)
        return gr.skip(), gr.CheckboxGroup(list(work.menu), value=default_methods(work)), settings_panel(work, self.local), []

    # --- the benchmark --------------------------------------------------------------------------------------------

    def run(self, ticket: object, methods: object, values: object, kind: object, request: gr.Request) -> Iterator[dict[str, Any]]:
        """Runs a benchmark; yields values of panels."""
        visitor = request.session_hash

        def measure(number: int) -> Iterator[dict[str, Any]]:
            work = subject.for_kind(kind, self.backbone, self.mesh)
            names = chosen_methods(methods, work.backbone)
            values_read = validation.knobs(values, settings(work, self.local))
            yield from self.measure_rows(visitor, number, work, names, int(values_read[work.series]), work.size_in(values_read))

        yield from self.queue.hold(visitor, ticket, measure)

    def measure_rows(
        self, visitor: str, number: int, work: LabSubject, names: list[str], count: int, size: int | None
    ) -> Iterator[dict[str, Any]]:  # fmt: skip
        """Measures, and shows the rows after each complete prompt."""
        yield {"verdict": progress.encode("Preparing", 0, 1, f"Reading the {work.series}.")}
        benchmarks = importlib.import_module(BENCHMARKS)  # imports transformers, which takes seconds
        kind = benchmarks.PictureBenchmark if work.kind == kinds.PICTURES else benchmarks.MeshBenchmark
        bench = kind(work.backbone, names, count, size, lambda runs: self.sessions.hold(visitor, number, runs), self.runner)
        identity, complete = secrets.token_hex(8), 0
        for turn in bench:
            update = {"verdict": progress_panel(bench, turn.kind, turn.input if turn.counted else None)}
            if bench.complete != complete:
                complete = bench.complete
                update["plane"] = self.table(bench, identity, work)
            yield update
        yield {"verdict": end_panel(bench)}
        if bench.rows and self.sessions.is_present(visitor):
            self.queue.leave(visitor, self.offer(visitor, bench))

    def table(self, bench: Any, identity: str, work: LabSubject) -> dict[str, Any]:
        """Table of the complete prompts."""
        size = f", {bench.rows[0]['size']} px" if "size" in bench.rows[0] else ""
        title = f"Measured here: {bench.complete} of {bench.count} {bench.thing}s{size}"
        rows = bench_rows.table(plane.HERE, bench.rows, {work.kind: elsewhere.sizes(work.backbone)}, title)
        return {**rows, "id": identity, "about": f"{rows['about']} {bench.command}"}

    def offer(self, visitor: str, bench: Any) -> dict[str, Any]:
        """Offers the rows as a download."""
        file, lost = try_save("download", lambda: bench.write(self.sessions.folder(visitor) / "foretoken-bench.csv"))
        button = gr.DownloadButton(value=str(file), interactive=True) if file else gr.DownloadButton(interactive=False)
        return {"csv": button, "messages": notice.error(*lost)}


def progress_panel(bench: Any, name: str, which: int | None) -> dict[str, Any]:
    """Progress bar during a benchmark. which : number of the prompt, None = a warm-up run"""
    where = f"{bench.thing} {which + 1} of {bench.count}" if which is not None else "warm-up run, not counted"
    remaining = f"About {duration(bench.seconds_left)} left." if bench.seconds_left is not None else ""
    return progress.encode(
        f"{title_of(name)}, {where}", bench.done, bench.of, f"Run {min(bench.done + 1, bench.of)} of {bench.of}. {remaining}"
    )


def end_panel(bench: Any) -> dict[str, Any]:
    """Progress bar after a benchmark."""
    complete = bench.complete
    if bench.stopped:
        count = f"1 complete {bench.thing} is" if complete == 1 else f"{complete} complete {bench.thing}s are"
        detail = f"{count} shown." if complete else f"No {bench.thing} was complete, so there are no rows."
        return progress.encode("Stopped", bench.done, bench.of, detail, "stopped")
    return progress.encode("Measured", bench.of, bench.of, f"{bench.of} runs on {complete} {bench.thing}s.", "done")
