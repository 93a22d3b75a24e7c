"""The table of backbones. A new model is one file and one line here. Checkpoints from elsewhere are found by their folder."""

from __future__ import annotations

import importlib
import os
from pathlib import Path

import torch

from engine.core import Backbone
from engine.errors import NotSupported
from engine.networks.weights import read_card

BACKBONES: dict[str, str] = {  # name: module with `load(path, device, dtype) -> Backbone`
    "toy": "engine.backbones.toy",
    "pictogram": "engine.backbones.pictogram",
    "lowpoly": "engine.backbones.lowpoly",
    "lowpoly_lora": "engine.backbones.lowpoly_lora",
    "janus": "engine.backbones.janus",
    "emu3": "engine.backbones.emu3",
    "bpt": "engine.backbones.bpt",
    "llamagen": "engine.backbones.llamagen",
}
WITHOUT_CARD = "janus"  # what a folder without a card.json is taken for: a checkpoint of transformers


def resolve(name_or_folder: str | os.PathLike[str]) -> tuple[str, str | None]:
    """The name of a backbone, and its folder (None = the shipped weights), for a NAME|PATH argument.

    A name wins over a folder of the same name: write ./pictogram for the folder. A folder is identified by its card; without a card
    it is a checkpoint of Janus. Raises NotSupported if the text is neither a name nor a folder, or if the folder holds an unknown model,
    and MissingWeights for a damaged card.
    """
    asked = os.fspath(name_or_folder)
    if asked in BACKBONES:
        return asked, None
    if not os.path.isdir(asked):  # never raises, however long or odd the text is
        raise NotSupported(f"'{asked}' is neither a backbone ({', '.join(BACKBONES)}) nor a folder of weights.")
    folder = Path(asked)
    return named_in(folder), str(folder.resolve())


def named_in(folder: Path) -> str:
    """The backbone that a folder's card names; raises MissingWeights for a damaged card, NotSupported for one of another model."""
    if not (folder / "card.json").exists():
        return WITHOUT_CARD
    card = read_card(folder)
    name = card.get("name") if isinstance(card, dict) else None
    if not isinstance(name, str) or name not in BACKBONES:
        raise NotSupported(f"The card in {folder} names the model '{name}', which is not a backbone. There are: {', '.join(BACKBONES)}.")
    return name


def check_device(device: str) -> None:
    """Raises NotSupported for a device that PyTorch does not know or cannot find here."""
    try:
        kind = torch.device(device).type
    except RuntimeError as e:
        raise NotSupported(f"There is no device '{device}'. Choose cpu or cuda.") from e
    if kind == "cuda" and not torch.cuda.is_available():
        raise NotSupported("No CUDA device is visible to PyTorch here. Use the device cpu, or see: python launch.py doctor")


def load(
    name_or_folder: str | os.PathLike[str] = "pictogram", path: str | None = None, device: str = "cpu", dtype: str = "auto"
) -> Backbone:
    """A backbone with its weights.

    name_or_folder : see `resolve`; path : the folder of a named backbone; dtype : auto, float32 or bfloat16.
    Raises NotSupported for an unknown name or an absent device, MissingWeights for damaged or absent weights.
    """
    name = os.fspath(name_or_folder)
    if path is None:
        name, path = resolve(name)
    if name not in BACKBONES:
        raise NotSupported(f"There is no backbone '{name}'. There are: {', '.join(BACKBONES)}.")
    check_device(device)
    return importlib.import_module(BACKBONES[name]).load(path, device, dtype)
