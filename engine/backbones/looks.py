"""The looks that a model folder holds: a picture of each object, and its tokens at a size, at a scale and before a background."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from engine.errors import MissingWeights
from engine.networks.card import check_hash
from engine.words.emoji_objects import OBJECTS, names_of, plural
from engine.words.looks import TILE, Look, look_pixels, recolour

FILE = "looks.webp"
COLUMNS = 16  # tiles in a row of the sheet
PLAIN_ONES = ("white", "black")  # backgrounds of a look besides that of its caption
Encode = Callable[[np.ndarray], Tensor]  # pictures uint8 [N, h, w, 3] -> tokens int64 [N, h / 8, w / 8]


class Looks:
    """Pictures of objects, RGBA, TILE pixels a side, by name."""

    def __init__(self, pictures: dict[str, Image.Image]):
        self.pictures = pictures
        self._found: dict[tuple[Look, int, str], Tensor] = {}

    def __contains__(self, look: Look) -> bool:
        return look.name in self.pictures

    def picture_of(self, look: Look) -> Image.Image:
        """The picture of an object in its colour, RGBA, TILE pixels a side."""
        own = self.pictures[look.name]
        return recolour(own, look.colour) if look.colour else own

    def tokens(self, looks: Sequence[tuple[Look, str]], along: int, encode: Encode) -> Tensor:
        """Returns the tokens int64 [L, 3, n*n] of L looks of one size, each drawn on its background ("": white), on white and on black.

        along : tokens along the side of the whole picture
        """
        wanted = dict.fromkeys((look, along, place) for look, background in looks for place in backgrounds_of(background))
        missing = [key for key in wanted if key not in self._found]
        if missing:
            pictures = [look_pixels(self.picture_of(look), look.side, along, place) for look, _, place in missing]
            self._found |= dict(zip(missing, encode(np.stack(pictures)).flatten(1).short(), strict=True))
        return torch.stack(
            [torch.stack([self._found[look, along, each] for each in backgrounds_of(place)]) for look, place in looks]
        ).long()

    def words(self) -> set[str]:
        """All words in the names of objects that have a look."""
        return {word for name in self.pictures for each in names_of(name) for form in (each, plural(each)) for word in form.split()}

    def write(self, folder: Path) -> None:
        """Writes the sheet into a model folder."""
        rows = -(-len(self.pictures) // COLUMNS)
        sheet = Image.new("RGBA", (COLUMNS * TILE, rows * TILE))
        for i, picture in enumerate(self.pictures.values()):
            sheet.paste(picture, (i % COLUMNS * TILE, i // COLUMNS * TILE))
        sheet.save(folder / FILE, lossless=True, exact=False)


def backgrounds_of(place: str) -> tuple[str, str, str]:
    """The backgrounds of a look in a caption that says `place`."""
    return (place or PLAIN_ONES[0], *PLAIN_ONES)


def read_looks(folder: Path, names: Sequence[str]) -> Looks:
    """Reads the sheet of a model folder; raises MissingWeights if it is absent or damaged."""
    path = folder / FILE
    try:
        check_hash(path)
        with Image.open(path, formats=("WEBP",)) as sheet:
            if sheet.size != (COLUMNS * TILE, -(-len(names) // COLUMNS) * TILE):
                raise ValueError(f"it has {sheet.width} x {sheet.height} pixels")
            pixels = sheet.convert("RGBA")
    except (OSError, ValueError, UnidentifiedImageError, Image.DecompressionBombError) as e:
        raise MissingWeights(f"The file {path} is missing or damaged ({e}). Restore it with git, or train the decoder again.") from e
    corners = [(i % COLUMNS * TILE, i // COLUMNS * TILE) for i in range(len(names))]
    tiles = {name: pixels.crop((x, y, x + TILE, y + TILE)) for name, (x, y) in zip(names, corners, strict=True)}
    return Looks({name: tile for name, tile in tiles.items() if name in OBJECTS})  # older sheets hold objects in other colours, too
