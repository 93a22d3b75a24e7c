"""The looks that a model folder holds: the tokens of each object alone, at each size and scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from engine.data.emoji_objects import names_of, plural
from engine.data.emoji_scenes import HUES
from engine.data.looks import Look
from engine.errors import MissingWeights
from engine.networks.card import check_hash

FILE = "looks.safetensors"


class LookTable:
    """Tokens of looks.

    names : "cat", "green car", ..., one for each row of the tables
    tables : tokens int16 [L, 2, n*n], before white and before black, for each size of an object, in pixels on the canvas of 128, and number
        of tokens along a picture's side
    """

    def __init__(self, names: Sequence[str], tables: Mapping[tuple[int, int], Tensor]):
        self.rows, self.tables = {name: i for i, name in enumerate(names)}, dict(tables)

    def __contains__(self, look: Look) -> bool:
        return said(look) in self.rows

    def tokens(self, look: Look, along: int) -> Tensor:
        """The tokens int64 [2, n*n] of a look in pictures with `along` tokens along their side."""
        return self.tables[look.side, along][self.rows[said(look)]].long()

    def words(self) -> set[str]:
        """Every word of a name of an object that has a look."""
        names = {name.split(" ", 1)[1] if name.split(" ")[0] in HUES else name for name in self.rows}
        return {word for name in names for said in names_of(name) for form in (said, plural(said)) for word in form.split()}

    def write(self, folder: Path) -> None:
        """Writes the table into a model folder."""
        save_file({f"{side}_{along}": tokens for (side, along), tokens in self.tables.items()}, str(folder / FILE))


def said(look: Look) -> str:
    """A look's name, with its colour if that is not its own."""
    return f"{look.colour} {look.name}".strip()


def read_looks(folder: Path, names: Sequence[str], vocabulary: int) -> LookTable:
    """Reads the table of a model folder; raises MissingWeights if it is absent, damaged or of another model."""
    path = folder / FILE
    try:
        check_hash(path)
        tables = {tuple(map(int, key.split("_"))): tokens for key, tokens in load_file(str(path)).items()}
        wrong = [key for key, tokens in tables.items() if len(tokens) != len(names) or not 0 <= tokens.min() <= tokens.max() < vocabulary]
        if wrong or not tables or any(tokens.dtype != torch.int16 for tokens in tables.values()):
            raise ValueError("it is of another model")
    except (SafetensorError, OSError, ValueError) as e:
        raise MissingWeights(f"The file {path} is damaged ({e}). Restore it with git, or train the decoder again.") from e
    return LookTable(names, tables)
