"""Verdicts by numpy apart from parity: the scores and noise of a run, rows with the same bits in every pass, the reference's runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.backbones.lowpoly import MaskedGrammar
from engine.core import ChosenTokens
from engine.dispatch.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.noise import kernel as noise
from engine.sampling import guide, warp
from engine.verify.choice import is_host, warped_scores
from engine.verify.host import allowed_by, best_along
from research.bench.kernel_cases import window
from tests.engine.kernels.near import near
from tests.engine.verify.requests import BPT, CASES, START, host_verdict, rows_of

pytestmark = pytest.mark.usefixtures("inference")

# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_pytorch_s_operations(name: str) -> None:
    request = CASES[name]
    ours = warped_scores(request.logits, request.sampling, request.allowed)
    theirs = warp(guide(request.logits.float(), request.sampling.guidance), request.sampling, request.allowed)
    assert torch.equal(ours.isinf(), theirs.isinf())
    near("scores", ours.nan_to_num(neginf=0), theirs.nan_to_num(neginf=0), 1e-6, 1e-6)


@pytest.mark.parametrize("name", ["R63-V1000-guided-grammar", "R7-V5121-BPT-grammar", "R7-V1000-top-p", "R7-V5"])
def test_a_row_has_the_same_bits_in_every_pass(name: str) -> None:
    """Alone as in plain decoding, and in a window: match seed compares such rows."""
    request = CASES[name]
    many, noise = rows_of(request), Noise(5, request.logits.shape[-1])
    for row in (0, len(request.tokens) // 2, len(request.tokens)):
        allowed = None if request.allowed is None else request.allowed[row : row + 1]
        alone = rows_of(replace(request, logits=request.logits[:, row : row + 1], allowed=allowed))
        assert torch.equal(alone.probs(0, 1), many.probs(row, row + 1)) and torch.equal(alone.scores(1)[0], many.scores(row + 1)[row])
        near("p", many.probs(row, row + 1), torch.softmax(many.scores(row + 1)[row:], -1), 1e-6, 1e-5)
        assert alone.row(0).answer(noise, 9) == many.row(row).answer(noise, 9)


def test_the_answer_is_that_of_the_scores_and_the_noise_of_a_run() -> None:
    """Methods that draw by PyTorch, and those whose draws come with their verdicts, agree in every bit."""
    for name in ("R63-V1000-guided-grammar", "R7-V5121-BPT", "R1-V131072-float16", "R7-V1000-top-p", "R7-V1000-greedy"):
        request = CASES[name]
        loud = warped_scores(request.logits, request.sampling, request.allowed)
        loud += Noise(5, loud.shape[-1]).gumbel(START, len(loud))
        assert torch.equal(loud.argmax(-1), host_verdict(request).answers[:])


def test_chosen_drafts_are_those_of_one_hot_distributions() -> None:
    request = window(9, 1000, BPT)
    best = rows_of(request).probs(0, 8).argmax(-1)  # some are accepted
    for tokens in (best, request.tokens):
        chosen = ChosenTokens(tokens, 1000, torch.float32)
        chosen_request = replace(request, tokens=tokens)
        ours, theirs = host_verdict(chosen_request, chosen), host_verdict(replace(chosen_request, draft_probs=chosen.dense()))
        for field in ("accepted", "ratios", "answers", "fresh", "drawn"):
            assert torch.equal(getattr(ours, field)[:], getattr(theirs, field)[:]), field
        assert ours.settled == theirs.settled and not (ours.drawn[:8] == tokens).any() and ours.recorded == theirs.recorded
    assert not ours.accepted.all()


def test_the_distribution_of_an_unsound_row_is_nan() -> None:
    request = window(3, 1000)
    request.logits[0, 1, 999] = torch.nan
    assert rows_of(request).probs(1, 2).isnan().all() and rows_of(request).scores(2)[1].isnan().all()


@pytest.mark.parametrize("budget", [None, 2])
def test_the_best_tokens_of_a_chain_obey_the_grammar_along_it(budget: int | None) -> None:
    grammar, state = MaskedGrammar(budget), MaskedGrammar(budget).start
    logits = torch.randn(8, 5121, generator=torch.Generator().manual_seed(3))
    path = []
    for row in logits:
        path.append(row.masked_fill(~grammar.allowed_ids(state), -torch.inf).argmax().item())
        state = grammar.next(state, path[-1])
    assert best_along(logits, allowed_by(grammar.masks), grammar, grammar.start).tolist() == path != logits.argmax(-1).tolist()


# --- noise ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", [0, 1, 2**63, 2**64 - 1, noise.mix(7)])
def test_noise_of_some_tokens_is_that_of_all(base: int) -> None:
    ids = np.array([0, 3, 4999])
    for position in (0, 4095, 2**40):
        row = noise.gumbel_reference(base, torch.tensor([position]), 5000)[0].numpy()
        assert (noise.gumbel_at(base, position, ids) == row[ids]).all()


def test_numbers_of_a_run_are_the_same_one_by_one_and_at_once() -> None:
    own, at, streams = Noise(5, 8), torch.tensor([9, 3, 3, 40]), (ACCEPT, DRAW, RESIDUAL)
    theirs = torch.stack([own.host_uniform(stream, 0, 41, 6)[at] for stream in streams])
    assert torch.equal(own.host_uniforms(streams, at, 6), theirs)
    assert [[own.number(stream, i, 6) for i in at.tolist()] for stream in streams] == theirs.tolist()
    assert (own.gumbel_row(7) == own.gumbel(7, 1)[0].numpy()).all()


# --- the choice ---------------------------------------------------------------------------------------------


def test_the_reference_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert is_host(cpu, torch.bfloat16) and not is_host(cpu, torch.float64)  # the toy's numbers use the reference
    for kind, wanted in ((REFERENCE, False), (TRITON, False), (NATIVE, True)):
        monkeypatch.setenv(VARIABLE, kind)
        assert is_host(cpu, torch.float32) == wanted
    monkeypatch.setenv(VARIABLE, REFERENCE)
    request = CASES["R7-V1000-top-p"]
    assert torch.equal(warped_scores(request.logits, request.sampling, None), warp(request.logits[0], request.sampling))
