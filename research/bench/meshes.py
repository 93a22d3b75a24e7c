"""`launch.py bench mesh`: the rows of XSpecMesh's tables 3 and 4 for our model, with floors, intervals and acceptance by grammar state;
with --methods or --sweep, the chosen methods instead.

Inputs are point clouds of held-out procedural shapes. Every row decodes every input at least twice (see `measure/alternate.py`). The
speed-up of a row on an input is over row A, plain decoding of lowpoly with cached cross-attention, by seconds a token. With `--backbone
lowpoly_lora` the rows are those of the merged weights, over their own plain decoding. Chosen methods that run in bfloat16 are compared with
plain decoding in float32, which has a row of its own then. Distances are measured in the input's bounding box
scaled to 1.9, by the papers' protocol and with 16,384 points; the floor is the distance of the input to itself.
"""

from __future__ import annotations

import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.backbones import lowpoly, lowpoly_lora, resolve
from engine.backbones.lowpoly import Lowpoly
from engine.core import Prompt
from engine.errors import MissingWeights
from engine.loading import model_columns
from engine.machine import device_of
from engine.mesh.bpt_grammar import Grammar
from engine.mesh.bpt_tokens import BPT
from engine.methods import find
from engine.run import Run, generate, speedup
from engine.tuning.alternate import alternate
from engine.tuning.prepare import use_threads
from research.bench.against_best import against_best
from research.bench.against_best import readable as best_of
from research.bench.mesh_fidelity import Near, apart, fidelity, together
from research.bench.mesh_inputs import Subject, subjects
from research.bench.plan import MeshBench, MeshSheet
from research.bench.rows import bootstrap, check_csv, experiment, of_sampling, publish, quartiles
from research.bench.speed import drafted, drafting

SWEPT = 12  # inputs of the sweeps
DEPTHS = (1, 2, 3, 4, 5, 6)
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class Row:
    """One row of the table: the weights, the method and its knobs."""

    weights: str  # plain | cross | mlp: without an adapter, or with the one trained together with these heads
    method: str = "xspecmesh"
    knobs: dict[str, Any] = field(default_factory=dict)


MULTILAYER = {"heads": "multilayer"}
BEST = {"drafts": "most probable"}
TABLE = {
    "A plain": Row("plain", "ar"),
    "B MLP": Row("plain", knobs=MULTILAYER),
    "C MLP + LoRA": Row("mlp", knobs=MULTILAYER),
    "D cross-attention": Row("plain"),
    "E cross-attention + LoRA": Row("cross"),
    "PTS 2": Row("cross", knobs={"drafts": "tree pruned", "tree_top": 2}),
    "PTS 3": Row("cross", knobs={"drafts": "tree pruned", "tree_top": 3}),
    "PTS 4": Row("cross", knobs={"drafts": "tree pruned", "tree_top": 4}),
    "B best guesses": Row("plain", knobs=MULTILAYER | BEST),
    "D best guesses": Row("plain", knobs=BEST),
    "E best guesses": Row("cross", knobs=BEST),
    "B exact": Row("plain", "xspecmesh_exact", MULTILAYER),
    "D exact": Row("plain", "xspecmesh_exact"),
    "E exact": Row("cross", "xspecmesh_exact"),
    "E plain": Row("cross", "ar"),
    "lookup": Row("plain", "lookup"),
    "sjdpp": Row("plain", "sjdpp"),
}


PLAIN_ROW = {"plain": "A plain", "cross": "E plain"}  # plain decoding, by weights
IN_FLOAT32 = "{} in float32"  # its row in float32, if the others run in another dtype; and the name of these weights


class Models:
    """The models of one benchmark, loaded once, and the runs on them."""

    def __init__(self, plan: MeshBench | MeshSheet):
        name, self.folder = resolve(plan.backbone)
        self.plan = plan
        self.own = "cross" if name == lowpoly_lora.LowpolyLora.name else "plain"
        self.plain_row = PLAIN_ROW[self.own]
        self._loaded: dict[str, Lowpoly] = {self.own: plan.load()}
        self.dtype = self._loaded[self.own].dtype
        self.use(plan)

    def use(self, plan: MeshBench | MeshSheet) -> None:
        """Takes the sampling and the budget of a plan for the same models."""
        self.plan = plan
        self.sampling = plan.sampling_of(self.model(self.own))

    def model(self, weights: str) -> Lowpoly:
        """Returns the plain model, the one merged with the adapter of a kind, or one of them in float32; raises MissingWeights."""
        if weights not in self._loaded:
            kind = self.own if (other := weights == IN_FLOAT32.format(self.own)) else weights
            where = self.folder, device_of(self.plan.device), "float32" if other else self.dtype
            self._loaded[weights] = lowpoly.load(*where) if kind == "plain" else lowpoly_lora.load(*where, kind=kind)
            use_threads(self._loaded[weights])
        return self._loaded[weights]

    def baseline(self) -> dict[str, Row]:
        """The row that speed-ups are over, plain decoding in float32, and plain decoding in the dtype of the others if that differs."""
        own = {self.plain_row: Row(self.own, "ar")}
        if self.dtype == "float32":
            return own
        return {IN_FLOAT32.format(self.plain_row): Row(IN_FLOAT32.format(self.own), "ar")} | own

    def can(self, row: Row) -> bool:
        """Returns whether the weights and heads of a row are present, and belong together."""
        kind, method = row.knobs.get("heads", "cross-attention"), find(row.method)[0]
        try:
            model = self.model(row.weights)
            if method.drafters == ("mesh_heads",) and kind in model.kinds:
                model.drafter("mesh_heads").of(kind)  # raises for heads of other weights
        except MissingWeights:
            return False
        return method.needs <= model.capabilities and (method.drafters != ("mesh_heads",) or kind in model.kinds)

    def go(self, row: Row, subject: Subject, seed: int) -> Run:
        """Returns one finished run."""
        model, (method, preset) = self.model(row.weights), find(row.method)
        prompt = Prompt(points=subject.points, seed=seed, size=self.plan.faces, sampling=self.sampling)
        return generate(model, method, prompt, preset | row.knobs).finish()

    def measure(self, table: dict[str, Row], inputs: list[Subject], seeds: int = 1, repeats: int = 1) -> dict[str, list[list[Run]]]:
        """Returns runs by row and input; the seeds of an input follow one another."""

        def maker(row: Row) -> Callable[[int], Run]:
            return lambda i: self.go(row, inputs[i // seeds], i % seeds)

        def begin(i: int) -> None:
            if i % seeds == 0:
                print(f"input {i // seeds + 1} of {len(inputs)}: {inputs[i // seeds].name}", file=sys.stderr, flush=True)

        return alternate({name: maker(row) for name, row in table.items()}, len(inputs) * seeds, repeats, begin)


def bench(plan: MeshBench) -> list[dict[str, Any]]:
    """Returns the rows of the table and of the sweeps; prints each as soon as it is measured."""
    check_csv(plan.csv)
    models = Models(plan)
    own = models.model(models.own)
    inputs = subjects(plan.count, "boxes", own.card["families"])
    told = {"inputs": len(inputs), "seeds": f"0..{plan.seeds - 1}", "repeats": plan.repeats, "faces_allowed": plan.faces}
    stamp = experiment(own, models.sampling, **told)
    if not plan.is_table:
        return publish(parts(models, plan, inputs), readable, stamp, plan.csv)
    known = {name: row for name, row in TABLE.items() if models.own in ("plain", row.weights)}
    table = {name: row for name, row in known.items() if models.can(row)}
    for name in [name for name in known if name not in table]:
        print(f"{name}: its heads or its adapter are not trained yet. Train them: python launch.py train mesh-heads")
    return publish(rows(models, table, inputs), readable, stamp, plan.csv)


def parts(models: Models, plan: MeshBench, inputs: list[Subject]) -> Iterator[dict[str, Any]]:
    """Yields the rows of `chosen` at each value of the swept settings, each over plain decoding at that value."""
    for label, part in plan.parts().items():
        models.use(part)
        settings = of_sampling(models.sampling) | {"faces_allowed": part.faces}
        yield from (row | settings | {"row": f"{row['row']} {label}".strip()} for row in chosen(models, part, inputs))


def chosen(models: Models, plan: MeshBench, inputs: list[Subject]) -> Iterator[dict[str, Any]]:
    """Yields plain decoding and the chosen methods, each once or, with a sweep, once for each value."""
    own = models.model(models.own)
    entries = plan.resolved(own).entries(own.capabilities)
    table = (base := models.baseline()) | {label: Row(models.own, e.name, e.knobs) for label, e in entries.items()}
    runs = models.measure(table, inputs, plan.seeds, plan.repeats)
    repeated = [s for s in inputs for _ in range(plan.seeds)]
    for name in table:
        told = against_best(name, runs) | drafting([of[0] for of in runs[name]])
        yield summary(name, runs, repeated, next(iter(base))) | told


def rows(models: Models, table: dict[str, Row], inputs: list[Subject]) -> Iterator[dict[str, Any]]:
    """Yields the quality of meshes of unseen shapes, the table, acceptance by grammar state, and the sweeps."""
    plan, own = models.plan, models.model(models.own)
    for kind, (grammar, budget) in itertools.product(("boxes", "families"), ((False, False), (True, False), (True, True))):
        unseen = subjects(len(inputs), kind, own.card["families"])
        yield fidelity(own, kind, unseen, models.sampling, grammar, [len(s.faces) if budget else plan.faces for s in unseen])
    runs = models.measure(table, inputs, plan.seeds, plan.repeats)
    repeated = [s for s in inputs for _ in range(plan.seeds)]
    yield from (summary(name, runs, repeated, models.plain_row) for name in table)
    yield from (by_state(name, runs[name]) for name in table if table[name].method.startswith("xspecmesh"))
    yield from sweeps(models, inputs[:SWEPT])


def summary(
    name: str, runs: dict[str, list[list[Run]]], inputs: list[Subject], plain: str, measured: Sequence[Near | None] | None = None
) -> dict[str, Any]:
    """Returns one row: time, step compression, latency of a step, distances with floors.

    plain : the row that the speed-up is over; measured : the distances of the first run of each input, if they are known
    """
    mine = runs[name]
    seconds = np.array([np.median([r.seconds for r in of]) for of in mine])
    forwards = np.array([of[0].totals["forwards"] for of in mine])
    tokens = np.array([len(of[0].tokens) for of in mine])
    found = {
        "row": name,
        **ran(mine[0][0]),
        "exact": all(of[0].exact for of in mine),
        "seconds": quartiles(seconds),
        "step_compression": quartiles(tokens / forwards),
        "milliseconds_per_step": quartiles(1000 * seconds / forwards),
        "tokens": quartiles(tokens),
    }
    base = {"E exact": "E plain", "E cross-attention + LoRA": "E plain"}
    for against in dict.fromkeys((plain, base.get(name, plain))):
        if against in runs:
            ratios = np.array([speedup(a, b) for a, b in zip(runs[against], mine, strict=True)])
            key = "speedup" if against == plain else "speedup_over_own_plain"
            found |= {key: quartiles(ratios), f"{key}_interval": bootstrap(ratios)}
    return found | (apart([of[0] for of in mine], inputs) if measured is None else together(measured))


def ran(run: Run) -> dict[str, Any]:
    """Returns the columns that name the method, knobs and weights of a run."""
    return {"method": run.method.name, "knobs": run.steps[-1].knobs, **model_columns(run.backbone)}


def by_state(name: str, runs: list[list[Run]]) -> dict[str, Any]:
    """Returns, for each grammar state in which drafts were verified, their number and the share accepted."""
    judged: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    grammar = Grammar(BPT, canonical=True)
    for of in runs:
        run, state = of[0], grammar.start
        for step in run.steps:
            accepted = step.trace.accepted
            for i, token in enumerate(step.tokens):
                if i < step.drafted:
                    judged[grammar.name(state)] += 1
                    kept[grammar.name(state)] += bool(accepted[i])
                state = grammar.next(state, token)
    return {
        "row": f"{name}: accepted by state",
        **ran(runs[0][0]),
        "states": {s: [judged[s], round(kept[s] / judged[s], 3)] for s in sorted(judged)},
    }


def sweeps(models: Models, inputs: list[Subject]) -> Iterator[dict[str, Any]]:
    """Yields step compression and speed-up by depth and by threshold, on the best weights present."""
    weights = next((w for w in ("cross", models.own) if models.can(Row(w))), None)
    if weights is None:
        return
    table = {models.plain_row: Row(models.own, "ar")}
    table |= {f"depth {d}": Row(weights, knobs={"depth": d}) for d in DEPTHS}
    table |= {f"threshold {t}": Row(weights, knobs={"accept_probability": t}) for t in THRESHOLDS}
    runs = models.measure(table, inputs, repeats=models.plan.repeats)
    for name in table:
        if name != models.plain_row:
            told = {"row": f"sweep: {name}", "inputs": len(inputs), "seeds": "0..0"}
            yield summary(name, runs, inputs, models.plain_row) | told


def readable(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    if "states" in row:
        return f"{row['row']:32} " + "  ".join(f"{s} {share:.0%} of {n}" for s, (n, share) in row["states"].items())
    near = "no faces" if row["chamfer_16k"] is None else (
        f"chamfer {row['chamfer_16k']:.4f} (floor {row['floor_16k']:.4f}; published protocol {row['chamfer_published']:.4f}, "
        f"floor {row['floor_published']:.4f})"
    )  # fmt: skip
    if "valid" in row:
        return f"{row['row']:52} valid {row['valid']:.1%}, completed {row['completed']:.1%}, degenerate {row['degenerate_faces']}, {near}"
    s, c, t = row.get("speedup", [0, 0, 0]), row["step_compression"], row["milliseconds_per_step"]
    return (
        f"{row['row']:28} {'exact' if row['exact'] else 'NOT EXACT':9} {c[0]:5.2f} ({c[1]:.2f}-{c[2]:.2f}) tokens a pass   "
        f"{t[0]:6.2f} ms a step   {s[0]:5.2f}x ({s[1]:.2f}-{s[2]:.2f}) in time   {drafted(row)}{near}{best_of(row)}"
    )
