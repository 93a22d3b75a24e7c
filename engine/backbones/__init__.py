"""The table of backbones. A new model is one file and one line here. Checkpoints from elsewhere are found by their folder."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.checkpoints.families import ADAPTED, family_of
from engine.checkpoints.reading import Checkpoint, open_checkpoint
from engine.core import Backbone
from engine.errors import NotSupported
from engine.files import home
from engine.machine import device_of
from engine.memory import FORMS, FULL
from engine.networks.card import CARD
from engine.networks.weights import read_card

BACKBONES: dict[str, str] = {  # name: module with `load(path, device, dtype) -> Backbone`
    "pictogram": "engine.backbones.pictogram",
    "lowpoly": "engine.backbones.lowpoly",
    "janus": "engine.backbones.janus",
    "emu3": "engine.backbones.emu3",
    "emu35": "engine.backbones.emu35",
    "bpt": "engine.backbones.bpt",
    "llamagen": "engine.backbones.llamagen",
    "chameleon": "engine.backbones.chameleon",
    "glm_image": "engine.backbones.glm_image",
}
OPTIONS: dict[str, tuple[str, ...]] = {"lowpoly": ("lora", "lora-mlp")}  # other weights of a backbone, written NAME:OPTION
FORMER = {"lowpoly_lora": "lowpoly:lora"}  # names in older runs and cards
MAKE_MESHES = ("lowpoly", "bpt")  # the others make pictures
PICTURES, MESHES = "pictogram", "lowpoly"  # the shipped models, taken where none is named
WEIGHTS = "weights"  # entry of an imported model's card: the form that its weights are loaded in
DRAFTERS = "drafters"  # the folder next to imported weights that recipes write to


def names() -> list[str]:
    """All backbones, each before its options."""
    return [each for name in BACKBONES for each in (name, *(f"{name}:{option}" for option in OPTIONS.get(name, ())))]


def current_name(name: str) -> str:
    """Current name of a model that an older run names."""
    return FORMER.get(name, name)


def makes_meshes(name: str) -> bool:
    """True if a backbone makes meshes, with or without an option."""
    return name.partition(":")[0] in MAKE_MESHES


def imported_folder() -> Path:
    """The folder of the imported models (`launch.py models import`), each in a folder of its own name."""
    return home() / "models"


def imported_folders() -> list[Path]:
    """The folders of the imported models, by name."""
    folder = imported_folder()
    return sorted(path for path in folder.iterdir() if (path / CARD).is_file() and path.name[:1] != ".") if folder.is_dir() else []


def resolve(name_or_folder: str | os.PathLike[str]) -> tuple[str, str | None]:
    """The name of a backbone, and its folder (None = the shipped weights), for a NAME|PATH argument.

    A name wins over a folder of the same name: write ./pictogram for the folder. The name may be that of an imported model. A folder is
    identified by its card; without a card, and for a single file, by the names of its tensors and its configuration. Raises NotSupported
    if the text is neither a name nor a path, or if there is an unknown model, and MissingWeights or BadFile for a damaged one.
    """
    name = current_name(os.fspath(name_or_folder))
    if name in names():
        return name, None
    mine = next((folder for folder in imported_folders() if folder.name == name), None)
    if mine is None and not os.path.exists(name):  # never raises, however long or odd the text is
        known = [*names(), *(folder.name for folder in imported_folders())]
        raise NotSupported(f"'{name}' is neither a backbone ({', '.join(known)}) nor a folder of weights.")
    path = mine or Path(name)
    return named_in(path), str(path.resolve())


def named_in(folder: Path) -> str:
    """The backbone that a folder's card names, or that reads a checkpoint; raises MissingWeights or BadFile for a damaged one, NotSupported
    for another model."""
    if not (folder / CARD).exists():
        return recognise(folder)
    card = read_card(folder)
    name = card.get("name") if isinstance(card, dict) else None
    if not isinstance(name, str) or current_name(name) not in names():
        raise NotSupported(f"The card in {folder} names the model '{name}', which is not a backbone. There are: {', '.join(names())}.")
    return current_name(name)


def recognise(path: Path) -> str:
    """The backbone of a checkpoint, file or folder."""
    with open_checkpoint(path) as checkpoint:
        return adapter_of(checkpoint)


def adapter_of(checkpoint: Checkpoint) -> str:
    """The backbone of an open checkpoint, by its configuration and the names of its tensors; raises NotSupported if there is none."""
    family = family_of(checkpoint)
    if family.name not in BACKBONES:
        raise NotSupported(f"{checkpoint.path.name} is {family.title}, which has no adapter here yet. There are: {', '.join(BACKBONES)}.")
    return family.name


def load(
    name_or_folder: str | os.PathLike[str] = "pictogram", path: str | None = None, device: str = "auto", dtype: str = "auto",
    weights: str = "auto",
) -> Backbone:  # fmt: skip
    """A backbone with its weights.

    name_or_folder : see `resolve`; path : the folder of a named backbone; device : see `device_of`; dtype : auto, float32 or bfloat16.
    weights : see `form_of`
    Raises NotSupported for an unknown name or form or an absent device, MissingWeights for damaged or absent weights.
    """
    name = current_name(os.fspath(name_or_folder))
    if path is None:
        name, path = resolve(name)
    if name not in names():
        raise NotSupported(f"There is no backbone '{name}'. There are: {', '.join(names())}.")
    own, _, option = name.partition(":")
    card = read_card(Path(path)) if name in ADAPTED and path is not None and (Path(path) / CARD).is_file() else None
    form = form_of(name, card or {}, weights)
    more = ({"option": option} if option else {}) | ({} if form == FULL else {"weights": form})
    backbone = importlib.import_module(BACKBONES[own]).load(path, device_of(device), dtype, **more)
    if form != FULL:
        backbone.weight_form = form
    if card is not None:  # imported: its runs can be told apart, and it has drafters
        backbone.adopt(Path(path), card.get("weights_hash"))
    return backbone


def form_of(name: str, card: Mapping[str, Any], weights: str) -> str:
    """The form of the linear layers' weights: the requested one, or for "auto" the one chosen at import, else full; raises NotSupported.

    card : of an imported model, {} for others
    """
    form = card.get(WEIGHTS, FULL) if weights == "auto" else weights
    if form not in FORMS:
        raise NotSupported(f"There are no '{form}' weights. Choose one of: {', '.join(FORMS)}.")
    if form != FULL and name not in ADAPTED:
        raise NotSupported(f"{name} has no {form} weights: only checkpoints of other projects are compressed. Leave --weights out.")
    return form
