"""Drafters for imported models: guided pairs, row ends, prompts that are not ids, positions that depend on the prompt."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import DRAFTERS, imported_folders, llamagen, load
from engine.backbones.emu3 import Emu3
from engine.backbones.emu35 import Emu35
from engine.backbones.janus import Janus
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.converting import convert
from engine.core import NO_DRAFT, Backbone, Draft, Prompt, Sampling
from engine.drafters.predictive_stream import RowLora
from engine.errors import BadFile, BadKnob, BadPrompt, MissingWeights, NotSupported
from engine.methods import METHODS
from engine.run import generate
from research.train import checkpoint_teacher, feature_draft, loop, predictive_stream
from research.train.adapters import new_adapter
from research.train.checkpoint_teacher import CheckpointTeacher, read_prompts
from tests.engine.backbones import tiny_chameleon, tiny_glm_image, tiny_originals
from tests.engine.backbones import tiny_checkpoints as tiny
from tests.engine.backbones.tiny import janus_ids, janus_model, save_tokenizer

MAKERS: dict[str, Callable[[], PictureCheckpoint]] = {  # not those that tests share: training changes a trunk's attention
    "janus": lambda: Janus(janus_model(), janus_ids),
    "janus without guidance": lambda: Janus(janus_model(), janus_ids),
    "emu3": lambda: Emu3(tiny.emu3_model(), tiny.read, side=4),
    "emu35": lambda: Emu35(tiny.emu35_model(), tiny.ibq(), tiny.letters, side=4, ids=tiny.IDS),
    "lumina": lambda: tiny_chameleon.chameleon.__wrapped__("lumina"),
    "glm_image": tiny_glm_image.glm_image.__wrapped__,
    "llamagen": lambda: tiny_originals.llamagen.__wrapped__(),
    "llamagen text": lambda: tiny_originals.llamagen.__wrapped__(True),
}
JANUS = "Tiny-Janus"
APPLES = [f"red {'apple ' * (1 + i % 5)}{i}" for i in range(30)]
TEXTS = ["redap"[: 1 + i % 5] for i in range(30)]
GREEDY = Sampling(0.0, 0, 1.0, 3.0)


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes recipes take one or two steps."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    monkeypatch.setattr(feature_draft, "TOGETHER", 4)
    preset = {"minutes": 0.002, "sequences": 4, "batch": 2}
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", preset | {"rows": 24})
    monkeypatch.setitem(predictive_stream.PRESETS, "cpu", preset | {"rows": 16})
    for module in (feature_draft, predictive_stream):
        monkeypatch.setattr(module, "UNSEEN", 2)
    monkeypatch.setattr(predictive_stream, "UNSEEN_ROWS", 8)
    monkeypatch.setattr(predictive_stream, "WIDTH", 4)
    monkeypatch.setattr(llamagen, "side_of", lambda path: tiny_originals.SIDE)
    (tmp_path / "prompts.txt").write_text("\n".join(TEXTS))


def model_of(family: str, tmp_path: Path) -> PictureCheckpoint:
    """A new tiny model that counts as imported."""
    backbone = MAKERS[family]()
    backbone.adopt(tmp_path / family, "0" * 64)
    return backbone


def teacher_of(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointTeacher:
    """The teacher of a new tiny model, with greedy sampling."""
    monkeypatch.setattr(checkpoint_teacher, "resolve", lambda name: (name, str(tmp_path / name)))
    monkeypatch.setattr(checkpoint_teacher, "load", lambda name, *_: model_of(name, tmp_path))
    teacher = CheckpointTeacher(family, "cpu", None if family == "llamagen" else tmp_path / "prompts.txt")
    alone = teacher.sampling.guidance == 1 or family.endswith("without guidance")
    teacher.sampling = Sampling(0.0, 0, 1.0) if alone else GREEDY
    return teacher


@pytest.mark.parametrize("family", MAKERS)
def test_a_recording_is_what_decoding_does(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and states of a batch equal those of each prompt alone, and one pass over them gives the same states."""
    one = teacher_of(family, tmp_path, monkeypatch)
    conditions = one.conditions(3, False)
    assert conditions.shape[1] == (1 if one.sampling.guidance == 1 else 2)
    rows = one.generate(conditions, Generator(PCG64(0)))
    for text, row in zip(one._texts(3, False), rows, strict=True):
        prompt = Prompt(text=text, sampling=one.sampling)
        assert generate(one.backbone, METHODS["ar"], prompt).finish().tokens == row.tokens.tolist()
        with torch.inference_mode():
            sequence = one.backbone.start(prompt)
            for i, token in enumerate(row.tokens.tolist()[:6]):
                torch.testing.assert_close(sequence.forward(NO_DRAFT).hidden[:, 0], row.hidden[:, i].float(), atol=2e-2, rtol=1e-2)
                sequence.commit([], token)
    one.make_trainable()
    conditions, tokens = torch.stack([row.condition for row in rows]), torch.stack([row.tokens for row in rows])
    prefix = one.prefix(conditions)
    x = torch.cat([prefix, one.embed(conditions, tokens[:, :-1])], 1)
    with torch.no_grad():
        hidden = one.run(conditions, x, torch.arange(x.shape[1]), one.mask(x.shape[1]), predictive_stream.FrozenCache())
    states = hidden[:, prefix.shape[1] - 1 :].unflatten(0, (-1, 3)).transpose(0, 1)
    torch.testing.assert_close(states, torch.stack([row.hidden for row in rows]).float(), atol=2e-2, rtol=1e-2)


@pytest.mark.parametrize("family", ["emu3", "llamagen text"])
def test_predictive_rows_are_trained_as_they_are_decoded(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window after a prefix gives the logits that the same draft has in decoding, with an adapter that changes much. The row before it,
    which has its own end, runs without the adapter."""
    one = teacher_of(family, tmp_path, monkeypatch)
    row = one.generate(one.conditions(2, False)[:1], Generator(PCG64(0)))[0]
    lora = new_adapter(one.trunk, one.linear, 4, 8.0)
    for up in lora.up:
        torch.nn.init.normal_(up, std=0.3)
    width, start, guesses = 5, 3, torch.tensor([3, 1, 4, 1, 5])  # its first and its last row end a row of the picture
    with torch.inference_mode():
        sequence = one.backbone.start(Prompt(text=one._texts(2, False)[0], sampling=one.sampling))
        for token in row.tokens.tolist()[: start + 1]:  # the newest token is pending, and the window begins next to it
            sequence.forward(NO_DRAFT)
            sequence.commit([], token)
        sequence.adapter = lora
        visible = torch.ones(width + 1, width + 1, dtype=torch.bool).tril()
        visible[1:, 0] = False
        draft = Draft(
            guesses, predictive=torch.ones(width, dtype=torch.bool), visible=visible, positions=torch.arange(start, start + width)
        )
        plain = sequence.forward(NO_DRAFT).hidden[:, 0]
        hidden = sequence.forward(draft).hidden
        torch.testing.assert_close(hidden[:, 0], plain, atol=1e-4, rtol=1e-4)
        decoded = one.backbone.hosted.head(hidden[:, 1:])
        one.make_trainable()
        student = predictive_stream.StreamStudent(one, True)
        monkeypatch.setattr(student, "lora", lora)
        seen: list[torch.Tensor] = []
        monkeypatch.setattr(
            student, "_guided_logits", lambda hidden, count: seen.append(one.head(hidden)) or hidden.new_zeros(count, width, 24)
        )
        monkeypatch.setattr(student, "_targets", lambda *_: None)
        student.probs([row], [start], guesses[None])
    torch.testing.assert_close(seen[0], decoded, atol=2e-3, rtol=2e-3)


def check_both(name: str, drafters: Path, prompts: Path | None, prompt: Prompt, again: Callable[[str], Backbone] = load) -> None:
    """Trains both drafters of an imported model, and compares the greedy tokens of their methods with those of plain decoding."""
    predictive_stream.main(predictive_stream.StreamOptions(backbone=name, prompts=prompts))
    feature_draft.main(feature_draft.FeatureDraftOptions(backbone=name, prompts=prompts))
    assert {path.name for path in drafters.iterdir()} == {"card.json", "feature_draft.safetensors", "predictive_stream"}
    backbone = again(name)
    greedy = generate(backbone, METHODS["ar"], prompt).finish()
    for method in ("cross_regression", "eagle", "adt_tree"):
        run = generate(backbone, METHODS[method], prompt).finish()
        assert run.exact and run.tokens == greedy.tokens and run.totals["drafted"] > 0, method
    backbone.drafter("predictive_stream").lora.first_layer = 1  # as after --skip 1: twins run through all layers
    assert generate(backbone, METHODS["cross_regression"], prompt).finish().tokens == greedy.tokens


@pytest.mark.parametrize("family", ["emu3", "emu35", "glm_image"])
def test_row_ends_and_places_have_drafters_of_their_own(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = teacher_of(family, tmp_path, monkeypatch).sampling
    prompt = Prompt(text="red", sampling=sampling)
    check_both(family, tmp_path / family / DRAFTERS, tmp_path / "prompts.txt", prompt, lambda name: model_of(name, tmp_path))


@pytest.mark.parametrize("text", [False, True])
def test_llamagen_has_drafters_of_its_own(text: bool, tmp_path: Path) -> None:
    list(convert(tiny_originals.save_llamagen(tmp_path / "LlamaGen", text)))
    if text:
        (tmp_path / "prompts.txt").write_text("\n".join(["red apple"[: 3 + 6 * (i % 2)] for i in range(20)]))
    check_both(
        "LlamaGen",
        imported_folders()[0] / DRAFTERS,
        tmp_path / "prompts.txt" if text else None,
        Prompt(text="red" if text else "5", sampling=GREEDY),
    )


@pytest.fixture
def janus(tmp_path: Path) -> Path:
    """The folder of an imported Janus."""
    folder = tmp_path / "hub" / JANUS
    janus_model().save_pretrained(folder)
    save_tokenizer(folder)
    list(convert(folder))
    (tmp_path / "prompts.txt").write_text("\n".join(APPLES))
    return imported_folders()[0]


def test_janus_has_drafters_of_its_own_which_have_learned_something(janus: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingWeights, match="train feature-draft"):
        load(JANUS).drafter("feature_draft")
    check_both(JANUS, janus / DRAFTERS, tmp_path / "prompts.txt", Prompt(text="red apple", sampling=GREEDY))
    backbone = load(JANUS)
    assert backbone.capabilities >= {"feature_draft", "predictive_stream"} and "steps" in backbone.card["feature_draft"]
    lora = backbone.drafter("predictive_stream").lora
    assert isinstance(lora, RowLora) and any(up.abs().sum() > 0 for up in lora.up)
    card = (janus / "card.json").read_text()
    (janus / "card.json").write_text(card.replace('"weights_hash": "', '"weights_hash": "0'))
    with pytest.raises(MissingWeights, match="was trained for the weights"):
        load(JANUS).drafter("feature_draft")


def test_a_checkpoint_that_is_not_imported_is_refused(registered_toy: None, janus: Path, tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="is not imported"):
        CheckpointTeacher(str(tmp_path / "hub" / JANUS), "cpu")
    with pytest.raises(NotSupported, match="no recipe"):
        CheckpointTeacher("toy", "cpu")


def test_prompts_are_a_file_of_lines_of_which_every_tenth_is_held_out(janus: Path, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="needs at least 20"):
        (tmp_path / "few.txt").write_text("one\n\ntwo\n")
        read_prompts(tmp_path / "few.txt")
    with pytest.raises(BadFile, match="cannot be read"):
        read_prompts(tmp_path / "none.txt")
    with pytest.raises(BadKnob, match="--prompts is for imported models"):
        feature_draft.teacher_of("pictogram", "cpu", tmp_path / "prompts.txt")
    one = CheckpointTeacher(JANUS, "cpu", tmp_path / "prompts.txt")
    unseen, seen = one._texts(3, True), one._texts(27, False)
    assert unseen == [APPLES[0], APPLES[10], APPLES[20]] and set(seen) == set(APPLES) - set(unseen)


def test_classes_are_prompts_and_every_tenth_is_held_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = teacher_of("llamagen", tmp_path, monkeypatch)
    assert one._texts(3, True) == ["0", "10", "0"] and one._texts(11, False) == [*map(str, range(1, 10)), "11", "1"]
    with pytest.raises(BadPrompt, match="by number"):
        CheckpointTeacher("llamagen", "cpu", tmp_path / "prompts.txt").conditions(2, False)
