"""Plots speed against fidelity of a relaxed rule: `bench image --methods cross_regression --sweep energy_tolerance=0,1,2 --figure FILE`.

Each row is a point: tokens a pass against the mean total variation distance between the rule's output and the model's distribution. A line
joins rows that differ in the tolerance only, so several smoothings give a family of curves (the paper's tables 3 and 12).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from engine.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = "cross_regression"
STRENGTH = "energy_tolerance"


def points(runs: dict[str, list[list[Run]]]) -> list[dict[str, Any]]:
    """Returns a point for every row of the method: its label, knobs, mean tokens a pass and mean deviation (0 if the rule is exact)."""
    found = []
    for label, of in runs.items():
        first = of[0][0]
        if first.method.name != METHOD:
            continue
        apart = [last for same in of for last in [s.trace.deviation.mean for s in same[0].steps if s.trace.deviation][-1:]]
        found.append({
            "row": label,
            "knobs": dict(first.steps[-1].knobs),
            "tokens_a_pass": float(np.mean([same[0].totals["step_compression"] for same in of])),
            "deviation": 0.0 if first.exact else float(np.mean(apart)),
        })  # fmt: skip
    return found


def curves(found: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Returns groups of points that differ in the tolerance only, ordered by it."""
    families: dict[tuple[tuple[str, Any], ...], list[dict[str, Any]]] = {}
    for point in found:
        key = tuple(sorted((name, value) for name, value in point["knobs"].items() if name != STRENGTH))
        families.setdefault(key, []).append(point)
    return [sorted(points, key=lambda point: point["knobs"][STRENGTH]) for points in families.values()]


def figure(runs: dict[str, list[list[Run]]]) -> tuple[Figure, list[dict[str, Any]]]:
    """Returns the figure, and the points as numbers."""
    from matplotlib.figure import Figure

    found = points(runs)
    sheet = Figure(figsize=(7.2, 4.6), dpi=160, layout="constrained")
    axes = sheet.subplots()
    families = curves(found)
    differing = {name for name in found[0]["knobs"] if name != STRENGTH and len({str(p["knobs"][name]) for p in found}) > 1}
    told: list[list[float]] = []  # the tolerances of curves that have labels
    for mine in sorted(families, key=lambda points: -points[-1]["deviation"]):  # of curves with equal labels, label the outermost
        said = ", ".join(f"{name.replace('_', ' ')} {mine[0]['knobs'][name]}" for name in sorted(differing)) or METHOD.replace("_", "-")
        axes.plot([p["deviation"] for p in mine], [p["tokens_a_pass"] for p in mine], "o-", label=said, markersize=4)
        tolerances = [p["knobs"][STRENGTH] for p in mine]
        for p in mine if tolerances not in told else []:
            place = (p["deviation"], p["tokens_a_pass"])
            axes.annotate(f"Θ = {p['knobs'][STRENGTH]:g}", place, (6, -10), textcoords="offset points", fontsize=8, color="#444444")
        told.append(tolerances)
    axes.margins(x=0.1, y=0.08)
    axes.set(xlabel="mean total variation distance from the model's distribution", ylabel="tokens per pass")
    axes.set_title("Speed and fidelity by energy tolerance Θ", fontsize=11)
    axes.grid(True, alpha=0.2)
    axes.legend(fontsize=8, frameon=False)
    return sheet, found
