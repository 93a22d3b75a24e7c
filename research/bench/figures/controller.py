"""Plots the tree shapes that the controller chose: `launch.py bench image --methods adt_tree --figure FILE`.

The figure shows the prompt with the deepest trees and the one with the shallowest: the picture, the depth of the tree that produced each
token, and depth and width by pass. A scatter plot of all prompts shows mean tree depth against the model's mean entropy.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.core import Step
from engine.diagnostics import per_token
from engine.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

METHOD = "adt_tree"
DEPTH, WIDTH, ACCEPTED = "#2f6fdf", "#d9772b", "#3a9d5d"


def traces(run: Run) -> dict[str, np.ndarray]:
    """Returns, for each pass that verified a tree, its depth, its width and its number of accepted drafts; and, for each token in the order
    of the picture, `map`, the depth of the tree that produced it (0: no tree), and entropy in nats."""
    trees = [s for s in run.steps if asked(s)]
    found = {"depth": [s.trace.tree.levels for s in trees], "width": [s.trace.tree.width for s in trees]}
    found = {name: np.array(values, float) for name, values in found.items()}
    found["accepted"] = np.array([np.nansum(per_token(s, "accepted")) for s in trees])
    order = np.argsort(run.positions)
    found["map"] = np.concatenate([np.full(len(s.tokens), s.trace.tree.levels if asked(s) else 0) for s in run.steps])[order]
    found["entropy"] = np.concatenate([per_token(s, "entropy") for s in run.steps])[order]
    return found


def asked(step: Step) -> bool:
    """Returns whether the controller chose the shape of the tree that a pass verified; the first pass has no tree."""
    return step.trace.tree is not None and step.trace.tree.width is not None


def figure(runs: dict[str, list[list[Run]]]) -> tuple[Figure, list[dict[str, Any]]]:
    """Returns the figure for the first row of the method, and a point for each prompt: its text, mean depth and mean entropy."""
    from matplotlib.figure import Figure

    of = next([same[0] for same in rows] for rows in runs.values() if rows[0][0].method.name == METHOD)
    found = [traces(run) for run in of]
    points = [
        {"prompt": r.prompt.text, "depth": float(t["depth"].mean()), "entropy": float(t["entropy"].mean())}
        for r, t in zip(of, found, strict=True)
    ]
    by_depth = np.argsort([p["depth"] for p in points])
    sheet = Figure(figsize=(11, 7.6), dpi=130, layout="constrained")
    axes = sheet.subplots(3, 3, width_ratios=(1, 1, 2), height_ratios=(1, 1, 0.9))
    for row, (i, said) in enumerate(((by_depth[-1], "deepest"), (by_depth[0], "shallowest"))):
        _one(axes[row], of[i], found[i], f"{said} of {len(of)}", max(t["depth"].max() for t in found))
    for unused in axes[2]:
        unused.remove()
    scatter = sheet.add_subplot(axes[2, 0].get_subplotspec().get_gridspec()[2, :])
    scatter.scatter([p["entropy"] for p in points], [p["depth"] for p in points], color=DEPTH)
    scatter.set(xlabel="mean entropy of the next-token distribution (nats)", ylabel="mean tree depth", title="All prompts")
    scatter.grid(alpha=0.2)
    return sheet, points


def _one(axes: list[Axes], run: Run, found: dict[str, np.ndarray], said: str, deepest: float) -> None:
    """Draws a row of the figure: picture, map, trace."""
    picture = run.result()
    rows = round((len(found["map"]) * picture.shape[0] / picture.shape[1]) ** 0.5)
    axes[0].imshow(picture)
    axes[0].set_title(textwrap.fill(f"{said}: {run.prompt.text}", 34), fontsize=9, loc="left")
    shown = axes[1].imshow(found["map"].reshape(rows, -1), cmap="viridis", vmin=0, vmax=deepest)
    axes[1].set_title("depth of the tree that produced each token", fontsize=9)
    axes[1].figure.colorbar(shown, ax=axes[1], shrink=0.8)
    for image in axes[:2]:
        image.set_axis_off()
    axes[2].fill_between(range(len(found["accepted"])), found["accepted"], step="mid", color=ACCEPTED, alpha=0.35, label="accepted")
    for name, colour in (("depth", DEPTH), ("width", WIDTH)):
        axes[2].step(range(len(found[name])), found[name], where="mid", color=colour, label=name, linewidth=1.1)
    axes[2].set(xlabel="pass")
    axes[2].grid(alpha=0.2)
    axes[2].legend(fontsize=8, frameon=False, ncols=3)
