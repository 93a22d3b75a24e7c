"""Every implementation of a verdict against the reference, on odd shapes and with every setting of the sampling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from engine.core import Sampling
from engine.noise import ACCEPT, DRAW, RESIDUAL, Noise
from engine.verify.reference import settle_reference, verify_reference
from engine.verify.request import Verdict, VerifyRequest, check_pair
from engine.verify.triton import settle_triton, verify_triton
from research.bench.kernel_cases import window
from tests.engine.kernels.near import DEVICE, near, needs_triton, ties
from tests.engine.verify.requests import BPT, CASES, ITERATION, LEAST, START, host_verdict

pytestmark = pytest.mark.usefixtures("inference")


def in_a_run(request: VerifyRequest) -> VerifyRequest:
    """The same rows at consecutive positions, with the numbers of a run."""
    positions, noise = torch.arange(START, START + request.logits.shape[1]), Noise(5, request.logits.shape[-1])
    uniforms = noise.host_uniforms((ACCEPT, DRAW, RESIDUAL), positions, ITERATION)
    return replace(request, positions=positions, uniforms=uniforms, base=noise.base)


def to_device(request: VerifyRequest) -> VerifyRequest:
    """The same on the device of the tests."""
    return replace(request, **{name: value.to(DEVICE) for name, value in vars(request).items() if isinstance(value, Tensor)})


@dataclass(frozen=True)
class Way:
    """An implementation.

    verdict : of a request whose rows are all sound; the host's chances, entropies and tops end with the first refusal
    soundness : whether each row is sound, and the (accepted, token) pair
    """

    verdict: Callable[[VerifyRequest], Verdict]
    soundness: Callable[[VerifyRequest], tuple[list[bool], tuple[int, int]]]


def of_tensors(
    verify: Callable[[VerifyRequest], Verdict],
    settle: Callable[[Verdict, Tensor, bool], Tensor],
    move: Callable[[VerifyRequest], VerifyRequest],
) -> Way:
    """An implementation that computes all rows at once."""

    def verdict(request: VerifyRequest) -> Verdict:
        verdict = verify(move(request))
        verdict.pair = settle(verdict, verdict.accepted, request.seeded)
        assert (verdict.p is None) == (not request.store)
        return verdict

    def soundness(request: VerifyRequest) -> tuple[list[bool], tuple[int, int]]:
        checked = verdict(request)
        return checked.sound.tolist(), tuple(checked.pair.tolist())

    return Way(verdict, soundness)


def of_host(request: VerifyRequest) -> Verdict:
    """All of the verdict by numpy."""
    verdict, count = host_verdict(request), request.logits.shape[1]
    nats, chances, top, ratios = map(torch.tensor, verdict.recorded)
    expected = chances if verdict.ratios is None else verdict.ratios[: len(ratios)]
    assert ratios.tolist() == expected.tolist()
    draws = {"answers": verdict.answers[:], "fresh": verdict.fresh[:], "drawn": verdict.drawn[:]}
    p, pair = verdict.rows.probs(0, count), torch.tensor(verdict.settled)
    return Verdict(verdict.accepted, verdict.ratios, **draws, chances=chances, entropy=nats, top=top, p=p, pair=pair)


def host_soundness(request: VerifyRequest) -> tuple[list[bool], tuple[int, int]]:
    """Soundness and pair by numpy, for rows that may be unsound."""
    verdict = host_verdict(request)
    return [verdict.rows.row(i).sound for i in range(request.logits.shape[1])], verdict.settled


REFERENCE = of_tensors(verify_reference, settle_reference, lambda request: request)
FAST = [
    pytest.param(of_tensors(verify_triton, settle_triton, to_device), id="triton", marks=needs_triton),
    pytest.param(Way(of_host, host_soundness), id="host"),
]
every_way = pytest.mark.parametrize("way", [pytest.param(REFERENCE, id="reference"), *FAST])


@pytest.mark.parametrize("way", FAST)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name: str, way: Way) -> None:
    request = in_a_run(CASES[name])
    ours, theirs = way.verdict(request), REFERENCE.verdict(replace(request, store=True))
    theirs.top = theirs.p.amax(-1)
    for field, relative, absolute in (("entropy", 1e-4, 1e-5), ("chances", 1e-5, 1e-12), ("top", 1e-5, 0.0)):
        if (value := getattr(ours, field)) is not None:
            near(field, value, getattr(theirs, field)[: len(value)], relative, absolute)
    if request.draft_probs is not None:
        near("ratios", ours.ratios, theirs.ratios, 1e-5, 1e-12)
    if ours.deviations is not None:
        near("deviations", ours.deviations, theirs.deviations, 1e-5)
    if ours.p is not None:
        near("p", ours.p, theirs.p, 3e-5, 1e-12)  # at 131,072 columns PyTorch's own float32 sum is this far from the float64 one
        assert torch.equal(ours.p.cpu() > LEAST, theirs.p > LEAST)  # the filters keep the same tokens
    differing = ties(request, replace(ours, **{k: v.cpu() for k, v in vars(ours).items() if isinstance(v, Tensor)}), theirs)
    assert differing <= 1, f"{differing} near ties among {3 * len(theirs.answers)} draws"
    if not differing:
        assert ours.pair.tolist() == theirs.pair.tolist()


@pytest.mark.parametrize("way", FAST)
def test_filters_are_exact_and_keep_ties(way: Way) -> None:
    """Scores from a few values only: whole groups of tokens are equal at the thresholds."""
    for sampling in (Sampling(top_k=10), Sampling(top_p=0.5), Sampling(top_k=300, top_p=0.7), Sampling(top_k=1), Sampling(top_p=0.01)):
        request = in_a_run(window(3, 1000, sampling))
        request = replace(request, logits=(4 * request.logits).round() / 4 + 0.0)
        request.logits[:, :, 5] = -0.0
        ours, theirs = way.verdict(request).p.cpu(), verify_reference(request).p
        assert torch.equal(ours > 0, theirs > 0), sampling
        if sampling.top_k == 10:
            assert (ours[0] > 0).sum() > 10  # the tenth has equals, and they stay


@every_way
def test_the_answer_of_equals_is_the_first(way: Way) -> None:
    verdict = way.verdict(in_a_run(replace(window(1, 1000, Sampling(0.0)), logits=torch.zeros(1, 1, 1000))))
    assert [verdict.answers.item(), verdict.fresh.item(), verdict.drawn.item(), verdict.entropy.item()] == [0, 0, 0, 0]


@every_way
def test_a_draft_from_its_own_distribution_is_replaced_by_a_draw_from_it(way: Way) -> None:
    """p = q: nothing is left of p - q, so the residual is p."""
    request = in_a_run(window(4, 1000))
    verdict = way.verdict(replace(request, draft_probs=way.verdict(request).p[:3].cpu().contiguous()))
    assert (verdict.ratios - 1).abs().max() < 1e-5 and (verdict.p.gather(1, verdict.drawn[:, None]) > 0).all()
    assert verdict.deviations is None or verdict.deviations.max() < 1e-6


@every_way
def test_a_small_residual_is_not_replaced_by_p(way: Way) -> None:
    """q moves a millionth from the most probable token to the next: the residual is that token alone."""
    request = in_a_run(window(4, 1000))
    p = way.verdict(request).p[:3].cpu()
    best = p.topk(2).indices
    moved = torch.tensor([-1e-6, 1e-6]).expand(3, -1)
    assert torch.equal(way.verdict(replace(request, draft_probs=p.scatter_add(1, best, moved))).drawn[:3].cpu(), best[:, 0])


@every_way
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("sampling", [Sampling(), BPT])
def test_nan_is_refused(value: float, sampling: Sampling, way: Way) -> None:
    request = in_a_run(window(3, 1000, sampling))
    request = replace(request, tokens=request.logits[0, 0].argmax().expand(2).clone())
    request.logits[0, 1, 999] = value
    sure, never = (way.soundness(replace(request, draft_probs=torch.full((2, 1000), q))) for q in (1e-30, 1e30))  # every draft, or none
    assert sure[0] == never[0] == [True, False, True]
    assert never[1][0] == 0 and never[1][1] >= 0  # the row after the refusal does not matter
    with pytest.raises(FloatingPointError, match="NaN"):
        check_pair(*sure[1])


@every_way
def test_a_row_without_any_possible_token_is_refused(way: Way) -> None:
    request = window(2, 1000)
    request.logits[0, 0] = -torch.inf
    assert way.soundness(in_a_run(request)) == ([False, True], (0, -1))


@every_way
def test_the_same_input_gives_the_same_bits(way: Way) -> None:
    request = in_a_run(window(3, 5121, Sampling(0.9, top_p=0.9)))
    first, second = way.verdict(request), way.verdict(request)
    assert torch.equal(first.p, second.p) and torch.equal(first.entropy, second.entropy)
