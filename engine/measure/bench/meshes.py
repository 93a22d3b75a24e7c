"""`launch.py bench mesh`: the rows of XSpecMesh's tables 3 and 4 for our model, with floors, intervals, and where drafts fail; with
--methods and --sweep, those methods instead.

Inputs are clouds of held-out procedural shapes. Every row decodes every input twice, the second time in reverse order of rows, after one
unmeasured run each; a row's speed-up on an input is the ratio of its median time to that of row A, plain decoding of the same weights with
cached cross-attention. Distances are measured in the input's own box scaled to 1.9, by the papers' protocol and with 16,384 points, the
distance of the input to itself (floor) beside them.
"""

from __future__ import annotations

import itertools
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.backbones import lowpoly, lowpoly_lora
from engine.backbones.lowpoly import Lowpoly
from engine.core import Prompt
from engine.data.lowpoly_shapes import Shape, held_out_shapes, sample_points
from engine.errors import MissingWeights
from engine.machine import facts
from engine.measure.bench.speed import bootstrap, drafted, drafting, entries_of, publish, quartiles
from engine.mesh.bpt_grammar import Grammar
from engine.mesh.bpt_tokens import BPT, frame_of
from engine.mesh.distance import distance, published
from engine.mesh.picture import View, contact_sheet
from engine.mesh.quality import quality
from engine.methods import find
from engine.run import Run, generate

COUNT, FULL_COUNT = 40, 200
SWEPT = 12  # inputs of the sweeps
DEPTHS = (1, 2, 3, 4, 5, 6)
THRESHOLDS = (0.1, 0.3, 0.5, 0.7, 0.9)
CLOUD = 16_384  # points of an input


@dataclass(frozen=True)
class Row:
    """One row of the table: which weights, which method with which knobs."""

    weights: str  # plain | cross | mlp: without an adapter, or with the one trained beside these heads
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


@dataclass
class Subject:
    """A held-out shape as an input: its surface in the model's frame and a cloud of it [N, 6]."""

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    points: torch.Tensor


def subject_of(shape: Shape, seed: int) -> Subject:
    """The input that a shape is."""
    vertices = frame_of(shape.vertices).to_model(shape.vertices)
    points = sample_points(vertices, shape.faces, CLOUD, np.random.default_rng(seed))
    return Subject(shape.family, vertices, shape.faces, torch.from_numpy(points))


def subjects(count: int, kind: str, families: Iterable[str]) -> list[Subject]:
    """The first `count` held-out shapes: "boxes" of the families the model was taught, or whole "families"."""
    taught = set(families)
    shapes = held_out_shapes(8 * count, kind)
    chosen = [s for s in shapes if kind == "families" or s.family in taught][:count]
    return [subject_of(s, i) for i, s in enumerate(chosen)]


class Bench:
    """The models of one benchmark, loaded once, and what is run on them."""

    def __init__(self, folder: str | None, device: str):
        self.folder, self.device = folder, device
        self.models: dict[str, Lowpoly] = {"plain": lowpoly.load(folder, device)}

    def model(self, weights: str) -> Lowpoly:
        """plain, or merged with the adapter of a kind; raises MissingWeights."""
        if weights not in self.models:
            self.models[weights] = lowpoly_lora.load(self.folder, self.device, kind=weights)
        return self.models[weights]

    def can(self, row: Row) -> bool:
        """Whether the weights and heads of a row are there."""
        try:
            model = self.model(row.weights)
        except MissingWeights:
            return False
        return not find(row.method)[0].drafter or row.knobs.get("heads", "cross-attention") in model.kinds

    def go(self, row: Row, subject: Subject, seed: int, size: int | None = None) -> Run:
        """One finished run."""
        model, (method, preset) = self.model(row.weights), find(row.method)
        return generate(model, method, Prompt(points=subject.points, seed=seed, size=size), preset | row.knobs).finish()

    def measure(self, table: dict[str, Row], inputs: list[Subject], seeds: int = 1) -> dict[str, list[list[Run]]]:
        """Runs by row and input."""
        found: dict[str, list[list[Run]]] = {name: [[] for _ in range(len(inputs) * seeds)] for name in table}
        for name in table:
            self.go(table[name], inputs[0], 0)
        for i, subject in enumerate(inputs):
            print(f"input {i + 1} of {len(inputs)}: {subject.name}", file=sys.stderr, flush=True)
            for seed in range(seeds):
                for name in [*table, *reversed(table)]:
                    found[name][i * seeds + seed].append(self.go(table[name], subject, seed))
        return found


def bench(options: Namespace) -> list[dict[str, Any]]:
    """The rows of the table and of the sweeps; prints each when it is there."""
    run = Bench(options.backbone if Path(options.backbone).is_dir() else None, options.device)
    card = run.model("plain").card
    count, seeds = (FULL_COUNT, 3) if options.full else (options.count or COUNT, 1)
    inputs = subjects(count, "boxes", card["families"])
    stamp = facts() | {"backbone": "lowpoly", "seeds": seeds, "inputs": len(inputs)}
    if options.methods != "all" or options.sweep:
        return publish(chosen(run, options, inputs, seeds), readable, stamp, options.csv)
    table = {name: row for name, row in TABLE.items() if run.can(row)}
    for name in [name for name in TABLE if name not in table]:
        print(f"{name}: its heads or its adapter are not trained yet; python launch.py train mesh-heads")
    return publish(rows(run, table, inputs, seeds), readable, stamp, options.csv)


def chosen(run: Bench, options: Namespace, inputs: list[Subject], seeds: int) -> Iterator[dict[str, Any]]:
    """The methods that were asked for, each once or, with --sweep, once a value, beside plain decoding."""
    entries = entries_of(run.model("plain"), options)
    table = {"A plain": TABLE["A plain"]} | {label: Row("plain", entry.name, entry.knobs) for label, entry in entries.items()}
    runs = run.measure(table, inputs, seeds)
    repeated = [s for s in inputs for _ in range(seeds)]
    yield from (summary(name, runs, repeated) | drafting([of[0] for of in runs[name]]) for name in table)


def rows(run: Bench, table: dict[str, Row], inputs: list[Subject], seeds: int) -> Iterator[dict[str, Any]]:
    """The table, where its drafts fail, the sweeps, and what the model makes of unseen shapes."""
    for kind, (grammar, budget) in itertools.product(("boxes", "families"), ((False, False), (True, False), (True, True))):
        yield fidelity(run, kind, subjects(len(inputs), kind, run.model("plain").card["families"]), grammar, budget)
    runs = run.measure(table, inputs, seeds)
    repeated = [s for s in inputs for _ in range(seeds)]
    yield from (summary(name, runs, repeated) for name in table)
    yield from (by_state(name, runs[name]) for name in table if table[name].method.startswith("xspecmesh"))
    yield from sweeps(run, inputs[:SWEPT])


def summary(name: str, runs: dict[str, list[list[Run]]], inputs: list[Subject]) -> dict[str, Any]:
    """One row: time, step compression, latency of a step, distances with floors."""
    mine = runs[name]
    seconds = np.array([np.median([r.seconds for r in of]) for of in mine])
    forwards = np.array([of[0].totals["forwards"] for of in mine])
    tokens = np.array([len(of[0].tokens) for of in mine])
    found = {
        "row": name,
        "exact": all(of[0].exact for of in mine),
        "seconds": quartiles(seconds),
        "step_compression": quartiles(tokens / forwards),
        "milliseconds_per_step": quartiles(1000 * seconds / forwards),
        "tokens": quartiles(tokens),
    }
    base = {"A plain": "A plain", "E exact": "E plain", "E cross-attention + LoRA": "E plain"}
    for against in dict.fromkeys(("A plain", base.get(name, "A plain"))):
        if against in runs:
            rate = tokens / seconds  # runs that are not exact differ in length, so time a token is compared
            plain = np.array([len(of[0].tokens) / np.median([r.seconds for r in of]) for of in runs[against]])
            key = "speedup" if against == "A plain" else "speedup_over_own_plain"
            found |= {key: quartiles(rate / plain), f"{key}_interval": bootstrap(rate / plain)}
    return found | apart([of[0] for of in mine], inputs)


def apart(runs: list[Run], inputs: list[Subject]) -> dict[str, Any]:
    """Mean chamfer and Hausdorff distance with their floors, and how many inputs gave no face at all."""
    close = [(r.result(), s) for r, s in zip(runs, inputs, strict=True)]
    some = [((m.vertices, m.faces), (s.vertices, s.faces)) for m, s in close if len(m.faces)]
    theirs = [published(a, b) for a, b in some]
    ours = [distance(a, b) for a, b in some]
    found: dict[str, Any] = {"without_face": len(runs) - len(some)}
    for label, rows in (("published", theirs), ("16k", ours)):
        for key in ("chamfer", "hausdorff", "floor", "floor_hausdorff"):
            found[f"{key}_{label}"] = round(float(np.mean([row[key] for row in rows])), 4) if rows else None
    chamfer = np.array([row["chamfer"] / row["floor"] for row in ours])
    found["chamfer_over_floor"] = quartiles(chamfer) if len(chamfer) else None
    return found


def by_state(name: str, runs: list[list[Run]]) -> dict[str, Any]:
    """Per state of the grammar in which a draft was judged: how many were, and the share that was accepted."""
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
    return {"row": f"{name}: accepted by state", "states": {s: [judged[s], round(kept[s] / judged[s], 3)] for s in sorted(judged)}}


def sweeps(run: Bench, inputs: list[Subject]) -> list[dict[str, Any]]:
    """Step compression and speed-up by depth and by threshold, on the best weights that there are."""
    weights = next((w for w in ("cross", "plain") if run.can(Row(w))), None)
    if weights is None:
        return []
    table = {"A plain": Row("plain", "ar")}
    table |= {f"depth {d}": Row(weights, knobs={"depth": d}) for d in DEPTHS}
    table |= {f"threshold {t}": Row(weights, knobs={"accept_probability": t}) for t in THRESHOLDS}
    runs = run.measure(table, inputs)
    return [summary(name, runs, inputs) | {"row": f"sweep: {name}"} for name in table if name != "A plain"]


def fidelity(run: Bench, kind: str, inputs: list[Subject], grammar: bool, budget: bool) -> dict[str, Any]:
    """What plain decoding makes of held-out inputs, with the grammar's mask or without, told the input's number of faces as a budget or
    not: well formed, completed, degenerate, near."""
    model = run.model("plain")
    bare = Lowpoly(model.model, model.card, model.folder, grammar)
    prompts = [Prompt(points=s.points, seed=i, size=len(s.faces) if budget else None) for i, s in enumerate(inputs)]
    runs = [generate(bare, find("ar")[0], prompt).finish() for prompt in prompts]
    rules = Grammar(BPT, canonical=False)
    faces = [face for r in runs for face in r.result().parser.faces]
    found = [quality(m.vertices, m.faces) for m in (r.result() for r in runs)]
    return {
        "row": f"held-out {kind}, {'with' if grammar else 'without'} grammar mask{', with budget' if budget else ''}",
        "inputs": len(runs),
        "valid": round(float(np.mean([well_formed(rules, r.tokens) for r in runs])), 4),
        "completed": round(float(np.mean([bool(r.tokens) and r.tokens[-1] == BPT.eos for r in runs])), 4),
        "degenerate_faces": round(float(np.mean([f.degenerate for f in faces])), 5) if faces else None,
        "watertight": round(float(np.mean([q["watertight"] for q in found])), 4),
        "watertight_inputs": round(float(np.mean([quality(s.vertices, s.faces)["watertight"] for s in inputs])), 4),
    } | apart(runs, inputs)


def well_formed(rules: Grammar, tokens: list[int]) -> bool:
    """Whether every token was allowed where it stands; a sequence that was cut at the limit may still be well formed."""
    state = rules.start
    for token in tokens:
        if not rules.allowed(state)[token]:
            return False
        state = rules.next(state, token)
    return True


def readable(row: dict[str, Any]) -> str:
    """A row for a person."""
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
        f"{t[0]:6.2f} ms a step   {s[0]:5.2f}x ({s[1]:.2f}-{s[2]:.2f}) in time   {drafted(row)}{near}"
    )


def sheet(folder: str | None, path: Path, count: int = 24, method: str = "ar") -> None:
    """Inputs and the results beside them as one picture, four pairs in a row."""
    from PIL import Image

    run = Bench(folder, "cpu")
    inputs = subjects(count, "boxes", run.model("plain").card["families"])
    views = []
    for i, s in enumerate(inputs):
        result = run.go(Row("plain", method), s, i).result()
        views.append(View(s.points[:2048].numpy(), title=f"{s.name}: input"))
        views.append(View(result.vertices, result.faces, title=f"{len(result.faces)} faces"))
    rows = [views[i : i + 8] for i in range(0, len(views), 8)]
    Image.fromarray(contact_sheet(rows, 192)).save(path)
