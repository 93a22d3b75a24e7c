"""Loads models for users of the library, by name or by folder, each once."""

from __future__ import annotations

import os
import threading
from typing import Any

from engine import backbones
from engine.backbones import resolve
from engine.core import Backbone
from engine.decoding.initializers import WINDOW
from engine.errors import NotSupported
from engine.machine import device_of

DTYPES = ("auto", "float32", "bfloat16")

Key = tuple[str, str | None, str, str, str]  # name, folder, device, dtype, weights


def load(
    name_or_folder: str | os.PathLike[str] = "pictogram", device: str = "auto", dtype: str = "auto", weights: str = "auto"
) -> Backbone:
    """A backbone by name or from a folder; the same arguments return the same object.

    device : "auto" (cuda where PyTorch sees it, else cpu), "cpu", "cuda" or another device of PyTorch
    dtype  : "auto", "float32" or "bfloat16"
    weights : of an imported checkpoint's linear layers: "auto" (as it was imported, else full), "full", "int8" or "nf4"

    Threads that load the same model wait for each other. A failure is not cached. A loaded model stays in memory until the process
    ends, and weights that change on disk are not read again; `engine.backbones.load` reads them each time.
    Raises NotSupported for an unknown name, device or dtype, MissingWeights for damaged or absent weights.
    """
    device = device_of(device)
    if dtype not in DTYPES:
        raise NotSupported(f"There is no dtype '{dtype}' here. Choose one of: {', '.join(DTYPES)}.")
    name, folder = resolve(name_or_folder)
    return _SHELF.get((name, folder, device, dtype, weights))


class BackboneStore:
    """Loaded backbones by key. Each is loaded once; loading one does not block access to the others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the dictionary of locks; not held while loading
        self._loading: dict[Key, threading.Lock] = {}
        self._loaded: dict[Key, Backbone] = {}

    def get(self, key: Key) -> Backbone:
        """The backbone of a key, loaded on first use."""
        with self._lock:
            turn = self._loading.setdefault(key, threading.Lock())
        with turn:
            if key not in self._loaded:
                backbone = backbones.load(*key)
                if backbone.device.type == "cuda":
                    backbone.warm_up(int(backbone.suits.get("sjdpp", {}).get("window", WINDOW.default)))
                self._loaded[key] = backbone
            return self._loaded[key]


_SHELF = BackboneStore()  # one per process; it owns the loaded backbones


def model_columns(backbone: Backbone) -> dict[str, Any]:
    """The columns that identify a model in a table: backbone, hash of its weights, dtype and device."""
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_hash,
        "dtype": backbone.precision,
        "device": str(backbone.device),
    }
