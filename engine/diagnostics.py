"""Named arrays from steps: numbers, not figures. The app, the trace file and the benchmarks read the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from engine.core import Step
from engine.trace import DecisionTrace, DeviationTrace, RoundTrace, Trace, TreeTrace, Values
from engine.tree import depths

if TYPE_CHECKING:
    from engine.mesh.bpt_tokens import Face

PER_TOKEN = ("accepted", "verdict", "accept_probability", "entropy", "top", "depth", "parent", "energy", "threshold")
DECISIONS = {"tokens": np.int32, "p": np.float32, "q": np.float32, "draft": np.int32, "coin": np.float32, "mass": np.float32}
PER_STEP: dict[str, Callable[[Trace], float | None]] = {  # one number per step; None = not recorded
    "deviation": lambda trace: trace.deviation and trace.deviation.latest,
    "mean_deviation": lambda trace: trace.deviation and trace.deviation.mean,
    "strength": lambda trace: trace.deviation and trace.deviation.strength,
    "tree_depth": lambda trace: None if trace.tree is None or trace.tree.width is None else trace.tree.levels,
    "tree_width": lambda trace: trace.tree and trace.tree.width,
}


def arrays(steps: Items[Step]) -> dict[str, np.ndarray]:
    """The whole trace of a run; `replay` reads it back.

    One value per committed token, in the order of commitment: tokens, positions (int32), step (int32, the step that committed it) and
    the fields of PER_TOKEN (float32, nan = not recorded).
    One value per step: step_tokens, step_drafted, step_forwards, step_draft_forwards (int32), step_seconds (float64), step_exact
    (bool), knob_NAME (float32, or text for a choice) and, if the method records them, step_NAME of PER_STEP (float32, nan = not recorded).
    One value per node of the verified trees, one tree after another: tree_tokens, tree_parents (int32, -1 = the prefix; numbered
    within the tree), tree_accepted (bool), tree_p, tree_q (float32; see TreeTrace); with step_nodes (int32) per step. One value per draft
    of the passes that record energies: round_energy, round_threshold (float32); with step_round, step_round_accepted (int32) per step.
    If the method records them, decision_NAME of a DecisionTrace for all tokens: candidates [tokens, K] and the others [tokens].
    """
    columns: dict[str, Any] = {
        "tokens": np.array([t for s in steps for t in s.tokens], np.int32),
        "positions": np.array([p for s in steps for p in s.positions], np.int32),
        "step": np.repeat(np.arange(len(steps), dtype=np.int32), [len(s.tokens) for s in steps]),
        "step_tokens": np.array([len(s.tokens) for s in steps], np.int32),
        "step_drafted": np.array([s.drafted for s in steps], np.int32),
        "step_forwards": np.array([s.forwards for s in steps], np.int32),
        "step_draft_forwards": np.array([s.draft_forwards for s in steps], np.int32),
        "step_seconds": np.array([s.seconds for s in steps], np.float64),
        "step_exact": np.array([s.exact for s in steps], bool),
    }
    for name in PER_TOKEN:
        if any(getattr(s.trace, name) is not None for s in steps):
            columns[name] = np.concatenate([per_token(s, name) for s in steps])
    for name, of in PER_STEP.items():
        values = [of(s.trace) for s in steps]
        if any(value is not None for value in values):
            columns[f"step_{name}"] = np.array([np.nan if value is None else value for value in values], np.float32)
    for name in steps[0].knobs if steps else ():
        values = [s.knobs[name] for s in steps]
        columns[f"knob_{name}"] = np.array(values, str if isinstance(values[0], str) else np.float32)
    return columns | tree_arrays(steps) | _rounds(steps) | decision_arrays(steps)


def decision_arrays(steps: Items[Step]) -> dict[str, np.ndarray]:
    """The decision arrays of `arrays`, with -1 or nan for steps that record none; empty if none does."""
    known = [s.trace.decisions for s in steps if s.trace.decisions is not None]
    if not known:
        return {}
    count, most = sum(len(s.tokens) for s in steps), known[0].tokens.shape[1]
    columns = {
        f"decision_{name}": np.full((count, most) if name in ("tokens", "p", "q") else count, -1 if kind is np.int32 else np.nan, kind)
        for name, kind in DECISIONS.items()
    }
    at = 0
    for step in steps:
        if step.trace.decisions is not None:
            for name in DECISIONS:
                values = getattr(step.trace.decisions, name)
                columns[f"decision_{name}"][at : at + len(values)] = values
        at += len(step.tokens)
    return columns


def tree_arrays(steps: Items[Step]) -> dict[str, np.ndarray]:
    """The tree arrays of `arrays`; empty if there are no trees."""
    if all(s.trace.tree is None for s in steps):
        return {}
    trees = [s.trace.tree or TreeTrace([], [], [], [], []) for s in steps]
    return {
        "step_nodes": np.array([len(t.parents) for t in trees], np.int32),
        "tree_tokens": np.array([token for t in trees for token in t.tokens], np.int32),
        "tree_parents": np.array([parent for t in trees for parent in t.parents], np.int32),
        "tree_accepted": np.array([node in t.path for t in trees for node in range(len(t.parents))], bool),
        "tree_p": np.array([p for t in trees for p in t.p], np.float32),
        "tree_q": np.array([q for t in trees for q in t.q], np.float32),
    }


def _rounds(steps: Items[Step]) -> dict[str, np.ndarray]:
    """The energy arrays of `arrays`; empty if there are no energies."""
    if all(s.trace.round is None for s in steps):
        return {}
    rounds = [s.trace.round or RoundTrace((), (), 0) for s in steps]
    return {
        "step_round": np.array([len(r.energy) for r in rounds], np.int32),
        "step_round_accepted": np.array([r.accepted for r in rounds], np.int32),
        "round_energy": np.concatenate([to_numbers(r.energy) for r in rounds]),
        "round_threshold": np.concatenate([to_numbers(r.threshold) for r in rounds]),
    }


def replay(trace: Mapping[str, np.ndarray]) -> Iterator[Step]:
    """The Steps of a trace made by `arrays`. Drafts pending between steps are not part of a trace."""
    ends = {name: np.cumsum(trace[name]) for name in ("step_tokens", "step_nodes", "step_round") if name in trace}

    def part(name: str, count: str, i: int) -> np.ndarray:
        end = int(ends[count][i])
        return trace[name][end - int(trace[count][i]) : end]

    def number(name: str, i: int) -> float | None:
        values = trace.get(f"step_{name}")
        return None if values is None or np.isnan(values[i]) else float(values[i])

    for i in range(len(trace["step_tokens"])):
        knobs = {name.removeprefix("knob_"): values[i].item() for name, values in trace.items() if name.startswith("knob_")}
        counts = (int(trace[f"step_{name}"][i]) for name in ("drafted", "forwards", "draft_forwards"))
        fields = {name: part(name, "step_tokens", i) for name in PER_TOKEN if name in trace}  # kept even if nan: the method records it
        tree = measured = energies = decided = None
        if "decision_tokens" in trace:
            decided = DecisionTrace(*(part(f"decision_{name}", "step_tokens", i) for name in DECISIONS))
        if "step_nodes" in trace:
            tokens, parents, p, q = (part(f"tree_{name}", "step_nodes", i).tolist() for name in ("tokens", "parents", "p", "q"))
            path, width = np.flatnonzero(part("tree_accepted", "step_nodes", i)).tolist(), number("tree_width", i)
            tree = TreeTrace(tokens, parents, path, p, q, max(depths(parents), default=0), None if width is None else int(width))
        if "step_round" in trace:
            levels, least = part("round_energy", "step_round", i), part("round_threshold", "step_round", i)
            energies = RoundTrace(levels, least, int(trace["step_round_accepted"][i]))
        mean, latest, strength = (number(name, i) for name in ("mean_deviation", "deviation", "strength"))
        if (mean, latest, strength) != (None, None, None):
            measured = DeviationTrace(np.nan if mean is None else mean, latest, strength)
        yield Step(
            part("tokens", "step_tokens", i).tolist(), part("positions", "step_tokens", i).tolist(), *counts,
            trace=Trace(**fields, tree=tree, round=energies, deviation=measured, decisions=decided),
            seconds=float(trace["step_seconds"][i]), exact=bool(trace["step_exact"][i]), knobs=knobs,
        )  # fmt: skip


def accepted_and_examined(step: Step) -> tuple[int, int] | None:
    """The number of drafts of a Step accepted before the first rejected one, and the number examined; for a tree, levels are counted.
    None if drafts after a rejected one can be accepted too, because then they have no order."""
    verdicts = per_token(step, "accepted") == 1
    accepted = int(verdicts.cumprod().sum())
    if step.trace.accepted is None or verdicts.sum() > accepted:
        return None
    refused = accepted < min(len(verdicts), step.trace.tree.levels if step.trace.tree else step.drafted)  # else all were accepted
    return accepted, accepted + refused


def most_accepted(step: Step) -> float | None:
    """An estimate of the most drafts of a Step that any exact rule accepts in the mean, never below the number that was accepted. None
    without ratios, and unless drafts are verified one by one.

    The most is the mean of min(1, P/Q) over drafted prefixes (research/exactness/ceiling.py). A prefix of k drafts is seen only where
    speculative sampling has accepted the k - 1 before its last one, so it counts by the inverse of that probability: without bias. The
    expected number of accepted drafts is subtracted and the real one added, because the two vary with the rest alike.
    """
    counts = accepted_and_examined(step)
    if counts is None or step.trace.ratio is None or step.trace.tree is not None or step.knobs.get("verify", "residual") != "residual":
        return None
    ratios = to_numbers(step.trace.ratio)[: counts[1]].astype(np.float64)
    before = np.concatenate([[1.0], np.minimum(ratios, 1).cumprod()[:-1]])[: len(ratios)]
    return counts[0] + float((np.minimum(ratios.cumprod(), 1) / before - np.minimum(ratios, 1)).sum())


def to_numbers(values: Values) -> np.ndarray:
    """Values of a trace as float32: from a list, an array, or a tensor on any device."""
    return np.asarray(values.cpu() if isinstance(values, Tensor) else values, np.float32)


def per_token(step: Step, name: str) -> np.ndarray:
    """One field of a step's trace as float32, one value per token; nan where the method recorded none."""
    row = np.full(len(step.tokens), np.nan, np.float32)
    value: Values | None = getattr(step.trace, name)
    if value is not None:
        numbers = to_numbers(value)[: len(row)]
        row[: len(numbers)] = numbers
    return row


def per_face(faces: Items[Face], values: np.ndarray) -> np.ndarray:
    """float32 [F]: the mean of a per-token array over the tokens that each face owns, ignoring nan.

    Every token belongs to at most one face; the others are dangling tokens.
    """
    means = np.full(len(faces), np.nan, np.float32)
    for i, face in enumerate(faces):
        own = values[list(face.owned)]
        if not np.isnan(own).all():
            means[i] = np.nanmean(own)
    return means
