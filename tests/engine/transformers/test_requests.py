"""Refusals of the callable, and its return values: streams, dictionaries, padding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaForCausalLM,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
)

from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.transformers import foretoken
from tests.engine.transformers import models
from tests.engine.transformers.models import PROMPT, SHAPE, ours, plain


class Shifted(LogitsProcessor):
    """A caller's processor that moves the largest score by one id."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """The scores, one id further."""
        return scores.roll(1, -1)


class Collector:
    """A streamer that stores its input."""

    def __init__(self) -> None:
        self.pieces: list[list[int]] = []
        self.ended = 0

    def put(self, value: Tensor) -> None:
        """Keeps ids [1, k]."""
        assert not self.ended
        self.pieces.append(value[0].tolist())

    def end(self) -> None:
        """Counts ends."""
        self.ended += 1


class Forgetful(LlamaForCausalLM):
    """A class that ignores the mask."""

    def forward(
        self, input_ids: Tensor, attention_mask: Any = None, position_ids: Any = None, past_key_values: Any = None, **more: Any
    ) -> Any:
        """A pass in which every row sees everything before it."""
        return super().forward(input_ids=input_ids, position_ids=position_ids, past_key_values=past_key_values, **more)


def test_a_stream_comes_in_order_and_ends_once() -> None:
    stream = Collector()
    expected = plain(models.llama())
    assert ours(models.llama(), window=6, stream_to=stream) == expected
    assert stream.pieces[0] == PROMPT
    assert [token for piece in stream.pieces for token in piece] == expected[0]
    assert stream.ended == 1


def test_a_dictionary_holds_sequences_and_totals() -> None:
    output = models.llama().generate(
        torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, return_dict_in_generate=True, custom_generate=foretoken("sjdpp", seed=3)
    )
    assert output.sequences.tolist() == plain(models.llama())
    (totals,) = output.totals
    assert (totals["method"], totals["exact"], totals["seed"], totals["tokens"]) == ("sjdpp", True, 3, 24)
    assert 0 < totals["forwards"] <= 24
    assert output.scores is None


def test_settings_of_the_callable_are_defaults() -> None:
    fixed = foretoken("sjdpp", window=6, seed=1, init="random")
    ids = torch.tensor([PROMPT])
    a = models.llama().generate(ids, max_new_tokens=24, do_sample=True, custom_generate=fixed)
    assert a.tolist() == ours(models.llama(), do_sample=True, window=6, seed=1, init="random")
    b = models.llama().generate(ids, max_new_tokens=24, do_sample=True, custom_generate=fixed, seed=2)
    assert b.tolist() == ours(models.llama(), do_sample=True, window=6, seed=2, init="random")


def test_a_processor_of_the_callers_own_is_used_once_it_is_vouched_for() -> None:
    own = {"logits_processor": LogitsProcessorList([Shifted()]), "guidance_scale": 2.0}
    with pytest.raises(NotSupported, match="does not know the logits processor Shifted"):
        ours(models.llama(), **own)
    assert ours(models.llama(), processors=(Shifted,), window=6, **own) == plain(models.llama(), **own) != plain(models.llama())


REFUSED: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "beams": ({"num_beams": 2}, NotSupported, "num_beams=2"),
    "beams of sampling": ({"num_beams": 3, "do_sample": True}, NotSupported, "num_beams=3"),
    "contrastive search": ({"penalty_alpha": 0.6, "top_k": 4}, NotSupported, "contrastive search.*Leave penalty_alpha out"),
    "layers compared": ({"dola_layers": "high"}, NotSupported, "dola generation.*Leave dola_layers out"),
    "another speculation": ({"prompt_lookup_num_tokens": 3}, NotSupported, "assisted generation.*Leave prompt_lookup_num_tokens out"),
    "scores": ({"output_scores": True, "return_dict_in_generate": True}, NotSupported, "no scores"),
    "no cache": ({"use_cache": False}, NotSupported, "needs the cache"),
    "right padding": ({"attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}, BadPrompt, "Pad on the left"),
    "nothing but padding": ({"attention_mask": torch.zeros(1, 5, dtype=torch.int64)}, BadPrompt, "hides a whole prompt"),
    "positions": ({"position_ids": torch.tensor([[4, 5, 6, 7, 8]])}, NotSupported, "counts positions from 0"),
    "late guidance": (
        {
            "logits_processor": LogitsProcessorList(
                [TemperatureLogitsWarper(0.5), *models.llama()._get_logits_processor(
                    models.llama()._prepare_generation_config(None, guidance_scale=2.0)[0], 5
                )]
            )
        }, NotSupported, "first logits processor",
    ),
    "a window out of range": ({"window": 0}, BadKnob, "window = 0"),
    "a stream of two": ({"stream_to": Collector(), "num_return_sequences": 2, "do_sample": True}, BadPrompt, "takes one sequence"),
    "pictures": ({"generation_mode": "image"}, NotSupported, "no pictures here"),
    "a grid that does not fit": ({"grid": (3, 5)}, BadKnob, "rows times columns"),
    "a misspelt setting": ({"windw": 8}, ValueError, "windw"),
}  # fmt: skip
PICTURE = {"grid": (4, 6)}
ZIPAR: list[tuple[dict[str, Any], str]] = [  # it needs a picture
    ({}, "grid="), (PICTURE | {"stream_to": Collector()}, "cannot be streamed"), (PICTURE | {"eos_token_id": 2}, "eos_token_id"),
    (PICTURE | {"repetition_penalty": 1.2}, "processors"),
]  # fmt: skip


@pytest.mark.parametrize("settings, kind, sentence", REFUSED.values(), ids=REFUSED)
def test_refused_with_a_sentence(settings: dict[str, Any], kind: type[Exception], sentence: str) -> None:
    with pytest.raises(kind, match=sentence):
        ours(models.llama(), **settings)


@pytest.mark.parametrize("settings, sentence", ZIPAR)
def test_zipar_needs_a_picture(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotSupported, match=sentence):
        ours(models.llama(), "zipar", **settings)


@pytest.mark.parametrize("method, sentence", [("eagle", "trained for the model"), ("mulo", "made for it"), ("sjdp", "Did you mean")])
def test_methods_that_no_model_of_a_caller_can_run(method: str, sentence: str) -> None:
    with pytest.raises(NotSupported, match=sentence):
        foretoken(method)
    with pytest.raises(BadKnob, match="speed"):
        foretoken("sjdpp", speed=3)


def test_chunks_of_attention_that_are_too_short() -> None:
    """Within the first chunk a model that attends in chunks is like any other."""
    assert ours(models.llama4(), max_new_tokens=11, window=6) == plain(models.llama4(), max_new_tokens=11)
    with pytest.raises(NotSupported, match="windows of 16 tokens"):
        ours(models.llama4(), max_new_tokens=12)


def flexible() -> PreTrainedModel:
    """A model whose attention takes no mask of ours."""
    model = models.random_model(LlamaForCausalLM, models.LlamaConfig(**SHAPE))
    model.config._attn_implementation = "flex_attention"
    return model


CLASSES: list[tuple[Callable[[], PreTrainedModel], str]] = [
    (models.falcon, "does not take the mask"), (models.bart, "has an encoder"), (flexible, "set_attn_implementation"),
    (lambda: models.random_model(Forgetful, models.LlamaConfig(**SHAPE)), "does not keep to the positions and the mask"),
]  # fmt: skip


@pytest.mark.parametrize("model, sentence", CLASSES)
def test_classes_that_cannot_be_run(model: Callable[[], PreTrainedModel], sentence: str) -> None:
    with pytest.raises(NotSupported, match=sentence):
        ours(model())


def test_a_model_is_probed_once() -> None:
    """A second callable costs the prompt's pass and one for each token after the first, no more."""
    model = models.random_model(LlamaForCausalLM, models.LlamaConfig(**SHAPE))
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    counts = []
    for _ in range(2):
        passes.clear()
        ours(model, "ar", max_new_tokens=5)
        counts.append(len(passes))
    assert counts == [7, 5]
