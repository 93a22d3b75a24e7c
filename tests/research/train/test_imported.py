"""Drafters on an imported model: the recipes write beside it, the methods run with what they wrote, and are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import imported, load
from engine.converting import convert
from engine.core import NO_DRAFT, Prompt, Sampling
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
PROMPT = Prompt(text="red apple", seed=5, sampling=Sampling(1.0, 0, 1.0, 3.0))


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


def teacher(tmp_path: Path, guidance: float = 3.0, temperature: float = 0.0) -> CheckpointTeacher:
    """A teacher that draws greedily."""
    found = CheckpointTeacher(NAME, "cpu", tmp_path / "prompts.txt")
    found.sampling = Sampling(temperature=temperature, guidance=guidance)
    return found


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_pictures_drawn_together_are_drawn_alone(tmp_path: Path, guidance: float) -> None:
    """Prompts of different lengths in one batch: tokens and states are those of each prompt alone."""
    one = teacher(tmp_path, guidance)
    said = one.questions(3, False)
    assert said.shape[1] == (1 if guidance == 1 else 2) and (said == -1).any()
    for text, row in zip(one._texts(3, False), one.generate(said, Generator(PCG64(0))), strict=True):
        prompt = Prompt(text=text, sampling=one.sampling)
        assert generate(one.backbone, METHODS["ar"], prompt).finish().tokens == row.tokens.tolist()
        with torch.inference_mode():
            sequence = one.backbone.start(prompt)
            for i, token in enumerate(row.tokens.tolist()[:5]):
                torch.testing.assert_close(sequence.forward(NO_DRAFT).hidden[:, 0], row.hidden[:, i].float(), atol=2e-2, rtol=1e-2)
                sequence.commit([], token)


def test_one_pass_over_a_recording_gives_its_states(tmp_path: Path) -> None:
    """What the predictive stream is trained on: prefix, mask, padding and positions agree with decoding."""
    one = teacher(tmp_path)
    rows = one.generate(one.questions(3, False), Generator(PCG64(0)))
    one.trainable()
    said, tokens = torch.stack([row.said for row in rows]), torch.stack([row.tokens for row in rows])
    prefix = one.prefix(said)
    x = torch.cat([prefix, one.embed(said, tokens[:, :-1])], 1)
    with torch.no_grad():
        hidden = one.run(said, x, torch.arange(x.shape[1]), one.mask(x.shape[1]), predictive_stream.Frozen())
    found = hidden[:, prefix.shape[1] - 1 :].unflatten(0, (2, 3)).transpose(0, 1)
    torch.testing.assert_close(found, torch.stack([row.hidden for row in rows]).float(), atol=2e-2, rtol=1e-2)


def test_tree_methods_run_with_a_drafter_of_their_own(model: Path, tmp_path: Path) -> None:
    options = feature_draft.Options(backbone=NAME, prompts=tmp_path / "prompts.txt")
    with pytest.raises(MissingWeights, match="train feature-draft"):
        load(NAME).drafter("feature_draft")
    feature_draft.main(options)
    assert {path.name for path in (model / "drafters").iterdir()} == {"card.json", "feature_draft.safetensors"}
    backbone = load(NAME)
    assert "feature_draft" in backbone.capabilities and "steps" in backbone.card["feature_draft"]
    plain = generate(backbone, METHODS["ar"], PROMPT).finish()
    for method in ("eagle", "adt_tree"):
        run = generate(backbone, METHODS[method], Prompt(text="red apple", sampling=Sampling(0.0, 0, 1.0, 3.0))).finish()
        greedy = generate(backbone, METHODS["ar"], Prompt(text="red apple", sampling=Sampling(0.0, 0, 1.0, 3.0))).finish()
        assert run.exact and run.tokens == greedy.tokens and run.totals["drafted"] > 0
    assert len(plain.tokens) == 16


def test_cross_regression_runs_with_an_adapter_of_its_own(model: Path, tmp_path: Path) -> None:
    predictive_stream.main(predictive_stream.Options(backbone=NAME, prompts=tmp_path / "prompts.txt"))
    assert (model / "drafters" / "predictive_stream" / "adapter_model.safetensors").exists()
    backbone = load(NAME)
    sampling = Sampling(0.0, 0, 1.0, 3.0)
    run = generate(backbone, METHODS["cross_regression"], Prompt(text="red apple", sampling=sampling)).finish()
    greedy = generate(backbone, METHODS["ar"], Prompt(text="red apple", sampling=sampling)).finish()
    assert run.tokens == greedy.tokens and run.totals["drafted"] > 0
    lora = backbone.drafter("predictive_stream").lora
    assert isinstance(lora, RowLora) and any(up.abs().sum() > 0 for up in lora.up)  # it has learned something


def test_both_drafters_live_together(model: Path, tmp_path: Path) -> None:
    predictive_stream.main(predictive_stream.Options(backbone=NAME, prompts=tmp_path / "prompts.txt"))
    feature_draft.main(feature_draft.Options(backbone=str(model), prompts=tmp_path / "prompts.txt"))
    assert load(NAME).capabilities >= {"feature_draft", "predictive_stream"}


def test_other_weights_do_not_take_an_old_drafter(model: Path, tmp_path: Path) -> None:
    feature_draft.main(feature_draft.Options(backbone=NAME, prompts=tmp_path / "prompts.txt"))
    card = (model / "card.json").read_text()
    (model / "card.json").write_text(card.replace('"weights_hash": "', '"weights_hash": "0'))
    with pytest.raises(MissingWeights, match="was trained for the weights"):
        load(NAME).drafter("feature_draft")


def test_a_checkpoint_that_is_not_imported_is_refused(original: Path) -> None:
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
    one = teacher(tmp_path)
    unseen, seen = one._texts(3, True), one._texts(27, False)
    assert unseen == [TEXTS[0], TEXTS[10], TEXTS[20]] and set(seen) == set(TEXTS) - set(unseen)
