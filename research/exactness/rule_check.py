"""`check`: tests a verification rule of another project on the toys, by the distribution of whole sequences.

All draws are made side by side, so that a rule in PyTorch needs seconds for 100,000. A rule sees what an engine would hand it: drafts,
their distributions, and the target's distributions after each of them. It does not see where a measured sequence stops: the toys go on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from engine.core import NO_DRAFT, Prompt
from engine.errors import BadPrompt
from engine.sampling import draw
from research.exactness.comparison import Comparison, compare
from research.exactness.power import Distribution
from research.exactness.toy import Toy

NONE = -1  # fills the rows of a rule's answer behind its tokens


class Target:
    """The distributions of a toy after every prefix, as one table.

    end     : the id that ends a sequence, or None
    length  : the number of tokens that are measured; drafts may reach past it, as far as the toy has positions
    """

    def __init__(self, toy: Toy, length: int = 3):
        """Settings such as `end`, `top_k`, `top_p` and `grammar` are the toy's; it needs one row of more than `length` columns."""
        self.vocabulary, self.end, self.length, self.positions = toy.vocabulary, toy.end, length, toy.layout.rows * toy.layout.columns
        self._table = torch.zeros((self.vocabulary + 1) ** (self.positions - 1), self.vocabulary, dtype=torch.float64)
        for count in range(self.positions):
            for prefix in product(range(self.vocabulary), repeat=count):
                sequence = toy.start(Prompt())
                for token in prefix:
                    sequence.forward(NO_DRAFT)
                    sequence.commit([], token)
                self._table[self._places(torch.tensor([prefix], dtype=torch.int64))] = sequence.forward(NO_DRAFT).p

    def after(self, prefixes: Tensor) -> Tensor:
        """The distributions [N, V], float64, of the token after each of the prefixes int64 [N, k]."""
        return self._table[self._places(prefixes)]

    def _places(self, prefixes: Tensor) -> Tensor:
        places = torch.zeros(len(prefixes), dtype=torch.int64)
        for tokens in prefixes.unbind(1):
            places = places * (self.vocabulary + 1) + tokens + 1
        return places

    def distribution(self) -> Distribution:
        """The probability of every sequence of the measured length, or up to its end."""
        chances: Distribution = {(): 1.0}
        for _ in range(self.length):
            longer: Distribution = {}
            for sequence, chance in chances.items():
                if self.end in sequence:
                    longer[sequence] = chance
                    continue
                for token, p in enumerate(self.after(torch.tensor([sequence], dtype=torch.int64))[0].tolist()):
                    if p > 0:
                        longer[(*sequence, token)] = chance * p
            chances = longer
        return chances


@dataclass(frozen=True)
class Proposal:
    """Drafts for N sequences.

    tokens  : int64 [N, m]; q : the distributions they were drawn from [N, m, V], or None if they were chosen
    parents : the parent of each node, -1 for the prefix; None: a chain
    """

    tokens: Tensor
    q: Tensor | None = None
    parents: tuple[int, ...] | None = None

    def path(self, node: int) -> list[int]:
        """The nodes from the prefix to this one."""
        nodes: list[int] = []
        while node >= 0:
            nodes.insert(0, node)
            node = node - 1 if self.parents is None else self.parents[node]
        return nodes


Propose = Callable[[Tensor], Proposal]  # prefixes int64 [N, k] -> drafts
Verify = Callable[[Proposal, Tensor], Tensor]  # drafts, p [N, m + 1, V] -> tokens int64 [N, at most m + 1], NONE behind the last one
Sampler = Callable[[Tensor], Tensor]  # both at once: prefixes int64 [N, k] -> tokens as above


def check(propose: Propose, verify: Verify, target: Target, draws: int = 100_000, seed: int = 0) -> Comparison:
    """Draws sequences by a rule, and compares them with the target's own distribution.

    propose : the drafts after each of the prefixes, which are all equally long. `drawn_chain`, `best_chain` and `drawn_siblings` make such
              functions from another toy
    verify  : the rule. It gets the proposal and the target's distributions, row 0 after the prefix and row i + 1 after node i, and returns
              the tokens to commit, at least one. `one_by_one` makes such a function from a rule for a single sequence
    target  : a toy, with filters, grammar or an end if it was made with them. A rule must not commit tokens after the end
    seed    : of PyTorch's global generator, which most rules use; it is restored afterwards

    Raises BadPrompt if the rule returns no token.
    """
    return check_sampler(sampler_of(propose, verify, target), target, draws, seed)


def sampler_of(propose: Propose, verify: Verify, target: Target) -> Sampler:
    """A proposal and a rule as one function."""

    def sample(prefixes: Tensor) -> Tensor:
        proposal = propose(prefixes)
        return verify(proposal, torch.stack([target.after(each) for each in _paths(prefixes, proposal)], 1))

    return sample


def check_sampler(sample: Sampler, target: Target, draws: int = 100_000, seed: int = 0) -> Comparison:
    """`check` for code that makes its drafts itself. Arguments as there."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        return compare(_draw(sample, target, draws), target.distribution())
    finally:
        torch.set_rng_state(state)


def _draw(sample: Sampler, target: Target, draws: int) -> Counter[tuple[int, ...]]:
    open_sequences, counts = {0: torch.empty(draws, 0, dtype=torch.int64)}, Counter()
    while open_sequences:
        prefixes = open_sequences.pop(min(open_sequences))
        answer = sample(prefixes)
        kept = (answer != NONE).long().cumprod(1).sum(1)
        if not kept.all():
            raise BadPrompt("The rule returned no token for a sequence. Return at least one for each.")
        for count in kept.unique().tolist():
            longer = torch.cat([prefixes, answer[:, :count]], 1)[kept == count][:, : target.length]
            is_over = torch.full((len(longer),), longer.shape[1] == target.length)
            is_over |= torch.zeros_like(is_over) if target.end is None else (longer == target.end).any(1)
            for sequence, number in zip(*(each.tolist() for each in longer[is_over].unique(dim=0, return_counts=True)), strict=True):
                counts[tuple(sequence)] += number
            if not is_over.all():
                others = open_sequences.get(longer.shape[1], longer[:0])
                open_sequences[longer.shape[1]] = torch.cat([others, longer[~is_over]])
    return counts


def _paths(prefixes: Tensor, proposal: Proposal) -> list[Tensor]:
    """The prefixes, and their continuations by the path of each node: int64 [N, k + depth] each."""
    paths = [torch.cat([prefixes, proposal.tokens[:, proposal.path(node)]], 1) for node in range(proposal.tokens.shape[1])]
    return [prefixes, *paths]


def one_by_one(rule: Callable[[Tensor, Tensor | None, Tensor], Sequence[int]]) -> Verify:
    """A rule for a single sequence as one for many. rule : drafts int64 [m], q [m, V] or None, p [m + 1, V] -> the tokens to commit"""

    def verify(proposal: Proposal, p: Tensor) -> Tensor:
        answer = torch.full(p.shape[:2], NONE)
        for i in range(len(p)):
            tokens = rule(proposal.tokens[i], None if proposal.q is None else proposal.q[i], p[i])
            answer[i, : len(tokens)] = torch.tensor(tokens, dtype=torch.int64)
        return answer

    return verify


# --- proposals --------------------------------------------------------------------------------------------------------


def drawn_chain(drafter: Target, count: int) -> Propose:
    """Chains of `count` drafts, each drawn from the drafter's distribution after the ones before it."""

    def propose(prefixes: Tensor) -> Proposal:
        path, q = prefixes, []
        for _ in range(count):
            q.append(drafter.after(path))
            path = torch.cat([path, draw_each(q[-1])[:, None]], 1)
        return Proposal(path[:, prefixes.shape[1] :], torch.stack(q, 1))

    return propose


def best_chain(drafter: Target, count: int, show: bool = False) -> Propose:
    """Chains of the drafter's most probable tokens. show : hand over the drafter's distributions, as if they had been drawn from them"""

    def propose(prefixes: Tensor) -> Proposal:
        path, q = prefixes, []
        for _ in range(count):
            q.append(drafter.after(path))
            path = torch.cat([path, q[-1].argmax(-1, keepdim=True)], 1)
        return Proposal(path[:, prefixes.shape[1] :], torch.stack(q, 1) if show else None)

    return propose


def drawn_siblings(drafter: Target, count: int) -> Propose:
    """`count` candidates for the same position, drawn independently from the drafter's distribution after the prefix."""

    def propose(prefixes: Tensor) -> Proposal:
        q = drafter.after(prefixes)
        return Proposal(torch.stack([draw_each(q) for _ in range(count)], 1), q[:, None].expand(-1, count, -1), (-1,) * count)

    return propose


def drawn_tree(drafter: Target, width: int) -> Propose:
    """`width` candidates as `drawn_siblings`, and one draft after each of them."""

    def propose(prefixes: Tensor) -> Proposal:
        first = drawn_siblings(drafter, width)(prefixes)
        paths = [torch.cat([prefixes, first.tokens[:, node : node + 1]], 1) for node in range(width)]
        q = torch.stack([drafter.after(path) for path in paths], 1)
        tokens = torch.stack([draw_each(q[:, node]) for node in range(width)], 1)
        return Proposal(torch.cat([first.tokens, tokens], 1), torch.cat([first.q, q], 1), (*first.parents, *range(width)))

    return propose


def draw_each(p: Tensor) -> Tensor:
    """One token per row of p [N, V], which need not be normalised, with PyTorch's global generator: int64 [N]."""
    return draw(p, torch.rand(len(p), dtype=torch.float64))
