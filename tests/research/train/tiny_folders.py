"""Model folders with tiny random weights, which recipes read and write in place of the shipped ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.backbones import lowpoly, pictogram
from engine.networks import weights as folder
from engine.networks.cloud_blocks import CONTENTS
from engine.networks.mesh_decoder import MeshSettings, describe
from research.train import feature_draft, loop
from research.train.lowpoly import Trainee, fold
from research.worlds.lowpoly_shapes import EASY
from tests.engine.backbones import tiny

SMALL = MeshSettings(
    layers=1, width=32, heads=2, inner=48, length=460, memories=1, encoder_width=16, encoder_blocks=1, latents=4, contents=CONTENTS
)


def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes both backbones under tmp_path, makes them the shipped ones, and puts checkpoints there."""
    picture = tiny.pictogram()
    files = folder.split(picture.model.state_dict(), "decoder") | {"tokenizer.safetensors": picture.tokenizer.state_dict()}
    files = {name: {k: v for k, v in part.items() if k != "one_hot"} for name, part in files.items()}
    card = {"words": tiny.WORDS, "sides": [8], "tokenizer": {"settings": picture.tokenizer.settings}}
    folder.ship(tmp_path / "pictogram", files, card | {"decoder": {"settings": picture.model.settings, "files": 1}})
    torch.manual_seed(1)
    trainee = Trainee(SMALL)
    tiny.spread(trainee, 0.3)
    files = folder.split(fold(trainee.state_dict()), "model")
    card = {"name": "lowpoly", "families": list(EASY), "model": {"settings": describe(SMALL), "files": len(files)}}
    folder.ship(tmp_path / "lowpoly", files, card)
    for module, name in ((pictogram, "pictogram"), (lowpoly, "lowpoly")):
        monkeypatch.setattr(module, "FOLDER", tmp_path / name)
        monkeypatch.setattr(module.load_model, "__defaults__", (tmp_path / name,))
    monkeypatch.setattr(pictogram.load_tokenizer, "__defaults__", (tmp_path / "pictogram",))
    monkeypatch.setattr(lowpoly.load, "__defaults__", (str(tmp_path / "lowpoly"), "cpu", "auto", ""))
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    monkeypatch.setattr(feature_draft, "TOGETHER", 4)
    return tmp_path
