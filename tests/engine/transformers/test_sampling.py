"""Sampled decoding with our callable: a run of the engine, and random numbers that a caller can repeat. Distributions: test_adaptive.py."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import nn

from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from engine.transformers.host import Branch, CallerModel, vocabulary_of
from engine.transformers.processors import CallerDistribution
from tests.engine.transformers import models
from tests.engine.transformers.models import PROMPT, ours

SAMPLED = {"do_sample": True, "temperature": 0.9, "top_k": 12, "top_p": 0.95}


def test_match_seed_gives_the_tokens_of_plain_decoding() -> None:
    model = models.llama()
    expected = ours(model, "ar", seed=5, **SAMPLED)
    assert ours(model, "sjdpp", seed=5, window=6, verify="match seed", **SAMPLED) == expected
    assert ours(model, "ar", seed=6, **SAMPLED) != expected


def test_a_run_is_the_engines_own() -> None:
    model = models.llama()
    sampling = Sampling(temperature=0.9, top_k=12, top_p=0.95, guidance=2.0)
    branches = [Branch(torch.tensor(PROMPT)), Branch(torch.tensor(PROMPT[-1:]))]
    host = CallerModel(model, branches, 24, CallerDistribution(sampling))
    run = generate(host, METHODS["sjdpp"], Prompt(seed=3), {"window": 6}).finish()
    assert ours(model, "sjdpp", seed=3, window=6, guidance_scale=2.0, **SAMPLED) == [[*PROMPT, *run.tokens]]


def test_pytorchs_seed_repeats_a_run() -> None:
    samples = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        samples.append(ours(models.llama(), **SAMPLED))
    assert samples[0] == samples[1] != samples[2]


def test_a_given_seed_leaves_pytorchs_generator_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = ours(models.llama(), seed=4, **SAMPLED)
    assert torch.equal(torch.get_rng_state(), before)
    assert ours(models.llama(), seed=4, **SAMPLED) == first


def test_sequences_of_a_batch_have_seeds_of_their_own() -> None:
    both = ours(models.llama(), seed=4, num_return_sequences=2, **SAMPLED)
    assert both == [ours(models.llama(), seed=seed, **SAMPLED)[0] for seed in (4, 5)]


def test_the_vocabulary_is_as_long_as_a_row_of_logits() -> None:
    model = deepcopy(models.llama())
    model.lm_head = nn.Linear(32, models.VOCABULARY + 3)  # padded; the settings do not say so
    assert vocabulary_of(model) == models.VOCABULARY + 3
    model.lm_head = None
    assert vocabulary_of(model) == models.VOCABULARY
