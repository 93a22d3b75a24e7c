"""The quality of the meshes of `bench mesh`: distance to their inputs, well-formedness, completion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine.backbones.lowpoly import Lowpoly
from engine.core import Prompt, Sampling
from engine.mesh.bpt_grammar import Grammar
from engine.mesh.bpt_tokens import BPT
from engine.mesh.distance import distance, published
from engine.mesh.quality import quality
from engine.methods import find
from engine.run import Run, generate
from research.bench.mesh_inputs import Subject
from research.bench.rows import quartiles


def apart(runs: list[Run], inputs: list[Subject]) -> dict[str, Any]:
    """Returns mean chamfer and Hausdorff distances with their floors, and the number of inputs that gave no face."""
    return together([near(run, subject) for run, subject in zip(runs, inputs, strict=True)])


class Near(NamedTuple):
    """How far a mesh is from its input: by the papers' protocol, and with 16,384 points."""

    published: dict[str, float]
    ours: dict[str, float]


def near(run: Run, subject: Subject) -> Near | None:
    """Returns the distances of one run's mesh; None if it has no face."""
    mesh = run.result()
    if not len(mesh.faces):
        return None
    pair = (mesh.vertices, mesh.faces), (subject.vertices, subject.faces)
    return Near(published(*pair), distance(*pair))


def together(measured: Sequence[Near | None]) -> dict[str, Any]:
    """Returns the means of some meshes, and how many had no face."""
    some = [each for each in measured if each is not None]
    theirs, ours = [each.published for each in some], [each.ours for each in some]
    found: dict[str, Any] = {"without_face": len(measured) - len(some)}
    for label, rows in (("published", theirs), ("16k", ours)):
        for key in ("chamfer", "hausdorff", "floor", "floor_hausdorff"):
            found[f"{key}_{label}"] = round(float(np.mean([row[key] for row in rows])), 4) if rows else None
    chamfer = np.array([row["chamfer"] / row["floor"] for row in ours])
    found["chamfer_over_floor"] = quartiles(chamfer) if len(chamfer) else None
    return found


def fidelity(
    model: Lowpoly, kind: str, inputs: list[Subject], sampling: Sampling, grammar: bool, budgets: list[int | None]
) -> dict[str, Any]:
    """Returns a row about plain decoding of held-out inputs: shares of valid, completed and watertight meshes, degenerate faces, distances.

    grammar : whether the grammar's mask is on; budgets : the most faces of each input's mesh (None: no limit)
    """
    bare = Lowpoly(model.model, model.card, model.folder, grammar)
    bare.weights_hash = model.weights_hash
    prompts = [Prompt(points=s.points, seed=i, size=budgets[i], sampling=sampling) for i, s in enumerate(inputs)]
    own_counts = budgets == [len(s.faces) for s in inputs]
    runs = [generate(bare, find("ar")[0], prompt).finish() for prompt in prompts]
    rules = Grammar(BPT, canonical=False)
    faces = [face for r in runs for face in r.result().parser.faces]
    found = [quality(m.vertices, m.faces) for m in (r.result() for r in runs)]
    return {
        "row": f"held-out {kind}, {'with' if grammar else 'without'} grammar mask{', with budget' if own_counts else ''}",
        "method": "ar",
        "knobs": {},
        "inputs": len(runs),
        "seeds": f"0..{len(runs) - 1}",
        "faces_allowed": "of the input" if own_counts else budgets[0],
        "valid": round(float(np.mean([well_formed(rules, r.tokens) for r in runs])), 4),
        "completed": round(float(np.mean([bool(r.tokens) and r.tokens[-1] == BPT.eos for r in runs])), 4),
        "degenerate_faces": round(float(np.mean([f.degenerate for f in faces])), 5) if faces else None,
        "watertight": round(float(np.mean([q["watertight"] for q in found])), 4),
        "watertight_inputs": round(float(np.mean([quality(s.vertices, s.faces)["watertight"] for s in inputs])), 4),
    } | apart(runs, inputs)


def well_formed(rules: Grammar, tokens: list[int]) -> bool:
    """Returns whether the grammar allowed every token at its place; a sequence that was cut at the limit may still be well formed."""
    state = rules.start
    for token in tokens:
        if not rules.allowed(state)[token]:
            return False
        state = rules.next(state, token)
    return True
