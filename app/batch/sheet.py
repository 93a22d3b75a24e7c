"""The contact sheet of a batch: every result above its input, on one picture or, if they are many, on several."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from app.batch.folder import Row
from app.runs.history import as_sentence
from engine import files
from engine.mesh.picture import View, pictures
from engine.mesh.read import read

COLUMNS, ROWS, CELL, TEXT, GAP = 8, 25, 128, 44, 10
PAPER, INK, EMPTY, WARNING = (16, 20, 26), (206, 214, 224), (38, 44, 54), (236, 160, 120)
LETTERS, LINES = 22, 3  # of the words below a cell
QUALITY = 88


def write(rows: Sequence[Row], root: Path) -> list[Path]:
    """Writes the pages into a batch's folder; returns their paths. Pages of an earlier start are replaced.

    Raises NotSupported where meshes cannot be drawn off screen, BadOutput if the disk refuses.
    """
    pages = [rows[at : at + COLUMNS * ROWS] for at in range(0, len(rows), COLUMNS * ROWS)]
    names = ["sheet.jpg"] if len(pages) == 1 else [f"sheet-{number}.jpg" for number in range(1, len(pages) + 1)]
    found = []
    with as_sentence(root):
        for name, page in zip(names, pages, strict=True):
            with files.whole_file(root / name) as part:
                drawn(page, cells(page, root)).save(part, "JPEG", quality=QUALITY, optimize=True)
            found.append(root / name)
        for old in (path for path in root.glob("sheet*.jpg") if path not in found):
            old.unlink()
    return found


def cells(rows: Sequence[Row], root: Path) -> list[Image.Image | None]:
    """The small picture of each row; None without a result."""
    paths = [root / row["file"] if row.get("file") else None for row in rows]
    meshes = [path for path in paths if path is not None and path.suffix != ".png"]
    shown = dict(zip(meshes, pictures([view(path) for path in meshes], CELL) if meshes else [], strict=True))
    return [None if path is None else opened(path) if path not in shown else Image.fromarray(shown[path]) for path in paths]


def opened(path: Path) -> Image.Image:
    """A picture as large as a cell."""
    with Image.open(path) as picture:
        return picture.convert("RGB").resize((CELL, CELL), Image.LANCZOS)


def view(path: Path) -> View:
    """A mesh as the sheet draws it: in the frame of the model."""
    found = read(path)
    if found.surface is None:
        return View(found.points)
    vertices, faces = found.surface
    return View(found.frame.to_model(vertices).astype(np.float32), faces)


def drawn(rows: Sequence[Row], pictures: Sequence[Image.Image | None]) -> Image.Image:
    """A page."""
    lines = -(-len(rows) // COLUMNS)
    across = min(COLUMNS, len(rows))
    page = Image.new("RGB", (across * (CELL + GAP) + GAP, lines * (CELL + TEXT + GAP) + GAP), PAPER)
    pen, font = ImageDraw.Draw(page), ImageFont.load_default(10)
    for i, (row, picture) in enumerate(zip(rows, pictures, strict=True)):
        at = (GAP + i % COLUMNS * (CELL + GAP), GAP + i // COLUMNS * (CELL + TEXT + GAP))
        write_cell(pen, font, page.paste, at, row, picture)
    return page


def write_cell(
    pen: ImageDraw.ImageDraw, font: ImageFont.ImageFont, paste: Callable, at: tuple[int, int], row: Row, picture: Image.Image | None
) -> None:
    """One result and its words, with its upper left corner at a place."""
    x, y = at
    if picture is not None:
        paste(picture, at)
    else:
        pen.rectangle((x, y, x + CELL - 1, y + CELL - 1), fill=EMPTY)
        reason = "no faces" if row["status"] == "done" else "failed"
        pen.text((x + 8, y + 8), reason, WARNING, font)
    words = f"{row['number']}  {row['input']}"
    pen.multiline_text((x, y + CELL + 4), "\n".join(textwrap.wrap(words, LETTERS)[:LINES]), INK, font, spacing=1)
