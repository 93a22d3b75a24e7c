"""Chain speculative decoding with random tables as its drafter: the reference verifier that `verify` tests first.

Users cannot choose it, because it has no trained drafter. It tests `rules.ratio`, `sampling.residual`, the bonus row and the cache with a
distribution q that is independent of p.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.core import VERIFY_BLOCK, Case, Draft, Knob, Knobs, Method, Sequence, Step
from engine.decoding.policy import verifies_block
from engine.decoding.verdict import step_over
from engine.noise import ACCEPT, DRAFTER, DRAW, RESIDUAL, Noise
from engine.rules import leading, ratio
from engine.sampling import draw, residual


def tables(vocabulary: int, positions: int, temperature: float = 1.0, seed: int = 5) -> torch.Tensor:
    """Returns a random distribution for every position, float64 [positions, V]."""
    logits = torch.randn(positions, vocabulary, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.softmax(logits / temperature, -1)


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step for each draft-verify cycle."""
    as_block = verifies_block(knobs)
    # a block and its wrong residual differ most where the drafter is sure and the target is not
    q_all = tables(sequence.vocabulary, sequence.limit, 0.35, 0) if as_block else tables(sequence.vocabulary, sequence.limit)
    iteration = 0
    while not sequence.done:
        n = sequence.length
        size = min(int(knobs.drafts), sequence.limit - n - 1)
        q = q_all[n : n + size]
        tokens = draw(q, noise.uniform(DRAFTER, n, size, iteration))
        if as_block:
            yield step_over(sequence, Draft(tokens, q=q), noise, iteration, False, as_block=True)[1]
            iteration += 1
            continue
        rows = sequence.forward(Draft(tokens, q=q))
        accepted, _ = ratio(rows.p[:size], q, tokens, noise.uniform(ACCEPT, n, size, iteration))
        a = leading(accepted)
        if a < size:
            token = draw(residual(rows.p[a : a + 1], q[a : a + 1]), noise.uniform(RESIDUAL, n + a, 1, iteration))
        else:
            token = draw(bonus(rows.p, a), noise.uniform(DRAW, n + a, 1, iteration))
        committed = sequence.commit(list(range(a)), token.item())
        iteration += 1
        yield Step(committed, list(range(n, n + len(committed))), drafted=size)


def bonus(p: torch.Tensor, a: int) -> torch.Tensor:
    """Returns the distribution of the token after a fully accepted chain, [1, V]."""
    return p[a : a + 1]


METHOD = Method(
    name="chain",
    title="Chain (reference)",
    decode=decode,
    knobs=(Knob("drafts", "m", 3, 1, 8, 1, help="Number of drafts in a cycle.", live=False), VERIFY_BLOCK),
    paper="Leviathan et al. 2023; Chen et al. 2023",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: speculative sampling.",
    cases=(
        Case(
            "CHAIN-EXACT",
            "same distribution",
            mutants=("chain: residual is p", "chain: one-hot distribution", "chain: bonus from the row before", "chain: double temperature",
                     "keep one row more", "one seed for a batch"),
        ),
        Case(
            "CHAIN-BLOCK", "same distribution", {"drafts": 2, "verify": "block"},
            {"rows": 1, "columns": 3, "vocabulary": 4, "sharpness": 0.6}, ("block: residual of single tokens", "block: residual is p"),
        ),
    ),
)  # fmt: skip
