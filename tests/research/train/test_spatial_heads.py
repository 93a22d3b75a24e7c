"""The recipe of row and column heads on tiny models: the loss falls, heads ship, and an imported model gets its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.backbones import imported_folders, load, pictogram
from engine.converting import convert
from engine.core import Prompt, Sampling
from engine.drafters.spatial_heads import SpatialHeads
from engine.errors import MissingWeights
from engine.methods import METHODS
from engine.run import generate
from research.train import feature_draft, loop, spatial_heads
from research.train.feature_draft import RecordedSequences
from research.train.spatial_heads import Slots, acceptance, begin, loss_on_rows
from research.train.teachers import PictureTeacher, TeacherOptions
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny import save_tokenizer
from tests.research.train import tiny_folders


@pytest.fixture(autouse=True)
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with tiny random backbones, where the recipe reads and writes."""
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(spatial_heads, "UNSEEN", 2)
    monkeypatch.setitem(spatial_heads.PRESETS, "cpu", {"minutes": 0.02, "sequences": 6, "batch": 2, "rows": 48})
    return tmp_path


def test_slots_are_within_the_picture_and_some_are_shown_less() -> None:
    slots = Slots.draw(4, 64, 8, 5, 2000, 1)
    assert slots.position.min() >= 1 and slots.position.max() == 63
    assert (slots.far <= slots.position).all() and slots.far.max() == 5 and not slots.above[slots.position < 8].any()
    assert 0.05 < (~slots.above[slots.position >= 8]).float().mean() < 0.15


@pytest.mark.parametrize("guided", [False, True])
def test_a_few_steps_lower_the_loss_and_raise_acceptance(guided: bool) -> None:
    teacher = PictureTeacher("cpu")
    library, heads = RecordedSequences("tiny", teacher, 4, 2), SpatialHeads(teacher.width, 38, 3, guided)
    begin(heads, teacher)
    before, rate = acceptance(heads, teacher, library.recorded), torch.optim.Adam(heads.parameters(), 5e-3)
    losses = []
    for step in range(40):
        rate.zero_grad()
        losses.append(loss_on_rows(heads, teacher, library.batch(step), 64, step))
        losses[-1].backward()
        rate.step()
    assert sum(losses[-5:]).item() < sum(losses[:5]).item()
    after = acceptance(heads, teacher, library.recorded)
    assert len(after) == 3 and sum(after) > sum(before)


def test_heads_ship_beside_the_backbone_and_are_its_own(shipped_folder: Path) -> None:
    spatial_heads.main(TeacherOptions())
    backbone = pictogram.load(str(shipped_folder / "pictogram"))
    assert "spatial_heads" in backbone.capabilities and backbone.card["spatial_heads"]["steps"] > 0
    assert backbone.card["spatial_heads"]["settings"]["guided"]  # its output layer is a matrix
    prompt = Prompt(text="red apple", seed=2, size=64)
    plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
    for name in ("spatial", "medusa"):
        assert generate(backbone, METHODS[name], prompt, {"verify": "match seed"}).finish().tokens == plain


def test_an_imported_model_gets_heads_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output layer is not a plain matrix."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    original = tmp_path / "hub" / "Tiny-Janus"
    tiny.janus_model().save_pretrained(original)
    save_tokenizer(original)
    list(convert(original))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"red {'apple ' * (1 + i % 5)}{i}" for i in range(30)))
    with pytest.raises(MissingWeights, match="train spatial-heads"):
        load("Tiny-Janus").drafter("spatial_heads")
    spatial_heads.main(TeacherOptions(backbone="Tiny-Janus", prompts=prompts))
    assert (imported_folders()[0] / "drafters" / "spatial_heads.safetensors").exists()
    assert not load("Tiny-Janus").card["spatial_heads"]["settings"]["guided"]
    backbone, prompt = load("Tiny-Janus"), Prompt(text="red apple", sampling=Sampling(0.0, 0, 1.0, 3.0))
    plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
    for knobs in ({}, {"foresee": "columns", "window": 6}):
        run = generate(backbone, METHODS["spatial"], prompt, knobs).finish()
        assert run.tokens == plain and run.totals["drafted"] > 0


def test_recordings_are_those_of_the_tree_drafter(shipped_folder: Path) -> None:
    spatial_heads.main(TeacherOptions())
    (folder,) = (shipped_folder / "training").glob(f"{feature_draft.NAME}_pictogram/*")
    assert sorted(path.name for path in folder.iterdir()) == ["seen_0_4.pt", "seen_4_2.pt", "unseen_0_2.pt"]
    assert (loop.CHECKPOINTS / f"spatial-heads-pictogram-{folder.name}.pt").exists()
