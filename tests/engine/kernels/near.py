"""Comparison of a kernel with its reference: numbers by name, and tokens with the count of near ties."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from engine.dispatch.language import is_interpreted, version
from engine.noise import kernel as noise
from engine.sampling import guide, residual, warp
from engine.verify.request import ACCEPT, FRESH, RESIDUAL, Verdict, VerifyRequest

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TIE = 1e-5  # candidates with a smaller relative difference of scores may be swapped

needs_triton = pytest.mark.skipif(
    DEVICE.type == "cpu" and not is_interpreted(),
    reason="Triton is not installed here" if version() is None else "TRITON_INTERPRET is off, and PyTorch sees no NVIDIA GPU here",
)


def near(name: str, ours: Tensor, theirs: Tensor, relative: float, absolute: float = 0.0) -> None:
    """Fails with the name and both errors if numbers differ, or if either has NaN."""
    ours, theirs = ours.double().cpu(), theirs.double().cpu()
    assert ours.shape == theirs.shape, f"{name}: {tuple(ours.shape)} instead of {tuple(theirs.shape)}"
    assert not ours.isnan().any() and not theirs.isnan().any(), f"{name} has NaN"
    gap = (ours - theirs).abs()
    allowed = absolute + relative * theirs.abs()
    worst = (gap - allowed).argmax() if gap.numel() else 0
    assert (gap <= allowed).all(), f"{name}: {ours.flatten()[worst]} instead of {theirs.flatten()[worst]}; greatest error {gap.max():.3g}"


def ties(request: VerifyRequest, ours: Verdict, theirs: Verdict) -> int:
    """Number of tokens and verdicts that differ because two candidates are nearly equal; fails if one differs for another reason."""
    size = len(request.tokens)
    scores = warp(guide(request.logits.double(), request.sampling.guidance), request.sampling, request.allowed)
    p = torch.softmax(scores, -1)
    loud = scores + noise.gumbel_reference(request.base, request.positions, p.shape[-1])
    tied = _ties_of_answers(loud, ours.answers, theirs.answers)
    tied += _ties_of_draws("fresh", p, request.uniforms[FRESH], ours.fresh, theirs.fresh)
    left = p if request.draft_probs is None else torch.cat([residual(p[:size], request.draft_probs.double()), p[size:]])
    tied += _ties_of_draws("drawn", left, request.uniforms[RESIDUAL], ours.drawn, theirs.drawn)
    for i in (ours.accepted != theirs.accepted).nonzero().flatten().tolist():
        assert not request.seeded and request.draft_probs is not None, f"verdict {i} differs"
        u, ratio = request.uniforms[ACCEPT, i].item(), theirs.ratios[i].item()
        assert abs(u - ratio) <= TIE * ratio, f"verdict {i} differs at u = {u}, ratio {ratio}"
        tied += 1
    return tied


def _ties_of_answers(loud: Tensor, ours: Tensor, theirs: Tensor) -> int:
    rows = (ours != theirs).nonzero().flatten().tolist()
    for row in rows:
        a, b = loud[row, ours[row]].item(), loud[row, theirs[row]].item()
        assert abs(a - b) <= TIE * max(1.0, abs(b)), f"answer {row}: {ours[row]} ({a}) instead of {theirs[row]} ({b})"
    return len(rows)


def _ties_of_draws(name: str, p: Tensor, u: Tensor, ours: Tensor, theirs: Tensor) -> int:
    rows = (ours != theirs).nonzero().flatten().tolist()
    for row in rows:
        run = torch.cat([p.new_zeros(1), p[row].cumsum(0)])
        token, target = ours[row].item(), u[row].item() * run[-1].item()
        low, high = run[token].item() - TIE * target, run[token + 1].item() + TIE * target
        assert p[row, token] > 0 and low <= target <= high, f"{name} {row}: {token} instead of {theirs[row]}"
    return len(rows)
