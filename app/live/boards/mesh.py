"""A growing mesh: its faces, the verdicts on their tokens, and the faces of the open draft.

A face is complete with the last token of its newest vertex and never changes afterwards, so every Step only appends. A face is coloured
by the tokens it owns. Every token except the dangling ones belongs to exactly one face.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from app.live.stream import Growth
from engine.core import Step
from engine.diagnostics import per_token
from engine.mesh.bpt_tokens import TokenParser
from engine.run import Run

NOTHING_DRAFTED = 255  # value of a face's shares and depth; as entropy or top: unknown
ALL = 254  # a share of 1
NATS = 6.0  # entropy shown as ALL
# A face as sent to the page. corners : (x, y, z) in cells; accepted : share of its tokens that were accepted drafts, 0..ALL
# depth : number of tokens that its last token was drafted ahead, 0 = the model's own; tokens : number owned; step : its Step, from 0
# entropy, probability, top : means over its tokens, 0..ALL; entropy from 0..NATS, acceptance probability, largest token probability
FACE = np.dtype([("corners", "u1", (3, 3)), ("accepted", "u1"), ("depth", "u1"), ("tokens", "u1"), ("step", "u1", 3),
                 ("entropy", "u1"), ("probability", "u1"), ("top", "u1")])  # fmt: skip


def records(faces: np.ndarray | Sequence[Any], step: np.ndarray | Sequence[int] | int = 0, **known: Any) -> np.ndarray:
    """FACE [F] from faces, uint8 [F, 3, 3], and the Steps that completed them. known : other columns; the rest is unknown"""
    columns = np.full(len(faces) * FACE.itemsize, NOTHING_DRAFTED, np.uint8).view(FACE)
    columns["corners"] = np.asarray(faces, np.uint8).reshape(-1, 3, 3)
    columns["step"] = np.full(len(faces), step, "<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    for name, values in ({"tokens": 0} | known).items():
        columns[name] = values
    return columns


def steps_of(faces: np.ndarray) -> np.ndarray:
    """int64 [F]: the Step that completed each face of FACE [F]."""
    return faces["step"].astype(np.int64) @ (1, 256, 65536)


class MeshBoard(Growth):
    """Display state of one mesh. Faces are in the order of their tokens, including duplicates and faces without area."""

    def __init__(self, run: Run):
        super().__init__(run)
        self.parser = TokenParser()
        self._depths: list[float] = []  # per token: 0 = the model's own, k = accepted, drafted k ahead, nan = nothing was drafted
        self._records = bytearray()  # of FACE
        self._drafts: list[tuple[list[int], list[int]]] = []  # per Step, (tokens, positions) drafted for the next one

    def add(self, step: Step) -> None:
        """Takes the next Step; its tokens follow those before it."""
        assert step.positions[0] == self.parser.length, "the tokens of a mesh arrive in order"
        self._depths += depths(step)
        nats, chances, tops = (self.trail.series[name] for name in ("entropy", "accept_probability", "top"))
        super().add(step)
        self._drafts.append(self.next_draft())  # even after the end of the run: Steps arrive late, see `updates`
        for face in self.parser.extend(step.tokens):
            own = [self._depths[i] for i in face.owned]
            known = [depth for depth in own if depth == depth]
            share = sum(depth > 0 for depth in known) / len(known) if known else 0.0
            last = self._depths[face.tokens[2][-1]]
            accepted = round(share * ALL) if known else NOTHING_DRAFTED
            depth = min(int(last), NOTHING_DRAFTED - 1) if last == last else NOTHING_DRAFTED
            corners = (coordinate for corner in face.vertices for coordinate in corner)
            means = level(nats, face.owned, NATS), level(chances, face.owned, 1.0), level(tops, face.owned, 1.0)
            self._records += bytes([*corners, accepted, depth, min(len(own), 255), *(self.count - 1).to_bytes(3, "little"), *means])

    @property
    def records(self) -> np.ndarray:
        """FACE [F]: the faces so far."""
        return np.frombuffer(bytes(self._records), FACE)

    @property
    def faces(self) -> np.ndarray:
        """uint8 [F, 3, 3]: the corners (x, y, z) of the faces, in cells."""
        return self.records["corners"]

    @property
    def corners(self) -> np.ndarray:
        """int32 [F, 3, 2]: the first position and the last + 1 of the tokens of each corner."""
        spans = [[(own[0], own[-1] + 1) for own in face.tokens] for face in self.parser.faces]
        return np.array(spans, np.int32).reshape(-1, 3, 2)

    @property
    def step(self) -> np.ndarray:
        """int64 [F]: the Step that completed the face, from 0."""
        return steps_of(self.records)

    @property
    def ghosts(self) -> np.ndarray:
        """uint8 [G, 3, 3]: the faces with an area that the open draft would complete."""
        twin = self.parser.copy()
        for token, position in zip(*self.shown_draft(), strict=True):
            if position != twin.length:  # tokens after a gap cannot be parsed
                break
            twin.push(token)
        visible = [face.vertices for face in twin.faces if not face.degenerate]
        return np.array(visible, np.uint8).reshape(-1, 3, 3)

    def guesses(self) -> np.ndarray:
        """FACE [G]: the faces that the run's drafts would have completed. `step` is the Step after which each was drafted, `accepted` 1 if
        all its tokens were then committed, else 0."""
        parser, faces, places, accepted = TokenParser(), [], [], []
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
                    faces.append(face.vertices)
                    places.append(number)
                    accepted.append(right)
        return records(faces, places, accepted=accepted)

    @property
    def dangling(self) -> int:
        """Number of tokens that own no face so far: the end token, and unfinished patches."""
        return len(self.parser.dangling())


def level(values: Sequence[float], owned: Iterable[int], most: float) -> int:
    """The mean of the known values of some tokens, 0..most as 0..ALL; NOTHING_DRAFTED if none is known."""
    known = [values[i] for i in owned if values[i] == values[i]]
    return NOTHING_DRAFTED if not known else round(ALL * min(1.0, max(0.0, math.fsum(known) / len(known) / most)))


def depths(step: Step) -> list[float]:
    """Number of tokens ahead that each token of a Step was drafted; 0 = the model's own, nan = nothing was drafted in this Step."""
    count = len(step.tokens)
    if not step.drafted:
        return [float("nan")] * count
    accepted = per_token(step, "accepted") == 1
    recorded = per_token(step, "depth")
    ahead = np.where(np.isnan(recorded), np.arange(1, count + 1), recorded)  # a method without depths drafts chains
    return np.where(accepted, ahead, 0.0).tolist()
