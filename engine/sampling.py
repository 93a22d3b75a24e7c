"""From logits to distributions and from distributions to tokens: one definition for the target p and every draft distribution q."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from engine.core import Sampling
from engine.errors import BadPrompt
from engine.machine import widest_float

RANGES = {  # ranges of the values that a user may set
    "temperature": (0, 5), "top_k": (0, 10**6), "top_p": (0.01, 1), "guidance": (0, 20),
    "guide": (0, 50),
}  # fmt: skip
FEW = 64  # the number of scores that top-p sorts first, before it sorts all


def with_values(sampling: Sampling, values: Mapping[str, float]) -> Sampling:
    """The sampling with the given values; raises BadPrompt for an unknown name or a value out of range."""
    for name, value in values.items():
        if name not in RANGES:
            raise BadPrompt(f"There is no sampling setting '{name}'. There are: {', '.join(RANGES)}.")
        low, high = RANGES[name]
        if not low <= value <= high:  # also refuses nan
            raise BadPrompt(f"{name} = {value} is out of range. Choose {low:g} to {high:g}.")
    return replace(sampling, **values)


def guide(logits: Tensor, scale: float | Tensor) -> Tensor:
    """Classifier-free guidance on raw logits: [2, N, V] (conditional, unconditional) -> [N, V] = u + scale (c - u).

    One branch [1, N, V] is returned as it is.
    """
    if logits.shape[0] == 1:
        return logits[0]
    return torch.lerp(logits[1], logits[0], scale.to(logits.dtype) if isinstance(scale, Tensor) else scale)


def warp(guided: Tensor, sampling: Sampling, allowed: Tensor | None = None, numbers: Tensor | None = None) -> Tensor:
    """Guided logits [N, V] -> scores [N, V]: grammar, temperature, top-k, top-p. softmax(scores) is the distribution.

    allowed : bool [V] or [N, V]; False is impossible. Ties at the k-th value are all kept. Temperature 0 keeps only the best
    token (the first of equals). With `temperature_last` the temperature is applied after the filters.
    numbers : float64 [4], those of the sampling, whose kind is given then; None: the sampling has them
    """
    temperature, k, mass, _ = sampling.numbers if numbers is None else numbers.unbind()
    scores = guided
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    if sampling.temperature == 0:
        best = scores.argmax(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter_(-1, best, 0.0)
    if sampling.temperature != 1 and not sampling.temperature_last:
        scores = scores / temperature
    has_top_k = 0 < sampling.top_k < scores.shape[-1]
    if has_top_k or sampling.top_p < 1:
        least = _least_kept(scores, k if has_top_k else 0, mass if sampling.top_p < 1 else None)
        scores = scores.masked_fill(scores < least, -torch.inf)
    return scores / temperature if sampling.temperature_last else scores


def _least_kept(scores: Tensor, k: int | Tensor, mass: float | Tensor | None) -> Tensor:
    """The smallest score [..., 1] that top-k (0: all) and then top-p (None: all) keep of scores [..., V].

    Top-p keeps the most probable of the k best until their probabilities, normalised among the k, reach `mass`; at least one, and
    all ties of the last. A few of the largest scores are sorted first, and all only if a row needs more: same result, less sorting. A GPU
    sorts all at once, because the host would have to wait to know.
    """
    vocabulary, has_top_k, fixed = scores.shape[-1], not isinstance(k, int) or k > 0, isinstance(k, Tensor) or isinstance(mass, Tensor)
    if mass is None:
        return _kth(scores.topk(vocabulary if fixed else k, -1).values, k)
    few = min(max(FEW, k + 1), vocabulary) if scores.device.type == "cpu" and not fixed else vocabulary
    for count in (few, vocabulary):
        best = scores.topk(count, -1).values
        if has_top_k:
            last = _kth(best, k)
            total = best.masked_fill(best < last, -torch.inf).logsumexp(-1, keepdim=True)
            enough = (best[..., -1:] < last) | (best[..., -1:] == -torch.inf)  # no ties of the k-th further down
        else:
            total = scores.logsumexp(-1, keepdim=True)
        p = (best - total).exp()
        reached = p.cumsum(-1)
        if not has_top_k:
            enough = reached[..., -1] >= mass
        if count == vocabulary or bool(enough.all()):
            break
    outside = reached - p >= mass
    outside[..., 0] = False
    least = best.masked_fill(outside, torch.inf).min(-1, keepdim=True).values
    return torch.maximum(least, last) if has_top_k else least


def _kth(best: Tensor, k: int | Tensor) -> Tensor:
    """The k-th [..., 1] of sorted scores."""
    return best[..., k - 1 : k] if isinstance(k, int) else best.gather(-1, (k.long() - 1).expand(*best.shape[:-1], 1))


def draw(p: Tensor, u: Tensor) -> Tensor:
    """One token per row by inverting the cumulative distribution. p : [N, V], or [1, V] for all rows, need not be normalised; u : [N] in
    (0, 1) -> int64 [N]."""
    if p.shape[0] == 1 and p.device.type == "cpu" and p.dtype != torch.bfloat16:
        return _draw_from_one(p[0].detach(), u)
    cumulated = p.to(widest_float(p.device)).cumsum(-1)
    wanted = u.to(p.device, cumulated.dtype) * cumulated[:, -1]
    places = torch.searchsorted(cumulated[0], wanted) if len(p) == 1 else torch.searchsorted(cumulated, wanted[:, None]).squeeze(-1)
    return places.clamp(max=p.shape[-1] - 1)


def _draw_from_one(p: Tensor, u: Tensor) -> Tensor:
    """`draw` from one distribution [V] on a CPU: numpy's functions give the same bits at a quarter of PyTorch's cost."""
    cumulated = p.numpy().cumsum(dtype=np.float64)
    places = cumulated.searchsorted(u.numpy() * cumulated[-1])
    return torch.from_numpy(np.minimum(places, len(cumulated) - 1))


def draw_gumbel(scores: Tensor, gumbel: Tensor) -> Tensor:
    """argmax(scores + noise) per row: a draw from softmax(scores), determined by the position's noise. [N, V] x2 -> int64 [N]."""
    return (scores + gumbel).argmax(-1)


def best_of(scores: Tensor) -> Tensor | np.ndarray:
    """The best token of each row, the first of equals: [N, V] -> int64 [N]. On a CPU numpy's function takes a fifth of PyTorch's time."""
    return scores.argmax(-1) if scores.device.type != "cpu" or scores.dtype == torch.bfloat16 else scores.detach().numpy().argmax(-1)


def one_hot(ids: Tensor, vocabulary: int, dtype: torch.dtype) -> Tensor:
    """One-hot distributions of chosen tokens: int64 [N] -> [N, V]."""
    return torch.zeros(len(ids), vocabulary, dtype=dtype, device=ids.device).scatter_(1, ids[:, None], 1.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """max(0, p - q) per row, not normalised; p itself where nothing is left (p = q up to rounding). [N, V] x2 -> [N, V]."""
    rest = (p - q).clamp_(min=0)
    if len(rest) == 1 and rest.device.type == "cpu":
        return p if rest.sum() < 1e-12 else rest
    empty = rest.sum(-1, keepdim=True) < 1e-12
    return torch.where(empty, p, rest)


def entropy(p: Tensor) -> Tensor:
    """Shannon entropy of each row in nats: [N, V] -> [N]."""
    return -torch.special.xlogy(p, p).sum(-1)
