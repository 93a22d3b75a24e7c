"""Captions of saved charts (model, method, knobs, seed, machine), and descriptions of mesh tokens."""

from __future__ import annotations

from engine.mesh.bpt_tokens import BPT
from engine.run import Run


def made_with(run: Run) -> dict[str, str]:
    """Lines of a run's caption, by name. Knobs have their values at the first step; the chart shows later moves."""
    machine, prompt = run.machine, run.prompt
    sampling = prompt.sampling or run.backbone.sampling
    knobs = run.steps[0].knobs if run.steps else run.live.read()
    return {
        "model": f"{run.backbone.name}, weights {run.backbone.weights_hash or 'without a hash'}, {run.backbone.precision}",
        "method": run.method.title + (f" ({run.name})" if run.name != run.method.name else ""),
        "knobs": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in knobs.items()),
        "prompt": prompt.text or "",
        "seed": str(prompt.seed),
        "sampling": ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in vars(sampling).items()),
        "machine": f"{machine['processor']}, {machine['threads']} threads, {run.backbone.device}, PyTorch {machine['torch']}",
        "commit": str(machine["commit"] or ""),
    }


def bpt_words(token: int) -> str:
    """Meaning of a mesh token: "block x y z", "offset x y z", "new patch, block x y z" or "end of the mesh"."""
    if token == BPT.eos:
        return "end of the mesh"
    if token >= BPT.special:
        return f"new patch, block {_digits(token - BPT.special, BPT.per_axis[0])}"
    level = int(token >= BPT.first[1])
    return f"{('block', 'offset')[level]} {_digits(token - BPT.first[level], BPT.per_axis[level])}"


def _digits(number: int, base: int) -> str:
    """Coordinates "x y z" that the id of a level encodes."""
    return f"{number // base**2} {number // base % base} {number % base}"
