"""Reads names, shapes and types of checkpoints first, and values by name on demand: safetensors, and PyTorch files with its
restricted unpickler.

A folder may contain one weight file, or shards with an index. Every error is one sentence, and nothing in a file is executed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.checkpoints.torch_files import WouldRun, read_torch_file
from engine.errors import BadFile, MissingWeights, first_line
from engine.networks.card import read_json

SAFE = ".safetensors"
PICKLED = (".bin", ".pt", ".pth", ".ckpt")
OTHERS = {".gguf": "GGUF", ".onnx": "ONNX", ".h5": "Keras", ".msgpack": "Flax", ".npz": "NumPy", ".tar": "a tar archive"}
INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
WHOLE = ("model.safetensors", "pytorch_model.bin")  # names preferred over others in a folder
WRAPPERS = ("model", "state_dict", "module", "model_state_dict", "ema")  # keys that training scripts put around the tensors
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
AGAIN = "Download it again."
Shapes = Mapping[str, tuple[int, ...]]
MOST_SHARED = 4  # maximum size of all tensors of a file, in file sizes: tied weights share their values


@dataclass(frozen=True)
class TensorEntry:
    """A tensor of a checkpoint: its type, shape and file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    file: Path

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The size of the elements in bytes."""
        return self.count * self.dtype.itemsize


class Checkpoint:
    """The tensors of a file or folder. A context manager that keeps the files open until its exit.

    path : file or folder; files : with weights; entries : by name; config : config.json next to them, {} without one
    """

    def __init__(self, path: Path, files: list[Path], config: Mapping[str, Any]):
        self.path, self.files, self.config = path, files, config
        self.entries: dict[str, TensorEntry] = {}
        self._stack = ExitStack()
        self._readers: dict[Path, Any] = {}
        for file in files:
            entries = self._open(file)
            if twice := sorted(self.entries.keys() & entries.keys()):
                raise BadFile(f"{file.name} holds '{twice[0]}' again, which {self.entries[twice[0]].file.name} has. Name one of the files.")
            self.entries |= entries

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self._readers.clear()
        self._stack.close()

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes by name."""
        return {name: entry.shape for name, entry in self.entries.items()}

    @property
    def parameters(self) -> int:
        """The number of floating-point elements."""
        return sum(entry.count for entry in self.entries.values() if entry.dtype.is_floating_point)

    def read(self, name: str) -> Tensor:
        """A tensor in the file's dtype, memory-mapped, so it is read on use. Raises BadFile if the file is damaged there."""
        file = self.entries[name].file
        try:
            return self._readers[file](name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as e:
            raise bad_file(file, first_line(e)) from e

    def read_as(self, name: str, dtype: torch.dtype) -> Tensor:
        """A copy of a tensor in a dtype; raises MissingWeights if a number is not finite."""
        tensor = self.read(name).to(dtype, copy=True)
        if not torch.isfinite(tensor).all():
            raise MissingWeights(f"{self.path} is damaged: {name} holds numbers that are not finite. {AGAIN}")
        return tensor

    def need(self, expected: Shapes, model: str) -> None:
        """Raises MissingWeights if a tensor of a model is absent or has another shape. Other tensors are ignored."""
        need(self.path, self.shapes, expected, model)

    def _open(self, file: Path) -> dict[str, TensorEntry]:
        """The entries of one file, which stays open."""
        try:
            return self._open_safe(file) if file.suffix == SAFE else self._open_pickled(file)
        except WouldRun as e:
            raise BadFile(
                f"{file.name} is not read: its pickle names {str(e)[:80]}, which is no tensor and would run code. "
                "Nothing was executed. Ask its publisher for safetensors."
            ) from e
        except FileNotFoundError as e:
            raise MissingWeights(f"{file} is missing. Copy it here, or name another file.") from e
        except (SafetensorError, OSError, ValueError) as e:
            raise bad_file(file, first_line(e)) from e

    def _open_safe(self, file: Path) -> dict[str, TensorEntry]:
        reader = self._stack.enter_context(safe_open(file, "pt"))
        self._readers[file] = reader.get_tensor
        entries = {}
        for name in reader.keys():  # noqa: SIM118
            part = reader.get_slice(name)
            if part.get_dtype() not in DTYPES:
                raise ValueError(f"'{name}' has the type {part.get_dtype()}, which is not supported")
            entries[name] = TensorEntry(DTYPES[part.get_dtype()], tuple(part.get_shape()), file)
        return entries

    def _open_pickled(self, file: Path) -> dict[str, TensorEntry]:
        state = state_in(read_torch_file(file))
        if sum(each.nbytes for each in state.values()) > MOST_SHARED * file.stat().st_size:
            raise ValueError("its tensors have many more numbers than the file")
        self._readers[file] = state.__getitem__
        return {name: TensorEntry(each.dtype, tuple(each.shape), file) for name, each in state.items()}


def open_checkpoint(path: Path) -> Checkpoint:
    """The tensors of a file or folder, without their values; raises BadFile or MissingWeights."""
    if not path.exists():
        raise MissingWeights(f"There is no file or folder {path}. Check the path.")
    files = weights_in(path) if path.is_dir() else [check_weights_file(path)]
    return Checkpoint(path, files, configuration(path if path.is_dir() else path.parent))


def need(path: Path, shapes: Shapes, expected: Shapes, model: str) -> None:
    """Raises MissingWeights if one of the expected tensors of a model is absent or has another shape; other tensors are allowed."""
    if absent := [name for name in expected if name not in shapes]:
        raise MissingWeights(f"{path} lacks {len(absent):,} of the {len(expected):,} tensors of {model}, such as {absent[0]}. {AGAIN}")
    if (other := next((name for name, shape in expected.items() if tuple(shapes[name]) != tuple(shape)), None)) is not None:
        has, needs = list(shapes[other]), list(expected[other])
        raise MissingWeights(f"{other} in {path} has the shape {has}, and {model} needs {needs}. {AGAIN}")


def configuration(folder: Path) -> dict[str, Any]:
    """The content of config.json; {} if there is none."""
    return read_json(folder / "config.json", AGAIN) if (folder / "config.json").is_file() else {}


def weights_in(folder: Path) -> list[Path]:
    """The weight files in a folder: the shards of an index, or all files of the preferred kind; raises MissingWeights."""
    for name in INDEX:
        if (folder / name).is_file():
            return shards(folder / name)
    for name in WHOLE:
        if (folder / name).is_file():
            return [folder / name]
    for kinds in ((SAFE,), PICKLED):
        files = sorted(path for path in folder.iterdir() if path.suffix in kinds and path.is_file() and not path.name.startswith("."))
        if files:  # several files are shards without an index, or a model and its picture tokenizer; no name may occur in two of them
            return files
    other = next((path for path in sorted(folder.iterdir()) if path.suffix in OTHERS), None)
    if other is not None:
        check_weights_file(other)
    raise MissingWeights(f"{folder} holds no weights: neither safetensors nor PyTorch files. Give the folder that holds the checkpoint.")


def shards(index: Path) -> list[Path]:
    """The files that an index names; raises MissingWeights if some are missing."""
    places = read_json(index, AGAIN).get("weight_map")
    if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
        raise BadFile(f"{index.name} does not say which file holds which tensor. {AGAIN}")
    names = sorted(set(places.values()))
    strange = next((name for name in names if Path(name).name != name or "\\" in name or name in ("", ".", "..")), None)
    if strange is not None:
        raise BadFile(f"{index.name} names the file '{strange[:60]}', which is not next to it. {AGAIN}")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise MissingWeights(f"{index.parent} lacks {len(missing)} of {len(names)} shards, such as {missing[0]}. {AGAIN}")
    return [check_weights_file(index.parent / name) for name in names]


def check_weights_file(path: Path) -> Path:
    """The path of a weight file; raises BadFile for another kind of file."""
    if path.suffix == SAFE or path.suffix in PICKLED:
        return path
    kind = OTHERS.get(path.suffix)
    what = f"is a {kind} file" if kind and not kind.startswith("a ") else f"is {kind}" if kind else "is not a weights file"
    raise BadFile(f"{path.name} {what}; use {', '.join((SAFE, *PICKLED))}, or a folder that holds one.")


def bad_file(file: Path, reason: str) -> BadFile:
    """The error for a file that cannot be read."""
    return BadFile(f"{file.name} cannot be read ({reason}). {AGAIN}")


def state_in(tensors: Mapping[tuple[Any, ...], Tensor]) -> dict[str, Tensor]:
    """The tensors by name, without the wrappers of training scripts; raises ValueError if there are none.

    Inside a wrapper, such as {"model": ..., "optimizer": ...}, everything else is left out.
    """
    while tensors and (wrapper := next((w for w in WRAPPERS if any(keys[0] == w and len(keys) > 1 for keys in tensors)), None)) is not None:
        tensors = {keys[1:]: each for keys, each in tensors.items() if keys[0] == wrapper and len(keys) > 1}
    if not tensors or () in tensors:
        raise ValueError("it holds no tensors by name")
    return {".".join(map(str, keys)): each for keys, each in tensors.items()}


def names_of(checkpoint: Checkpoint) -> Iterator[str]:
    """The names in the order of the files, so that each file is read from its start to its end."""
    for file in checkpoint.files:
        yield from (name for name, entry in checkpoint.entries.items() if entry.file == file)
