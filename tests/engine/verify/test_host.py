"""Verdicts by numpy against the reference, on odd shapes and with every setting of the sampling."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.backbones.lowpoly import MaskedGrammar
from engine.core import Chosen, Prompt, Sampling
from engine.dispatch.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.methods import METHODS
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.noise import kernel as noise
from engine.run import generate
from engine.sampling import guide, warp
from engine.verify.choice import is_host, scored
from engine.verify.host import HostRows, HostVerdict, best_along, penalties_of
from engine.verify.reference import settle_reference, verify_reference
from engine.verify.request import Verdict, VerifyRequest, checked
from research.bench.kernel_cases import window
from tests.engine.backbones import tiny
from tests.engine.kernels.near import near, ties

pytestmark = pytest.mark.usefixtures("inference")
BPT = Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)
LEAST = 1e-30  # below, e^x is 0 here and a denormal number there
CASES = {
    "R63-V1000-guided-grammar": window(63, 1000, Sampling(0.9, guidance=3.0), masked=True),
    "R1-V1000": window(1, 1000),
    "R7-V5": window(7, 5),
    "R7-V17-top-k": window(7, 17, Sampling(top_k=3)),
    "R7-V1000-float16": window(7, 1000, Sampling(0.8, guidance=7.5), dtype=torch.float16),
    "R7-V1000-bfloat16-top-k": window(7, 1000, Sampling(top_k=100), dtype=torch.bfloat16),
    "R7-V1000-top-p": window(7, 1000, Sampling(1.3, top_p=0.9)),
    "R7-V1000-blocked": window(7, 1000, blocked=0.9),
    "R7-V1000-blocked-top-k": window(7, 1000, Sampling(top_k=300), blocked=0.9),
    "R7-V1000-weak-guidance": window(7, 1000, Sampling(guidance=0.3)),
    "R7-V1000-greedy": window(7, 1000, Sampling(0.0, top_k=3)),
    "R7-V1000-match-seed": window(7, 1000, drawn=False, seeded=True, store=False),
    "R7-V1000-match-seed-with-laws": window(7, 1000, seeded=True, store=False),
    "R7-V5121-BPT": window(7, 5121, BPT),
    "R7-V5121-BPT-grammar": window(7, 5121, BPT, masked=True),
    "R7-V5121-temperature-last-alone": window(7, 5121, replace(BPT, top_k=0, top_p=1.0)),
    "R1-V16384-top-k-float16": window(1, 16384, Sampling(top_k=2000, guidance=3.0), dtype=torch.float16),
    "R2-V65537-top-k-grammar": window(2, 65537, Sampling(top_k=2000), masked=True),
    "R1-V131072-float16": window(1, 131072, Sampling(0.7, guidance=3.0), dtype=torch.float16),
}


START, ITERATION = 11, 3


def in_a_run(request: VerifyRequest) -> VerifyRequest:
    """The same rows at consecutive positions, with the numbers of a run."""
    positions, made = torch.arange(START, START + request.logits.shape[1]), Noise(5, request.logits.shape[-1])
    uniforms = made.host_uniforms((ACCEPT, DRAW, RESIDUAL), positions, ITERATION)
    return replace(request, positions=positions, uniforms=uniforms, base=made.base)


def rows_of(request: VerifyRequest) -> HostRows:
    """The rows of a request."""
    count, allowed = request.logits.shape[1], request.allowed
    return HostRows(request.logits, request.sampling, None if allowed is None else penalties_of(allowed), range(count))


def verdict_of(request: VerifyRequest, laws: Any = None) -> HostVerdict:
    """The verdict by numpy, on a request that is in a run."""
    made = Noise(5, request.logits.shape[-1])
    return HostVerdict(rows_of(request), request.tokens, laws or request.laws, made, START, ITERATION, request.seeded)


def whole(found: HostVerdict) -> Verdict:
    """All of it, as tensors."""
    return Verdict(found.accepted, found.ratios, found.answers[:], found.fresh[:], found.drawn[:])


# --- verdicts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name: str) -> None:
    request = in_a_run(replace(CASES[name], store=True))
    found, theirs = verdict_of(request), verify_reference(request)
    ours = whole(found)
    p = found.rows.probs(0, len(found.drafts) + 1)
    near("p", p, theirs.p, 3e-5, 1e-12)
    assert torch.equal(p > LEAST, theirs.p > LEAST)  # the filters keep the same tokens
    if request.laws is not None:
        near("ratios", ours.ratios, theirs.ratios, 1e-5, 1e-12)
    differing = ties(request, ours, theirs)
    assert differing <= 1
    if not differing:
        assert list(found.settled) == settle_reference(theirs, theirs.accepted, request.seeded).tolist()
    a = found.settled[0]
    nats, chances, top, acceptance = map(torch.tensor, found.recorded)
    near("entropy", nats, theirs.entropy[: a + 1], 1e-4, 1e-5)
    near("chances", chances, theirs.chances[: a + 1], 1e-5, 1e-12)
    near("top", top, theirs.p[: a + 1].amax(-1), 1e-5)
    near("acceptance", acceptance, theirs.recorded[3][: a + 1], 1e-5, 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_pytorch_s_operations(name: str) -> None:
    request = CASES[name]
    ours = scored(request.logits, request.sampling, request.allowed)
    theirs = warp(guide(request.logits.float(), request.sampling.guidance), request.sampling, request.allowed)
    assert torch.equal(ours.isinf(), theirs.isinf())
    near("scores", ours.nan_to_num(neginf=0), theirs.nan_to_num(neginf=0), 1e-6, 1e-6)


@pytest.mark.parametrize("name", ["R63-V1000-guided-grammar", "R7-V5121-BPT-grammar", "R7-V1000-top-p"])
def test_a_row_has_the_same_bits_in_every_pass(name: str) -> None:
    """Alone as in plain decoding, and in a window: match seed compares such rows."""
    request = CASES[name]
    many, made = rows_of(request), Noise(5, request.logits.shape[-1])
    for row in (0, len(request.tokens) // 2, len(request.tokens)):
        allowed = None if request.allowed is None else request.allowed[row : row + 1]
        alone = rows_of(replace(request, logits=request.logits[:, row : row + 1], allowed=allowed))
        assert torch.equal(alone.probs(0, 1), many.probs(row, row + 1)) and torch.equal(alone.scores(1)[0], many.scores(row + 1)[row])
        assert alone.row(0).answer(made, 9) == many.row(row).answer(made, 9)


def test_the_answer_is_that_of_the_scores_and_the_noise_of_a_run() -> None:
    """Methods that draw by PyTorch, and those whose draws come with their verdicts, agree in every bit."""
    for name in ("R63-V1000-guided-grammar", "R7-V5121-BPT", "R1-V131072-float16", "R7-V1000-top-p"):
        request = in_a_run(CASES[name])
        loud = scored(request.logits, request.sampling, request.allowed)
        loud += Noise(5, loud.shape[-1]).gumbel(START, len(loud))
        assert torch.equal(loud.argmax(-1), verdict_of(request).answers[:])


def test_filters_are_exact_and_keep_ties() -> None:
    """Scores from a few values only: whole groups of tokens are equal at the thresholds."""
    for sampling in (Sampling(top_k=10), Sampling(top_p=0.5), Sampling(top_k=300, top_p=0.7), Sampling(top_k=1), Sampling(top_p=0.01)):
        request = window(3, 1000, sampling)
        request = replace(request, logits=(4 * request.logits).round() / 4 + 0.0)
        request.logits[:, :, 5] = -0.0
        ours, theirs = rows_of(request).probs(0, 3), verify_reference(request).p
        assert torch.equal(ours > 0, theirs > 0), sampling
        if sampling.top_k == 10:
            assert (ours[0] > 0).sum() > 10  # the tenth has equals, and they stay


def test_the_answer_of_equals_is_the_first() -> None:
    found = verdict_of(in_a_run(replace(window(1, 1000, Sampling(0.0)), logits=torch.zeros(1, 1, 1000))))
    assert [found.answers[:].item(), found.fresh[:].item(), found.drawn[:].item()] == [0, 0, 0] and found.recorded[0] == [0]


def test_a_draft_from_its_own_distribution_is_replaced_by_a_draw_from_it() -> None:
    request = in_a_run(window(4, 1000))
    found = verdict_of(replace(request, laws=rows_of(request).probs(0, 3)))
    assert (found.ratios == 1).all() and (found.rows.probs(0, 4).gather(1, found.drawn[:][:, None]) > 0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), BPT])
def test_nan_is_refused(value: float, sampling: Sampling) -> None:
    request = in_a_run(window(3, 1000, sampling))
    request = replace(request, tokens=request.logits[0, 0].argmax().expand(2))
    request.logits[0, 1, 999] = value
    rows = rows_of(request)
    assert [rows.row(i).sound for i in range(3)] == [True, False, True]
    sure, never = (replace(request, laws=torch.full((2, 1000), law)) for law in (1e-30, 1e30))  # every draft is accepted, or none
    assert verdict_of(never).settled[0] == 0 and verdict_of(never).settled[1] >= 0  # the row after the refusal does not matter
    with pytest.raises(FloatingPointError, match="NaN"):
        checked(*verdict_of(sure).settled)
    assert rows.probs(1, 2).isnan().all() and rows.scores(2)[1].isnan().all()


def test_a_row_without_any_possible_token_is_refused() -> None:
    request = window(2, 1000)
    request.logits[0, 0] = -torch.inf
    assert [rows_of(request).row(i).sound for i in range(2)] == [False, True]


@pytest.mark.parametrize("mutant", ["", "the residual is p", "the ratio is p"])
def test_a_verified_draft_has_the_distribution_of_the_model(mutant: str) -> None:
    """5,000 drafts from one q, verified against one p: the tokens that stay or replace them are draws from p. With a wrong rule not."""
    count, vocabulary = 5_000, 12
    one = window(2, vocabulary)
    random = torch.Generator().manual_seed(3)
    q = torch.softmax(torch.randn(vocabulary, generator=random), -1)
    tokens = torch.multinomial(q, count, True, generator=random)
    logits = one.logits[:, :1].expand(-1, count + 1, -1).contiguous()
    found = verdict_of(replace(one, logits=logits, tokens=tokens, laws=q.expand(count, -1)))
    ours, p = whole(found), found.rows.probs(0, 1)[0]
    u = torch.tensor([found.noise.number(ACCEPT, START + i, ITERATION) for i in range(count)])
    accepted = u < p[tokens] if mutant == "the ratio is p" else ours.accepted
    left = ours.fresh if mutant == "the residual is p" else ours.drawn
    for tokens_of_p, right in ((torch.where(accepted, tokens, left[:-1]), not mutant), (ours.answers, True), (ours.fresh, True)):
        counts, expected = torch.bincount(tokens_of_p, minlength=vocabulary), p.double() * len(tokens_of_p)
        statistic = ((counts - expected) ** 2 / expected).sum().item()  # chi squared with 11 degrees of freedom
        assert (statistic < 35) == right, statistic


def test_chosen_drafts_are_those_of_one_hot_distributions() -> None:
    request = in_a_run(window(9, 1000, BPT))
    best = rows_of(request).probs(0, 8).argmax(-1)  # some are accepted
    for tokens in (best, request.tokens):
        chosen = Chosen(tokens, 1000, torch.float32)
        given = replace(request, tokens=tokens)
        ours, theirs = verdict_of(given, chosen), verdict_of(replace(given, laws=chosen.dense()))
        for field, mine in vars(whole(ours)).items():
            other = getattr(whole(theirs), field)
            assert mine is other or torch.equal(mine, other), field
        assert ours.settled == theirs.settled and not (ours.drawn[:8] == tokens).any() and ours.recorded == theirs.recorded
    assert not ours.accepted.all()


@pytest.mark.parametrize("budget", [None, 2])
def test_the_best_tokens_of_a_chain_obey_the_grammar_along_it(budget: int | None) -> None:
    grammar, state = MaskedGrammar(budget), MaskedGrammar(budget).start
    logits = torch.randn(8, 5121, generator=torch.Generator().manual_seed(3))
    path = []
    for row in logits:
        path.append(row.masked_fill(~grammar.allowed(state), -torch.inf).argmax().item())
        state = grammar.next(state, path[-1])
    assert best_along(logits, penalties_of(grammar.masks), grammar, grammar.start).tolist() == path != logits.argmax(-1).tolist()


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


# --- the choice, and runs ---------------------------------------------------------------------------------------------


def test_the_reference_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert is_host(cpu, torch.bfloat16) and not is_host(cpu, torch.float64)  # the toy's numbers are the reference's affair
    for kind, wanted in ((REFERENCE, False), (TRITON, False), (NATIVE, True)):
        monkeypatch.setenv(VARIABLE, kind)
        assert is_host(cpu, torch.float32) == wanted
    monkeypatch.setenv(VARIABLE, REFERENCE)
    request = CASES["R7-V1000-top-p"]
    assert torch.equal(scored(request.logits, request.sampling, None), warp(request.logits[0], request.sampling))


OPEN = Prompt("red apple", seed=3)
FILTERED = Prompt("red apple", seed=3, sampling=Sampling(0.9, 20, 0.9, 2.0))
WINDOW: dict[str, Any] = {"window": 5}


@pytest.mark.parametrize(
    ("method", "knobs", "prompt"),
    [
        ("ar", {}, OPEN),
        ("ar", {}, FILTERED),
        ("sjd", WINDOW, OPEN),
        ("sjdpp", WINDOW, FILTERED),
        ("sjdpp", WINDOW | {"verify": "match seed"}, OPEN),
        ("sjdpp", WINDOW | {"refresh": "coupled maximal"}, OPEN),
        ("sjdpp", WINDOW | {"refresh": "reuse mixture"}, OPEN),
        ("sjdpp", WINDOW | {"relax": "multiplicative", "multiplied_mass": 2.0}, OPEN),
        ("gsd", WINDOW | {"code_distance": 1.9}, OPEN),
        ("jacobi", WINDOW, OPEN),
        ("zipar", {"window": 3}, OPEN),
    ],
)
def test_the_tokens_and_the_trace_are_those_of_the_reference(
    method: str, knobs: dict[str, Any], prompt: Prompt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for kind in (REFERENCE, NATIVE):
        monkeypatch.setenv(VARIABLE, kind)
        run = generate(tiny.pictogram.__wrapped__(), METHODS[method], prompt, knobs)  # its own, because others find its head again
        found.append(list(islice(run, 12)))
        run.stop()
        next(run, None)
    theirs, ours = found
    assert [(s.tokens, s.positions) for s in ours] == [(s.tokens, s.positions) for s in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.trace.told == other.trace.told
        for name in ("entropy", "accept_probability", "top"):
            if (value := getattr(other.trace, name)) is not None:
                near(name, torch.as_tensor(getattr(mine.trace, name)), torch.as_tensor(value), 1e-4, 1e-5)


@pytest.mark.parametrize(("method", "knobs"), [("sjdpp", {"window": 3}), ("sjdpp", {"window": 6, "verify": "match seed"}), ("ar", {})])
def test_a_mesh_obeys_its_grammar(method: str, knobs: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    prompt, found = Prompt(points=tiny.sphere(), seed=1), []
    for kind in (REFERENCE, NATIVE):
        monkeypatch.setenv(VARIABLE, kind)
        found.append(generate(tiny.lowpoly(), METHODS[method], prompt, knobs).finish().tokens)
    assert found[0] == found[1]


def tokens_of(method: str, knobs: dict[str, Any], prompt: Prompt) -> Tensor:
    """The tokens of a whole run, by position."""
    return torch.tensor(generate(tiny.pictogram.__wrapped__(), METHODS[method], prompt, knobs).finish().in_order)


@pytest.mark.parametrize("method", ["sjd", "sjdpp", "jacobi", "lookup", "zipar"])
@pytest.mark.parametrize("prompt", [OPEN, FILTERED], ids=["open", "filtered"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str, prompt: Prompt) -> None:
    knobs: dict[str, Any] = {"verify": "match seed"} | ({"mode": "verified"} if method == "zipar" else {})
    assert torch.equal(tokens_of(method, knobs, prompt), tokens_of("ar", {}, prompt))
