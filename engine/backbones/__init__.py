"""The table of backbones. A new model is one file and one line here; real checkpoints are found by their folder."""

from __future__ import annotations

from engine.core import Backbone
from engine.errors import NotSupported

BACKBONES: dict[str, str] = {  # name: module with `load(path, device, dtype) -> Backbone`
    "toy": "engine.backbones.toy",
    "pictogram": "engine.backbones.pictogram",
    "lowpoly": "engine.backbones.lowpoly",
    "lowpoly_lora": "engine.backbones.lowpoly_lora",
    "janus": "engine.backbones.janus",
}


def load(name: str = "pictogram", path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Backbone:
    """A backbone with its weights; dtype: auto, float32 or bfloat16.

    Raises NotSupported for an unknown name, MissingWeights for damaged or absent weights.
    """
    import importlib

    if name not in BACKBONES:
        raise NotSupported(f"There is no backbone '{name}'. There are: {', '.join(BACKBONES)}.")
    return importlib.import_module(BACKBONES[name]).load(path, device, dtype)
