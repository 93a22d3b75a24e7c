"""Plots speed over deviation for all relaxed rules: `bench image --methods lantern,gsd --sweep allowed_deviation=0,0.02,1 --figure FILE`.

Each row is a point, and a line joins the budgets of one method: tokens a pass, and time against plain decoding, over the mean total
variation distance that the meter measured. Points of equal deviation can be compared; those of equal knobs cannot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.decoding.deviation import ALLOWED
from engine.run import Run, speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOB = ALLOWED.name


def points(runs: dict[str, list[list[Run]]]) -> list[dict[str, Any]]:
    """Returns a point for every row with a budget: its method or preset, budget, mean deviation (0 if the rule is exact; nan if no pass was
    measured), mean tokens a pass, and the median of times over plain decoding."""
    found = []
    for label, of in runs.items():
        first = of[0][0]
        knobs = first.steps[-1].knobs
        if KNOB not in knobs:
            continue
        means = [same[0].steps[-1].trace.deviation for same in of]
        found.append({
            "row": label,
            "method": label.split(" ")[0],
            "budget": knobs[KNOB],
            "deviation": 0.0 if first.exact else float(np.mean([each.mean if each else np.nan for each in means])),
            "tokens_a_pass": float(np.mean([same[0].totals["step_compression"] for same in of])),
            "speedup": float(np.median([speedup(plain, mine) for plain, mine in zip(runs["ar"], of, strict=True)])),
        })  # fmt: skip
    return found


def figure(runs: dict[str, list[list[Run]]]) -> tuple[Figure, list[dict[str, Any]]]:
    """Returns the figure, and the points as numbers."""
    from matplotlib.figure import Figure

    found = points(runs)
    sheet = Figure(figsize=(10.5, 4.6), dpi=160, layout="constrained")
    for axes, of, said in zip(sheet.subplots(1, 2), ("tokens_a_pass", "speedup"), ("tokens per pass", "times plain decoding"), strict=True):
        for method in dict.fromkeys(point["method"] for point in found):
            mine = sorted((p for p in found if p["method"] == method and not np.isnan(p["deviation"])), key=lambda p: p["budget"])
            axes.plot([p["deviation"] for p in mine], [p[of] for p in mine], "o-", label=method, markersize=4)
        axes.set(xlabel="mean total variation distance from the model's distribution", ylabel=said)
        axes.margins(x=0.1, y=0.08)
        axes.grid(True, alpha=0.2)
        axes.legend(fontsize=8, frameon=False)
    sheet.suptitle("Speed over deviation by the budget of deviation", fontsize=11)
    return sheet, found
