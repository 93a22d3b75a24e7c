"""Greedy decoding with our callable gives the tokens of `generate`: classes, methods, guidance, processors, ends, padding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from engine.backbones.janus import Janus
from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from engine.transformers import foretoken
from engine.transformers.attention import LayerVisibility
from engine.transformers.processors import read
from tests.engine.backbones import tiny
from tests.engine.transformers import models
from tests.engine.transformers.models import MODELS, NEGATIVE, PROMPT, ours, plain

GUIDED = {"guidance_scale": 3.0, "negative_prompt_ids": torch.tensor([NEGATIVE])}
PROCESSED: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.5},
    "penalty and guidance": {"repetition_penalty": 1.5, **GUIDED},
    "n-grams": {"no_repeat_ngram_size": 2},
    "allowed by prefix": {"prefix_allowed_tokens_fn": lambda batch, ids: [(int(ids[-1]) + step) % 40 for step in (1, 2, 5)]},
    "suppressed": {"suppress_tokens": [7, 8, 9], "begin_suppress_tokens": [3]},
    "bad words": {"bad_words_ids": [[token] for token in range(3, 20)]},
}


LONG = [token % 39 + 1 for token in range(0, 210, 7)]  # longer than the window of 16
SETTINGS = {"plain": {}, "negative prompt": GUIDED, "guidance": {"guidance_scale": 1.5}}
SAME: dict[str, tuple[Callable[[], PreTrainedModel], str, list[int], dict[str, Any]]] = {  # a model, a method, a prompt, settings
    **{f"{name}, {how}": (model, "sjdpp", PROMPT, SETTINGS[how]) for name, model in MODELS.items() for how in SETTINGS},
    **{method: (models.llama, method, PROMPT, GUIDED) for method in ("ar", "jacobi", "sjd", "lookup", "gsd", "sjdpp_published")},
    "eager attention": (partial(models.llama, "eager"), "sjdpp", PROMPT, GUIDED),
    "a prompt of one token": (models.llama, "sjdpp", [3], GUIDED),
}


@pytest.mark.parametrize(("model", "method", "prompt", "settings"), SAME.values(), ids=SAME)
def test_the_tokens_are_those_of_generate(
    model: Callable[[], PreTrainedModel], method: str, prompt: list[int], settings: dict[str, Any]
) -> None:
    expected = plain(model(), prompt, **settings)
    assert len(set(expected[0])) > 5  # a model that repeats one token would prove nothing
    assert ours(model(), method, prompt, **({"window": 6} if method == "sjdpp" else {}), **settings) == expected


WINDOWED = {"every layer": models.mistral, "some layers": models.gemma3}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", WINDOWED)
@pytest.mark.parametrize("settings", [{}, GUIDED], ids=["plain", "guidance"])
@pytest.mark.parametrize("prompt", [LONG[:15], LONG], ids=["shorter", "longer"])
def test_layers_that_attend_to_a_window(attention: str, kind: str, settings: dict[str, Any], prompt: list[int]) -> None:
    """The prompt ends before the window is full, and after; the shorter prompt of a guidance pair is padded."""
    model = WINDOWED[kind](attention=attention)
    expected = plain(model, prompt, max_new_tokens=36, **settings)
    assert expected != plain(WINDOWED[kind](window=128, attention=attention), prompt, max_new_tokens=36, **settings)  # the window matters
    assert ours(model, ids=prompt, max_new_tokens=36, window=6, **settings) == expected


@pytest.mark.parametrize("build", [models.llama, *WINDOWED.values()])
def test_a_batch_with_left_padding(build: Callable[[], PreTrainedModel]) -> None:
    ids = torch.tensor([[0, 0, 7, 9, 11], PROMPT])
    settings = {"attention_mask": torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]]), "max_new_tokens": 30}
    expected = plain(build(), ids, **settings)
    assert ours(build(), ids=ids, window=6, **settings) == expected
    settings["eos_token_id"] = expected[0][7]  # the first sequence ends early, and is padded
    assert ours(build(), ids=ids, **settings) == plain(build(), ids, **settings)


def test_a_window_that_is_forgotten_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: they do with masks that hide only later tokens."""
    monkeypatch.setattr(
        LayerVisibility, "masks", lambda self, visible, slots, kept: {"full_attention": visible, "sliding_attention": visible}
    )
    for model in (models.mistral(), models.gemma3()):
        assert ours(model, ids=LONG, max_new_tokens=36, window=6) != plain(model, LONG, max_new_tokens=36)


def test_zipar_draws_a_picture_in_fewer_passes() -> None:
    """Not exact, so only its shape can be compared."""
    output = models.llama().generate(
        torch.tensor([PROMPT]), max_new_tokens=24, do_sample=False, custom_generate=foretoken("zipar"), grid=(4, 6), window=2,
        adaptive="off", return_dict_in_generate=True,
    )  # fmt: skip
    assert output.sequences.shape == (1, len(PROMPT) + 24)
    assert output.totals[0]["tokens"] == 24 > output.totals[0]["forwards"]
    assert not output.totals[0]["exact"]


@pytest.mark.parametrize("settings", PROCESSED.values(), ids=PROCESSED)
def test_processors_of_the_caller(settings: dict[str, Any]) -> None:
    model = models.llama()
    expected = plain(model, **settings)
    assert expected != plain(model)  # the processor matters
    assert ours(model, window=6, **settings) == expected


@pytest.mark.parametrize("place", [0, 5, 6])
def test_the_end_of_a_sequence(place: int) -> None:
    """The drafts after it are dropped. 39 is a second end id, which never occurs."""
    model = models.llama()
    tokens = plain(model)[0][len(PROMPT) :]
    ends = [39, tokens[place]]
    expected = plain(model, eos_token_id=ends)
    assert expected == ours(model, window=8, eos_token_id=ends)
    assert len(expected[0]) == len(PROMPT) + tokens.index(tokens[place]) + 1


def test_stopping_criteria_of_the_caller() -> None:
    def seen_twice(ids: Tensor, scores: Any) -> Tensor:
        new = ids[:, len(PROMPT) :]
        return torch.tensor([len(set(row.tolist())) < len(row) for row in new])

    expected = plain(models.llama(), stopping_criteria=[seen_twice])
    assert len(expected[0]) < len(PROMPT) + 24
    assert ours(models.llama(), window=8, stopping_criteria=[seen_twice]) == expected


def test_a_picture_of_janus_is_that_of_its_own_loop_and_of_our_engine() -> None:
    model = tiny.janus_model()
    ids = torch.tensor([tiny.janus_ids("red apple")])
    settings = {"attention_mask": torch.ones_like(ids), "generation_mode": "image", "do_sample": False, "guidance_scale": 3.0}
    expected = model.generate(ids, **settings).tolist()
    sampled = GenerationMixin.generate(model, ids, custom_generate=foretoken("sjdpp"), window=5, **settings)
    assert model.generate(ids, **settings).tolist() == expected  # the caller's model has its own attention again
    run = generate(Janus(model, tiny.janus_ids), METHODS["sjdpp"], Prompt("red apple", sampling=Sampling(0.0, guidance=3.0))).finish()
    assert sampled.tolist() == expected == [run.tokens]


def test_no_processors_are_called_that_the_engine_knows() -> None:
    """Otherwise temperature, top-k and top-p would cost a call each."""
    config = models.llama().generation_config
    processors = models.llama()._prepare_generation_config(config, do_sample=True, temperature=0.7, top_k=5, top_p=0.9)[0]
    reading = read(models.llama()._get_logits_processor(processors, 5), greedy=False)
    assert reading.sampling == Sampling(temperature=0.7, top_k=5, top_p=0.9)
    assert reading.called == ()
