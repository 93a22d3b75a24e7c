"""Weights of trainings that are not good enough to ship, in assets/unfinished; `launch.py train keep` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from engine.assets import assets
from engine.networks.card import has_card, need, read_card
from engine.networks.weights import read_parts

FOLDER = assets() / "unfinished"
WEIGHTS = "weights"  # their files: weights-1.safetensors, ...


def kept(name: str) -> tuple[dict[str, Tensor], Mapping[str, Any]] | None:
    """Returns weights that `keep` wrote for a training, with their card (steps, minutes, curve); None if there are none."""
    folder = FOLDER / name
    if not folder.is_dir() or not has_card(folder):
        return None
    card = read_card(folder)
    return read_parts(folder, WEIGHTS, need(card, "files", int, folder))[0], card
