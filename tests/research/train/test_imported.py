"""Drafters on an imported model: the recipes write beside it, the methods run with what they wrote, and are exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.backbones import imported, load
from engine.converting import convert
from engine.core import Prompt, Sampling
from engine.drafters.predictive_stream import RowLora
from engine.errors import BadFile, BadKnob, MissingWeights, NotSupported
from engine.methods import METHODS
from engine.run import generate
from research.train import feature_draft, loop, predictive_stream
from research.train.checkpoint_teacher import CheckpointTeacher, read_prompts
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny import save_tokenizer

NAME = "Tiny-Janus"
TEXTS = [f"red {'apple ' * (1 + i % 5)}{i}" for i in range(30)]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hub") / NAME
    tiny.janus_model().save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture(autouse=True)
def model(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An imported model, and recipes that make one or two steps."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    monkeypatch.setattr(feature_draft, "TOGETHER", 4)
    preset = {"minutes": 0.002, "sequences": 6, "batch": 2}
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", preset | {"rows": 24})
    monkeypatch.setitem(predictive_stream.PRESETS, "cpu", preset | {"rows": 16})
    for module in (feature_draft, predictive_stream):
        monkeypatch.setattr(module, "UNSEEN", 2)
    monkeypatch.setattr(predictive_stream, "UNSEEN_ROWS", 8)
    monkeypatch.setattr(predictive_stream, "WIDTH", 4)
    list(convert(original))
    (tmp_path / "prompts.txt").write_text("\n".join(TEXTS))
    return imported()[0]


def test_methods_run_with_drafters_of_their_own(model: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match="train feature-draft"):
        load(NAME).drafter("feature_draft")
    predictive_stream.main(predictive_stream.Options(backbone=NAME, prompts=tmp_path / "prompts.txt"))
    feature_draft.main(feature_draft.Options(backbone=str(model), prompts=tmp_path / "prompts.txt"))
    assert {path.name for path in (model / "drafters").iterdir()} == {"card.json", "feature_draft.safetensors", "predictive_stream"}
    backbone = load(NAME)
    assert backbone.capabilities >= {"feature_draft", "predictive_stream"} and "steps" in backbone.card["feature_draft"]
    greedy = Prompt(text="red apple", sampling=Sampling(0.0, 0, 1.0, 3.0))
    plain = generate(backbone, METHODS["ar"], greedy).finish()
    for method in ("eagle", "adt_tree", "cross_regression"):
        run = generate(backbone, METHODS[method], greedy).finish()
        assert run.exact and run.tokens == plain.tokens and run.totals["drafted"] > 0
    lora = backbone.drafter("predictive_stream").lora
    assert isinstance(lora, RowLora) and any(up.abs().sum() > 0 for up in lora.up)  # it has learned something


def test_other_weights_do_not_take_an_old_drafter(model: Path, tmp_path: Path) -> None:
    feature_draft.main(feature_draft.Options(backbone=NAME, prompts=tmp_path / "prompts.txt"))
    card = (model / "card.json").read_text()
    (model / "card.json").write_text(card.replace('"weights_hash": "', '"weights_hash": "0'))
    with pytest.raises(MissingWeights, match="was trained for the weights"):
        load(NAME).drafter("feature_draft")


def test_a_checkpoint_that_is_not_imported_is_refused(registered_toy: None, original: Path) -> None:
    with pytest.raises(NotSupported, match="is not imported"):
        CheckpointTeacher(str(original), "cpu")
    with pytest.raises(NotSupported, match="no recipe"):
        CheckpointTeacher("toy", "cpu")


def test_prompts_are_a_file_of_lines(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="needs 20 or more"):
        (tmp_path / "few.txt").write_text("one\n\ntwo\n")
        read_prompts(tmp_path / "few.txt")
    with pytest.raises(BadFile, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(BadKnob, match="--prompts is for imported models"):
        feature_draft.teacher_of("pictogram", "cpu", tmp_path / "prompts.txt")


def test_held_out_prompts_are_not_trained_on(tmp_path: Path) -> None:
    one = CheckpointTeacher(NAME, "cpu", tmp_path / "prompts.txt")
    unseen, seen = one._texts(3, True), one._texts(27, False)
    assert unseen == [TEXTS[0], TEXTS[10], TEXTS[20]] and set(seen) == set(TEXTS) - set(unseen)
