"""A verdict in fixed shapes equals the verdict on its first rows, whatever fills the rest."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Sampling
from engine.dispatch.choice import REFERENCE, TRITON, VARIABLE
from engine.rules import more_probable_than
from engine.verify import fixed
from engine.verify.choice import settle, verify
from engine.verify.request import Criterion, Verdict, VerifyRequest
from research.bench.kernel_cases import window
from tests.engine.kernels.near import DEVICE, needs_triton

ROWS = 9  # of the pass
WAYS = [REFERENCE, pytest.param(TRITON, marks=needs_triton)]
CASES = {
    "ratio": window(5, 300, Sampling(0.9, guidance=2.0)),
    "one row": window(1, 300),
    "all rows": window(ROWS, 300, store=False),
    "match seed": window(5, 300, drawn=False, seeded=True, store=False),
    "filtered": window(6, 300, Sampling(0.8, top_k=40)),
}


def padded_verdict(
    request: VerifyRequest, kind: fixed.VerdictKind, question: VerifyRequest, masks: Tensor | None, numbers: list[int]
) -> Verdict:
    """The verdict in fixed shapes, filled up with noise."""
    count = request.logits.shape[1]
    random = torch.Generator().manual_seed(5)
    more = torch.randn(len(request.logits), ROWS - count, 300, generator=random).to(DEVICE)
    draft_probs = None if request.draft_probs is None else F.pad(request.draft_probs, (0, 0, 0, ROWS - 1 - len(request.draft_probs)))
    drafts = torch.cat([request.tokens.to(DEVICE), torch.randint(0, 300, (ROWS - count,), generator=random).to(DEVICE)])
    table = fixed.columns(question, request.sampling, numbers, ROWS).to(DEVICE)
    logits = torch.cat([request.logits.to(DEVICE), more], 1)
    out = fixed.fixed_verdict(kind, logits, drafts, table, None if draft_probs is None else draft_probs.to(DEVICE), masks)
    return fixed.unpack_verdict(kind, *out, ROWS, count)


def to_device(request: VerifyRequest) -> VerifyRequest:
    """The same on the device of the tests."""
    return replace(request, **{k: v.to(DEVICE) for k, v in vars(request).items() if isinstance(v, Tensor)})


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_it_is_the_verdict_on_the_first_rows(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, way)
    request = CASES[name]
    question = VerifyRequest(
        request.tokens, request.draft_probs, request.uniforms, request.base, request.positions, request.seeded, request.store
    )
    ours = padded_verdict(request, fixed.kind_of(question, request.sampling, 300), question, None, [0] * request.logits.shape[1])
    plain = verify(to_device(request))
    plain.pair = settle(plain, plain.accepted, request.seeded)
    for field, expected in vars(plain).items():
        value = getattr(ours, field)
        assert (value is None) == (expected is None), field
        if value is not None:
            torch.testing.assert_close(value, expected, msg=lambda text, field=field: f"{field}: {text}")


@pytest.mark.parametrize("way", WAYS)
def test_masks_are_told_by_number(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, way)
    request, random = CASES["ratio"], torch.Generator().manual_seed(3)
    masks, numbers = torch.rand(3, 300, generator=random) < 0.5, [2, 0, 1, 1, 0]
    question = VerifyRequest(request.tokens, request.draft_probs, request.uniforms, request.base, request.positions, False, True)
    ours = padded_verdict(request, fixed.kind_of(question, request.sampling, 300), question, masks.to(DEVICE), numbers)
    plain = verify(to_device(replace(request, allowed=masks[numbers])))
    torch.testing.assert_close(ours.p, plain.p)
    assert ours.pair.tolist() == settle(plain, plain.accepted, False).tolist()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("raw", [True, False])
def test_a_criterion_replaces_the_rule(raw: bool, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts by the raw logits or by the sampling distribution; the token after the drafts is the row's answer."""
    monkeypatch.setenv(VARIABLE, way)
    request = CASES["ratio"]
    plain = verify(to_device(request))
    p = torch.softmax(request.logits[0], -1) if raw else plain.p.cpu()
    some = p[:4].gather(1, request.tokens[:, None]).min().item() * 1.5  # not all drafts are as probable
    for limit in (0.0, some, 1.0):
        criterion = Criterion(more_probable_than, limit, raw)
        question = VerifyRequest(request.tokens, None, request.uniforms, request.base, request.positions, True, False, criterion)
        ours = padded_verdict(replace(request, draft_probs=None), fixed.kind_of(question, request.sampling, 300), question, None, [0] * 5)
        accepted = more_probable_than(p[:4], request.tokens, limit)
        a = int(accepted.long().cumprod(0).sum())
        assert ours.accepted.tolist() == accepted.tolist() and ours.p is None
        assert ours.pair.tolist() == [a, plain.answers[a].item()]


@pytest.mark.parametrize("way", WAYS)
def test_a_row_that_fills_up_may_be_unsound(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only rows up to the first refusal count."""
    monkeypatch.setenv(VARIABLE, way)
    request = to_device(CASES["match seed"])
    request.logits[:, 4] = torch.nan
    verdict = verify(request)
    accepted = torch.ones(4, dtype=torch.bool, device=DEVICE)
    for count, token in ((3, verdict.answers[3].item()), (4, -1)):
        pair = settle(verdict, accepted, True, torch.tensor(count, device=DEVICE))
        assert pair.tolist() == [count, token]
