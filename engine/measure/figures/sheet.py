"""`launch.py bench image --sheet FILE`: a contact sheet of held-out prompts, each picture above its prompt."""

from __future__ import annotations

import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from engine.core import Backbone, Prompt, Sampling
from engine.errors import BadOutput
from engine.methods import METHODS
from engine.run import generate

COLUMNS, CELL, TEXT, GAP = 6, 192, 46, 14
METHOD = "sjdpp"


def draw(backbone: Backbone, prompts: list[str], path: Path, size: int | None, sampling: Sampling) -> None:
    """Writes the sheet as a PNG; picture i has seed i. Raises BadOutput if the file cannot be written."""
    rows = -(-len(prompts) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (CELL + GAP) + GAP, rows * (CELL + TEXT + GAP) + GAP), (16, 20, 26))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, text in enumerate(prompts):
        picture = generate(backbone, METHODS[METHOD], Prompt(text, seed=i, size=size, sampling=sampling)).finish().result()
        x, y = GAP + i % COLUMNS * (CELL + GAP), GAP + i // COLUMNS * (CELL + TEXT + GAP)
        sheet.paste(Image.fromarray(picture).resize((CELL, CELL), Image.LANCZOS), (x, y))
        pen.multiline_text((x, y + CELL + 4), "\n".join(textwrap.wrap(text, 30)[:3]), (206, 214, 224), font, spacing=1)
    try:
        sheet.save(path, optimize=True)
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another file with --sheet.") from e
