"""`launch.py bench mesh`: methods on meshes of point clouds, and the rows of XSpecMesh's tables 3 and 4 for our model.

Inputs are point clouds of held-out procedural shapes, or of files. Every row decodes every input at least twice, in alternation. The
speed-up of a row on an input is relative to row A, plain decoding of lowpoly, by seconds per token. Chosen methods that run in bfloat16
are compared with plain decoding in float32, which then has its own row. Distances are measured in the input's bounding box scaled to 1.9,
by the papers' protocol and with 16,384 points; the floor is the distance of the input to itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from engine.backbones import lowpoly, resolve
from engine.backbones.lowpoly import MOST_FACES, Lowpoly
from engine.core import Prompt
from engine.errors import MissingWeights, NotSupported
from engine.loading import model_columns
from engine.machine import device_of
from engine.methods import find
from engine.run import Run, generate
from engine.tuning.alternate import alternate
from engine.tuning.prepare import use_threads
from research import mesh_judge
from research.bench import sheet
from research.bench.judging import mesh_columns
from research.bench.mesh_inputs import BenchMesh, MeshDistances, assets, distances, mean_distances, subjects
from research.bench.plan import MeshBench
from research.bench.plot import check_figure, plot
from research.bench.rows import check_csv, experiment, publish, quartiles, row_text, sampling_columns, timing
from research.bench.sheet import check_sheet, write_sheet
from research.bench.speed import drafting
from research.mesh_judge import MeshJudge


@dataclass(frozen=True)
class MeshBenchRow:
    """One row of the table: the weights, the method and its knobs."""

    weights: str  # plain | cross | mlp: no adapter, or the one trained together with these heads
    method: str = "xspecmesh"
    knobs: dict[str, Any] = field(default_factory=dict)


MULTILAYER = {"heads": "multilayer"}
BEST = {"drafts": "most probable"}
TABLE = {
    "A plain": MeshBenchRow("plain", "ar"),
    "B MLP": MeshBenchRow("plain", knobs=MULTILAYER),
    "C MLP + LoRA": MeshBenchRow("mlp", knobs=MULTILAYER),
    "D cross-attention": MeshBenchRow("plain"),
    "E cross-attention + LoRA": MeshBenchRow("cross"),
    "PTS 2": MeshBenchRow("cross", knobs={"drafts": "tree pruned", "tree_top": 2}),
    "PTS 3": MeshBenchRow("cross", knobs={"drafts": "tree pruned", "tree_top": 3}),
    "PTS 4": MeshBenchRow("cross", knobs={"drafts": "tree pruned", "tree_top": 4}),
    "B best guesses": MeshBenchRow("plain", knobs=MULTILAYER | BEST),
    "D best guesses": MeshBenchRow("plain", knobs=BEST),
    "E best guesses": MeshBenchRow("cross", knobs=BEST),
    "B exact": MeshBenchRow("plain", "xspecmesh_exact", MULTILAYER),
    "D exact": MeshBenchRow("plain", "xspecmesh_exact"),
    "E exact": MeshBenchRow("cross", "xspecmesh_exact"),
    "E plain": MeshBenchRow("cross", "ar"),
    "lookup": MeshBenchRow("plain", "lookup"),
    "sjdpp": MeshBenchRow("plain", "sjdpp"),
}


PLAIN_ROW = {"plain": "A plain", "cross": "E plain"}  # plain decoding, by weights
OWN_PLAIN = {"E exact": "E plain", "E cross-attention + LoRA": "E plain"}  # plain decoding of rows with an adapter
OPTION = {"plain": "", "cross": "lora", "mlp": "lora-mlp"}  # of lowpoly, by weights
IN_FLOAT32 = "{} in float32"  # names of the row and of the weights in float32, if the others run in another dtype


class Models:
    """The models of a benchmark, each loaded once, and the runs on them."""

    def __init__(self, plan: MeshBench):
        name, self.folder = resolve(plan.backbone)
        self.plan = plan
        self.own = "cross" if name.endswith(":lora") else "plain"
        self.plain_row = PLAIN_ROW[self.own]
        self._loaded: dict[str, Lowpoly] = {self.own: plan.load()}
        self.dtype = self._loaded[self.own].dtype
        self._guides: dict[int, tuple[np.ndarray, np.ndarray] | None] = {}  # by the id of an input
        self.use(plan)

    def use(self, plan: MeshBench) -> None:
        """Applies another plan's sampling and face limit to the same models."""
        self.plan = plan
        self.sampling = plan.sampling_of(self.model(self.own))

    def model(self, weights: str) -> Lowpoly:
        """Returns the plain model, the model merged with an adapter, or the plan's own in float32; raises MissingWeights."""
        if weights not in self._loaded:
            kind = self.own if (other := weights == IN_FLOAT32.format(self.own)) else weights
            where = self.folder, device_of(self.plan.device), "float32" if other else self.dtype
            self._loaded[weights] = lowpoly.load(*where, OPTION[kind])
            use_threads(self._loaded[weights])
        return self._loaded[weights]

    def baseline(self) -> dict[str, MeshBenchRow]:
        """The baseline of speed-ups, plain decoding in float32, and plain decoding in the other rows' dtype if it differs."""
        own = {self.plain_row: MeshBenchRow(self.own, "ar")}
        if self.dtype == "float32":
            return own
        return {IN_FLOAT32.format(self.plain_row): MeshBenchRow(IN_FLOAT32.format(self.own), "ar")} | own

    def can_run(self, row: MeshBenchRow) -> bool:
        """Returns True if the weights and heads of a row are present and belong together."""
        kind, method = row.knobs.get("heads", "cross-attention"), find(row.method)[0]
        try:
            model = self.model(row.weights)
            if method.drafters == ("mesh_heads",) and kind in model.kinds:
                model.drafter("mesh_heads").of(kind)  # raises for heads of other weights
        except MissingWeights:
            return False
        return method.needs <= model.capabilities and (method.drafters != ("mesh_heads",) or kind in model.kinds)

    def go(self, row: MeshBenchRow, subject: BenchMesh, seed: int) -> Run:
        """Returns a finished run."""
        model, (method, preset) = self.model(row.weights), find(row.method)
        about = min(len(subject.faces), MOST_FACES) if self.plan.about == "own" else self.plan.about
        prompt = Prompt(points=subject.points, seed=seed, size=self.plan.size, about=about, sampling=self.sampling)
        return generate(model, method, self._with_guide(model, prompt, subject), preset | row.knobs).finish()

    def _with_guide(self, model: Lowpoly, prompt: Prompt, subject: BenchMesh) -> Prompt:
        """Returns the prompt with the guide of its input, made once per input; without one where its points span no surface."""
        if id(subject) not in self._guides:
            try:
                self._guides[id(subject)] = model.guided(prompt).guide
            except NotSupported as e:
                print(f"{subject.name} has no guide. {e}", file=sys.stderr)
                self._guides[id(subject)] = None
        return replace(prompt, guide=self._guides[id(subject)])

    def measure(
        self, table: dict[str, MeshBenchRow], inputs: list[BenchMesh], seeds: int = 1, repeats: int = 1
    ) -> dict[str, list[list[Run]]]:
        """Returns runs by row and input; the seeds of an input are consecutive."""

        def maker(row: MeshBenchRow) -> Callable[[int], Run]:
            return lambda i: self.go(row, inputs[i // seeds], i % seeds)

        def begin(i: int) -> None:
            if i % seeds == 0:
                print(f"input {i // seeds + 1} of {len(inputs)}: {inputs[i // seeds].name}", file=sys.stderr, flush=True)

        return alternate({name: maker(row) for name, row in table.items()}, len(inputs) * seeds, repeats, begin)


def bench(plan: MeshBench) -> list[dict[str, Any]]:
    """Returns the rows and prints each as soon as it is measured. Writes the plan's sheet and figure."""
    check_csv(plan.csv)
    check_sheet(plan.sheet)
    check_figure(plan.figure)
    reader = mesh_judge.load() if plan.judge else None
    models = Models(plan)
    own = models.model(models.own)
    inputs = assets(plan.packs, plan.count, plan.up) if plan.packs else subjects(plan.count, "boxes", own.card["families"])
    stamp = {"inputs": len(inputs), "seeds": f"0..{plan.seeds - 1}", "repeats": plan.repeats, "faces_about": plan.about}
    last: list[Run] = []
    rows = publish(table_rows(models, plan, inputs, reader, last), row_text, experiment(own, models.sampling, **stamp), plan.csv)
    if plan.sheet:
        results = [(mesh.vertices, mesh.faces) for mesh in (run.result() for run in last[:: plan.seeds])]
        write_sheet(sheet.meshes([(s.name, s.points.numpy()) for s in inputs], results), plan.sheet)
    if plan.figure:
        plot(rows, plan.figure)
    return rows


def table_rows(
    models: Models, plan: MeshBench, inputs: list[BenchMesh], reader: MeshJudge | None, last: list[Run]
) -> Iterator[dict[str, Any]]:
    """Yields the rows at each value of the swept settings, relative to plain decoding at that value. last : receives the runs of the last
    row, one per input and seed"""
    repeated = [s for s in inputs for _ in range(plan.seeds)]
    for label, part in plan.parts().items():
        models.use(part)
        settings = sampling_columns(models.sampling) | {"faces_allowed": part.size}
        table, plain = table_of(models, part)
        runs = models.measure(table, inputs, plan.seeds, plan.repeats)
        for name in table:
            first = [of[0] for of in runs[name]]
            last[:] = first
            judged = mesh_columns(reader, repeated, first) if reader else {}
            row = summary(name, runs, repeated, plain) | drafting(first) | target_columns(first) | judged | settings
            yield row | {"row": f"{name} {label}".strip()}


def table_of(models: Models, plan: MeshBench) -> tuple[dict[str, MeshBenchRow], str]:
    """Returns the rows to measure and the name of the baseline row: XSpecMesh's table, or plain decoding and the chosen methods, each once
    or, with a sweep, once per value."""
    own = models.model(models.own)
    if plan.is_table:
        known = {name: row for name, row in TABLE.items() if models.own in ("plain", row.weights)}
        table = {name: row for name, row in known.items() if models.can_run(row)}
        for name in [name for name in known if name not in table]:
            print(f"{name}: its heads or its adapter are not trained yet. Train them: python launch.py train mesh-heads", file=sys.stderr)
        return table, models.plain_row
    base = models.baseline()
    entries = plan.with_auto_resolved(own).entries(own.capabilities)
    return base | {label: MeshBenchRow(models.own, e.name, e.knobs) for label, e in entries.items()}, next(iter(base))


def summary(
    name: str, runs: dict[str, list[list[Run]]], inputs: list[BenchMesh], plain: str, measured: Sequence[MeshDistances | None] | None = None
) -> dict[str, Any]:
    """Returns one row: time, step compression, latency of a step, distances with floors.

    plain : the baseline row of the speed-up; measured : distances of the first run of each input, if known
    """
    mine = runs[name]
    row = {
        "row": name,
        **run_columns(mine[0][0]),
        **timing(mine, runs[plain]),
        "tokens": quartiles(np.array([len(of[0].tokens) for of in mine])),
    }
    own = OWN_PLAIN.get(name)
    if own in runs:
        over = timing(mine, runs[own])
        row |= {"speedup_over_own_plain": over["speedup"], "speedup_over_own_plain_interval": over["speedup_interval"]}
    return row | (distances([of[0] for of in mine], inputs) if measured is None else mean_distances(measured))


def target_columns(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the column of |faces - target| / target, its median and quartiles; nothing without a target."""
    errors = [abs(len(run.result().faces) - run.prompt.about) / run.prompt.about for run in runs if run.prompt.about]
    return {"faces_error": quartiles(np.array(errors))} if errors else {}


def run_columns(run: Run) -> dict[str, Any]:
    """Returns the columns of a run's method, knobs and weights."""
    return {"method": run.method.name, "knobs": run.steps[-1].knobs, **model_columns(run.backbone)}
