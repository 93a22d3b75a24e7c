"""Jacobi decoding: the fixed-point iteration of plain decoding over a window.

Paper: Accelerating Transformer Inference by Parallel Decoding, Santilli et al. 2023; SJD++ paper section 3.2, equation 1.
Idea: draft a window. One pass gives the model's answer at every position, given the drafts before it. Commit the prefix where draft and
answer agree, and use the later answers as the next drafts.
Exactness: always. A token is committed only if it equals the model's own fresh draw in its true context, so it is that draw. At
temperature 0 the tokens are those of greedy decoding.
Deviations: the paper iterates a whole window to its fixed point; we commit the agreeing prefix after every pass, which is never slower.
With `verify: residual` the draws at temperature > 0 are new in every pass, so agreement is rare (its probability is the sum of p squared).
This is the method's known weakness, kept as the baseline of SJD. With `match seed` the noise of a position is fixed, and the iteration
converges as it does at temperature 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import torch

from engine.core import VERIFY, Case, Draft, Knobs, Method, Sequence, Step
from engine.decoding.initializers import INIT, WINDOW, Initializer
from engine.decoding.policy import matches_seed
from engine.decoding.verdict import chances, describe
from engine.noise import DRAW, Noise
from engine.rules import leading, matches
from engine.sampling import draw, draw_gumbel


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass. State: the window's tokens; no distribution is kept."""
    seeded = matches_seed(knobs, exact=True)
    tokens = torch.empty(0, dtype=torch.int64, device=sequence.device)
    iteration = 0
    with closing(Initializer(sequence, noise)) as initializer:
        while not sequence.done:
            n = sequence.length
            size = min(knobs.window - 1, sequence.limit - n - 1)
            tokens, _ = initializer.fill(tokens[:size], None, size, knobs.init, iteration, seeded)
            rows = sequence.forward(Draft(tokens))
            initializer.observe(n, rows)
            if seeded:
                answers = draw_gumbel(rows.scores, noise.gumbel(n, size + 1))
            else:
                answers = draw(rows.p, noise.uniform(DRAW, n, size + 1, iteration))
            numbers = rows.drafted.to_list_with(torch.cat([answers, matches(tokens, answers[:size]).long()]))
            answered, same = numbers[: size + 1], torch.tensor(numbers[size + 1 :], dtype=torch.bool)
            a = leading(same)  # eq. 1: x_i = answer_i for the whole prefix
            committed = sequence.commit(list(range(a)), answered[a])
            k = len(committed)
            step = describe(n, committed, a, size, rows.probs(0, k), chances(rows, tokens, None, k))
            step.draft_forwards = initializer.take_pass_count()
            step.draft = {"tokens": answered[a + 1 :], "positions": list(range(n + a + 1, n + size + 1)), "status": "draft"}
            tokens = answers[a + 1 :]  # computed after the old drafts, so they are drafts again
            iteration += 1
            yield step


METHOD = Method(
    name="jacobi",
    title="Jacobi",
    about="Guesses a window of tokens and keeps those that the model then draws itself.",
    decode=decode,
    knobs=(WINDOW, INIT, VERIFY),
    paper="Santilli et al. 2023",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: a token is kept only if it equals the model's own draw in its true context.",
    common={"window": 4},
    baseline=True,
    cases=(
        Case("JAC-GREEDY", "same tokens", {"window": 4, "init": "random"}, {"temperature": 0.0}, ("commit one answer more",)),
        Case("JAC-SAMPLE", "same distribution", {"window": 4, "init": "random"}, mutants=("commit one answer more",)),
        Case("SEED-EXACT", "same tokens", {"window": 4, "verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)
