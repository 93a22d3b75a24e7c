"""Drafters in a model's folder, trained for its weights. Each is a capability and is read once."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from engine.backbones import DRAFTERS
from engine.backbones.prompts import probe_prompt
from engine.core import Backbone
from engine.drafters import feature_draft, spatial_heads
from engine.drafters.predictive_stream import is_trained, read_adapter
from engine.errors import MissingWeights
from engine.networks.card import has_card, read_card
from engine.networks.workspace import WorkspacePool


def trained_in(folder: Path | None, suffix: str = "") -> set[str]:
    """The drafters in a folder, by their capabilities. suffix : of the names of their files"""
    if folder is None:
        return set()
    files = {
        feature_draft.NAME: feature_draft.weights_file(folder, suffix),
        spatial_heads.NAME: spatial_heads.weights_file(folder),
    }
    stream = {"predictive_stream"} if is_trained(folder) and not suffix else set()
    return stream | {name for name, file in files.items() if file.exists()}


class TrainedBackbone(Backbone):
    """A backbone with a folder of drafters.

    folder      : theirs; None: there are none
    suffix      : of the names of their files
    trainable   : the drafters that recipes can train
    known_as    : the name by which recipes know the model; "": it has to be imported first
    draft_trunk : the network whose layers a predictive stream adapts
    draft_dtype : of the feature drafter: on a GPU that of the hidden states which it reads, on a CPU of its products
    """

    folder: Path | None = None
    suffix = known_as = ""
    trainable: tuple[str, ...] = (feature_draft.NAME, "predictive_stream", spatial_heads.NAME)
    draft_trunk: nn.Module
    draft_dtype: torch.dtype = torch.float32

    @cached_property
    def workspaces(self) -> WorkspacePool:
        """The workspaces that runs on a GPU borrow."""
        return WorkspacePool()

    def warm_up(self, window: int) -> None:
        """See Backbone."""
        with torch.inference_mode(), torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext():
            sequence = self.start(probe_prompt(self))
            sequence.warm_up(window)
            sequence.close()

    @cached_property
    def _drafters(self) -> dict[str, Any]:
        return {}

    def adopt(self, folder: Path, weights_hash: str | None) -> None:
        """Makes this the model of an imported folder: sets the hash of its weights and adds the drafters trained for them."""
        self.folder, self.weights_hash, self.known_as = folder / DRAFTERS, weights_hash, folder.name
        self.card = {**self.card, **(read_card(self.folder) if has_card(self.folder) else {})}
        self.capabilities = self.capabilities | trained_in(self.folder).intersection(self.trainable)

    def recipe(self, name: str) -> str:
        """The command line of the recipe for a drafter, after `train`."""
        return f"{name.replace('_', '-')} --backbone {self.known_as or 'NAME'}"

    def drafter(self, name: str) -> Any:
        """The drafter trained for these weights, loaded once; raises MissingWeights if there is none yet, NotSupported for one
        that no recipe trains."""
        if name not in self.trainable:
            return super().drafter(name)
        if name not in self.capabilities:
            first = "Train it" if self.known_as else "Import it and train one"
            raise MissingWeights(f"{self.name} has no {name}. {first}: python launch.py train {self.recipe(name)}.")
        if name not in self._drafters:
            self._drafters[name] = self.read_trained(name)
        return self._drafters[name]

    def read_trained(self, name: str) -> Any:
        """The drafter of a capability from the folder; raises MissingWeights for one that is damaged or belongs to other weights."""
        if name == "predictive_stream":
            return read_adapter(self.folder, self.draft_trunk, self.name, self.weights_hash)
        if name == spatial_heads.NAME:
            return spatial_heads.read_heads(self.folder, dict(self.card), self.device, self.weights_hash)
        path = feature_draft.weights_file(self.folder, self.suffix)
        return feature_draft.read_drafter(path, dict(self.card), self.device, self.weights_hash, self.draft_dtype)
