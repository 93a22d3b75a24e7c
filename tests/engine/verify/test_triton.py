"""The verification kernel against the engine's own functions, on odd shapes and with every setting of the sampling."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch

from engine.core import Sampling
from engine.dispatch.choice import TRITON, VARIABLE
from engine.verify.choice import settle
from engine.verify.reference import settle_reference, verify_reference
from engine.verify.request import VerifyRequest, read_pair
from engine.verify.triton import settle_triton, verify_triton
from research.bench.kernel_cases import window
from tests.engine.kernels.near import DEVICE, near, needs_triton, ties

pytestmark = needs_triton
HALF = torch.float16
BPT = Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)

CASES = {
    "R63-V1000-guided-grammar": window(63, 1000, Sampling(0.9, guidance=3.0), masked=True),
    "R1-V1000": window(1, 1000),
    "R7-V1000-float16": window(7, 1000, Sampling(0.8, guidance=7.5), dtype=HALF),
    "R7-V1000-bfloat16-top-k": window(7, 1000, Sampling(top_k=100), dtype=torch.bfloat16),
    "R7-V1000-top-p": window(7, 1000, Sampling(1.3, top_p=0.9)),
    "R7-V1000-blocked": window(7, 1000, blocked=0.9),
    "R7-V1000-weak-guidance": window(7, 1000, Sampling(guidance=0.3)),
    "R7-V1000-greedy": window(7, 1000, Sampling(0.0, top_k=3)),
    "R7-V1000-match-seed": window(7, 1000, drawn=False, seeded=True, store=False),
    "R7-V1000-match-seed-with-laws": window(7, 1000, seeded=True),
    "R7-V5121-BPT": window(7, 5121, BPT),
    "R7-V5121-temperature-last-alone": window(7, 5121, replace(BPT, top_k=0, top_p=1.0)),
    "R1-V16384-top-k-float16": window(1, 16384, Sampling(top_k=2000, guidance=3.0), dtype=HALF),
    "R2-V65537-top-k-grammar": window(2, 65537, Sampling(top_k=2000), masked=True),
    "R1-V131072-float16": window(1, 131072, Sampling(0.7, guidance=3.0), dtype=HALF),
}


def on_device(request: VerifyRequest) -> VerifyRequest:
    """The same on the device of the tests."""
    return replace(request, **{k: v.to(DEVICE) for k, v in vars(request).items() if isinstance(v, torch.Tensor)})


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_reference(name: str) -> None:
    request = on_device(CASES[name])
    ours, theirs = verify_triton(request), verify_reference(request)
    near("entropy", ours.entropy, theirs.entropy, 1e-4, 1e-5)
    near("chances", ours.chances, theirs.chances, 1e-5, 1e-12)
    if request.laws is not None:
        near("ratios", ours.ratios, theirs.ratios, 1e-5, 1e-12)
        near("deviations", ours.deviations, theirs.deviations, 1e-5)
    assert (ours.p is None) == (not request.store)
    if request.store:
        near("p", ours.p, theirs.p, 3e-5, 1e-12)  # at 131,072 columns PyTorch's own float32 sum is this far from the float64 one
        assert torch.equal(ours.p > 0, theirs.p > 0)  # the filters keep the same tokens
    found = ties(request, ours, theirs)
    if found:
        warnings.warn(f"{name}: {found} near ties among {3 * len(ours.answers)} draws", stacklevel=1)
    assert found <= 1, f"{found} near ties among {len(ours.answers)} rows"
    assert ours.sound.all()
    for seeded in (False, True):
        assert torch.equal(settle_triton(ours, ours.accepted, seeded), settle_reference(ours, ours.accepted, seeded))


def test_filters_are_exact_and_keep_ties() -> None:
    """Scores from a few values only: whole groups of tokens are equal at the thresholds."""
    for sampling in (Sampling(top_k=10), Sampling(top_p=0.5), Sampling(top_k=300, top_p=0.7), Sampling(top_k=1), Sampling(top_p=0.01)):
        request = window(3, 1000, sampling)
        request = on_device(replace(request, logits=(4 * request.logits).round() / 4 + 0.0))
        request.logits[:, :, 5] = -0.0
        ours, theirs = verify_triton(request), verify_reference(request)
        assert torch.equal(ours.p > 0, theirs.p > 0), sampling
        if sampling.top_k == 10:
            assert (ours.p[0] > 0).sum() > 10  # the tenth has equals, and they stay


def test_the_answer_of_equals_is_the_first() -> None:
    request = on_device(replace(window(1, 1000, Sampling(0.0)), logits=torch.zeros(1, 1, 1000)))
    ours = verify_triton(request)
    assert [ours.answers.item(), ours.fresh.item(), ours.drawn.item()] == [0, 0, 0] and ours.entropy.item() == 0


def test_a_draft_from_its_own_distribution_is_replaced_by_a_draw_from_it() -> None:
    """p = q: nothing is left of p - q, so the residual is p, as in the reference."""
    request = window(4, 1000)
    p = verify_reference(request).p
    request = on_device(replace(request, laws=p[:3].contiguous()))
    ours, theirs = verify_triton(request), verify_reference(request)
    assert (ours.ratios - 1).abs().max() < 1e-5 and ours.deviations.max() < 1e-6
    assert ties(request, replace_drawn(ours, theirs), theirs) == 0
    assert (ours.p.gather(1, ours.drawn[:, None]) > 0).all()


def replace_drawn(ours, theirs):
    """Without the residual draws: of p - q nothing but rounding is left, and each side rounds in its own way."""
    return replace(ours, drawn=theirs.drawn)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_refused(value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TRITON)
    request = window(3, 1000)
    request.logits[0, 1, 999] = value
    ours = verify_triton(on_device(request))
    assert ours.sound.tolist() == [True, False, True]
    assert ours.answers[1] == ours.fresh[1] == ours.drawn[1] == -1 and not ours.accepted[1]
    stopped, passed = (torch.tensor(verdicts, device=DEVICE) for verdicts in ([False, False], [True, False]))
    assert read_pair(settle(ours, stopped, False))[0] == 0  # the row after the refusal does not matter
    with pytest.raises(FloatingPointError, match="NaN"):
        read_pair(settle(ours, passed, False))


def test_a_row_without_any_possible_token_is_refused() -> None:
    request = window(2, 1000)
    request.logits[0, 0] = -torch.inf
    assert verify_triton(on_device(request)).sound.tolist() == [False, True]
    assert verify_reference(request).sound.tolist() == [False, True]


def test_the_same_input_gives_the_same_bits() -> None:
    request = on_device(window(3, 5121, Sampling(0.9, top_p=0.9)))
    first, second = verify_triton(request), verify_triton(request)
    assert torch.equal(first.p, second.p) and torch.equal(first.entropy, second.entropy)
