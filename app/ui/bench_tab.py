"""The Bench tab: recorded measurements, the plane of speed and fidelity, and a benchmark that is run here."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import gradio as gr

from app import bench_rows
from app.ui import asked
from app.ui import knobs as knob_panel
from app.ui.keep import keep
from app.ui.method_menu import choices, title_of
from app.ui.panels import live, notice, plane, progress
from app.ui.place import Place
from app.ui.turns import Turns
from engine import assets
from engine.core import Backbone, Knob
from engine.errors import BadKnob

if TYPE_CHECKING:
    from app.measuring import Benchmark

FIRST = ("sjdpp", "sjd", "zipar_verified")  # the methods that are ticked at first
MOST, MOST_ON_LOAN = 40, 8  # prompts: on a machine of one's own, and on one that strangers share
IDLE = progress.encode("Measure this machine", 0, 0, "Every method runs on each prompt twice, in turns with plain decoding.", "empty")
NONE = "This installation carries no recorded tables. Measure one here."


def build(place: Place) -> None:
    """Builds the tab's controls and panels and connects them."""
    BenchTab(place).wire()


def settings(backbone: Backbone, local: bool) -> tuple[Knob, ...]:
    """What is measured, besides the methods."""
    most = MOST if local else MOST_ON_LOAN
    knobs = [Knob("prompts", "", 4, 1, most, 1, help="Held-out prompts. More of them give a narrower interval.", live=False)]
    sizes = tuple(f"{s} px" for s in backbone.sizes)
    if len(sizes) > 1:
        middle = min(sizes, key=lambda s: abs(int(s.split()[0]) - 128))
        knobs.append(Knob("size", "", middle, choices=sizes, help="Side length of the pictures.", live=False))
    return tuple(knobs)


def chosen_methods(value: object, backbone: Backbone) -> list[str]:
    """The names of the ticked methods; raises NotSupported or BadKnob."""
    if not isinstance(value, list) or not value:
        raise BadKnob("No method is ticked. Tick at least one.")
    known = {name for _, name in choices(backbone)}
    names = list(dict.fromkeys(asked.method(name, backbone)[0] for name in value))
    if not set(names) <= known:
        raise BadKnob("Plain decoding is always measured; tick another method.")
    return names


class BenchTab(Turns):
    """The components of the tab and their handlers."""

    prefix = "bench-"
    idle = IDLE

    def __init__(self, place: Place):
        super().__init__(place)
        self.backbone, self.declared = place.backbone, settings(place.backbone, place.local)
        self.recorded = bench_rows.recorded(assets.benches())
        with gr.Row(elem_classes="ft-main"):
            with gr.Column(elem_classes="ft-settings", scale=0, min_width=288):
                self._build_settings()
            with gr.Column(elem_classes="ft-stage"):
                self.going = progress.build(IDLE, "bench-going")
                self.build_notices()
                self.plane = plane.build(self.recorded)
                if not self.recorded:
                    gr.HTML(f'<p class="ft-words">{NONE}</p>')
        self.panels = {"verdict": self.going, "plane": self.plane}  # the bar is this tab's line above the results
        self.offers = {"csv": self.csv}
        self.live = live.build(self.panels, "bench-live")

    def _build_settings(self) -> None:
        found = choices(self.backbone)
        names = [name for _, name in found]
        gr.HTML("<h2>Methods</h2>", elem_classes="ft-heading")
        self.methods = gr.CheckboxGroup(
            found, value=[name for name in FIRST if name in names], label="Methods", show_label=False, container=False,
            elem_id="bench-methods", elem_classes="ft-ticks", interactive=True,
        )  # fmt: skip
        gr.HTML("<h2>Inputs</h2>", elem_classes="ft-heading")
        self.settings = knob_panel.build(knob_panel.encode("bench", self.declared), "bench-settings")
        self.build_buttons()
        self.go.value = "Measure"
        self.csv = gr.DownloadButton("Rows as CSV", size="sm", elem_id="bench-csv", interactive=False)

    @property
    def model_name(self) -> str:
        """The name of the model that is measured."""
        return self.backbone.name

    def wire(self) -> None:
        """Connects the handlers."""
        self.wire_turn([self.go.click], self.run, [self.methods, self.settings])

    # --- the benchmark --------------------------------------------------------------------------------------------

    def run(self, ticket: object, methods: object, values: object, request: gr.Request) -> Iterator[dict[str, Any]]:
        """The generator of one benchmark."""
        visitor = request.session_hash

        def measure(number: int) -> Iterator[dict[str, Any]]:
            names = chosen_methods(methods, self.backbone)
            chosen = asked.knobs(values, self.declared)
            size = int(str(chosen["size"]).split()[0]) if "size" in chosen else None
            yield from self.measured(visitor, number, names, int(chosen["prompts"]), size)

        yield from self.hold_engine(visitor, ticket, measure)

    def measured(self, visitor: str, number: int, names: list[str], count: int, size: int | None) -> Iterator[dict[str, Any]]:
        """Measures, and shows the rows of every complete prompt."""
        yield {"verdict": progress.encode("Preparing", 0, 1, "Reading the prompts.")}
        from app.measuring import Benchmark  # brings transformers, which takes seconds

        bench = Benchmark(self.backbone, names, count, size, lambda runs: self.sessions.hold(visitor, number, runs))
        identity, shown = secrets.token_hex(8), 0
        for turn in bench:
            update = {"verdict": going(bench, turn.kind, turn.input if turn.counted else None)}
            if bench.rows and bench.rows[0]["prompts"] != shown:
                shown = bench.rows[0]["prompts"]
                update["plane"] = self.table(bench, identity)
            yield update
        yield {"verdict": ended(bench)}
        if bench.rows and self.sessions.present(visitor):
            self.sessions.leave_results(visitor, self.prefix, self.offer(visitor, bench))

    def table(self, bench: Benchmark, identity: str) -> dict[str, Any]:
        """The table of the prompts that are complete."""
        complete = bench.rows[0]["prompts"]
        found = bench_rows.table(plane.HERE, bench.rows, f"Measured here: {complete} of {bench.count} prompts, {bench.rows[0]['size']} px")
        return {**found, "id": identity, "about": f"{found['about']} {bench.command}"}

    def offer(self, visitor: str, bench: Benchmark) -> dict[str, Any]:
        """The download of the rows."""
        file, lost = keep("download", lambda: bench.write(self.sessions.folder(visitor) / "foretoken-bench.csv"))
        made = gr.DownloadButton(value=str(file), interactive=True) if file else gr.DownloadButton(interactive=False)
        return {"csv": made, "messages": notice.error(*lost)}


def going(bench: Benchmark, name: str, which: int | None) -> dict[str, Any]:
    """The bar during a benchmark. which : the number of the prompt, None = a run that is not counted"""
    where = f"prompt {which + 1} of {bench.count}" if which is not None else "a first run that is not counted"
    left = f"About {progress.duration(bench.left)} left." if bench.left is not None else ""
    return progress.encode(f"{title_of(name)}, {where}", bench.done, bench.of, f"Run {min(bench.done + 1, bench.of)} of {bench.of}. {left}")


def ended(bench: Benchmark) -> dict[str, Any]:
    """The bar after a benchmark."""
    complete = bench.rows[0]["prompts"] if bench.rows else 0
    if bench.stopped:
        prompts = "1 complete prompt is" if complete == 1 else f"{complete} complete prompts are"
        kept = f"{prompts} shown." if complete else "No prompt was complete, so there are no rows."
        return progress.encode("Stopped", bench.done, bench.of, kept, "stopped")
    return progress.encode("Measured", bench.of, bench.of, f"{bench.of} runs on {complete} prompts.", "done")
