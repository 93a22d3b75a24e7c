"""Plots MuLo-SD's predicted and measured speed-ups: `launch.py bench image --methods mulo --sweep ... --figure FILE`.

Equation 10 of the paper gives the number of plain passes that one pass replaces if a share `a` of the tokens are accepted drafts. It
ignores the verification passes and assumes that all passes cost the same. The figure therefore adds two points for each row: tokens over
all passes (including verification) and time against plain decoding (including the cost of wide passes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.diagnostics import multi_scale_point, multi_scale_speedup
from engine.run import Run, speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = "mulo"
COLOURS = {2: "#2f6fdf", 4: "#d9772b"}


def points(runs: dict[str, list[list[Run]]]) -> list[dict[str, Any]]:
    """Returns a point for every row of the method: its label and factor, the means of `multi_scale_point`, and the speed-up in time."""
    found = []
    for label, of in runs.items():
        first = of[0][0]
        if first.method.name != METHOD:
            continue
        factor = int(first.steps[-1].knobs["factor"])
        each = [multi_scale_point(same[0].steps, len(same[0].tokens) // factor**2) for same in of]
        ratios = [speedup(a, b) for a, b in zip(runs["ar"], of, strict=True)]
        mean = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
        found.append({"row": label, "factor": factor, "tokens": len(first.tokens)} | mean | {"time": float(np.median(ratios))})
    return found


def labels(found: list[dict[str, Any]]) -> dict[tuple[float, float], str]:
    """Returns the labels by place in the figure; rows at the same place share a label."""
    said: dict[tuple[float, float], list[str]] = {}
    for point in found:
        said.setdefault((point["stayed"], point["passes"]), []).append(point["row"].removeprefix(METHOD).strip())
    return {at: ", ".join(names) for at, names in said.items()}


def figure(runs: dict[str, list[list[Run]]]) -> tuple[Figure, list[dict[str, Any]]]:
    """Returns the figure, and the points as numbers."""
    from matplotlib.figure import Figure

    found = points(runs)
    sheet = Figure(figsize=(7.2, 4.6), dpi=160, layout="constrained")
    axes = sheet.subplots()
    stayed = np.linspace(0, 1, 200)
    for factor in sorted({point["factor"] for point in found}):
        mine = [point for point in found if point["factor"] == factor]
        fine = mine[0]["tokens"]
        colour = COLOURS[factor]
        axes.plot(stayed, [multi_scale_speedup(a, fine, fine // factor**2) for a in stayed], color=colour, label=f"{factor}x: equation 10")
        for key, marker, said in (("passes", "o", "measured, tokens per pass"), ("time", "^", "measured, time")):
            axes.scatter([p["stayed"] for p in mine], [p[key] for p in mine], color=colour, marker=marker, label=f"{factor}x: {said}")
    for at, label in labels(found).items():
        axes.annotate(label, at, (-5, 4), textcoords="offset points", ha="right", fontsize=6.5, color="#555555")
    axes.axhline(1, color="#999999", linewidth=0.8)
    axes.set(xlabel="share a of tokens that are accepted drafts", ylabel="speed-up over plain decoding", xlim=(-0.03, 1.08), yscale="log")
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(lambda value, _: f"{value:g}x")
    axes.set_title("MuLo-SD: predicted and measured speed-up", fontsize=11)
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8, frameon=False)
    return sheet, found
