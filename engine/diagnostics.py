"""Steps -> named arrays: numbers, never figures. The screen, the trace file and the benchmarks read the same arrays."""

from __future__ import annotations

from collections.abc import Sequence as Items
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from engine.core import Step

if TYPE_CHECKING:
    from engine.backbones.bpt_tokens import Face

PER_TOKEN = ("accepted", "accept_probability", "entropy", "depth", "parent")


def arrays(steps: Items[Step]) -> dict[str, np.ndarray]:
    """The whole trace of a run.

    One value a committed token, in the order of commitment: tokens, positions (int32), step (int32, which step committed it) and,
    as float32 with nan where a method says nothing, accepted, accept_probability, entropy, depth, parent.
    One value a step: step_tokens, step_drafted, step_forwards, step_draft_forwards (int32), step_seconds (float64), step_exact
    (bool), and knob_NAME (float32, or text for a choice).
    """
    found: dict[str, Any] = {
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
        if any(name in s.trace for s in steps):
            found[name] = np.concatenate([per_token(s, name) for s in steps])
    for name in steps[0].knobs if steps else ():
        values = [s.knobs[name] for s in steps]
        found[f"knob_{name}"] = np.array(values, str if isinstance(values[0], str) else np.float32)
    return found


def per_token(step: Step, name: str) -> np.ndarray:
    """One entry of a step's trace as float32, as long as its tokens; nan where the method gave no value."""
    row = np.full(len(step.tokens), np.nan, np.float32)
    value = step.trace.get(name)
    if value is not None:
        given = np.asarray(value.cpu() if isinstance(value, Tensor) else value, np.float32)[: len(row)]
        row[: len(given)] = given
    return row


def per_face(faces: Items[Face], values: np.ndarray) -> np.ndarray:
    """float32 [F]: the mean of a per-token array over the tokens that each face owns, nan left out.

    Every token has at most one owner, so faces and dangling tokens together share the array out without a rest.
    """
    found = np.full(len(faces), np.nan, np.float32)
    for i, face in enumerate(faces):
        own = values[list(face.owned)]
        if not np.isnan(own).all():
            found[i] = np.nanmean(own)
    return found
