"""Loaded models for people who use the engine as a library: by name or by folder, and each of them once."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import torch

from engine import backbones
from engine.backbones import BACKBONES
from engine.core import Backbone
from engine.errors import NotSupported
from engine.networks.weights import read_card

DTYPES = ("auto", "float32", "bfloat16")
WITHOUT_CARD = "janus"  # a folder without a card.json is taken for a checkpoint in the form of transformers

Key = tuple[str, str | None, str, str]  # name, folder, device, dtype


def load(name_or_folder: str | os.PathLike[str] = "pictogram", device: str = "cpu", dtype: str = "auto") -> Backbone:
    """A backbone by its name, or the one in a folder; asked again, the same object.

    device : "cpu", "cuda" or another device of PyTorch
    dtype  : "auto", "float32" or "bfloat16"

    Threads that ask for the same model wait for one loading. A failure is not remembered. A loaded model stays in memory until the process
    ends, and weights that change on disk are not read again; `engine.backbones.load` reads them each time.
    Raises NotSupported for an unknown name, device or dtype, MissingWeights for damaged or absent weights.
    """
    check_device(device)
    if dtype not in DTYPES:
        raise NotSupported(f"There is no dtype '{dtype}' here. Choose one of: {', '.join(DTYPES)}.")
    name, folder = resolve(name_or_folder)
    return _SHELF.get((name, folder, device, dtype))


def resolve(name_or_folder: str | os.PathLike[str]) -> tuple[str, str | None]:
    """The name of a backbone, and its folder (None = the shipped weights); raises NotSupported if there is neither.

    A name goes before a folder of the same name: write ./pictogram for that one.
    """
    asked = os.fspath(name_or_folder)
    if asked in BACKBONES:
        return asked, None
    folder = Path(asked)
    if not folder.is_dir():
        raise NotSupported(f"'{asked}' is neither a backbone ({', '.join(BACKBONES)}) nor a folder of weights.")
    return named_in(folder), str(folder.resolve())


def named_in(folder: Path) -> str:
    """The backbone that a folder's card names; raises MissingWeights for a damaged card, NotSupported for one of another model."""
    if not (folder / "card.json").exists():
        return WITHOUT_CARD
    card = read_card(folder)
    name = card.get("name") if isinstance(card, dict) else None
    if not isinstance(name, str) or name not in BACKBONES:
        raise NotSupported(f"The card in {folder} names the model '{name}', which is no backbone. There are: {', '.join(BACKBONES)}.")
    return name


def check_device(device: str) -> None:
    """Raises NotSupported for a device that PyTorch does not know or does not see here."""
    try:
        kind = torch.device(device).type
    except RuntimeError as e:
        raise NotSupported(f"There is no device '{device}'. Choose cpu or cuda.") from e
    if kind == "cuda" and not torch.cuda.is_available():
        raise NotSupported("No CUDA device is visible to PyTorch here. Use the device cpu, or see: python launch.py doctor")


class Shelf:
    """Loaded backbones by their keys. Each is loaded once; others can be taken meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # of the two tables, held for no loading
        self._loading: dict[Key, threading.Lock] = {}
        self._loaded: dict[Key, Backbone] = {}

    def get(self, key: Key) -> Backbone:
        """The backbone of a key, loaded the first time."""
        with self._lock:
            turn = self._loading.setdefault(key, threading.Lock())
        with turn:
            if key not in self._loaded:
                name, folder, device, dtype = key
                self._loaded[key] = backbones.load(name, folder, device, dtype)
            return self._loaded[key]


_SHELF = Shelf()  # of this process; it owns what it loaded
