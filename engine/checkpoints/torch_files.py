"""Reads the tensors of torch.save files with PyTorch's restricted unpickler; their values are memory-mapped.

The unpickler builds tensors, containers and plain values, and refuses every other name before anything is imported or called. Values are
read when a tensor is used, so names and shapes can be checked first.
"""

from __future__ import annotations

import argparse
import re
import warnings
import zipfile
from pathlib import Path
from pickle import UnpicklingError
from struct import error as StructError
from typing import Any

import torch
from torch import Tensor

from engine.errors import first_line

HARMLESS = [argparse.Namespace]  # types that training scripts save with their tensors
DAMAGED = (
    UnpicklingError, StructError, zipfile.BadZipFile, RuntimeError, ValueError, TypeError, LookupError, AttributeError, EOFError,
    AssertionError, MemoryError, OverflowError, NotImplementedError,
)  # fmt: skip
NAMED = re.compile(r"(?:GLOBAL|class|function) ([\w.]+)")  # in the messages of the unpickler
REASON = re.compile(r"WeightsUnpickler error: ([^\n.]+)")
OLD = "it was not written by torch.save of PyTorch 1.6 or later; load it in PyTorch with weights_only=True and save it again"


class WouldRun(ValueError):
    """The pickle names something that is not a tensor; loading it with pickle would import and call it."""


def read_torch_file(path: Path) -> dict[tuple[Any, ...], Tensor]:
    """The tensors of a file by the keys that lead to them; raises ValueError for a damaged file, WouldRun for one that would run code."""
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":
            raise ValueError(OLD)
    try:
        lengths = _storages(path)
        with warnings.catch_warnings(), torch.serialization.safe_globals(HARMLESS):
            warnings.simplefilter("ignore")
            tensors = tensors_in(torch.load(path, map_location="cpu", mmap=True, weights_only=True))
    except DAMAGED as e:
        if not isinstance(e, UnpicklingError | LookupError | EOFError):
            raise ValueError(first_line(e)) from e
        if name := NAMED.search(str(e)):
            raise WouldRun(name[1]) from e
        reason = REASON.search(str(e))
        raise ValueError(f"its pickle is damaged{f': {reason[1]}' if reason else ''}") from e
    for tensor in tensors.values():
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise ValueError("it holds tensors that are sparse, quantized or without numbers")
        if (length := tensor.untyped_storage().nbytes()) and length not in lengths:
            raise ValueError(f"it has no storage of {length:,} bytes, which a tensor names")
    return tensors


def _storages(path: Path) -> set[int]:
    """The lengths of the storages, in bytes; raises ValueError for a compressed file, whose values cannot be mapped."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    if any(entry.filename.endswith("/constants.pkl") for entry in entries):
        raise ValueError("it is a TorchScript program, and only its code knows what its numbers mean")
    packed = next((each for each in entries if each.compress_type != zipfile.ZIP_STORED or each.compress_size != each.file_size), None)
    if packed is not None:
        raise ValueError(f"its entry {packed.filename[:60]} is compressed, which PyTorch never does")
    return {entry.file_size for entry in entries}


def tensors_in(tree: Any) -> dict[tuple[Any, ...], Tensor]:
    """All tensors of a tree by the keys that lead to them; each dict and list is entered once."""
    tensors: dict[tuple[Any, ...], Tensor] = {}
    seen: set[int] = set()
    left: list[tuple[tuple[Any, ...], Any]] = [((), tree)]
    while left:
        keys, value = left.pop()
        if isinstance(value, Tensor):
            tensors[keys] = value.detach()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            left += [((*keys, key), each) for key, each in inside if isinstance(each, Tensor | dict | list | tuple)]
    return tensors
