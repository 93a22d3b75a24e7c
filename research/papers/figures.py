"""Draws an experiment in one style: our numbers as filled marks with intervals, the paper's as hollow ones; readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.papers.declaration import NAMED, Arm, Experiment, Meshes, Point
from research.papers.panels import PANELS
from research.papers.results import Value, values_of
from research.papers.sheets import SHEETS, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Values = dict[str, dict[str, Value]]
MARKS, STROKES = "osD^vPX", ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (8, 3)))
SHADES = ("#111111", "#1f5f8b", "#b3541e", "#4f7a3a", "#7a3f7a", "#8a6d1d", "#5a5a5a")
PAPERS = {"color": "#777777", "markerfacecolor": "white", "linestyle": "none", "markersize": 7}


def draw(asked: Experiment, found: Sequence[dict[str, Any]], path: Path) -> None:
    """Writes the figure of stored rows as a PNG; raises BadOutput if it cannot be written."""
    from matplotlib.figure import Figure

    drawing = asked.drawing
    if own := (SHEETS | PANELS).get(drawing.kind):
        own(asked, found, path)
        return
    values = values_of(found)
    rows = [label for label in asked.drawing.rows or asked.runs.labels if label in values] if asked.runs else []
    if drawing.kind == "panels":
        sheet = panels(asked, values)
        write(sheet, path)
        return
    height = 1.5 + 0.34 * len(rows) if drawing.kind == "dots" else 4.6
    sheet = Figure(figsize=(7.6, max(height, 2.6)), dpi=150, layout="constrained")
    axes = sheet.subplots()
    DRAWN[drawing.kind](axes, asked, values, rows)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.25, linewidth=0.6)
    axes.set_title(asked.title, fontsize=11, loc="left")
    write(sheet, path)


def panels(asked: Experiment, values: Values) -> Figure:
    """Returns curves side by side: of each panel a metric over the values at the ends of its labels, the paper's numbers hollow."""
    from matplotlib.figure import Figure

    parts = asked.drawing.panels
    across = min(3, len(parts))
    down = -(-len(parts) // across)
    sheet = Figure(figsize=(3.4 * across, 0.5 + 2.7 * down), dpi=150, layout="constrained")
    sheet.suptitle(asked.title, fontsize=11, x=0.01, ha="left")
    for n, (title, metric, labels) in enumerate(parts):
        axes = sheet.add_subplot(down, across, n + 1)
        drawn = [label for label in labels if metric in values.get(label, {})]
        found = [values[label][metric] for label in drawn]
        reach = [[b[side][0] for b in (spans(v) or [[0], [0]] for v in found)] for side in (0, 1)]
        axes.errorbar(range(len(drawn)), [v.mean for v in found], yerr=reach, marker="o", capsize=2, color=SHADES[0])
        paper = [(x, asked.reported.get(label, {}).get(metric)) for x, label in enumerate(drawn)]
        for x, value in paper:
            axes.plot(x, value, "D", **PAPERS) if value is not None else None
        axes.set_xticks(range(len(drawn)), [label.split()[-1] for label in drawn])
        axes.set_xlabel(title, fontsize=9)
        axes.set_ylabel(wrapped(metric, 30), fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(True, alpha=0.25, linewidth=0.6)
    return sheet


def wrapped(metric: str, columns: int) -> str:
    """Returns the name of a metric for an axis that has room for so many columns."""
    return "\n".join(textwrap.wrap(NAMED[metric], columns))


def spans(value: Value) -> list[list[float]] | None:
    """Returns the lengths of an error bar, None without an interval."""
    return None if value.low != value.low else [[value.mean - value.low], [value.high - value.mean]]


def dots(axes: Axes, asked: Experiment, values: Values, rows: list[str]) -> None:
    """Draws a line of the table as a mark with its interval, the paper's number beside it."""
    metric = asked.drawing.y
    for at, label in enumerate(rows):
        value = values[label].get(metric)
        if value:
            axes.errorbar(value.mean, at, xerr=spans(value), fmt="o", color=SHADES[0], capsize=3)
        if (paper := asked.reported.get(label, {}).get(metric)) is not None:
            axes.plot(paper, at, "D", **PAPERS)
    axes.plot([], [], "o", color=SHADES[0], label="here")
    axes.plot([], [], "D", **PAPERS, label="the paper") if asked.reported else None
    axes.set_yticks(range(len(rows)), rows, fontsize=9)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_xlabel(wrapped(metric, 90))
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, borderaxespad=0.2)


def lines_of(asked: Experiment, rows: list[str]) -> dict[str, list[Arm | Point]]:
    """Returns the measured arms by line."""
    assert asked.runs is not None and not isinstance(asked.runs, Meshes)
    found: dict[str, list[Arm | Point]] = {}
    for arm in asked.runs.arms:
        if arm.label in rows:
            found.setdefault(arm.line, []).append(arm)
    return found


def curve(axes: Axes, asked: Experiment, values: Values, rows: list[str]) -> None:
    """Draws a line for every method over the swept value, its places evenly spaced."""
    lines, metric = lines_of(asked, rows), asked.drawing.y
    places = list(dict.fromkeys(arm.x for arms in lines.values() for arm in arms))
    for n, (line, arms) in enumerate(lines.items()):
        mine = [arm for arm in arms if metric in values[arm.label]]
        found = [values[arm.label][metric] for arm in mine]
        bars = [spans(v) or [[0], [0]] for v in found]
        reach = [[b[side][0] for b in bars] for side in (0, 1)]
        xs = [places.index(arm.x) + 0.04 * (n - (len(lines) - 1) / 2) for arm in mine]
        style = {"marker": MARKS[n % 7], "linestyle": STROKES[n % 7], "color": SHADES[n % 7]}
        axes.errorbar(xs, [v.mean for v in found], yerr=reach, capsize=2, label=line, **style)
        paper = [(x, asked.reported.get(arm.label, {}).get(metric)) for x, arm in zip(xs, mine, strict=True)]
        for x, value in paper:
            axes.plot(x, value, MARKS[n % 7], **PAPERS) if value is not None else None
    axes.plot([], [], "D", **PAPERS, label="the paper") if asked.reported else None
    names = [f"{x:g}" if isinstance(x, float | int) else str(x) for x in places]
    axes.set_xticks(range(len(places)), names, rotation=45 if len(places) > 10 else 0)
    axes.set(xlabel=asked.drawing.x, ylabel=wrapped(metric, 40))
    axes.legend(fontsize=8, frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=5, borderaxespad=0.2)


def plane(axes: Axes, asked: Experiment, values: Values, rows: list[str]) -> None:
    """Draws speed against quality, a line for every method; each point is named by its value."""
    x, y = asked.drawing.x, asked.drawing.y
    for n, (line, arms) in enumerate(lines_of(asked, rows).items()):
        mine = [arm for arm in arms if {x, y} <= {*values[arm.label]}]
        points = [(values[arm.label][x].mean, values[arm.label][y].mean) for arm in mine]
        style = {"marker": MARKS[n % 7], "linestyle": STROKES[n % 7], "color": SHADES[n % 7]}
        axes.plot([p[0] for p in points], [p[1] for p in points], label=line, markersize=6, **style)
        for arm, point in zip(mine, points, strict=True):
            axes.annotate(
                "" if arm.x is None else f"{arm.x:g}" if isinstance(arm.x, float) else arm.x,
                point,
                (5, (5, -12)[n % 2]),
                textcoords="offset points",
                fontsize=8,
                color="#333333",
            )
    axes.margins(0.1)
    axes.set(xlabel=wrapped(x, 70), ylabel=wrapped(y, 40))
    axes.legend(fontsize=8, frameon=False)


DRAWN: dict[str, Callable[[Axes, Experiment, Values, list[str]], None]] = {"dots": dots, "curve": curve, "plane": plane}
