"""The table of backbones. A new model is one file and one line here; real checkpoints are found by their folder."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import torch

from engine.core import Backbone
from engine.errors import MissingWeights, NotSupported
from engine.networks.weights import read_card

BACKBONES: dict[str, str] = {  # name: module with `load(path, device, dtype) -> Backbone`
    "toy": "engine.backbones.toy",
    "pictogram": "engine.backbones.pictogram",
    "lowpoly": "engine.backbones.lowpoly",
    "lowpoly_lora": "engine.backbones.lowpoly_lora",
    "janus": "engine.backbones.janus",
}


def resolve(name_or_path: str | os.PathLike[str]) -> tuple[str, str | None]:
    """The name of a backbone and the folder of its weights (None: the shipped ones), from a name or a folder.

    A folder says what it holds: by the name on its card, or, without a card, as a checkpoint of Janus. Raises NotSupported for what is
    neither a name nor a folder, or the folder of an unknown model; MissingWeights for a damaged card.
    """
    asked = os.fspath(name_or_path)
    if asked in BACKBONES:
        return asked, None
    if not os.path.isdir(asked):  # never raises, however long or odd the text is
        raise NotSupported(f"'{asked}' is neither a backbone ({', '.join(BACKBONES)}) nor a folder of weights.")
    folder = Path(asked)
    if not (folder / "card.json").exists():
        if not (folder / "config.json").exists():
            raise MissingWeights(f"{folder} holds neither card.json nor config.json. Give the folder of a model.")
        return "janus", asked
    name = read_card(folder).get("name")
    if not isinstance(name, str) or name not in BACKBONES:
        raise NotSupported(f"{folder / 'card.json'} is of a model named {name!r}. There are: {', '.join(BACKBONES)}.")
    return name, asked


def load(name_or_path: str | os.PathLike[str] = "pictogram", path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Backbone:
    """A backbone with its weights.

    name_or_path : a name of the table, or a folder of weights; path : the folder of a named backbone; dtype : auto, float32 or bfloat16.
    Raises NotSupported for an unknown name or a device that is not there, MissingWeights for damaged or absent weights.
    """
    if path is None:
        name_or_path, path = resolve(name_or_path)
    if name_or_path not in BACKBONES:
        raise NotSupported(f"There is no backbone '{name_or_path}'. There are: {', '.join(BACKBONES)}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise NotSupported("No CUDA device is visible to PyTorch here. Use --device cpu, or see: python launch.py doctor")
    return importlib.import_module(BACKBONES[name_or_path]).load(path, device, dtype)
