"""The adapter changes only the rows it is applied to, and its files are peft's: read, written, and refused if they do not fit."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from engine.backbones.pictogram import Pictogram
from engine.core import NO_DRAFT, Draft, Prompt
from engine.drafters.predictive_stream import PredictiveStream, RowLora, folder_of, read_adapter
from engine.errors import MissingWeights
from research.train.adapters import new_adapter, write_adapter
from tests.engine.backbones import tiny

ALL_LAYERS = ("query_key_value", "attention_out", "gate_up", "feed_out", "query", "out", "value_gate")  # of both decoders
LAYERS = ("query_key_value", "attention_out", "gate_up", "feed_out")
PROMPT = Prompt(text="two red cats on a table", seed=5)


def random_lora(backbone: Pictogram, skipped: int = 0, std: float = 0.3) -> RowLora:
    """An adapter that changes much."""
    torch.manual_seed(7)
    lora = new_adapter(backbone.model.decoder, LAYERS, 4, 8.0, skipped)
    for up in lora.up:
        nn.init.normal_(up, std=std)
    return lora.requires_grad_(False)


def tiny_pictogram() -> tuple[Any, nn.Module, Prompt]:
    """A backbone, its decoder and a prompt."""
    backbone = tiny.pictogram()
    return backbone, backbone.model.decoder, PROMPT


def tiny_lowpoly() -> tuple[Any, nn.Module, Prompt]:
    """The same for meshes."""
    backbone = tiny.lowpoly()
    return backbone, backbone.model.decoder, Prompt(points=tiny.sphere())


PROMPT_OF = {"pictogram": tiny_pictogram, "lowpoly": tiny_lowpoly}


@contextmanager
def watch_blocks(decoder: nn.Module, seen: list[int]) -> Iterator[None]:
    """Records how many rows go through the first and the last block."""
    ends = (decoder.blocks[0], decoder.blocks[-1])
    hooks = [block.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1])) for block in ends]
    yield
    for hook in hooks:
        hook.remove()


def dual(tokens: list[int], guesses: list[int], start: int, causal: bool = True) -> Draft:
    """Control rows for some drafts behind `start` tokens, and predictive rows that read guesses from there on."""
    m, ahead = len(tokens), len(guesses)
    visible = torch.zeros(1 + m + ahead, 1 + m + ahead, dtype=torch.bool)
    visible[:, 0] = True
    visible[: m + 1, : m + 1] = torch.ones(m + 1, m + 1, dtype=torch.bool).tril()
    visible[m + 1 :, m + 1 :] = torch.ones(ahead, ahead, dtype=torch.bool).tril() if causal else True
    return Draft(
        torch.tensor([*tokens, *guesses]),
        parents=torch.tensor([*range(-1, m - 1), *[-1] * ahead]),
        positions=torch.tensor([*range(start, start + m), *range(start, start + ahead)]),
        visible=visible,
        predictive=torch.arange(m + ahead) >= m,
    )


@torch.inference_mode()
def test_control_rows_are_the_frozen_model_to_the_last_bit() -> None:
    backbone = tiny.pictogram()
    worn, plain, zero = (backbone.start(PROMPT) for _ in range(3))
    PredictiveStream(random_lora(backbone), True).start(worn)
    PredictiveStream(new_adapter(backbone.model.decoder, LAYERS, 4, 8.0), True).start(zero)
    draft = dual([1, 5, 9], [1, 5, 9, 3], 0)
    rows, same = worn.forward(draft), zero.forward(draft)
    assert torch.equal(rows.logits[:, :4], same.logits[:, :4])
    assert (rows.logits[:, 4:] - same.logits[:, 4:]).abs().max() > 0.1
    alone = plain.forward(Draft(torch.tensor([1, 5, 9])))
    torch.testing.assert_close(rows.logits[:, :4], alone.logits, atol=2e-5, rtol=0)
    torch.testing.assert_close(rows.first(4).p, alone.p, atol=2e-5, rtol=0)
    for sequence in (worn, plain):
        sequence.commit([0, 1], 4)
    torch.testing.assert_close(worn.forward(NO_DRAFT).logits, plain.forward(NO_DRAFT).logits, atol=2e-5, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
@pytest.mark.parametrize("drafts,guesses", [([1, 5, 9], [1, 5, 9, 3, 4]), ([1, 5, 9], [1, 5]), ([1, 5], [1, 5])])
def test_twins_are_one_row_below_the_adapter(name: str, drafts: list[int], guesses: list[int]) -> None:
    """Computing them once changes only the number of rows, and the cache keeps the same rows as in plain decoding."""
    backbone, decoder, prompt = PROMPT_OF[name]()
    torch.manual_seed(7)
    lora = new_adapter(decoder, ALL_LAYERS, 4, 8.0, 1)
    for up in lora.up:
        nn.init.normal_(up, std=0.3)
    twice, once, plain = (backbone.start(prompt) for _ in range(3))
    for sequence in (twice, once, plain):
        sequence.forward(NO_DRAFT)
        sequence.commit([], 7)
        PredictiveStream(lora, True).start(sequence)
    draft = dual(drafts, guesses, 1)
    same, count, seen = twice.forward(draft), 1 + len(drafts), []
    with watch_blocks(decoder, seen):
        rows = once.forward(replace(draft, shared_rows=min(len(drafts), len(guesses))))
    assert seen == [count + max(0, len(guesses) - len(drafts)), count + len(guesses)]
    torch.testing.assert_close(rows.logits, same.logits, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(rows.first(count).p, same.first(count).p, atol=2e-5, rtol=1e-4)
    plain.forward(Draft(torch.tensor(drafts)))
    for sequence in (once, plain):
        sequence.commit([0, 1], 4)
    torch.testing.assert_close(once.forward(NO_DRAFT).logits, plain.forward(NO_DRAFT).logits, atol=2e-5, rtol=1e-4)


@torch.inference_mode()
def test_predictive_rows_see_each_other_one_way_or_both() -> None:
    backbone = tiny.pictogram()
    sequence = backbone.start(PROMPT)
    read = PredictiveStream(random_lora(backbone), True).start(sequence)
    for causal in (True, False):
        one, other = (read(sequence.forward(dual([1], [1, 2, last], 0, causal)), 2) for last in (3, 8))
        assert torch.equal(one[:2], other[:2]) == causal
        assert not torch.equal(one[2], other[2])
    one, other = (read(sequence.forward(dual([draft], [1, 2, 3], 0)), 2) for draft in (1, 8))
    assert torch.equal(one, other)  # control rows of drafts are not seen; drafts are read as inputs


@torch.inference_mode()
def test_predictive_rows_cannot_be_committed() -> None:
    backbone = tiny.pictogram()
    sequence = backbone.start(PROMPT)
    PredictiveStream(random_lora(backbone), True).start(sequence)
    sequence.forward(dual([1], [1, 2, 3], 0))
    with pytest.raises(IndexError):
        sequence.commit([0, 1], 2)


@torch.inference_mode()
def test_a_grammar_is_left_to_the_distribution_of_a_proposal() -> None:
    backbone = tiny.WithGrammar()
    sequence = backbone.start(PROMPT)
    read = PredictiveStream(random_lora(backbone), True).start(sequence)
    rows = sequence.forward(dual([4, 6], [4, 6, 6], 0))
    assert rows.first(3).p[2, [4, 6]].tolist() == [0, 0] and (rows.p[3:] > 0).all()
    probs = sequence.probs_after(read(rows, 3)[:1], [1, 2])
    assert probs[0, [1, 2]].tolist() == [0, 0]


@torch.inference_mode()
def test_the_adapter_is_worn_by_one_pass_of_one_thread() -> None:
    backbone = tiny.pictogram()
    lora, layer = random_lora(backbone), backbone.model.decoder.blocks[0].gate_up
    x = torch.randn(1, 3, layer.in_features)
    plain, elsewhere = layer(x), []

    def run_elsewhere() -> None:
        with torch.inference_mode():  # a mode of the thread, like the adapter
            elsewhere.append(layer(x))

    with lora.on_rows_from(1):
        thread = threading.Thread(target=run_elsewhere)
        thread.start()
        thread.join()
        worn = layer(x)
    assert torch.equal(worn[:, :1], plain[:, :1]) and not torch.equal(worn[:, 1:], plain[:, 1:])
    assert torch.equal(elsewhere[0], plain) and torch.equal(layer(x), plain)


def write_folder(tmp_path: Path, lora: RowLora, revision: str | None = "abc") -> Path:
    """A model folder with an adapter."""
    write_adapter(folder_of(tmp_path), lora, "pictogram", revision, 8.0)
    return tmp_path


def backbone_with(folder: Path | None, weights_hash: str | None = "abc") -> Pictogram:
    """The tiny pictogram, as if loaded from a folder."""
    plain = tiny.pictogram()
    backbone = Pictogram(plain.model, plain.tokenizer, tiny.WORDS, (8,), {}, folder)
    backbone.weights_hash = weights_hash
    return backbone


def test_an_adapter_survives_its_file(tmp_path: Path) -> None:
    lora = random_lora(tiny.pictogram(), skipped=1)
    backbone = backbone_with(write_folder(tmp_path, lora))
    drafter = backbone.drafter("predictive_stream")
    assert "predictive_stream" in backbone.capabilities and drafter.causal
    assert all(path.startswith("blocks.1.") for path in drafter.lora.paths) and drafter.lora.scale == lora.scale
    ours = dict(zip(lora.paths, zip(lora.down, lora.up, strict=True), strict=True))
    for path, *pair in zip(drafter.lora.paths, drafter.lora.down, drafter.lora.up, strict=True):
        for read, written in zip(pair, ours[path], strict=True):
            torch.testing.assert_close(read, written, atol=1e-3, rtol=1e-3)


def test_peft_and_the_rows_agree_on_a_file(tmp_path: Path) -> None:
    """We read an adapter that peft wrote and get the output of peft's model on all rows; peft reads ours."""
    from peft import LoraConfig, PeftModel, get_peft_model

    backbone = tiny.pictogram()
    own = write_folder(tmp_path / "own", random_lora(backbone))
    decoder = tiny.PictogramModel((4, 4, 2), len(tiny.WORDS), layers=2, width=32, heads=2, inner=64).decoder
    decoder.load_state_dict(backbone.model.decoder.state_dict())
    x, cos, sin = torch.randn(1, 6, 32), *(t[:6] for t in backbone.model.rotary(8))
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    with torch.no_grad():
        theirs = PeftModel.from_pretrained(decoder, str(folder_of(own)))
        lora = read_adapter(own, backbone.model.decoder, "pictogram", "abc").lora
        with lora.on_rows_from(0):
            torch.testing.assert_close(backbone.model.decoder(x, cos, sin, mask), theirs(x, cos, sin, mask), atol=1e-4, rtol=1e-4)
    adapted = get_peft_model(theirs.unload(), LoraConfig(r=2, lora_alpha=4, target_modules=["gate_up"], revision="abc"))
    adapted.peft_config["default"].base_model_name_or_path = "pictogram"
    adapted.save_pretrained(str(folder_of(tmp_path / "peft")), save_embedding_layers=False)
    assert len(read_adapter(tmp_path / "peft", backbone.model.decoder, "pictogram", "abc").lora.paths) == 2


def damage(folder: Path, **changes: object) -> None:
    path = folder_of(folder) / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"revision": "another"}, "another"),
        ({"base_model_name_or_path": "lowpoly"}, "lowpoly"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"r": 5}, "rank 5"),
        ({"r": None}, "cannot be read"),
    ],
)
def test_a_foreign_adapter_is_refused_with_a_sentence(tmp_path: Path, changes: dict[str, object], word: str) -> None:
    backbone = backbone_with(write_folder(tmp_path, random_lora(tiny.pictogram())))
    damage(tmp_path, **changes)
    with pytest.raises(MissingWeights, match=word) as caught:
        backbone.drafter("predictive_stream")
    assert "\n" not in str(caught.value) and "Train one for these weights" in str(caught.value)


def test_an_adapter_of_another_shape_is_refused(tmp_path: Path) -> None:
    wide = tiny.PictogramModel((4, 4, 2), len(tiny.WORDS), layers=3, width=48, heads=2, inner=64)
    for number, (layers, skipped, word) in enumerate([(LAYERS[:1], 2, "does not fit"), (LAYERS[:1], 0, "adapts a layer 48 -> 144")]):
        lora = new_adapter(wide.decoder, layers, 4, 8.0, skipped)
        if skipped == 0:
            lora.paths, lora.down, lora.up = lora.paths[:2], lora.down[:2], lora.up[:2]
        backbone = backbone_with(write_folder(tmp_path / str(number), lora))
        with pytest.raises(MissingWeights, match=word):
            backbone.drafter("predictive_stream")
