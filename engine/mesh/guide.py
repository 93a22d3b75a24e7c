"""A guide for the tokens of a mesh: a surface through the points, made without the model, pulls the distribution towards its own tokens.

The model alone loses its way on shapes unlike those that it has learned. A guide is the classical surface of the points (`classical.py`) in
the order in which BPT writes a mesh. In every state it expects one vertex, or the block that opens the next patch, and the logits of the
tokens that write it gain `strength` nats: the product of the model's distribution with a geometric one. A vertex near the expected one
takes its place, so the model may move vertices; where it leaves a patch of the guide, the rest of that patch is expected again. This
changes the distribution of the model, for plain decoding and every method alike, and "exact" then means relative to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.errors import NotSupported
from engine.mesh.bpt_tokens import BPT, Cell, clean, patches

REACH = 4  # cells: the gain of an offset falls to 0 over this distance from the expected cell
SAME = 6  # cells: a vertex within this distance is taken for the expected one
TRIES = 2  # times that a patch is expected
PATIENCE, MOST = 2, 4  # the gain of what ends a patch doubles after this many idle tokens, and again, up to this many times
NO_BLOCK = -1  # the next vertex is written in full

Fan = tuple[Cell, ...]  # a centre and its ring


class Moves(dict[Cell, Cell]):
    """Vertices of the guide and those that took their places. Never changed, but replaced, so that states can be keys."""

    def __hash__(self) -> int:
        return hash(frozenset(self.items()))


class GuideState(NamedTuple):
    """The state after some tokens.

    rest   : the vertices of the open patch that are still expected, the next one first
    written : the centre and the newest ring vertex of the open patch that stand for the guide's; empty before the centre
    again  : a patch that is expected again; empty: none
    tries  : times that the next patch was expected in vain
    fan    : number of the next patch that was not opened yet
    block  : the block of the next vertex unless another one is written
    is_due : True if an offset must follow
    idle   : tokens since nothing was expected of the open patch
    moved  : the vertices that took the places of vertices of the guide
    """

    rest: Fan
    written: Fan = ()
    again: Fan = ()
    tries: int = 0
    fan: int = 1
    block: int = NO_BLOCK
    is_due: bool = False
    idle: int = 0
    moved: Moves = Moves()


class Guide:
    """A state machine of pure functions, like the grammar.

    vertices, faces : the guiding mesh, float [V, 3] in the model's cube -1..1 and int [F, 3], with at least one face
    strength        : nats that an expected token gains
    """

    def __init__(self, vertices: np.ndarray, faces: np.ndarray, strength: float):
        cells = np.clip(np.floor((np.asarray(vertices) + 1) / 2 * BPT.cells), 0, BPT.cells - 1).astype(np.int64)
        cells, faces = clean(cells, faces)
        corners: list[Cell] = [tuple(cell) for cell in cells.tolist()]
        self.fans: list[Fan] = [tuple(corners[i] for i in fan) for fan in patches(faces, len(cells))]
        if not self.fans:
            raise NotSupported("The points span no surface that could guide the mesh. Set the guide to 0.")
        self._blocks, self._side = BPT.per_axis
        self._offsets, self._special, self._end, self._vocabulary = BPT.first[1], BPT.special, BPT.eos, BPT.vocabulary
        self._strength = strength
        digits = np.stack(np.unravel_index(np.arange(self._side**3), (self._side,) * 3)).astype(np.int8)
        distances = abs(digits[:, :, None] - digits[:, None]).max(0)  # in cells, of all pairs of offsets
        self._pulls = torch.from_numpy((-strength * np.maximum(0, 1 - distances / REACH)).astype(np.float32))
        self.start = GuideState(self.fans[0])

    def next(self, state: GuideState, token: int) -> GuideState:
        """The state after one more token."""
        if not state.rest:
            state = state._replace(idle=state.idle + 1)
        if 0 <= token < self._offsets:
            return state._replace(block=token, is_due=True)
        if self._offsets <= token < self._special:
            return self._with_vertex(state, self._cell(state.block, token - self._offsets))
        return self._with_patch(state, token - self._special) if self._special <= token < self._end else state

    def favourite(self, state: GuideState) -> int | None:
        """The token that gains most; None if none does."""
        fan = state.rest or self._next_fan(state)
        if not state.rest:
            return None if state.is_due else self._special + self._block_of(self._expected(state, fan[0])) if fan else self._end
        expected = self._expected(state, fan[0])
        block = self._block_of(expected)
        if state.block == block:
            x, y, z = (axis % self._side for axis in expected)
            return self._offsets + (x * self._side + y) * self._side + z
        return None if state.is_due else block

    def loss(self, state: GuideState) -> Tensor:
        """The penalty on the logits of the next token, float32 [V]; negative for expected tokens."""
        lost, favourite = torch.zeros(self._vocabulary), self.favourite(state)
        if favourite is None:
            return lost
        if not state.rest:
            lost[favourite] = -self._strength * min(1 + state.idle // PATIENCE, MOST)
        elif favourite < self._offsets:
            lost[favourite] = -self._strength
        else:
            lost[self._offsets : self._special] = self._pulls[favourite - self._offsets]
        return lost

    def _expected(self, state: GuideState, vertex: Cell) -> Cell:
        """The cell at which a vertex of the guide is expected."""
        return state.moved.get(vertex, vertex)

    def _with_vertex(self, state: GuideState, vertex: Cell) -> GuideState:
        """The state after a complete vertex."""
        is_centre = not state.written
        block = NO_BLOCK if is_centre and state.fan > 1 else state.block  # after a later centre, a vertex is written in full
        state = state._replace(is_due=False, block=block)
        if not state.rest:
            return state
        own, rest = state.rest[0], state.rest[1:]
        expected = self._expected(state, own)
        if max(abs(a - b) for a, b in zip(vertex, expected, strict=True)) > SAME:
            return self._left(state)
        moved = state.moved if vertex == expected else Moves({**state.moved, own: vertex})
        written = (own,) if is_centre else (state.written[0], own)
        return state._replace(rest=rest, written=written, moved=moved, tries=state.tries if rest else 0)

    def _with_patch(self, state: GuideState, block: int) -> GuideState:
        """The state after the token that opens a patch."""
        state = self._left(state) if state.rest else state
        fan = self._next_fan(state)
        following = state.fan if state.again else min(state.fan + 1, len(self.fans) + 1)
        return state._replace(rest=fan, written=(), again=(), fan=following, block=block, is_due=True, idle=0)

    def _left(self, state: GuideState) -> GuideState:
        """The state after the model left the open patch: what is missing of it is expected again, or given up."""
        missing = (*state.written, *state.rest)
        again = missing if state.tries + 1 < TRIES and len(missing) > 2 else ()
        return state._replace(rest=(), written=state.written or missing[:1], again=again, tries=state.tries + 1 if again else 0)

    def _next_fan(self, state: GuideState) -> Fan:
        """The patch that should be opened next; empty after the last one."""
        return state.again or (self.fans[state.fan] if state.fan < len(self.fans) else ())

    def _block_of(self, cell: Cell) -> int:
        x, y, z = (axis // self._side for axis in cell)
        return (x * self._blocks + y) * self._blocks + z

    def _cell(self, block: int, offset: int) -> Cell:
        b, s, at = self._blocks, self._side, max(block, 0)
        high, low = (at // b**2, at // b % b, at % b), (offset // s**2, offset // s % s, offset % s)
        return high[0] * s + low[0], high[1] * s + low[1], high[2] * s + low[2]
