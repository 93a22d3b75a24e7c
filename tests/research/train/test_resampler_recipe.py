"""The recipe of the resampler learns, ships weights with its numbers, and the shipped weights load: on tiny networks in seconds."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from engine.backbones import pictogram
from engine.drafters.resampler import TrainedResampler, read_resampler, weights_file
from engine.errors import MissingFont
from research.train import loop
from research.train import resampler as recipe
from research.train.resampler import RecipeOptions
from tests.engine.backbones import tiny


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model folder with a tiny tokenizer, and a recipe that is over in seconds."""
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "checkpoints")
    monkeypatch.setattr(pictogram, "FOLDER", tmp_path)
    monkeypatch.setattr(pictogram, "load_tokenizer", lambda: tiny.pictogram().tokenizer)
    monkeypatch.setattr(recipe, "PAIRS", {(2, 4): 0.7, (2, 8): 0.3})
    monkeypatch.setattr(recipe, "PRESETS", {"cpu": {"batch": 2, "minutes": 0.05, "rate": 3e-3, "unseen": 2}})
    (tmp_path / "card.json").write_text(json.dumps({"name": "tiny"}))
    return tmp_path


def test_it_learns_ships_and_goes_on(folder: Path) -> None:
    if shutil.which("fc-match") is None:
        pytest.skip("no fontconfig: the emoji font that draws the scenes cannot be found")
    try:
        recipe.main(RecipeOptions(fresh=True))
    except MissingFont as e:
        pytest.skip(str(e))
    card = json.loads((folder / "card.json").read_text())
    row = card["resampler"]
    assert card["name"] == "tiny" and set(row["networks"]) == set(row["spreads"]) == {"2", "4"}
    assert {"nats_2_4", "top_1_2_8", "confidence_2_4", "nats_picture_2_4", "top_1_picture_2_8"} <= set(row["held_out"])
    loaded = read_resampler(folder, card, tiny.pictogram().tokenizer)
    assert isinstance(loaded, TrainedResampler) and set(loaded.networks) == {2, 4}
    assert loaded.spreads == {int(k): v for k, v in row["spreads"].items()}
    recipe.main(RecipeOptions(minutes=0.005))
    recipe.main(RecipeOptions(export=True))
    again = json.loads((folder / "card.json").read_text())["resampler"]
    assert again["steps"] > row["steps"]
    assert weights_file(folder).exists()


def test_the_network_learns_what_a_finer_token_is() -> None:
    """Each finer token equals the coarser one of its cell: soon the loss is far below chance."""
    torch.manual_seed(0)
    codebook = tiny.pictogram().codebook()
    network = recipe.UpSampler(codebook, 2, width=16, blocks=1)
    optimizer = torch.optim.AdamW(network.parameters(), 1e-2)
    for step in range(60):
        coarse = torch.randint(32, (8, 4, 4), generator=torch.Generator().manual_seed(step))
        fine = coarse.repeat_interleave(2, 1).repeat_interleave(2, 2)
        loss = torch.nn.functional.cross_entropy(network(coarse), fine)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 1.2  # chance is 3.5 nats
