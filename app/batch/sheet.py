"""Contact sheet of a batch: each result with its input below, on one or more pages."""

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
LETTERS, LINES = 22, 3  # characters per line and lines of the text below a cell
QUALITY = 88


def write(rows: Sequence[Row], root: Path) -> list[Path]:
    """Writes the pages to a batch's folder, replacing earlier ones; returns their paths.

    Raises NotSupported where meshes cannot be drawn off screen, BadOutput if a page cannot be written.
    """
    pages = [rows[at : at + COLUMNS * ROWS] for at in range(0, len(rows), COLUMNS * ROWS)]
    names = ["sheet.jpg"] if len(pages) == 1 else [f"sheet-{number}.jpg" for number in range(1, len(pages) + 1)]
    paths = []
    with as_sentence(root):
        for name, page in zip(names, pages, strict=True):
            with files.whole_file(root / name) as part:
                draw_page(page, cells(page, root)).save(part, "JPEG", quality=QUALITY, optimize=True)
            paths.append(root / name)
        for old in (path for path in root.glob("sheet*.jpg") if path not in paths):
            old.unlink()
    return paths


def cells(rows: Sequence[Row], root: Path) -> list[Image.Image | None]:
    """Thumbnail of each row; None without a result."""
    paths = [root / row["file"] if row.get("file") else None for row in rows]
    meshes = [path for path in paths if path is not None and path.suffix != ".png"]
    renderings = dict(zip(meshes, pictures([view(path) for path in meshes], CELL) if meshes else [], strict=True))
    return [None if path is None else read_cell(path) if path not in renderings else Image.fromarray(renderings[path]) for path in paths]


def read_cell(path: Path) -> Image.Image:
    """A picture, resized to a cell."""
    with Image.open(path) as picture:
        return picture.convert("RGB").resize((CELL, CELL), Image.LANCZOS)


def view(path: Path) -> View:
    """A mesh in the frame of the model."""
    shape = read(path)
    if shape.surface is None:
        return View(shape.points)
    vertices, faces = shape.surface
    return View(shape.frame.to_model(vertices).astype(np.float32), faces)


def draw_page(rows: Sequence[Row], pictures: Sequence[Image.Image | None]) -> Image.Image:
    """One page of the sheet."""
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
    """Draws one result and its text. at : its upper left corner in pixels"""
    x, y = at
    if picture is not None:
        paste(picture, at)
    else:
        pen.rectangle((x, y, x + CELL - 1, y + CELL - 1), fill=EMPTY)
        reason = "no faces" if row["status"] == "done" else "failed"
        pen.text((x + 8, y + 8), reason, WARNING, font)
    words = f"{row['number']}  {row['input']}"
    pen.multiline_text((x, y + CELL + 4), "\n".join(textwrap.wrap(words, LETTERS)[:LINES]), INK, font, spacing=1)
