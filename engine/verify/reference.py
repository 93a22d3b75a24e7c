"""The reference: verdicts from the engine's own functions, in plain PyTorch, on any device and in any number type."""

from __future__ import annotations

import torch
from torch import Tensor

from engine.noise.kernel import gumbel_reference
from engine.rules import deviation, matches, probability_of, ratio
from engine.sampling import draw, draw_gumbel, entropy, guide, residual, warp
from engine.verify.request import ACCEPT, FRESH, RESIDUAL, Verdict, VerifyRequest


def verify_reference(request: VerifyRequest) -> Verdict:
    """Verdicts and draws of a pass, in plain PyTorch."""
    size = len(request.tokens)
    guidance = request.sampling.guidance if request.numbers is None else request.numbers[3]
    scores = warp(guide(request.logits.float(), guidance), request.sampling, request.allowed, request.numbers)
    p = torch.softmax(scores, -1)
    answers = draw_gumbel(scores, gumbel_reference(request.base, request.positions, p.shape[-1]).to(scores.dtype))
    ratios, deviations, rest = None, None, p
    if request.draft_probs is not None:
        accepted, ratios = ratio(p[:size], request.draft_probs, request.tokens, request.uniforms[ACCEPT, :size])
        deviations = deviation(p[:size], request.draft_probs)
        rest = torch.cat([residual(p[:size], request.draft_probs), p[size:]])
    if request.draft_probs is None or request.seeded:
        accepted = matches(request.tokens, answers[:size])
    fresh, drawn = draw(p, request.uniforms[FRESH]), draw(rest, request.uniforms[RESIDUAL])
    chances, sound = probability_of(p[:size], request.tokens), ~p.isnan().any(-1)
    p, nats = p if request.store else None, entropy(p)
    return Verdict(accepted, ratios, answers, fresh, drawn, chances, deviations, nats, p, sound)


def settle_reference(verdict: Verdict, accepted: Tensor, seeded: bool, drafts: Tensor | None = None) -> Tensor:
    """The first refusal a and the token after it, int64 [2]; the token is -1 if a row up to a is not sound."""
    row = torch.arange(len(verdict.sound), device=accepted.device)
    size = len(accepted) if drafts is None else drafts
    a = (accepted & (row[: len(accepted)] < size)).long().cumprod(0).sum()
    answer, fresh, drawn = (  # the host would have to read an index
        each.gather(0, a[None])[0] for each in (verdict.answers, verdict.fresh, verdict.drawn)
    )
    token = answer if seeded else torch.where(a == size, fresh, drawn)
    return torch.stack([a, torch.where((verdict.sound | (row > a)).all(), token, -1)])
