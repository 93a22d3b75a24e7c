"""Folders of shipped weights: safetensors of few bytes, each file below 10 MB, and card.json that says where they come from.

Matrices are kept as eight-bit integers with a scale for each row (the last axis), which is exact to 0.4 % of a row's largest weight;
everything else, convolutions too, in half precision. Everybody who reads them gets float32.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from engine import assets
from engine.errors import MissingWeights

MODELS = assets.models()
FILE_LIMIT = 9_000_000  # bytes of one weights file
SCALE = ".scale"  # ends the name of the scales of a matrix of integers
LARGE = 4096  # elements; a smaller matrix stays in half precision


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a weights file as float32; raises MissingWeights if it is absent or damaged."""
    if not path.exists():
        raise MissingWeights(f"The weights file {path} is missing. Restore it with git, or train it: python launch.py train.")
    try:
        return unpacked(load_file(str(path)))
    except (SafetensorError, OSError, ValueError) as e:
        raise MissingWeights(f"The weights file {path} is damaged ({e}). Restore it with git, or train it again.") from e


def packed(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as they are stored: large matrices [..., R, C] as integers with scales [..., R, 1], all else in half precision."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.ndim in (2, 3) and tensor.numel() >= LARGE:
            scale = tensor.float().abs().amax(-1, keepdim=True).clamp(min=1e-12) / 127
            stored[name] = (tensor / scale).round().to(torch.int8)
            stored[name + SCALE] = scale
        else:
            stored[name] = tensor.half()
    return {k: v.contiguous().cpu() for k, v in stored.items()}


def unpacked(stored: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The float32 tensors of what `packed` made, or of any other file of tensors."""
    scales = {k + SCALE for k, v in stored.items() if v.dtype == torch.int8}
    return {k: (v * stored[k + SCALE] if k + SCALE in scales else v).float() for k, v in stored.items() if k not in scales}


def parts(folder: Path, name: str) -> list[Path]:
    """The files NAME-1.safetensors, NAME-2... that a model's weights are split into."""
    return sorted(folder.glob(f"{name}-*.safetensors"))


def read_parts(folder: Path, name: str, expected: int) -> tuple[dict[str, Tensor], list[Path]]:
    """All tensors of split weights, and their files; raises MissingWeights if a file is absent or damaged."""
    files = parts(folder, name)
    if len(files) != expected:
        raise MissingWeights(f"{folder} holds {len(files)} of {expected} {name} files. Restore them with git, or train: launch.py train.")
    tensors: dict[str, Tensor] = {}
    for path in files:
        tensors |= read_tensors(path)
    return tensors, files


def read_card(folder: Path) -> dict[str, Any]:
    """The card of a model folder; raises MissingWeights if it is absent or damaged."""
    path = folder / "card.json"
    if not path.exists():
        raise MissingWeights(f"{path} is missing; a model folder needs its card. Restore it with git.")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as e:
        raise MissingWeights(f"{path} is not JSON ({e}). Restore it with git.") from e


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Loads tensors; raises MissingWeights if names or shapes do not fit."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as e:
        first = str(e).splitlines()[1].strip() if "\n" in str(e) else str(e)
        raise MissingWeights(f"The weights in {path} belong to another model ({first}). Restore them with git.") from e


def hash_of(files: list[Path]) -> str:
    """A short checksum of weights files, for the record of a run."""
    found = hashlib.sha256()
    for path in files:
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def split(tensors: Mapping[str, Tensor], name: str) -> dict[str, dict[str, Tensor]]:
    """Weights shared out to files NAME-1.safetensors, NAME-2... so that each stays below the limit."""
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for key, tensor in tensors.items():
        if size + tensor.numel() * 2 > FILE_LIMIT and files[-1]:
            files.append({})
            size = 0
        files[-1][key] = tensor
        size += tensor.numel() * 2
    return {f"{name}-{i + 1}.safetensors": part for i, part in enumerate(files)}


def ship(folder: Path, files: Mapping[str, Mapping[str, Tensor]], card: dict[str, Any]) -> None:
    """Writes weights as `packed` stores them and adds to the card; parts of earlier, longer weights go."""
    folder.mkdir(parents=True, exist_ok=True)
    for stem in {name.rsplit("-", 1)[0] for name in files if "-" in name}:
        for stale in set(parts(folder, stem)) - {folder / name for name in files}:
            stale.unlink()
    for name, tensors in files.items():
        path = folder / name
        save_file(packed(tensors), str(path))
        path.chmod(0o644)
    path = folder / "card.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
