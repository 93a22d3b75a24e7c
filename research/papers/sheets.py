"""The figures that are more than axes over means: tables of pictures, and time by stage.

A table of pictures has a column for every row of the declaration and a line for every prompt or cloud.

Under each picture stand its speed-up over plain decoding and its passes. `sheet` shows the pictures; `maps` shows beside each how many
tokens each pass committed, dark where a pass committed many.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine.errors import BadFile, BadOutput
from research.papers.declaration import Experiment, Meshes
from research.papers.kept import PICTURE, picture_at
from research.papers.running import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]
CELL, GAP, LINE = 192, 10, 17  # pixels
MOST = 8  # lines of a sheet
INK, FAINT, PAPER = (34, 34, 34), (105, 105, 105), (255, 255, 255)
STAGES = {  # in the order of the algorithm: shade and hatching
    "draft": ("#1f5f8b", ""), "up-sample": ("#8a6d1d", ".."), "verify": ("#4f7a3a", "//"), "redraw": ("#b3541e", ""),
    "down-sample": ("#7a3f7a", "xx"), "other": ("#bbbbbb", ""),
}  # fmt: skip
Panel = Callable[[Experiment, Row, Path], list[np.ndarray]]


def shown(asked: Experiment, row: Row, path: Path) -> list[np.ndarray]:
    """Returns the picture of a row."""
    assert asked.runs is not None
    return [opened(picture_at(path, int(row["input"]), asked.runs.labels.index(row["label"])))]


def opened(path: Path) -> np.ndarray:
    """Returns a kept picture; raises BadFile if it is gone."""
    try:
        return np.asarray(Image.open(path).convert("RGB"))
    except OSError as e:
        raise BadFile(f"The picture {path} cannot be read ({e.strerror or e}). Move the CSV away and measure again.") from e


def mapped(asked: Experiment, row: Row, path: Path) -> list[np.ndarray]:
    """Returns the map of a row, after its picture if that was kept."""
    assert asked.runs is not None
    return [*(shown(asked, row, path) if PICTURE in asked.runs.keeps else []), shaded(json.loads(row["committed"]))]


def shaded(counts: Sequence[int]) -> np.ndarray:
    """Returns a square map uint8 [side, side, 3] of the tokens that were committed together: white for one, black for 32 or more.

    counts : of every position of a square picture, in raster order
    """
    side = round(len(counts) ** 0.5)
    grey = 255 - 255 * np.clip(np.log2(np.array(counts, float).reshape(side, side)) / 5, 0, 1)
    scale = -(-CELL // side)
    large = np.kron(grey.astype(np.uint8), np.ones((scale, scale), np.uint8))
    large[[0, -1]] = large[:, [0, -1]] = FAINT[0]
    return np.repeat(large[..., None], 3, 2)


def said(row: Row) -> str:
    """Returns what stands under a picture: its speed-up, if it is not plain decoding, and its passes."""
    faster, passes = number(row.get("speedup") or ""), number(row.get("forwards") or "")
    compression, tokens = number(row.get("step_compression") or ""), number(row.get("tokens") or "")
    if passes is None and compression and tokens:
        passes = tokens / compression
    counted = "" if passes is None else f"{passes:.0f} passes"
    return counted if row.get("method") == "ar" or faster is None else f"{faster:.2f}x  {counted}"


def table(asked: Experiment, rows: Sequence[Row], path: Path, panel: Panel) -> None:
    """Writes a sheet; raises BadOutput if it cannot be written. path : of the PNG; the CSV and its pictures have the same name"""
    assert asked.runs is not None
    labels = [label for label in asked.drawing.rows or asked.runs.labels if any(row["label"] == label for row in rows)]
    by = {(row["label"], int(row["input"])): row for row in rows}
    inputs = sorted({number for _, number in by})[:MOST]
    cells = {key: panel(asked, row, path.with_suffix(".csv")) for key, row in by.items() if key[0] in labels and key[1] in inputs}
    wide = max(len(each) for each in cells.values()) * (CELL + 2) - 2
    first = CELL if isinstance(asked.runs, Meshes) else 112
    heading = max(len(textwrap.wrap(label, wide // 7)) for label in labels) * LINE + 30
    size = first + 2 * GAP + len(labels) * (wide + GAP), heading + len(inputs) * (CELL + LINE + GAP) + GAP
    sheet = Image.new("RGB", size, PAPER)
    pen, font, bold = ImageDraw.Draw(sheet), ImageFont.load_default(12), ImageFont.load_default(14)
    legend = "; light: 1 token committed by a pass, dark: 32 or more together" if panel is mapped else ""
    pen.text((GAP, 6), asked.title + legend, INK, bold)
    for c, label in enumerate(labels):
        text = "\n".join(textwrap.wrap(label, wide // 7))
        pen.multiline_text((first + 2 * GAP + c * (wide + GAP), 28), text, INK, font, spacing=2)
    for r, which in enumerate(inputs):
        y = heading + r * (CELL + LINE + GAP)
        drawn = [(c, label) for c, label in enumerate(labels) if (label, which) in cells]  # a row may have been left out at first
        head(sheet, pen, font, asked, by[drawn[0][1], which], path, (GAP, y))
        for c, label in drawn:
            x = first + 2 * GAP + c * (wide + GAP)
            for i, picture in enumerate(cells[label, which]):
                sheet.paste(fitted(picture), (x + i * (CELL + 2), y))
            pen.text((x, y + CELL + 2), said(by[label, which]), FAINT, font)
    try:
        sheet.save(path, optimize=True)
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another folder with --to.") from e


def head(sheet: Image.Image, pen: Any, font: Any, asked: Experiment, row: Row, path: Path, place: tuple[int, int]) -> None:
    """Draws what begins a line: the prompt, or the cloud with its family."""
    x, y = place
    if isinstance(asked.runs, Meshes):
        sheet.paste(fitted(opened(picture_at(path.with_suffix(".csv"), int(row["input"]), -1))), place)
        pen.text((x, y + CELL + 2), row["family"], FAINT, font)
        return
    pen.multiline_text(place, "\n".join(textwrap.wrap(row["prompt"], 17)), INK, font, spacing=2)


def fitted(picture: np.ndarray) -> Image.Image:
    """Returns a picture at the size of a cell; a small one is enlarged without smoothing, so that its tokens or pixels show."""
    image = Image.fromarray(picture)
    return image.resize((CELL, CELL), Image.NEAREST if image.width < CELL else Image.LANCZOS)


def staged(asked: Experiment, rows: Sequence[Row], path: Path) -> None:
    """Writes the mean seconds of every row by stage of its algorithm as a bar; raises BadOutput if it cannot be written."""
    from matplotlib.figure import Figure

    assert asked.runs is not None
    by: dict[str, list[dict[str, float]]] = {}
    for row in rows:
        by.setdefault(row["label"], []).append(json.loads(row["stages"]))
    labels = [label for label in asked.drawing.rows or asked.runs.labels if label in by]
    names = [name for name in STAGES if any(name in each for label in labels for each in by[label])]
    sheet = Figure(figsize=(7.6, 1.8 + 0.42 * len(labels)), dpi=150, layout="constrained")
    axes = sheet.subplots()
    left = np.zeros(len(labels))
    for name in names:
        wide = np.array([np.mean([each.get(name, 0.0) for each in by[label]]) for label in labels])
        colour, hatch = STAGES[name]
        axes.barh(range(len(labels)), wide, left=left, label=name, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6)
        left += wide
    axes.set_yticks(range(len(labels)), labels, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("seconds a picture")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(asked.title, fontsize=11, loc="left")
    sheet.legend(fontsize=8, frameon=False, ncols=len(names), loc="outside lower center")
    write(sheet, path)


def write(sheet: Figure, path: Path) -> None:
    """Writes a figure as a PNG; raises BadOutput if it cannot be written."""
    try:
        sheet.savefig(path, format="png")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another folder with --to.") from e


SHEETS: dict[str, Callable[[Experiment, Sequence[Row], Path], None]] = {
    "sheet": lambda asked, rows, path: table(asked, rows, path, shown),
    "map": lambda asked, rows, path: table(asked, rows, path, mapped),
    "stages": staged,
}
