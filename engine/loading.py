"""Loads models for users of the library, by name or by folder, each once."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from typing import Any

from engine import backbones
from engine.backbones import resolve
from engine.core import Backbone
from engine.decoding.initializers import WINDOW
from engine.errors import NotSupported, TooLittleMemory
from engine.machine import device_of

DTYPES = ("auto", "float32", "bfloat16")

LOG = logging.getLogger(__name__)

Key = tuple[str, str | None, str, str, str]  # name, folder, device, dtype, weights


def load(
    name_or_folder: str | os.PathLike[str] = "pictogram", device: str = "auto", dtype: str = "auto", weights: str = "auto"
) -> Backbone:
    """A backbone by name or from a folder; the same arguments return the same object.

    device : "auto" (cuda where PyTorch sees it, else cpu), "cpu", "cuda" or another device of PyTorch
    dtype  : "auto", "float32" or "bfloat16"
    weights : of an imported checkpoint's linear layers: "auto" (as it was imported, else full), "full", "int8" or "nf4"

    Threads that load the same model wait for each other. A failure is not cached. A loaded model stays in memory until another
    one needs its place and nothing refers to it. Weights that change on disk are not read again; `engine.backbones.load` reads them each
    time.
    Raises NotSupported for an unknown name, device or dtype, MissingWeights for damaged or absent weights.
    """
    device = device_of(device)
    if dtype not in DTYPES:
        raise NotSupported(f"There is no dtype '{dtype}' here. Choose one of: {', '.join(DTYPES)}.")
    name, folder = resolve(name_or_folder)
    return _SHELF.get((name, folder, device, dtype, weights))


class BackboneStore:
    """Loaded backbones by key. Each is loaded once; loading one does not block access to the others.

    If one does not fit into memory, the others make room: the least recently used first, and only while nothing else refers to them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards both dictionaries; not held while loading
        self._loading: dict[Key, threading.Lock] = {}
        self._loaded: dict[Key, Backbone] = {}  # the least recently used first

    def get(self, key: Key) -> Backbone:
        """The backbone of a key, loaded on first use."""
        with self._lock:
            turn = self._loading.setdefault(key, threading.Lock())
        with turn:
            with self._lock:
                backbone = self._loaded.get(key)
            backbone = backbone or self._load(key)
            with self._lock:
                self._loaded.pop(key, None)
                self._loaded[key] = backbone  # now the most recently used
            return backbone

    def _load(self, key: Key) -> Backbone:
        while True:
            try:
                backbone = backbones.load(*key)
            except TooLittleMemory:
                if not self._unload_one():
                    raise
                continue
            if backbone.device.type == "cuda":
                backbone.warm_up(int(backbone.suits.get("sjdpp", {}).get("window", WINDOW.default)))
            return backbone

    def _unload_one(self) -> bool:
        """Unloads the least recently used backbone that is idle, and logs it; returns whether there was one."""
        with self._lock:
            for key in list(self._loaded):
                watched = weakref.ref(self._loaded.pop(key))
                gc.collect()  # a backbone may be part of a cycle
                backbone = watched()
                if backbone is None:
                    LOG.warning("%s was unloaded to make room for another model; it is loaded again when it is next used.", key[0])
                    return True
                self._loaded[key] = backbone  # somebody uses it
        return False


_SHELF = BackboneStore()  # one per process; it owns the loaded backbones


def model_columns(backbone: Backbone) -> dict[str, Any]:
    """The columns that identify a model in a table: backbone, hash of its weights, dtype and device."""
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_hash,
        "dtype": backbone.precision,
        "device": str(backbone.device),
    }
