"""Verification rules for `check`, one for each kind of draft: short examples, to start a rule of your own from."""

from __future__ import annotations

import torch
from torch import Tensor

from engine import rules
from engine.sampling import residual
from research.exactness.rule_check import NONE, Proposal, draw_each


def chain(proposal: Proposal, p: Tensor) -> Tensor:
    """Speculative sampling of a chain (Leviathan et al. 2023), for all sequences at once."""
    tokens, q = proposal.tokens, proposal.q
    count = tokens.shape[1]
    at = tokens[..., None]
    accepted = torch.rand(tokens.shape) < (p[:, :-1].gather(2, at) / q.gather(2, at)).squeeze(2)
    first = accepted.long().cumprod(1).sum(1)  # the number of accepted drafts
    row = torch.arange(len(p))
    rest = residual(p[row, first], q[row, first.clamp(max=count - 1)])
    answer = torch.cat([tokens.where(torch.arange(count) < first[:, None], NONE), torch.full((len(p), 1), NONE)], 1)
    answer[row, first] = draw_each(torch.where((first < count)[:, None], rest, p[:, -1]))
    return answer


def chain_with_end(end: int, proposal: Proposal, p: Tensor) -> Tensor:
    """The same, where nothing may follow the token `end`."""
    answer = chain(proposal, p)
    is_behind = (answer == end).long().cumsum(1) - (answer == end).long() > 0
    return answer.masked_fill(is_behind, NONE)


def equality(proposal: Proposal, p: Tensor) -> Tensor:
    """Accepts chosen drafts as long as they equal the target's own draws."""
    count = p.shape[1]
    answers = torch.stack([draw_each(p[:, i]) for i in range(count)], 1)
    first = (answers[:, :-1] == proposal.tokens).long().cumprod(1).sum(1)
    return answers.where(torch.arange(count) <= first[:, None], NONE)


def siblings(tokens: Tensor, q: Tensor, p: Tensor) -> list[int]:
    """Verifies independent candidates for one position one after another, each against what the ones before it left (SpecInfer). With
    `one_by_one`."""
    rest = p[0]
    for node in range(len(tokens)):
        if torch.rand(()) < rest[tokens[node]] / rest.sum() / q[node, tokens[node]]:
            return [int(tokens[node]), int(draw_each(p[node + 1 : node + 2]))]
        rest = residual((rest / rest.sum())[None], q[node : node + 1])[0]
    return [int(draw_each(rest[None]))]


def tree(tokens: Tensor, q: Tensor, p: Tensor) -> list[int]:
    """Verifies candidates as `siblings`, and then the draft after the accepted one. With `one_by_one` and `drawn_tree`."""
    width = len(tokens) // 2
    committed = siblings(tokens[:width], q[:width], p[: width + 1])
    if len(committed) == 1:
        return committed
    node = width + tokens[:width].tolist().index(committed[0])  # any of several equal candidates: their drafts are as good
    return [committed[0], *siblings(tokens[node : node + 1], q[node : node + 1], p[[1 + node - width, 1 + node]])]


def block(proposal: Proposal, p: Tensor) -> Tensor:
    """Block verification of a chain (Sun et al., arXiv 2403.10444), as the methods here verify one."""
    tokens = proposal.tokens
    count = tokens.shape[1]
    longest, _, behind = rules.block(p, proposal.q, tokens, torch.rand(tokens.shape, dtype=torch.float64))
    row = torch.arange(len(p))
    answer = torch.cat([tokens.where(torch.arange(count) < longest[:, None], NONE), torch.full((len(p), 1), NONE)], 1)
    answer[row, longest] = draw_each(behind[row, longest])
    return answer
