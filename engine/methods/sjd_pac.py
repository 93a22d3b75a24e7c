"""SJD-PAC: a Jacobi window whose first slots hold several candidates each, verified as a tree in one pass.

Paper: SJD-PAC: Accelerating Speculative Jacobi Decoding via Proactive Drafting and Adaptive Continuation, Kang et al., arXiv 2603.18599,
and its released sampler. Verification of siblings: SpecInfer, Miao et al. 2023; without replacement: Jeon et al. 2024.
Idea: half of SJD's passes commit one token, because the first draft is refused. So the first slots get K candidates each, drawn without
replacement (proactive drafting); a slot is lost only if all are refused. Drafts behind the refused slot stay where they can (adaptive
continuation).
Exactness: always. The candidates of a slot are verified one after another against their conditional distributions, and the first accepted
one decides the path before any later slot is looked at. Every new candidate is drawn from the distribution it will be verified against.
With `match seed` the model's own draws lead down the tree, and the output is plain decoding's, token for token.
Deviations: the released sampler takes the longest of all paths that pass, so what follows a candidate decides whether it is taken; here
the first accepted candidate is. It draws spare candidates from the residual but verifies them as draws from the model's distribution; here
the default continuation couples by the position's Gumbel noise, and the runners-up of the same race are the spare candidates, in both
verification modes. `levels` counts the slots with several candidates, the paper's D - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import torch
from torch import Tensor

from engine.core import VERIFY, Case, Knob, Knobs, Method, Sequence, Step
from engine.decoding import trees
from engine.decoding.candidates import draft_of, spine, tree_of
from engine.decoding.initializers import INIT, WINDOW, Initializer
from engine.decoding.policy import matches_seed
from engine.noise import ACCEPT, RESIDUAL, Noise
from engine.rules import ratio
from engine.sampling import draw, draw_gumbel, residual

# (newest p [k+1, V], old drafts [k], their distributions [k, V], newest scores [k+1, V], noise, first position, iteration) -> drafts [k+1]
Continuation = Callable[[Tensor, Tensor, Tensor, Tensor, Noise, int, int], Tensor]


def coupled_gumbel(p: Tensor, tokens: Tensor, laws: Tensor, scores: Tensor, noise: Noise, first: int, iteration: int) -> Tensor:
    """Redraws with the position's own noise (MC-SJD); the runners-up of the same race will be the spare candidates."""
    return draw_gumbel(scores, noise.gumbel(first, len(scores)))


def coupled_maximal(p: Tensor, tokens: Tensor, laws: Tensor, scores: Tensor, noise: Noise, first: int, iteration: int) -> Tensor:
    """Adaptive continuation: keeps a draft with min(1, p/q), else draws from the residual, so that its distribution is p."""
    kept, _ = ratio(p[:-1], laws, tokens, noise.uniform(ACCEPT, first, len(tokens), iteration))
    left = torch.cat([residual(p[:-1], laws), p[-1:]])
    drawn = draw(left, noise.uniform(RESIDUAL, first, len(p), iteration))
    return torch.cat([torch.where(kept, tokens, drawn[:-1]), drawn[-1:]])


CONTINUATIONS: dict[str, Continuation] = {"coupled gumbel": coupled_gumbel, "coupled maximal": coupled_maximal}
CANDIDATES = Knob("candidates", "K", 2, 1, 8, 1, help="Candidates for each of the first slots. 1: a plain window.")
LEVELS = Knob("levels", "D - 1", 2, 1, 4, 1, help="Slots with several candidates: up to K + K² + ... nodes beside the window.")
CONTINUATION = Knob(
    "continuation", "", "coupled gumbel", choices=tuple(CONTINUATIONS), live=False,
    help="How drafts behind the refused slot are redrawn with as few changes as possible: by the position's noise, or kept with "
    "probability p/q.",
)  # fmt: skip


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass. State: a draft per slot, and its distribution, from which the spare candidates are drawn too."""
    tokens = torch.empty(0, dtype=torch.int64, device=sequence.device)
    laws = torch.empty(0, sequence.vocabulary, device=sequence.device, dtype=noise.dtype)
    seeded, iteration = matches_seed(knobs, True), 0
    with closing(Initializer(sequence, noise)) as initializer:
        while not sequence.done:
            n = sequence.length
            size = min(int(knobs.window) - 1, sequence.limit - n - 1)
            tokens, laws = initializer.fill(tokens[:size], laws[:size], size, knobs.init, iteration, seeded)
            tree, shape = tree_of(tokens, laws, noise, n, int(knobs.candidates), int(knobs.levels))  # proactive drafting
            rows = sequence.forward(draft_of(tree, size))
            initializer.saw(n, rows.first(size + 1))
            path, token, chances = trees.verify(rows, tree, noise, n, iteration, seeded, None)
            a = len(path)
            committed = sequence.commit(path, token)
            step = trees.step_of(rows, tree, path, chances, n, committed, None)
            step.draft_forwards = initializer.counted()
            behind = [node + 1 for node in spine(shape, path, size)]
            if behind:  # adaptive continuation
                newest, old = rows.p[behind], (tokens[a + 1 :], laws[a + 1 :])
                tokens = CONTINUATIONS[knobs.continuation](newest, *old, rows.scores[behind], noise, n + a + 1, iteration)
                laws = newest
            else:
                tokens, laws = tokens[:0], laws[:0]
            step.draft = {"tokens": tokens, "positions": list(range(n + a + 1, n + a + 1 + len(tokens))), "status": "draft"}
            iteration += 1
            yield step


_TREE = {"window": 5, "candidates": 2, "levels": 3, "init": "random"}
_LINE = {"rows": 1, "columns": 3, "vocabulary": 4, "sharpness": 2.2}
_SHARP = {"rows": 1, "columns": 4, "vocabulary": 3, "sharpness": 2.5}  # the released sampler's path differs enough from the first accepted

METHOD = Method(
    name="sjd_pac",
    title="SJD-PAC",
    decode=decode,
    knobs=(WINDOW, INIT, CANDIDATES, LEVELS, CONTINUATION, VERIFY),
    paper="SJD-PAC, Kang et al., arXiv 2603.18599",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: the candidates of a slot are verified one after another against the distributions they were drawn from.",
    common={"window": 4},
    cases=(
        Case("PAC-EXACT coupled gumbel", "same law", _TREE, _LINE, ("pac: stale law", "tree: residual is p")),
        Case("PAC-EXACT coupled maximal", "same law", _TREE | {"continuation": "coupled maximal"}, _LINE, ("tree: residual is p",)),
        Case("PAC-EXACT released path", "same law", _TREE, _SHARP, ("pac: longest path",)),
        Case("SEED-EXACT", "same tokens", _TREE | {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)
