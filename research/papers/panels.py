"""Draws what is kept of single runs: histograms of drafts, and the model's distributions by place beside the picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from research.papers.declaration import Experiment
from research.papers.sheets import shown, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
SHADES, HATCHES = ("#222222", "#9db7c9", "#e3c9a8", "#c7c7c7"), ("", "///", "...", "xx")
MOST = 4  # runs in a figure of distributions


def histograms(asked: Experiment, rows: Sequence[Row], path: Path) -> None:
    """Draws how often a pass accepted 0, 1, 2, ... drafts, and how often the accepted draft was the 1st, 2nd, ... among its siblings."""
    from matplotlib.figure import Figure

    assert asked.runs is not None
    labels = [label for label in asked.drawing.rows or asked.runs.labels if any(row["label"] == label for row in rows)]
    sheet = Figure(figsize=(9.2, 3.6), dpi=150, layout="constrained")
    titles = {"lengths": "drafts accepted in a pass", "ranks": "place of the accepted draft among its siblings"}
    for axes, (column, title) in zip(sheet.subplots(1, 2), titles.items(), strict=True):
        bars(axes, {label: joined(rows, label, column) for label in labels}, int(column == "ranks"))
        axes.set(xlabel=title, ylabel="share")
        axes.legend(fontsize=8, frameon=False)
    sheet.suptitle(asked.title, fontsize=11, x=0.01, ha="left")
    write(sheet, path)


def joined(rows: Sequence[Row], label: str, column: str) -> list[int]:
    """Returns the kept numbers of all runs of a row."""
    return [value for row in rows if row["label"] == label for value in json.loads(row[column])]


def bars(axes: Axes, found: dict[str, list[int]], first: int) -> None:
    """Draws the shares of whole numbers from `first` on, the rows side by side."""
    last = max((max(values) for values in found.values() if values), default=first)
    for n, (label, values) in enumerate(found.items()):
        counts = np.bincount(np.array(values, int), minlength=last + 1)[first : last + 1]
        at = np.arange(first, last + 1) + 0.8 * ((n + 0.5) / len(found) - 0.5)
        style = {"color": SHADES[n % 4], "hatch": HATCHES[n % 4], "edgecolor": "#222222", "linewidth": 0.5}
        axes.bar(at, counts / max(1, counts.sum()), 0.8 / len(found), label=label, **style)
    axes.set_xticks(range(first, last + 1))
    axes.spines[["top", "right"]].set_visible(False)


def laws(asked: Experiment, rows: Sequence[Row], path: Path) -> None:
    """Draws for each run its picture, the map of the top-1 probability, and the greatest probabilities at the places a, b and c."""
    from matplotlib.figure import Figure

    some = rows[:MOST]
    sheet = Figure(figsize=(11.5, 2.5 * len(some) + 0.4), dpi=150, layout="constrained")
    grid = sheet.subplots(len(some), 5, squeeze=False, width_ratios=(1, 1.25, 1, 1, 1))
    for line, row in zip(grid, some, strict=True):
        kept = json.loads(row["laws"])
        side = round(len(kept["top"]) ** 0.5)
        line[0].imshow(shown(asked, row, path.with_suffix(".csv"))[0])
        line[0].set_title(row["prompt"], fontsize=8, loc="left")
        drawn = line[1].imshow(np.reshape(kept["top"], (side, side)), cmap="gray_r", vmin=0, vmax=1)
        line[1].set_title("top-1 probability", fontsize=8, loc="left")
        sheet.colorbar(drawn, ax=line[1], shrink=0.8).ax.tick_params(labelsize=7)
        for axes in line[:2]:
            axes.set_axis_off()
        for letter, axes, (place, found) in zip("abc", line[2:], kept["at"].items(), strict=True):
            y, x = divmod(int(place), side)
            box = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": "#222222", "linewidth": 0.6}
            line[1].text(x, y, letter, fontsize=7, ha="center", va="center", bbox=box)
            axes.bar(range(1, len(found) + 1), found, 1.0, color=SHADES[0])
            axes.set_title(f"{letter}: row {y + 1}, column {x + 1}, top {found[0]:.2f}", fontsize=8, loc="left")
            axes.set_xlabel("token, in order of probability", fontsize=7)
            axes.tick_params(labelsize=7)
            axes.spines[["top", "right"]].set_visible(False)
    sheet.suptitle(asked.title, fontsize=11, x=0.01, ha="left")
    write(sheet, path)


PANELS: dict[str, Callable[[Experiment, Sequence[Row], Path], None]] = {"histograms": histograms, "laws": laws}
