"""A growing mesh: its faces, what became of the tokens of each, and the faces of the open draft.

A face is complete with the last token of its newest vertex and never changes afterwards, so every Step only appends. A face is coloured
by the tokens it owns. Every token except the dangling ones has exactly one owner.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from app.live.stream import Growth
from engine.core import Step
from engine.diagnostics import per_token
from engine.mesh.bpt_tokens import Parser
from engine.run import Run

NOTHING_DRAFTED = 255  # in `accepted` and `depth`
ALL = 254  # in `accepted` and `probability`: all of it
NATS = 6.0  # the entropy that is shown as ALL


class Guesses(NamedTuple):
    """The faces that drafts would have completed: faces uint8 [G, 3, 3], step int32 [G] after which they were drafted, came bool [G]."""

    faces: np.ndarray
    step: np.ndarray
    came: np.ndarray


class MeshBoard(Growth):
    """Everything that is shown of one mesh. Faces are in the order of their tokens, with duplicates and faces without an area."""

    def __init__(self, run: Run):
        super().__init__(run)
        self.parser = Parser()
        self._depths: list[float] = []  # of each token: 0 = the model's own, k = accepted, drafted k ahead, nan = nothing was drafted
        self._corners, self._accepted, self._depth = bytearray(), bytearray(), bytearray()
        self._entropy, self._probability, self._top = bytearray(), bytearray(), bytearray()
        self._step: list[int] = []
        self._tokens: list[int] = []
        self._drafts: list[tuple[list[int], list[int]]] = []  # of each Step, what it had drafted for the next

    def add(self, step: Step) -> None:
        """Takes the next Step; its tokens follow those before it."""
        assert step.positions[0] == self.parser.length, "the tokens of a mesh come in their order"
        self._depths += depths(step)
        nats, chances, tops = (self.trail.series[name] for name in ("entropy", "accept_probability", "top"))
        super().add(step)
        self._drafts.append(self.following())  # though the run may have ended: Steps come late, see updates
        for face in self.parser.extend(step.tokens):
            own = [self._depths[i] for i in face.owned]
            known = [depth for depth in own if depth == depth]
            share = sum(depth > 0 for depth in known) / len(known) if known else 0.0
            last = self._depths[face.tokens[2][-1]]
            self._corners += bytes(coordinate for corner in face.vertices for coordinate in corner)
            self._accepted.append(round(share * ALL) if known else NOTHING_DRAFTED)
            self._depth.append(min(int(last), NOTHING_DRAFTED - 1) if last == last else NOTHING_DRAFTED)
            self._step.append(self.count - 1)
            self._tokens.append(len(own))
            self._entropy.append(level(nats, face.owned, NATS))
            self._probability.append(level(chances, face.owned, 1.0))
            self._top.append(level(tops, face.owned, 1.0))

    @property
    def faces(self) -> np.ndarray:
        """uint8 [F, 3, 3]: the corners (x, y, z) of the faces, in cells."""
        return np.frombuffer(bytes(self._corners), np.uint8).reshape(-1, 3, 3)

    @property
    def accepted(self) -> np.ndarray:
        """uint8 [F]: the share of a face's tokens that were accepted drafts, 0..ALL, or NOTHING_DRAFTED."""
        return np.frombuffer(bytes(self._accepted), np.uint8)

    @property
    def depth(self) -> np.ndarray:
        """uint8 [F]: how many tokens ahead a face's last token was drafted, 0 = the model's own, or NOTHING_DRAFTED."""
        return np.frombuffer(bytes(self._depth), np.uint8)

    @property
    def entropy(self) -> np.ndarray:
        """uint8 [F]: the mean entropy over a face's tokens, 0..NATS as 0..ALL, or NOTHING_DRAFTED where it is not known."""
        return np.frombuffer(bytes(self._entropy), np.uint8)

    @property
    def probability(self) -> np.ndarray:
        """uint8 [F]: the mean probability that the drafts of a face's tokens are accepted, 0..1 as 0..ALL, or NOTHING_DRAFTED."""
        return np.frombuffer(bytes(self._probability), np.uint8)

    @property
    def top(self) -> np.ndarray:
        """uint8 [F]: the mean probability of the most probable token over a face's tokens, 0..1 as 0..ALL, or NOTHING_DRAFTED."""
        return np.frombuffer(bytes(self._top), np.uint8)

    @property
    def step(self) -> np.ndarray:
        """int32 [F]: the Step that completed the face, from 0."""
        return np.array(self._step, np.int32)

    @property
    def tokens(self) -> np.ndarray:
        """int32 [F]: how many tokens a face owns."""
        return np.array(self._tokens, np.int32)

    @property
    def ghosts(self) -> np.ndarray:
        """uint8 [G, 3, 3]: the faces that the open draft would complete, without invisible ones (no area)."""
        twin = self.parser.copy()
        for token, position in zip(*self.drafted(), strict=True):
            if position != twin.length:  # tokens after a gap cannot be parsed
                break
            twin.push(token)
        seen = [face.vertices for face in twin.faces if not face.degenerate]
        return np.array(seen, np.uint8).reshape(-1, 3, 3)

    def guesses(self) -> Guesses:
        """Every draft of the run as the faces it would have completed, and whether all of its tokens so far were then committed."""
        parser, made, places, came = Parser(), [], [], []
        tokens = self.run.tokens
        for number, (step, (drafted, positions)) in enumerate(zip(self.run.steps, self._drafts, strict=True)):
            parser.extend(step.tokens)
            twin, right = parser.copy(), True
            for token, position in zip(drafted, positions, strict=True):
                if position != twin.length:
                    break
                right = right and position < len(tokens) and tokens[position] == token
                face = twin.push(token)
                if face is not None and not face.degenerate:
                    made.append(face.vertices)
                    places.append(number)
                    came.append(right)
        return Guesses(np.array(made, np.uint8).reshape(-1, 3, 3), np.array(places, np.int32), np.array(came, bool))

    @property
    def dangling(self) -> int:
        """How many tokens own no face so far: the end token, and unfinished patches."""
        return len(self.parser.dangling())


def level(values: Sequence[float], owned: Iterable[int], most: float) -> int:
    """The mean of the known values of some tokens, 0..most as 0..ALL; NOTHING_DRAFTED if none is known."""
    known = [values[i] for i in owned if values[i] == values[i]]
    return NOTHING_DRAFTED if not known else round(ALL * min(1.0, max(0.0, math.fsum(known) / len(known) / most)))


def depths(step: Step) -> list[float]:
    """How many tokens ahead each token of a Step was drafted; 0 = the model's own, nan = nothing was drafted in this Step."""
    count = len(step.tokens)
    if not step.drafted:
        return [float("nan")] * count
    accepted = per_token(step, "accepted") == 1
    said = per_token(step, "depth")
    ahead = np.where(np.isnan(said), np.arange(1, count + 1), said)  # a method without depths drafts chains
    return np.where(accepted, ahead, 0.0).tolist()
