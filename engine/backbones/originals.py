"""Weights as their authors published them: names and shapes first, tensors later, so that a wrong file is refused before it is read.

A checkpoint is one file, or all files of weights that lie in one folder (a decoder and its picture tokenizer, or shards). Nothing is
downloaded and nothing that is pickled is executed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.checkpoints.reading import PICKLED, SAFE, Checkpoint, Shapes
from engine.errors import MissingWeights


@contextmanager
def originals(path: str | None, model: str, where: str, companion: str = "") -> Iterator[Checkpoint]:
    """The checkpoint in a file or folder. model: its name; where: what to download, for the messages; companion: how the names of files
    begin that belong to a file in its folder.

    Raises MissingWeights if there is none, and what Checkpoint raises for a damaged file.
    """
    if path is None:
        raise MissingWeights(f"{model} needs the file or the folder of its weights. Download {where} and name it.")
    with Checkpoint(Path(path), files_of(Path(path), where, companion), {}) as checkpoint:
        yield checkpoint


def files_of(path: Path, where: str, companion: str = "") -> list[Path]:
    """The files of weights at a path; raises MissingWeights if there are none. Where a folder has safetensors, the others are ignored."""
    if path.is_file():
        near = sorted(path.parent.glob(f"{companion}*")) if companion else []
        return [path, *(file for file in near if file.suffix in (SAFE, *PICKLED) and file != path)]
    for endings in ((SAFE,), PICKLED):
        if files := sorted(file for file in path.glob("*") if file.suffix in endings):
            return files
    raise MissingWeights(f"{path} holds no weights. Name the file or the folder of a downloaded {where}.")


def numbers_of(shapes: Shapes, prefixes: tuple[str, ...] = ("",)) -> int:
    """The number of elements in the tensors whose names begin with one of some prefixes."""
    return sum(math.prod(shape) for name, shape in shapes.items() if name.startswith(prefixes))
