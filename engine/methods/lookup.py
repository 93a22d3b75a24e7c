"""Prompt lookup: draft the tokens that followed the last occurrence of the newest tokens.

Paper: Prompt Lookup Decoding, Saxena, 2023 (also the training-free baseline of Cross-Regression, tables 3 and 14).
Idea: meshes and flat pictures repeat themselves. The longest run of up to three newest tokens that occurred before is looked up, and
the tokens that followed it are the draft.
Exactness: always. The draft is a function of the committed tokens, so its distribution is one-hot: it is accepted with probability p(x),
and after a rejection the residual is p without x.
Deviations: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from engine.core import NO_DRAFT, VERIFY, Case, ChosenTokens, Draft, Knob, Knobs, Method, Sequence, Step
from engine.decoding.policy import matches_seed
from engine.decoding.verdict import step_over
from engine.noise import Noise

DRAFTED = Knob("drafted", "m", 4, 1, 16, 1, help="Number of tokens drafted from the continuation found.", label="Copied tokens")
MATCHED = Knob(
    "matched", "g", 3, 1, 6, 1, help="Longest run of newest tokens to look up; shorter runs are tried next, down to one.",
    label="Longest match",
)  # fmt: skip


class Index:
    """Where each run of up to `longest` tokens last ended: one entry per run, `longest` writes per added token."""

    def __init__(self, longest: int):
        self.longest = longest
        self.tokens: list[int] = []
        self.last: dict[tuple[int, ...], int] = {}

    def add(self, tokens: list[int]) -> None:
        """Appends committed tokens. A run is indexed once a token follows it, so that looking up the newest run finds an earlier one."""
        for token in tokens:
            for g in range(1, self.longest + 1):
                if len(self.tokens) >= g:
                    self.last[tuple(self.tokens[-g:])] = len(self.tokens)
            self.tokens.append(token)

    def continuation(self, longest: int, count: int) -> list[int]:
        """The `count` tokens that followed the longest known run; at the last token the continuation repeats. [] if no run is known."""
        for g in range(min(longest, len(self.tokens)), 0, -1):
            place = self.last.get(tuple(self.tokens[-g:]))
            if place is not None:
                period = len(self.tokens) - place
                return [self.tokens[place + i % period] for i in range(count)]
        return []


def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """Yields one Step per pass."""
    seeded, index, iteration = matches_seed(knobs, exact=True), Index(int(MATCHED.high)), 0
    while not sequence.done:
        _, step = step_over(sequence, continuation(index, knobs, sequence, noise.dtype), noise, iteration, seeded)
        index.add(step.tokens)
        iteration += 1
        yield step


def continuation(index: Index, knobs: Knobs, sequence: Sequence, dtype: torch.dtype) -> Draft:
    """The continuation as a chain with one-hot distributions."""
    tokens = index.continuation(knobs.matched, min(int(knobs.drafted), sequence.limit - sequence.length - 1))
    if not tokens:
        return NO_DRAFT
    ids = torch.tensor(tokens, dtype=torch.int64, device=sequence.device)
    return Draft(ids, q=ChosenTokens(ids, sequence.vocabulary, dtype))


METHOD = Method(
    name="lookup",
    title="Prompt lookup",
    about="Copies what followed these tokens last time; the model checks the copy.",
    decode=decode,
    knobs=(DRAFTED, MATCHED, VERIFY),
    paper="Prompt Lookup Decoding, Saxena, 2023",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: a draft is fixed by the tokens so far and accepted with its probability under the model.",
    baseline=True,
    drafts_past_end=False,  # nothing follows the end token
    cases=(
        Case("PLD-EXACT", "same distribution", {"drafted": 3}, mutants=("lookup: first draft unverified",)),
        Case("SEED-EXACT", "same tokens", {"verify": "match seed"}, mutants=("iteration in the noise",)),
    ),
)
