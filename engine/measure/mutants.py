"""Broken functions that `verify` puts in place of the right ones: a claim of exactness that none of them can break proves nothing.

Each mutant is a list of (owner, attribute, wrong value). Owners are modules, classes or dictionaries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from engine import noise, sampling
from engine.backbones import toy
from engine.measure import chain
from engine.methods import jacobi, sjd, sjdpp

Patch = tuple[Any, str, Any]


@contextmanager
def applied(name: str | None) -> Iterator[None]:
    """The named mutant in force inside the block; None changes nothing."""
    patches = MUTANTS[name]() if name else []
    kept = [(owner, key, _get(owner, key)) for owner, key, _ in patches]
    try:
        for owner, key, value in patches:
            _set(owner, key, value)
        yield
    finally:
        for owner, key, value in kept:
            _set(owner, key, value)


def _get(owner: Any, key: str) -> Any:
    return owner[key] if isinstance(owner, dict) else getattr(owner, key)


def _set(owner: Any, key: str, value: Any) -> None:
    if isinstance(owner, dict):
        owner[key] = value
    else:
        setattr(owner, key, value)


# --- sampling and guidance --------------------------------------------------------------------------------------------


def _temperature_after_top_p() -> list[Patch]:
    def warp(guided: Tensor, s: Any, allowed: Tensor | None = None) -> Tensor:
        cut = sampling.warp(guided, type(s)(1.0, s.top_k, s.top_p, s.guidance), allowed)
        return cut / s.temperature

    return [(toy, "warp", warp)]


def _guidance_on_probabilities() -> list[Patch]:
    def guide(logits: Tensor, scale: float) -> Tensor:
        c, u = torch.softmax(logits, -1)
        return (u + scale * (c - u)).clamp(min=1e-9).log()

    return [(toy, "guide", guide)]


def _residual_is_p(owner: Any) -> Callable[[], list[Patch]]:
    return lambda: [(owner, "residual", lambda p, q: p)]


# --- speculative sampling ---------------------------------------------------------------------------------------------


def _one_hot_ratio(owner: Any) -> Callable[[], list[Patch]]:
    def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        r = p.gather(1, tokens[:, None]).squeeze(1)
        return u < r, r

    return lambda: [(owner, "ratio", ratio)]


def _inverted_ratio() -> list[Patch]:
    right = sjd.ratio

    def ratio(p: Tensor, q: Tensor, tokens: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        return right(q, p.clamp(min=1e-12), tokens, u)

    return [(sjd, "ratio", ratio)]


def _bonus_from_the_row_before() -> list[Patch]:
    return [(chain, "bonus", lambda p, a: p[max(0, a - 1) : max(1, a)])]


def _double_temperature() -> list[Patch]:
    right = chain.tables
    return [(chain, "draw", _drawn_from(lambda p: p * p)), (chain, "tables", right)]


def _drawn_from(change: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p, u: sampling.draw(change(p), u)


# --- Jacobi windows ---------------------------------------------------------------------------------------------------


def _one_answer_more() -> list[Patch]:
    right = jacobi.leading
    return [(jacobi, "leading", lambda accepted: min(len(accepted), right(accepted) + 1))]


def _stale_law() -> list[Patch]:
    patches: list[Patch] = []
    for owner, key in ((sjd, "redraw"), (sjdpp.REFRESHES, "redraw"), (sjdpp.REFRESHES, "coupled gumbel")):
        right = _get(owner, key)

        def refresh(window: Any, first: int, knobs: Any, right: Any = right) -> tuple[Tensor, Tensor]:
            tokens, _ = right(window, first, knobs)
            return tokens, torch.cat([window.laws[first:], window.rows.p[-1:]])

        patches.append((owner, key, refresh))
    return patches


def _published_law() -> list[Patch]:
    return [(sjdpp.REFRESHES, "reuse mixture", sjdpp.reuse_published)]


def _law_of_the_first_draw() -> list[Patch]:
    def refresh(window: Any, first: int, knobs: Any) -> tuple[Tensor, Tensor]:
        tokens, _ = sjdpp.reuse_published(window, first, knobs)
        return tokens, torch.cat([window.laws[first:], window.rows.p[-1:]])

    return [(sjdpp.REFRESHES, "reuse mixture", refresh)]


# --- noise ------------------------------------------------------------------------------------------------------------


def _iteration_in_the_noise() -> list[Patch]:
    def gumbel(self: noise.Noise, start: int, count: int) -> Tensor:
        self.asked = getattr(self, "asked", 0) + 1
        u = [self.uniform(noise.DRAW, start, count, self.asked, slot) for slot in range(self.vocabulary)]
        return -torch.log(-torch.log(torch.stack(u, -1)))

    return [(noise.Noise, "gumbel", gumbel)]


def _no_iteration_in_the_noise() -> list[Patch]:
    right = noise.Noise.uniform
    return [(noise.Noise, "uniform", lambda self, stream, start, count, iteration, slot=0: right(self, stream, start, count, 0, slot))]


def _global_noise() -> list[Patch]:
    def gumbel(self: noise.Noise, start: int, count: int) -> Tensor:
        return -torch.log(-torch.log(torch.rand(count, self.vocabulary, dtype=torch.float64)))

    def uniform(self: noise.Noise, stream: int, start: int, count: int, iteration: int, slot: int = 0) -> Tensor:
        return torch.rand(count, dtype=torch.float64)

    return [(noise.Noise, "gumbel", gumbel), (noise.Noise, "uniform", uniform)]


# --- cache and end of sequence ----------------------------------------------------------------------------------------


def _keep_one_row_more() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        new = right(self, nodes, token)
        extra = (nodes[-1] if nodes else -1) + 2
        if extra < len(self._fed):
            self._cache = (*self._cache, *self._fed[extra])
        return new

    return [(toy.ToySequence, "commit", commit)]


def _drop_the_last_kept_row() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        new = right(self, nodes, token)
        self._cache = self._cache[:-1]
        return new

    return [(toy.ToySequence, "commit", commit)]


def _end_inside_a_span_ignored() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        end, self.toy.end = self.toy.end, None
        new = right(self, nodes, token)
        self.toy.end = end
        self.done = self.done or new[-1] == end
        return new

    return [(toy.ToySequence, "commit", commit)]


def _never_ends() -> list[Patch]:
    right = toy.ToySequence.commit

    def commit(self: toy.ToySequence, nodes: list[int], token: int) -> list[int]:
        end, self.toy.end = self.toy.end, None
        new = right(self, nodes, token)
        self.toy.end = end
        return new

    return [(toy.ToySequence, "commit", commit)]


MUTANTS: dict[str, Callable[[], list[Patch]]] = {
    "temperature after top-p": _temperature_after_top_p,
    "guidance on probabilities": _guidance_on_probabilities,
    "residual is p": _residual_is_p(sjd),
    "chain: residual is p": _residual_is_p(chain),
    "one-hot ratio for a uniform draw": _one_hot_ratio(sjd),
    "chain: one-hot law": _one_hot_ratio(chain),
    "inverted ratio": _inverted_ratio,
    "chain: bonus from the row before": _bonus_from_the_row_before,
    "chain: double temperature": _double_temperature,
    "commit one answer more": _one_answer_more,
    "stale law after refinement": _stale_law,
    "published law": _published_law,
    "law of the first draw": _law_of_the_first_draw,
    "iteration in the noise": _iteration_in_the_noise,
    "noise without the iteration": _no_iteration_in_the_noise,
    "global random numbers": _global_noise,
    "keep one row more": _keep_one_row_more,
    "drop the last kept row": _drop_the_last_kept_row,
    "end inside a span ignored": _end_inside_a_span_ignored,
    "never ends": _never_ends,
}
