"""Draws experiments in one style, readable without colour: our numbers as filled marks with intervals, the paper's as hollow marks."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import BadOutput
from research.papers.declaration import NAMED, Experiment, Meshes
from research.papers.results import Value, values_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = dict[str, dict[str, Value]]
MARKS, STROKES = "osD^vPX", ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
SHADES = ("#111111", "#1f5f8b", "#b3541e", "#4f7a3a", "#7a3f7a", "#8a6d1d", "#5a5a5a")
REPORTED = {"color": "#777777", "markerfacecolor": "white", "linestyle": "none", "markersize": 7}


def draw(experiment: Experiment, rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes the figure of stored rows as a PNG; raises BadOutput if it cannot be written."""
    from matplotlib.figure import Figure

    drawing, values = experiment.drawing, values_of(rows)
    labels = [label for label in (experiment.runs.labels if experiment.runs else ()) if label in values]
    height = max(2.6, 1.5 + 0.34 * len(labels)) if drawing.kind == "dots" else 4.6
    sheet = Figure(figsize=(7.6, height), dpi=150, layout="constrained")
    axes = sheet.subplots()
    {"dots": dots, "curve": curve, "plane": plane}[drawing.kind](axes, experiment, values, drawing.y, labels)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25, linewidth=0.6)
    sheet.suptitle(experiment.title, fontsize=11, x=0.01, ha="left")
    try:
        sheet.savefig(path, format="png")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another folder with --out.") from e


def wrap_name(metric: str, columns: int) -> str:
    """Returns the name of a metric, wrapped to `columns` characters."""
    return "\n".join(textwrap.wrap(NAMED[metric], columns))


def bars(values: Sequence[Value]) -> list[list[float]]:
    """Returns the lengths of error bars, below and above; 0 without an interval."""
    low, high = ([v.mean if v.low != v.low else end for v in values for end in [getattr(v, side)]] for side in ("low", "high"))
    return [[v.mean - x for v, x in zip(values, low, strict=True)], [x - v.mean for v, x in zip(values, high, strict=True)]]


def draw_reported(axes: Axes, points: Iterable[tuple[float, float | None]], mark: str) -> None:
    """Draws the paper's numbers."""
    for x, y in points:
        if y is not None:
            axes.plot(x, y, mark, **REPORTED)


def dots(axes: Axes, experiment: Experiment, values: Values, metric: str, labels: Sequence[str]) -> None:
    """Draws each row as a mark with its interval, and the paper's number on the same line."""
    for at, label in enumerate(labels):
        if value := values[label].get(metric):
            axes.errorbar(value.mean, at, xerr=bars([value]), fmt="o", color=SHADES[0], capsize=3)
        if (paper := experiment.reported.get(label, {}).get(metric)) is not None:
            axes.plot(paper, at, "D", **REPORTED)
    axes.plot([], [], "o", color=SHADES[0], label="here")
    axes.plot([], [], "D", **REPORTED, label="the paper") if experiment.reported else None
    axes.set_yticks(range(len(labels)), labels, fontsize=9)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel(wrap_name(metric, 90))
    axes.legend(fontsize=8, frameon=False)


def lines_of(experiment: Experiment, labels: Sequence[str]) -> dict[str, list[Any]]:
    """Returns the measured arms by line."""
    assert experiment.runs is not None and not isinstance(experiment.runs, Meshes)
    lines: dict[str, list[Any]] = {}
    for arm in experiment.runs.arms:
        if arm.label in labels:
            lines.setdefault(arm.line, []).append(arm)
    return lines


def curve(axes: Axes, experiment: Experiment, values: Values, metric: str, labels: Sequence[str]) -> None:
    """Draws a line per method over the swept values, which are evenly spaced."""
    lines = lines_of(experiment, labels)
    places = list(dict.fromkeys(arm.x for arms in lines.values() for arm in arms))
    for n, (line, arms) in enumerate(lines.items()):
        mine = [arm for arm in arms if metric in values[arm.label]]
        means = [values[arm.label][metric] for arm in mine]
        xs = [places.index(arm.x) + 0.04 * (n - (len(lines) - 1) / 2) for arm in mine]
        axes.errorbar(xs, [v.mean for v in means], yerr=bars(means), capsize=2, label=line, **style(n))
        draw_reported(
            axes, ((x, experiment.reported.get(arm.label, {}).get(metric)) for x, arm in zip(xs, mine, strict=True)), MARKS[n % 7]
        )
    names = [f"{x:g}" if isinstance(x, float | int) else str(x) for x in places]
    axes.set_xticks(range(len(places)), names, rotation=45 if len(places) > 10 else 0)
    axes.set(xlabel=experiment.drawing.x, ylabel=wrap_name(metric, 40))
    axes.legend(fontsize=8, frameon=False)


def plane(axes: Axes, experiment: Experiment, values: Values, metric: str, labels: Sequence[str]) -> None:
    """Draws one metric over another, a line per method; each point is labelled with its swept value."""
    across = experiment.drawing.x
    for n, (line, arms) in enumerate(lines_of(experiment, labels).items()):
        mine = [arm for arm in arms if {across, metric} <= {*values[arm.label]}]
        points = [(values[arm.label][across].mean, values[arm.label][metric].mean) for arm in mine]
        axes.plot([x for x, _ in points], [y for _, y in points], label=line, markersize=6, **style(n))
        for arm, point in zip(mine, points, strict=True):
            text = "" if arm.x is None else f"{arm.x:g}" if isinstance(arm.x, float) else arm.x
            axes.annotate(text, point, (5, (5, -12)[n % 2]), textcoords="offset points", fontsize=8, color="#333333")
    axes.margins(0.1)
    axes.set(xlabel=wrap_name(across, 70), ylabel=wrap_name(metric, 40))
    axes.legend(fontsize=8, frameon=False)


def style(n: int) -> dict[str, Any]:
    """Returns mark, stroke and shade of line `n`."""
    return {"marker": MARKS[n % 7], "linestyle": STROKES[n % 7], "color": SHADES[n % 7]}
