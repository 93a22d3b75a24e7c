"""The table of everything that is trained, in training order, with the weights that each thing depends on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backbones import lowpoly, pictogram
from engine.errors import MissingWeights
from engine.networks.card import CARD, read_card
from engine.networks.weights import hash_of, parts
from engine.recognition import picture_judge as judge
from engine.recognition import up
from research import mesh_judge


@dataclass(frozen=True)
class Thing:
    """A set of trained weights.

    name : shown by `status`; command : the arguments of `launch.py train` that make it; model : the model whose folder it lies in
    entry : the entry of the folder's card that describes it, "" = the whole card; inside : the subfolder, if it has its own card
    base : the thing whose weights it was trained for and needs
    """

    name: str
    command: str
    model: str
    entry: str
    base: str = ""
    inside: str = ""


THINGS = (
    Thing("tokenizer", "pictogram-tokenizer", "pictogram", "tokenizer"),
    Thing("pictogram", "pictogram", "pictogram", "decoder", "tokenizer"),
    Thing("resampler", "resampler", "pictogram", "resampler", "tokenizer"),
    Thing("pictogram's drafter", "feature-draft --backbone pictogram", "pictogram", "feature_draft", "pictogram"),
    Thing("pictogram's stream", "predictive-stream --backbone pictogram", "pictogram", "", "pictogram", "predictive_stream"),
    Thing("pictogram's row and column heads", "spatial-heads --backbone pictogram", "pictogram", "spatial_heads", "pictogram"),
    Thing("judge", "judge", "judge", "judge"),  # it needs the tokenizer during training only
    Thing("upright", "upright", "upright", "upright"),
    Thing("mesh judge", "mesh-judge", "mesh_judge", "mesh_judge"),
    Thing("lowpoly", "lowpoly", "lowpoly", "model"),
    Thing("cross-attention heads", "mesh-heads", "lowpoly", "heads.heads_cross", "lowpoly"),
    Thing("multilayer heads", "mesh-heads", "lowpoly", "heads.heads_mlp", "lowpoly"),
    Thing("cross-attention heads with adapter", "mesh-heads", "lowpoly", "heads.heads_cross_lora", "lowpoly"),
    Thing("multilayer heads with adapter", "mesh-heads", "lowpoly", "heads.heads_mlp_lora", "lowpoly"),
    Thing("lowpoly's drafter", "feature-draft --backbone lowpoly", "lowpoly", "feature_draft", "lowpoly"),
    Thing("lowpoly's stream", "predictive-stream --backbone lowpoly", "lowpoly", "", "lowpoly", "predictive_stream"),
)


def folder_of(model: str) -> Path:
    """Returns the shipped folder of a model."""
    return {
        "pictogram": pictogram.FOLDER,
        "judge": judge.FOLDER,
        "upright": up.FOLDER,
        "mesh_judge": mesh_judge.FOLDER,
        "lowpoly": lowpoly.FOLDER,
    }[model]


def row_of(thing: Thing) -> Mapping[str, Any] | None:
    """Returns a thing's entry in its card, None if there is none; raises MissingWeights for a damaged card."""
    folder = folder_of(thing.model) / thing.inside
    if not (folder / CARD).exists():
        return None
    found: Any = read_card(folder)
    for name in thing.entry.split(".") if thing.entry else ():
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def identity(base: str) -> str | None:
    """Returns the hash by which other things name these weights as their base; None if the weights are missing."""
    if base == "tokenizer":
        return ((row_of(THINGS[0])) or {}).get("tokens")
    files = parts(folder_of(base), "decoder" if base == "pictogram" else "model")
    if not files:
        return None
    return hash_of([folder_of(base) / "tokenizer.safetensors", *files] if base == "pictogram" else files)


def state_of(thing: Thing) -> str:
    """Returns "fits", "missing", "stale" (made for other weights than the present ones), "unknown" (the card does not name the base), or a
    message about damage."""
    try:
        row = row_of(thing)
        if row is None:
            return "missing"
        if not thing.base:
            return "fits"
        made_for = row.get("tokens") if thing.base == "tokenizer" else row.get("backbone") or row.get("base", {}).get("weights_hash")
        if made_for is None:
            return "unknown"
        return "fits" if made_for == identity(thing.base) else "stale"
    except MissingWeights as e:
        return str(e)
