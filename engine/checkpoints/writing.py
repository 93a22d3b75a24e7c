"""Writes tensors as safetensors, one piece at a time: memory stays small however large a checkpoint is, and progress is known.

The format: the length of a header in 8 bytes, the header in JSON with the type, shape and place of every tensor, then the values.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.checkpoints.reading import DTYPES, TensorEntry

PIECE = 64 * 2**20  # bytes per write
SHARD = 4 * 10**9  # maximum bytes of a file, unless one tensor is larger
ALIGNED = 8
WRITTEN = {dtype: name for name, dtype in DTYPES.items()}
FORMAT = {"format": "pt"}  # transformers refuses files without it


def plan(entries: Mapping[str, TensorEntry], names: Sequence[str]) -> list[list[str]]:
    """The names in shards, in order, none larger than SHARD unless it is a single tensor."""
    shards: list[list[str]] = [[]]
    room = SHARD
    for name in names:
        size = entries[name].bytes
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD
        shards[-1].append(name)
        room -= size
    return shards


def write_shard(path: Path, entries: Mapping[str, TensorEntry], names: Sequence[str], read: Callable[[str], Tensor]) -> Iterator[int]:
    """Writes one file; yields the bytes of every piece that it has written."""
    header: dict[str, Any] = {"__metadata__": FORMAT}
    end = 0
    for name in names:
        entry = entries[name]
        header[name] = {"dtype": WRITTEN[entry.dtype], "shape": list(entry.shape), "data_offsets": [end, end + entry.bytes]}
        end += entry.bytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            if not entries[name].count:
                continue
            raw = read(name).contiguous().reshape(-1).view(torch.uint8).numpy()
            for start in range(0, len(raw), PIECE):
                yield file.write(memoryview(raw[start : start + PIECE]))


def index_of(shards: Mapping[str, Sequence[str]], total: int) -> str:
    """The text of model.safetensors.index.json. shards : names of tensors by the name of their file; total : bytes"""
    places = {name: file for file, names in shards.items() for name in names}
    return json.dumps({"metadata": {"total_size": total}, "weight_map": places}, indent=1) + "\n"
