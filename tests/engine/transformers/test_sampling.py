"""Sampled decoding with our callable: the distribution of `generate`, and random numbers that a caller can repeat."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, TemperatureLogitsWarper, TopKLogitsWarper

from engine.core import Prompt, Sampling
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.methods import METHODS
from engine.run import generate
from engine.transformers import foretoken
from engine.transformers.host import Branch, CallerModel
from engine.transformers.processors import Reading
from engine.verify.host import HostRow
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Mutant
from research.exactness.power import Law, detectable, statistic
from tests.engine.transformers import models
from tests.engine.transformers.models import PROMPT, ours

SAMPLED = {"do_sample": True, "temperature": 0.9, "top_k": 12, "top_p": 0.95}
WORDS, LENGTH = 5, 3
RUNS = 600
LAW = {"do_sample": True, "temperature": 0.5, "top_k": 4}
DRAFTS = {"window": 3, "init": "random"}  # drafts that are often refused


def small() -> LlamaForCausalLM:
    """One layer and five ids, so that every sequence can be enumerated."""
    return models.llama(
        vocab_size=WORDS, num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1
    )


def law(model: LlamaForCausalLM, prompt: list[int], length: int = LENGTH) -> Law:
    """The probability of every continuation, from the model's plain passes and transformers' own processors."""
    found: Law = {(): 1.0}
    for _ in range(length):
        ids = torch.tensor([[*prompt, *sequence] for sequence in found])
        scores = TopKLogitsWarper(LAW["top_k"])(ids, TemperatureLogitsWarper(LAW["temperature"])(ids, model(ids).logits[:, -1]))
        rows = torch.softmax(scores.double(), -1).tolist()
        found = {
            (*sequence, token): chance * row[token]
            for ((sequence, chance), row), token in product(zip(found.items(), rows, strict=True), range(WORDS))
            if row[token] > 0
        }
    return found


def drawn(model: LlamaForCausalLM, prompt: list[int], method: str, runs: int, **settings: Any) -> Counter[tuple[int, ...]]:
    """The continuations of some generations."""
    how = {"max_new_tokens": LENGTH, "num_return_sequences": runs, "custom_generate": foretoken(method), "seed": 7}
    found = model.generate(torch.tensor([prompt]), **how | LAW | DRAFTS | settings)
    return Counter(tuple(row) for row in found[:, len(prompt) :].tolist())


@pytest.mark.parametrize("method", ["sjd", "sjdpp"])
def test_the_distribution_is_that_of_generate(method: str) -> None:
    model, prompt = small(), [1, 2, 3]
    expected = law(model, prompt)
    found = statistic(drawn(model, prompt, method, RUNS), expected, RUNS)
    assert abs(found["z"]) < 4, found
    assert detectable(expected, RUNS, 4.0) < 0.17  # what these runs can see


def test_a_wrong_residual_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: with the residual of a mutant it does."""
    monkeypatch.setenv(VARIABLE, REFERENCE)  # a mutant is a function of PyTorch's operations
    model, prompt = small(), [1, 2, 3]
    mutant = Mutant("residual is p", MUTANTS["residual is p"]())
    with mutant.in_force():
        counts = drawn(model, prompt, "sjd", 900)
    mutant.check()
    assert statistic(counts, law(model, prompt), 900)["z"] > 10


def test_a_wrong_residual_by_numpy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    model, prompt = small(), [1, 2, 3]
    monkeypatch.setattr(HostRow, "residual", lambda row, token, law: row.p)
    assert statistic(drawn(model, prompt, "sjd", 900), law(model, prompt), 900)["z"] > 10


def test_a_lost_temperature_is_seen() -> None:
    """So is a processor that the callable forgets."""
    model, prompt = small(), [1, 2, 3]
    counts = drawn(model, prompt, "sjdpp", RUNS // 2, temperature=1.0)
    assert statistic(counts, law(model, prompt), RUNS // 2)["z"] > 10


def test_match_seed_gives_the_tokens_of_plain_decoding() -> None:
    model = models.llama()
    expected = ours(model, "ar", seed=5, **SAMPLED)
    assert ours(model, "sjdpp", seed=5, window=6, verify="match seed", **SAMPLED) == expected
    assert ours(model, "ar", seed=6, **SAMPLED) != expected


def test_a_run_is_the_engines_own() -> None:
    model = models.llama()
    sampling = Sampling(temperature=0.9, top_k=12, top_p=0.95, guidance=2.0)
    branches = [Branch(torch.tensor(PROMPT)), Branch(torch.tensor(PROMPT[-1:]))]
    host = CallerModel(model, branches, 24, Reading(sampling))
    run = generate(host, METHODS["sjdpp"], Prompt(seed=3), {"window": 6}).finish()
    assert ours(model, "sjdpp", seed=3, window=6, guidance_scale=2.0, **SAMPLED) == [[*PROMPT, *run.tokens]]


def test_pytorchs_seed_repeats_a_run() -> None:
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(ours(models.llama(), **SAMPLED))
    assert found[0] == found[1] != found[2]


def test_a_given_seed_leaves_pytorchs_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ours(models.llama(), seed=4, **SAMPLED)
    assert torch.equal(torch.get_rng_state(), before)
    assert ours(models.llama(), seed=4, **SAMPLED) == first


def test_sequences_of_a_batch_have_seeds_of_their_own() -> None:
    both = ours(models.llama(), seed=4, num_return_sequences=2, **SAMPLED)
    assert both == [ours(models.llama(), seed=seed, **SAMPLED)[0] for seed in (4, 5)]
