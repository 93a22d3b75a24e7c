"""The number of drafts of a chain that a rule accepts in the mean, and the most that any exact rule can accept.

A rule that accepts a prefix x with probability a(x) commits it at least as often as it is drafted and accepted, Q(x) a(x). It is exact, so
this is at most P(x): no exact rule accepts a prefix of length k more often than the sum of min(P, Q) over all prefixes of that length,
which is the mean of min(1, P/Q) over drafts from Q. On the toy it is enumerated. In a run every pass is a sample: its drafts were drawn
from the distributions that they carry, each given everything at earlier positions (`WindowState` in engine/decoding/verdict.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import torch
from torch import Tensor

from engine.core import Draft, Prompt, Rows, Sequence
from engine.methods import find
from engine.rules import block_chances
from engine.run import generate
from research.exactness.rule_check import Target


@dataclass(frozen=True)
class AcceptedDrafts:
    """Mean numbers of accepted drafts: by speculative sampling token by token, by block verification, and the ceiling."""

    tokens: float
    block: float
    ceiling: float


def expected_drafts(tokens: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """The numbers of AcceptedDrafts for each of N chains, float64 [3, N]. tokens int64 [N, m]; q [N, m, V]; p [N, m + 1, V]"""
    at = tokens[..., None]
    ratios = (p[:, :-1].gather(2, at) / q.gather(2, at)).squeeze(2)
    by_token, by_block, most = ratios.clamp(max=1).cumprod(1), block_chances(p, q, tokens)[1], ratios.cumprod(1).clamp(max=1)
    return torch.stack([by_token, by_block, most]).sum(2)


def accepted_drafts(target: Target, drafter: Target, count: int) -> AcceptedDrafts:
    """Of chains of `count` drafts after the empty prefix, drawn from the drafter, by enumeration."""
    chains = torch.tensor(list(product(range(target.vocabulary), repeat=count)))
    p = torch.stack([target.after(chains[:, :k]) for k in range(count + 1)], 1)
    q = torch.stack([drafter.after(chains[:, :k]) for k in range(count)], 1)
    drafted = q.gather(2, chains[..., None]).squeeze(2).prod(1)
    return AcceptedDrafts(*(expected_drafts(chains, q, p) @ drafted).tolist())


# --- in runs ----------------------------------------------------------------------------------------------------------

MODELS = {  # methods that draft chains, with their knobs
    "pictogram": (("sjd", {"window": 16}), ("sjdpp", {"window": 16}), ("spatial", {"window": 16})),
    "lowpoly": (("surface", {}), ("xspecmesh_exact", {})),
}
HEADER = (
    "| model | method | passes | drafts | accepted | expected | block verification | ceiling | expected / ceiling |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class RunDrafts:
    """Means over the passes with drafts of some runs. drafts, accepted : counted; expected : by the distributions of all drafts"""

    model: str
    method: str
    passes: int
    drafts: float
    accepted: float
    expected: AcceptedDrafts

    def text(self) -> str:
        """A row of the table in Markdown."""
        means = (self.drafts, self.accepted, *(getattr(self.expected, field.name) for field in fields(self.expected)))
        numbers = " | ".join(f"{mean:.2f}" for mean in means)
        return f"| {self.model} | `{self.method}` | {self.passes:,} | {numbers} | {self.expected.tokens / self.expected.ceiling:.0%} |"


def measure_runs(count: int) -> Iterator[RunDrafts]:
    """Rows for the methods of MODELS, over `count` held-out inputs each."""
    from engine.backbones import load  # the toy needs neither models nor inputs
    from research.bench.expected import inputs

    for model, methods in MODELS.items():
        backbone = load(model)
        prompts = inputs(backbone, count)
        for method, knobs in methods:
            yield measure_method(backbone, prompts, method, knobs)


@torch.inference_mode()
def measure_method(backbone: Any, prompts: list[Prompt], name: str, knobs: dict[str, float | str]) -> RunDrafts:
    """The row of a method that drafts chains, with the rule that does not match the seed."""
    method, preset = find(name)
    passes: list[list[float]] = []
    for prompt in prompts:
        run = generate(backbone, method, prompt, {**preset, **knobs, "verify": "residual"})
        run.began = lambda sequence: _record(sequence, passes)
        accepted = [int(torch.as_tensor(step.trace.accepted).sum()) for step in run if step.drafted]
        for each, number in zip(passes[-len(accepted) :], accepted, strict=True):
            each.append(number)
    drafts, *expected, accepted = torch.tensor(passes, dtype=torch.float64).mean(0).tolist()
    return RunDrafts(backbone.name, name, len(passes), drafts, accepted, AcceptedDrafts(*expected))


def _record(sequence: Sequence, passes: list[list[float]]) -> None:
    """Records the drafts and their expected numbers of every pass of a sequence with drafts."""
    forward = sequence.forward

    def recorded(draft: Draft) -> Rows:
        rows = forward(draft)
        if count := len(draft.tokens):
            q, p = draft.probs().double(), rows.probs(0, count + 1).double()
            passes.append([count, *expected_drafts(draft.tokens[None], q[None], p[None])[:, 0].tolist()])
        return rows

    sequence.forward = recorded
