"""Contact sheets: pictures above their prompts, or meshes next to their inputs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from engine.errors import BadOutput
from engine.mesh import picture
from engine.mesh.picture import View
from research.bench.rows import check_file

COLUMNS, CELL, TEXT, GAP = 6, 192, 46, 14
PAIRS = 4  # cloud and mesh, per line of the sheet
CLOUD_POINTS = 2048  # points of a cloud


def pictures(results: Sequence[np.ndarray], texts: Sequence[str]) -> Image.Image:
    """Returns a sheet of pictures uint8 [H, W, 3] with their prompts."""
    rows = -(-len(results) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (CELL + GAP) + GAP, rows * (CELL + TEXT + GAP) + GAP), (16, 20, 26))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, (result, text) in enumerate(zip(results, texts, strict=True)):
        x, y = GAP + i % COLUMNS * (CELL + GAP), GAP + i // COLUMNS * (CELL + TEXT + GAP)
        sheet.paste(Image.fromarray(result).resize((CELL, CELL), Image.LANCZOS), (x, y))
        pen.multiline_text((x, y + CELL + 4), "\n".join(textwrap.wrap(text, 30)[:3]), (206, 214, 224), font, spacing=1)
    return sheet


def meshes(inputs: Sequence[tuple[str, np.ndarray]], results: Sequence[tuple[np.ndarray, np.ndarray]]) -> Image.Image:
    """Returns a sheet of named point clouds [N, 6] next to their meshes, vertices and faces."""
    views = []
    for (name, points), (vertices, faces) in zip(inputs, results, strict=True):
        views += [View(points[:CLOUD_POINTS], title=f"{name[:24]}: input"), View(vertices, faces, title=f"{len(faces)} faces")]
    lines = [views[i : i + 2 * PAIRS] for i in range(0, len(views), 2 * PAIRS)]
    drawn, titles = iter(picture.pictures(views, CELL)), [[view.title for view in line] for line in lines]
    return Image.fromarray(picture.sheet([[next(drawn) for _ in line] for line in lines], titles))


def check_sheet(path: Path | None) -> None:
    """Raises BadOutput if the file cannot be written or its name has no known image suffix."""
    if path is None:
        return
    kinds = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.SAVE}
    if path.suffix.lower() not in kinds:
        raise BadOutput(f"The file name {path.name} does not end in a known image format. Give --sheet a name that ends in .png or .jpg.")
    check_file(path, "--sheet")


def write_sheet(sheet: Image.Image, path: Path) -> None:
    """Saves a sheet in the image format of its file name; raises BadOutput if that is impossible."""
    try:
        sheet.save(path, optimize=True)
    except (OSError, ValueError) as e:  # ValueError: the format cannot hold such an image
        raise BadOutput(f"Cannot write {path} ({getattr(e, 'strerror', None) or e}). Choose another file with --sheet.") from e
