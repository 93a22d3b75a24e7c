"""A draft, its verdict and its replacement read random numbers of their own: on whole runs, a shared one moves too little to be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from engine.core import Rows, Sampling
from engine.decoding.verdict import judge
from engine.noise import Noise
from engine.sampling import draw_gumbel
from engine.verify.host import HostRows, HostVerdict
from research.exactness.mutation import apply_mutant
from research.exactness.power import statistic
from research.exactness.wrong_rules import replaced_by

P, Q = torch.tensor([[0.0, 0.6, 0.0, 0.4]]), torch.tensor([[0.5, 0.4, 0.1, 0.0]])
LOGITS = torch.cat([P, P])[None].clamp(min=1e-30).log()
RUNS = 2000
one_stream = replaced_by(lambda noise, position, iteration, rest: draw_gumbel(rest.log(), noise.gumbel(position, 1)))


def by_reference(draft: torch.Tensor, noise: Noise) -> int:
    """The first token by the reference."""
    logits = LOGITS
    window = judge(Rows(logits, lambda raw, soft=False: raw[0], logits), draft, Q, noise, 0, 1, seeded=False)
    return window.token if window.a == 0 else int(draft)


def by_numpy(draft: torch.Tensor, noise: Noise) -> int:
    """The first token by the processor's verdict."""
    a, token = HostVerdict(HostRows(LOGITS, Sampling()), draft, Q, noise, 0, 1, seeded=False).settled
    return token if a == 0 else int(draft)


@pytest.mark.parametrize(("first", "is_mutant"), [(by_reference, False), (by_numpy, False), (by_reference, True)])
def test_a_replacement_does_not_read_the_noise_of_its_draft(first: Callable[[torch.Tensor, Noise], int], is_mutant: bool) -> None:
    counts: Counter[tuple[int, ...]] = Counter()
    with apply_mutant("one stream", one_stream) if is_mutant else nullcontext():
        for seed in range(RUNS):
            noise = Noise(seed, 4)
            counts[(first(draw_gumbel(Q.log(), noise.gumbel(0, 1)), noise),)] += 1
    z = statistic(counts, {(i,): p for i, p in enumerate(P[0].tolist()) if p}, RUNS)["z"]
    assert z > 10 if is_mutant else z < 4, z
