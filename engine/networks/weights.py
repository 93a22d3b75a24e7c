"""Folders of shipped weights: compact safetensors, each file below 10 MB, and card.json with their origin.

Everything that is read is checked: every file against its hash on the card, every shape against the network; every number
must be finite. packing.py defines the storage of weights, card.py the card, and shipping.py writes folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from engine import assets
from engine.errors import MissingWeights
from engine.networks.card import check_hash, hash_of, need, read_card, read_json, refuse_stale
from engine.networks.initial import SkipInit
from engine.networks.packing import part_files, split, unpack
from engine.networks.shipping import ship

__all__ = [
    "MODELS", "build_network", "fill", "hash_of", "need", "part_files", "read_card", "read_json", "read_parts", "read_tensors",
    "refuse_stale", "ship", "split",
]  # fmt: skip

Network = TypeVar("Network", bound=nn.Module)
MODELS = assets.models()
REPEATED, MOST_REPEATED = ("layers", "blocks"), 256  # settings that count repeated parts
MOST_WIDE = 2**17
WORDS = (("kind", str), ("tied", bool), ("guided", bool))  # settings that are not sizes


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a weights file as float32; raises MissingWeights if the file is absent, damaged, not the one that its card describes, or
    holds numbers that are not finite."""
    if not path.exists():
        raise MissingWeights(f"The weights file {path} is missing. Restore it with git, or train it: python launch.py train.")
    try:
        check_hash(path)
        return unpack(load_file(str(path)))
    except (SafetensorError, OSError, ValueError) as e:
        raise MissingWeights(f"The weights file {path} is damaged ({e}). Restore it with git, or train it again.") from e


def read_parts(folder: Path, name: str, expected: int) -> tuple[dict[str, Tensor], list[Path]]:
    """All tensors of split weights, and their files; raises MissingWeights if a file is absent or damaged."""
    files = part_files(folder, name)
    if len(files) != expected:
        raise MissingWeights(f"{folder} holds {len(files)} of {expected} {name} files. Restore them with git, or train: launch.py train.")
    tensors: dict[str, Tensor] = {}
    for path in files:
        tensors |= read_tensors(path)
    return tensors, files


def fill(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Loads tensors; raises MissingWeights if names or shapes do not fit."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as e:
        first = str(e).splitlines()[1].strip() if "\n" in str(e) else str(e)
        raise MissingWeights(f"The weights in {path} belong to another model ({first}). Restore them with git.") from e


def build_network(make: Callable[..., Network], settings: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path) -> Network:
    """A network with the settings of a card and its weights; raises MissingWeights if the settings are impossible or the weights do not
    fit.

    It is first built on the meta device, because a damaged card may ask for terabytes.
    """
    try:
        for name, value in settings.items():
            check_size(name, value)
        with SkipInit(), torch.device("meta"):
            shapes = {name: tensor.shape for name, tensor in make(**settings).state_dict().items()}
    except (TypeError, ValueError, RuntimeError, ArithmeticError, AssertionError, LookupError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise MissingWeights(f"The card of {path} asks for an impossible network ({reason}). Restore it with git.") from e
    if shapes != (own := {name: tensor.shape for name, tensor in tensors.items()}):
        other = min(name for name in {*shapes, *own} if shapes.get(name) != own.get(name))
        raise MissingWeights(f"The weights in {path} belong to another model (see '{other}'). Restore them with git.")
    with SkipInit():
        network = make(**settings)
    fill(network, tensors, path)
    return network


def check_size(name: str, value: Any) -> None:
    """Raises ValueError for a setting that no network has. Repeated parts have a lower limit than widths."""
    if (name, type(value)) in WORDS:
        return
    limit = MOST_REPEATED if name in REPEATED else MOST_WIDE
    numbers = value if isinstance(value, list) else [value]
    if not numbers or not all(type(number) is int and 1 <= number <= limit for number in numbers) or len(numbers) > MOST_REPEATED:
        raise ValueError(f"{name} = {str(value)[:40]}")
