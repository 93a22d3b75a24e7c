"""The figure of `bench`: speed over quality, a point per row; a line joins the rows of one method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from engine.errors import BadOutput, NotSupported
from research.bench.rows import Row, check_file

QUALITY = {  # label of the axis by column; the first column that a row has counts
    "mean_deviation": "mean total variation distance from the model's distribution",
    "log_probability": "mean log probability of a token",
    "chamfer_over_floor": "distance from the input, times its floor",
}


def need_matplotlib() -> None:
    """Raises NotSupported without matplotlib. Called before anything is measured."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as e:
        raise NotSupported(f"Figures need matplotlib, which is not installed ({e}). Install it: pip install 'foretoken[research]'.") from e


def check_figure(path: Path | None) -> None:
    """Raises NotSupported without matplotlib, BadOutput if the file cannot be written."""
    if path is None:
        return
    need_matplotlib()
    check_file(path, "--figure")


def points_of(rows: Sequence[Row]) -> tuple[str, dict[str, list[tuple[str, float, float]]]]:
    """Returns the quality column, and the label, quality and speed-up of each row by method. An exact row has deviation 0."""
    timed = [row for row in rows if row.get("speedup")]
    column = next(name for name in QUALITY if any(row.get(name) is not None for row in timed))
    lines: dict[str, list[tuple[str, float, float]]] = {}
    for row in timed:
        value = row.get(column, 0.0 if column == "mean_deviation" and row["exact"] else None)
        label = str(row.get("row") or row["method"])
        if value is not None:
            lines.setdefault(label.split()[0], []).append((label, float(np.ravel(value)[0]), row["speedup"][0]))
    return column, lines


def plot(rows: Sequence[Row], path: Path) -> None:
    """Writes a PNG; raises BadOutput if it cannot be written."""
    from matplotlib.figure import Figure

    column, lines = points_of(rows)
    sheet = Figure(figsize=(7.2, 4.6), dpi=160, layout="constrained")
    axes = sheet.subplots()
    for name, points in lines.items():
        axes.plot([x for _, x, _ in points], [y for _, _, y in points], "o-", label=name, markersize=4)
        for label, x, y in points:
            axes.annotate(label.removeprefix(name).strip(), (x, y), (4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel=QUALITY[column], ylabel="times as fast as plain decoding")
    axes.margins(0.1)
    axes.grid(True, alpha=0.2)
    axes.legend(fontsize=8, frameon=False)
    try:
        sheet.savefig(path, format="png")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another file with --figure.") from e
