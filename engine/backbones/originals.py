"""Weights as their authors published them: names and shapes first, tensors later, so that a wrong file is refused before it is read.

A checkpoint is one file, or all files of weights that lie in one folder (a decoder and its picture tokenizer, or shards). Nothing is
downloaded and nothing that is pickled is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch import Tensor

from engine.checkpoints.reading import Checkpoint, open_checkpoint
from engine.errors import MissingWeights

SAFE, PICKLED = (".safetensors",), (".pt", ".pth", ".bin", ".ckpt")
Shapes = Mapping[str, tuple[int, ...]]


class Originals:
    """The tensors of a checkpoint by name."""

    def __init__(self, path: Path, opened: list[Checkpoint]):
        self.path = path
        self._holder: dict[str, Checkpoint] = {}
        for found in opened:
            if twice := sorted(self._holder.keys() & found.entries.keys()):
                raise MissingWeights(f"{twice[0]} is in two files of {path}. Put the files of one model into a folder of their own.")
            self._holder |= dict.fromkeys(found.entries, found)
        self.shapes: Shapes = {name: tuple(found.entries[name].shape) for name, found in self._holder.items()}

    def need(self, expected: Shapes, model: str) -> None:
        """Raises MissingWeights if a tensor is absent or has another shape. Further tensors are ignored."""
        absent = [name for name in expected if name not in self.shapes]
        if absent:
            raise MissingWeights(
                f"{self.path} lacks {len(absent):,} of the {len(expected):,} tensors of {model}, such as {absent[0]}. Download it again."
            )
        other = next((name for name, shape in expected.items() if self.shapes[name] != tuple(shape)), None)
        if other is not None:
            shapes = f"the shape {list(self.shapes[other])}, and {model} needs {list(expected[other])}"
            raise MissingWeights(f"{other} in {self.path} has {shapes}. Download it again.")

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """A copy of one tensor; raises MissingWeights if a number is not finite."""
        tensor = self._holder[name].read(name).to(dtype, copy=True)
        if not torch.isfinite(tensor).all():
            raise MissingWeights(f"{self.path} is damaged: {name} holds numbers that are not finite. Download it again.")
        return tensor


@contextmanager
def originals(path: str | None, model: str, where: str, beside: str = "") -> Iterator[Originals]:
    """The checkpoint in a file or folder. model: its name; where: what to download, for the messages; beside: how the names of files
    begin that belong to a file in its folder.

    Raises MissingWeights if there is none, and what `open_checkpoint` raises for a damaged file.
    """
    if path is None:
        raise MissingWeights(f"{model} needs the file or the folder of its weights. Download {where} and name it.")
    with ExitStack() as stack:
        yield Originals(Path(path), [stack.enter_context(open_checkpoint(file)) for file in files_of(Path(path), where, beside)])


def files_of(path: Path, where: str, beside: str = "") -> list[Path]:
    """The files of weights at a path; raises MissingWeights if there are none. Where a folder has safetensors, the others are ignored."""
    if path.is_file():
        near = (
            sorted(file for file in path.parent.glob(f"{beside}*") if file.suffix in (*SAFE, *PICKLED) and file != path) if beside else []
        )
        return [path, *near]
    for endings in (SAFE, PICKLED):
        if found := sorted(file for file in path.glob("*") if file.suffix in endings):
            return found
    raise MissingWeights(f"{path} holds no weights. Name the file or the folder of a downloaded {where}.")


def count(shapes: Shapes, prefix: str) -> int:
    """How many numbered parts a name has: 1 + the largest number after the prefix, 0 without any."""
    return 1 + max((int(name.removeprefix(prefix).split(".")[0]) for name in shapes if name.startswith(prefix)), default=-1)
