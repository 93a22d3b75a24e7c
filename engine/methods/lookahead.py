"""Lookahead decoding: a Jacobi window of several levels produces n-grams, and those that begin with the newest token are verified.

Paper: Break the Sequential Dependency of LLM Inference Using Lookahead Decoding, Fu et al., arXiv 2402.02057 (a training-free baseline of
Cross-Regression, tables 3 and 14).
Idea: one pass has two branches. The lookahead branch has W columns of N - 1 guesses each; a guess sees the first guesses of the columns
before its own and the guesses above it in its column. The model's answer below each column ends an n-gram, which is put into a pool. The
verification branch has the pool's n-grams that begin with the newest token, as a tree.
Exactness: always. The tree is a function of earlier passes. A token is committed only if it is the model's own draw in its true context.
Deviations: the answers of the lookahead branch are the most probable tokens, as in the published code with sampling, so the n-grams do not
depend on the draws that verify them. All levels begin with random tokens; the published code fills them one by one. The pool contains
no n-grams of the prompt. N-grams with equal beginnings share nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.core import VERIFY, Case, Draft, Knob, Knobs, Method, Sequence, Step
from engine.decoding.growth import NO_TREE, Tree
from engine.decoding.policy import matches_seed
from engine.decoding.trees import step_of, verify_tree
from engine.noise import INITIAL, Noise
from engine.tree import depths

COLUMNS = Knob("columns", "W", 8, 1, 32, 1, "log", "Columns of the lookahead branch: n-grams produced per pass.", live=False)
LENGTH = Knob("length", "N", 4, 2, 8, 1, "linear", "Tokens of an n-gram, the first one included.", live=False)
CANDIDATES = Knob(
    "candidates", "G", 8, 1, 32, 1, "log", "Most n-grams verified per pass: the newest that match.", label="Guesses per place"
)

Guesses = list[list[int]]  # by level, then by column
Nodes = tuple[list[int], list[int]]  # tokens and parents of a forest


class NgramPool:
    """The n-grams of earlier passes by their first token, the newest last."""

    def __init__(self, most: int):
        """most : the largest number of n-grams kept per first token"""
        self.most = most
        self.after: dict[int, list[tuple[int, ...]]] = {}

    def add(self, first: int, rest: tuple[int, ...]) -> None:
        """Adds an n-gram; a known one becomes the newest."""
        known = self.after.setdefault(first, [])
        if rest in known:
            known.remove(rest)
        known.append(rest)
        del known[: -self.most]

    def tree(self, first: int, most: int, longest: int) -> Tree:
        """The newest n-grams that begin with a token, as a tree without it, at most `longest` levels deep."""
        tokens, parents = [], []
        node_of: dict[tuple[int, int], int] = {}
        for rest in reversed(self.after.get(first, [])[-most:]):
            at = -1
            for token in rest[:longest]:
                if (at, token) not in node_of:
                    node_of[at, token] = len(tokens)
                    tokens.append(token)
                    parents.append(at)
                at = node_of[at, token]
        return Tree(tokens, parents, None, [False] * len(tokens), 0, None) if tokens else NO_TREE


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass. State: the guesses of the lookahead branch, the pool, and the tree to be verified next."""
    seeded = matches_seed(knobs, exact=True)
    levels = knobs.length - 1
    start = noise.uniform(INITIAL, 0, levels * knobs.columns, 0).view(levels, -1)
    guesses: Guesses = (start * sequence.vocabulary).long().tolist()
    pool, tree, iteration = NgramPool(int(CANDIDATES.high)), NO_TREE, 0
    while not sequence.done:
        n = sequence.length
        wide = max(0, min(knobs.columns, sequence.limit - n - levels))
        rows = sequence.forward(draft_of(tree, guesses, wide))
        own = rows.first(1 + len(tree.tokens))
        verdict = verify_tree(own, tree, noise, n, iteration, seeded)
        answers = rows.scores[len(rows.scores) - wide :].argmax(-1).tolist() if wide else []
        committed = sequence.commit(verdict.path, verdict.token)
        step = step_of(own, tree, verdict, n, committed, None)
        guesses = learn(pool, guesses, answers)
        iteration += 1
        tree = NO_TREE
        if not sequence.done:
            tree = pool.tree(committed[-1], knobs.candidates, min(levels, sequence.limit - sequence.length - 1))
            positions = [sequence.length - 1 + d for d in depths(tree.parents)]
            step.draft = {"tokens": tree.tokens, "positions": positions, "parents": tree.parents, "status": "draft"}
        yield step


def draft_of(tree: Tree, guesses: Guesses, wide: int) -> Draft:
    """The Draft of a pass: the tree, then the first `wide` columns of the lookahead branch, level by level.

    The first level is a chain after the pending token; every other guess is a child of the guess above it, which sets its position and
    what it sees.
    """
    tokens, parents = list(tree.tokens), list(tree.parents)
    for level, row in enumerate(guesses):
        first = len(tokens)
        tokens += row[:wide]
        parents += [first + c - wide if level else (first + c - 1 if c else -1) for c in range(wide)]
    return Draft(torch.tensor(tokens, dtype=torch.int64), parents=torch.tensor(parents, dtype=torch.int64))


def learn(pool: NgramPool, guesses: Guesses, answers: list[int]) -> Guesses:
    """Puts the n-gram of every column that has an answer into the pool. Returns the next guesses: each level moves up by one, and the
    answers become the last level."""
    for column, answer in enumerate(answers):
        first, *rest = (row[column] for row in guesses)
        pool.add(first, (*rest, answer))
    return [*guesses[1:], answers + guesses[-1][len(answers) :]]


_SMALL = {"columns": 3, "length": 3, "candidates": 3}

METHOD = Method(
    name="lookahead",
    title="Lookahead",
    about="Guesses ahead in several columns and checks the runs that start with the newest token.",
    decode=decode,
    knobs=(COLUMNS, LENGTH, CANDIDATES, VERIFY),
    paper="Lookahead Decoding, Fu et al., arXiv 2402.02057",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: a token is kept only if it equals the model's own draw in its true context.",
    common=_SMALL,
    baseline=True,
    cases=(
        Case(
            "LOOKAHEAD-EXACT",
            "same distribution",
            _SMALL,
            mutants=("lookahead: first node unverified", "lookahead: rows of the other branch"),
        ),
        Case("LOOKAHEAD-T0", "same tokens", _SMALL, {"temperature": 0.0}, ("lookahead: rows of the other branch",)),
        Case("SEED-EXACT", "same tokens", _SMALL | {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)
