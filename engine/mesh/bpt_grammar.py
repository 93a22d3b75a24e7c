"""The BPT tokens that may come next: a small automaton over classes of tokens, so that every generated mesh is well formed.

Classes: B block, O offset, S special block (opens a patch), E end. States, with the classes that a serialised mesh contains there
("canonical") and those that the parser also accepts ("tolerated"):

    q0   start                                canonical B            tolerated S
    q1   after B or S: an offset is due       canonical O            tolerated B
    q2c  the centre of the first patch        canonical O, B
    q2s  the centre of a later patch          canonical B            tolerated O
    q3   one ring vertex                      canonical O, B         tolerated S, which leaves an empty patch
    q4   two or more, so at least one face    canonical O, B, S, E

E is allowed in q4 only. A face budget is a rule too: in the first q4 with that many faces only E is allowed. `next` and `allowed` are
pure, so that drafts can be masked along a path that is not committed yet. `next` is total: after a token that is not allowed it does
what the parser does, and after E only E follows. Mask the distributions of the model and of the drafter alike; "exact" then means
relative to the masked model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from engine.errors import BadPrompt
from engine.mesh.bpt_tokens import BPT, NOTHING

B, O, S, E = 0, 1, 2, 3  # noqa: E741  named as in the paper and the table above
START, CENTRE_DUE, LATER_CENTRE_DUE, RING_DUE, FAN_DUE, CENTRE, LATER_CENTRE, RING, FAN, END = range(10)
NAMES = ("q0", "q1", "q1", "q1", "q1", "q2c", "q2s", "q3", "q4", "end")
NODE_BITS = 4  # a state has a node in its low bits and, with a budget, the number of faces in the others
NO_BUDGET = 1 << 48  # faces

#          B               O             S                 E
NEXT = (
    (CENTRE_DUE,       CENTRE,       LATER_CENTRE_DUE, END),  # START
    (CENTRE_DUE,       CENTRE,       LATER_CENTRE_DUE, END),  # CENTRE_DUE
    (LATER_CENTRE_DUE, LATER_CENTRE, LATER_CENTRE_DUE, END),  # LATER_CENTRE_DUE
    (RING_DUE,         RING,         LATER_CENTRE_DUE, END),  # RING_DUE
    (FAN_DUE,          FAN,          LATER_CENTRE_DUE, END),  # FAN_DUE
    (RING_DUE,         RING,         LATER_CENTRE_DUE, END),  # CENTRE
    (RING_DUE,         RING,         LATER_CENTRE_DUE, END),  # LATER_CENTRE
    (FAN_DUE,          FAN,          LATER_CENTRE_DUE, END),  # RING
    (FAN_DUE,          FAN,          LATER_CENTRE_DUE, END),  # FAN
    (END,              END,          END,              END),  # END
)  # fmt: skip
CANONICAL = ("B", "O", "O", "O", "O", "OB", "B", "OB", "OBSE", "E")
TOLERATED = ("BS", "OB", "OB", "OB", "OB", "OB", "OB", "OBS", "OBSE", "E")


@dataclass(frozen=True)
class Automaton:
    """A grammar's automaton as tensors, for many states at once on a device. The states are BPTGrammar's; faces are always counted.

    masks, classes : see BPTGrammar; following : int64 [10, 4], NEXT; rows : int64 [10], the mask of each node; budget : int64 []
    """

    masks: Tensor
    classes: Tensor
    following: Tensor
    rows: Tensor
    budget: Tensor

    def move_tensors(self, hold: Callable[[str, Tensor], Tensor]) -> Automaton:
        """The same with other tensors. hold : (name, tensor) -> tensor"""
        return Automaton(*(hold(f"grammar {each.name}", getattr(self, each.name)) for each in fields(self)))

    def next(self, states: Tensor, tokens: Tensor) -> Tensor:
        """The state after each token. int64 [N] x2 -> int64 [N]"""
        nodes = self.following[states & (1 << NODE_BITS) - 1, self.classes[tokens]]
        return (states >> NODE_BITS) + (nodes == FAN).long() << NODE_BITS | nodes

    def allowed_ids(self, states: Tensor) -> Tensor:
        """The ids allowed in each state. int64 [N] -> bool [N, vocabulary]"""
        nodes = states & (1 << NODE_BITS) - 1
        is_full = (nodes == FAN) & (states >> NODE_BITS >= self.budget)
        return self.masks[self.rows[torch.where(is_full, END, nodes)]]


class BPTGrammar:
    """The automaton of BPT tokens. States are integers; `start` is the first.

    canonical : allow only what a serialised mesh contains (a model trained on such meshes loses nothing, and 51 % of its tokens
                have a known class); False also allows what the parser tolerates
    budget    : the maximum number of faces, None = no limit
    masks     : bool [M, vocabulary], the distinct masks; `allowed_ids(state)` is row `mask_index(state)`
    """

    def __init__(self, canonical: bool = False, budget: int | None = None):
        if budget is not None and budget < 1:
            raise BadPrompt(f"A budget of {budget} faces leaves no mesh. Choose 1 or more.")
        self.canonical, self.budget = canonical, budget
        kinds = BPT.kinds.astype(np.int64)
        self.classes = np.where(kinds == NOTHING, E, kinds)  # int64 [vocabulary]: B, O, S or E of each id
        self._classes: list[int] = self.classes.tolist()
        table = CANONICAL if canonical else TOLERATED
        distinct = sorted(set(table))
        self.masks = np.stack([np.isin(self.classes, ["BOSE".index(letter) for letter in letters]) for letters in distinct])
        self.masks.flags.writeable = False
        self._rows = [distinct.index(letters) for letters in table]
        self.start = START

    def next(self, state: int, token: int) -> int:
        """The state after a token; an id outside the vocabulary changes nothing, as in the parser."""
        if not 0 <= token < len(self._classes):
            return state
        node = NEXT[state & (1 << NODE_BITS) - 1][self._classes[token]]
        if self.budget is None:
            return node
        is_new_face = node == FAN  # entering the state adds one face
        return ((state >> NODE_BITS) + is_new_face) << NODE_BITS | node

    def mask_index(self, state: int) -> int:
        """The row of `masks` for a state."""
        node = state & (1 << NODE_BITS) - 1
        if node == FAN and self.budget is not None and state >> NODE_BITS >= self.budget:
            return self._rows[END]
        return self._rows[node]

    def automaton(self, masks: Tensor) -> Automaton:
        """The automaton for tensors on the host. masks : as a tensor"""
        rows, budget = torch.tensor(self._rows), torch.tensor(NO_BUDGET if self.budget is None else self.budget)
        return Automaton(masks, torch.from_numpy(self.classes), torch.tensor(NEXT), rows, budget)

    def allowed_ids(self, state: int) -> np.ndarray:
        """bool [vocabulary], shared and read-only: the ids allowed in a state."""
        return self.masks[self.mask_index(state)]

    def walk(self, tokens: Iterable[int], state: int | None = None) -> int:
        """The state after several tokens, from `state` or the start."""
        state = self.start if state is None else state
        for token in tokens:
            state = self.next(state, int(token))
        return state

    def accepts(self, tokens: Iterable[int]) -> bool:
        """True if every token is allowed where it occurs and the last one ends the mesh."""
        state = self.start
        for token in tokens:
            if not 0 <= token < len(self._classes) or not self.allowed_ids(state)[token]:
                return False
            state = self.next(state, int(token))
        return self.has_ended(state)

    def has_ended(self, state: int) -> bool:
        """True if EOS has been reached."""
        return state & (1 << NODE_BITS) - 1 == END

    def name(self, state: int) -> str:
        """The name of a state for statistics: q0, q1, q2c, q2s, q3, q4 or end."""
        return NAMES[state & (1 << NODE_BITS) - 1]
