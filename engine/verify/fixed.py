"""A verdict as a function of tensors of fixed shapes, so that it can follow a pass inside one CUDA graph (engine/networks/static_step.py).

Its inputs from the host share one int64 tensor with the inputs of the pass: uniform numbers as their bits, positions, numbers of grammar
masks, the number of drafts. A pass is padded with filler rows, and so is its verdict: all rows but the last count as drafts, and `settle`
gets the true number of drafts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.core import ChosenTokens, Sampling
from engine.noise.kernel import to_int64
from engine.verify.choice import settle, verify
from engine.verify.request import Verdict, VerifyRequest

COLUMNS = 12  # columns: three uniform numbers, position, mask, number of drafts, limit, base of the noise, numbers of the sampling


@dataclass(frozen=True)
class VerdictKind:
    """The computation that a verdict needs, without its numbers: part of a graph's key. sampling : see `Sampling.kind`; chosen : type of
    the drafts' distributions, if these are one-hot"""

    sampling: Sampling
    seeded: bool
    has_draft_probs: bool
    chosen: torch.dtype | None
    store: bool
    accepts: Callable[[Tensor, Tensor, Tensor], Tensor] | None
    raw: bool


def kind_of(request: VerifyRequest, sampling: Sampling, vocabulary: int) -> VerdictKind:
    """The kind of a request."""
    rule = request.criterion
    accepts, raw = (None, False) if rule is None else (rule.accepts, rule.raw)
    q = request.draft_probs
    chosen = q.dtype if isinstance(q, ChosenTokens) else None
    return VerdictKind(sampling.kind(vocabulary), request.seeded, q is not None, chosen, request.store, accepts, raw)


def columns(request: VerifyRequest, sampling: Sampling, masks: list[int], rows: int) -> Tensor:
    """The host's inputs of a verdict, int64 [rows, COLUMNS], padded.

    masks : the mask number of each row of the pass
    """
    count, limit = len(request.positions), 0.0 if request.criterion is None else request.criterion.limit
    inputs = np.zeros((rows, COLUMNS), dtype=np.int64)
    inputs[:count, :3], inputs[:count, 3], inputs[:count, 4] = request.uniforms.numpy().view(np.int64).T, request.positions, masks
    inputs[:, 5:8] = count - 1, np.float64(limit).view(np.int64), to_int64(request.base)
    inputs[:, 8:] = np.array(sampling.numbers, dtype=np.float64).view(np.int64)
    return torch.from_numpy(inputs)


def fixed_verdict(
    kind: VerdictKind, logits: Tensor, drafts: Tensor, inputs: Tensor, draft_probs: Tensor | None, masks: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The verdict on the rows of a pass, packed: int64 [5 R + 1], float32 [2 (R - 1) + R, and 2 (R - 1) with q], and p [R, V] if stored.

    logits : [branches, R, V]; drafts : int64 [R-1]; inputs : see `columns`; draft_probs : [R-1, V], None; masks : bool [M, V], None = all
    """
    uniforms, (positions, row_of, count) = inputs[:, :3].view(torch.float64).T, inputs[:, 3:6].unbind(1)
    positions, drafts = positions.contiguous(), drafts.contiguous()  # kernels read them without strides
    draft_probs = draft_probs if kind.chosen is None else ChosenTokens(drafts, logits.shape[-1], kind.chosen).dense()
    allowed = None if masks is None else masks[row_of]
    store = kind.store or (kind.accepts is not None and not kind.raw)
    request = VerifyRequest(
        drafts,
        draft_probs,
        uniforms,
        inputs[0, 7],
        positions,
        kind.seeded,
        store,
        logits=logits,
        sampling=kind.sampling,
        numbers=inputs[0, 8:].view(torch.float64),
        allowed=allowed,
    )
    verdict = verify(request)
    accepted, seeded = verdict.accepted, kind.seeded
    if kind.accepts is not None:
        p = torch.softmax(logits[0, :-1].float(), -1) if kind.raw else verdict.p[:-1]
        accepted, seeded = kind.accepts(p, drafts, inputs[0, 6].view(torch.float64)), True
    pair = settle(verdict, accepted, seeded, count[0])
    integers = [accepted.long(), pair, verdict.answers, verdict.fresh, verdict.drawn, verdict.sound.long()]
    numbers = [each.float() for each in (verdict.chances, verdict.entropy, verdict.ratios, verdict.deviations) if each is not None]
    return torch.cat(integers), torch.cat(numbers), verdict.p if kind.store else None


def unpack_verdict(kind: VerdictKind, integers: Tensor, numbers: Tensor, p: Tensor | None, rows: int, count: int) -> Verdict:
    """The verdicts of the first `count` rows of a pass of `rows`."""
    accepted, pair, answers, fresh, drawn, sound = integers.split([rows - 1, 2, rows, rows, rows, rows])
    chances, entropy, *parts = numbers.split([rows - 1, rows, *([rows - 1] * 2 if kind.has_draft_probs else [])])
    ratios, deviations = (each[: count - 1] for each in parts) if parts else (None, None)
    return Verdict(
        accepted[: count - 1] != 0, ratios, answers[:count], fresh[:count], drawn[:count], chances[: count - 1], deviations,
        entropy[:count], None if p is None else p[:count], sound[:count] != 0, pair,
    )  # fmt: skip
