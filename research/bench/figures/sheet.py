"""`launch.py bench image --sheet FILE`: a contact sheet of held-out prompts, each picture above its prompt."""

from __future__ import annotations

import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from engine.core import Prompt
from engine.errors import BadOutput
from engine.methods import METHODS
from engine.run import generate
from research.bench.plan import ImageSheet
from research.bench.rows import check_file
from research.bench.speed import texts_of

COLUMNS, CELL, TEXT, GAP = 6, 192, 46, 14
METHOD = "sjdpp"


def draw(plan: ImageSheet) -> None:
    """Writes the sheet; picture i has seed i. Raises BadOutput if the file cannot be written, before anything is drawn."""
    check(plan.path)
    backbone = plan.load()
    prompts, sampling = texts_of(plan, backbone), plan.sampling_of(backbone)
    rows = -(-len(prompts) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * (CELL + GAP) + GAP, rows * (CELL + TEXT + GAP) + GAP), (16, 20, 26))
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for i, text in enumerate(prompts):
        picture = generate(backbone, METHODS[METHOD], Prompt(text, seed=i, size=plan.size, sampling=sampling)).finish().result()
        x, y = GAP + i % COLUMNS * (CELL + GAP), GAP + i // COLUMNS * (CELL + TEXT + GAP)
        sheet.paste(Image.fromarray(picture).resize((CELL, CELL), Image.LANCZOS), (x, y))
        pen.multiline_text((x, y + CELL + 4), "\n".join(textwrap.wrap(text, 30)[:3]), (206, 214, 224), font, spacing=1)
    write(sheet, plan.path)


def check(path: Path) -> None:
    """Raises BadOutput if the file cannot be written, or if its name does not end in a known image format."""
    kinds = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.SAVE}
    if path.suffix.lower() not in kinds:
        raise BadOutput(f"The file name {path.name} does not end in a known image format. Give --sheet a name that ends in .png or .jpg.")
    check_file(path, "--sheet")


def write(sheet: Image.Image, path: Path) -> None:
    """Saves a sheet in the image format of its file name; raises BadOutput if that is impossible."""
    try:
        sheet.save(path, optimize=True)
    except (OSError, ValueError) as e:  # ValueError: the format cannot hold such an image
        raise BadOutput(f"Cannot write {path} ({getattr(e, 'strerror', None) or e}). Choose another file with --sheet.") from e
