"""Captions of charts: the settings of a run below a saved chart (model, method, knobs, seed, machine), and the words for mesh tokens."""

from __future__ import annotations

from engine.mesh.bpt_tokens import BPT
from engine.run import Run


def made_with(run: Run) -> dict[str, str]:
    """The lines, by name. Knobs are those of the first step; moves during the run are in the chart."""
    machine, prompt = run.machine, run.prompt
    sampling = prompt.sampling or run.backbone.sampling
    knobs = run.steps[0].knobs if run.steps else run.live.read()
    return {
        "model": f"{run.backbone.name}, weights {run.backbone.weights_hash or 'without a hash'}, {run.backbone.dtype}",
        "method": run.method.title + (f" ({run.name})" if run.name != run.method.name else ""),
        "knobs": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in knobs.items()),
        "prompt": prompt.text or "",
        "seed": str(prompt.seed),
        "sampling": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(sampling).items()),
        "machine": f"{machine['processor']}, {machine['threads']} threads, {run.backbone.device}, PyTorch {machine['torch']}",
        "commit": str(machine["commit"] or ""),
    }


def bpt_words(token: int) -> str:
    """The part of a mesh that a token stands for: "block x y z", "offset x y z", "new patch x y z" or "end"."""
    if token == BPT.eos:
        return "end of the mesh"
    if token >= BPT.special:
        return f"new patch, block {_digits(token - BPT.special, BPT.per_axis[0])}"
    level = max(i for i, first in enumerate(BPT.first) if token >= first)
    name = "offset" if level == BPT.depth - 1 else "block"
    return f"{name} {_digits(token - BPT.first[level], BPT.per_axis[level])}"


def _digits(number: int, base: int) -> str:
    """The place on each axis (x y z) that an id of a level stands for."""
    parts = [number // base**2, number // base % base, number % base]
    placed = dict(zip(BPT.axes, parts, strict=True))
    return " ".join(str(placed[axis]) for axis in range(3))
