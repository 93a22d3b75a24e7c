"""Which points of a cloud the faces written so far already cover: the state that local conditioning reads.

A point is covered once a finished face lies within `REACH` cells of it. The state is a pure function of the tokens before, as the grammar's
and adherence's are, so hypothetical paths of windows and trees have states of their own and every exact method stays exact.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.mesh.bpt_tokens import BPT, NOTHING, TokenLevels

REACH = 1.5  # cells


class CoverageState(NamedTuple):
    """The state after some tokens. Vertices are float32 [3] in cells; None before they are known.

    covered  : bool [N], read-only: the points near a finished face
    newest   : the last complete vertex
    centre, previous : of the open fan
    register : the packed block of the next vertex unless another one is written
    opens    : True if the next vertex is the centre of a new fan
    """

    covered: np.ndarray
    newest: np.ndarray | None = None
    centre: np.ndarray | None = None
    previous: np.ndarray | None = None
    register: int = 0
    opens: bool = True


class Coverage:
    """A state machine of pure functions over the tokens of a mesh.

    points : float [N, 3] in the model's cube, -1..1
    """

    def __init__(self, points: np.ndarray, levels: TokenLevels = BPT):
        self.cells = ((np.asarray(points, np.float32) + 1) * (levels.cells / 2)) - 0.5
        self._kinds, self._amounts, self._depth = levels.kind_list, levels.amounts, levels.depth
        self.start = CoverageState(_frozen(np.zeros(len(self.cells), bool)))

    def next(self, state: CoverageState, token: int) -> CoverageState:
        """The state after one more token."""
        kind = self._kinds[token] if 0 <= token < len(self._kinds) else NOTHING
        if kind == NOTHING:
            return state
        if kind == self._depth:
            return state._replace(register=self._amounts[token], opens=True)
        if kind == 0:
            return state._replace(register=self._amounts[token])
        vertex = _unpacked(state.register + self._amounts[token])
        if state.opens:
            return state._replace(newest=vertex, centre=vertex, previous=None, opens=False)
        covered = state.covered
        if state.previous is not None:
            covered = self._with_face(covered, np.stack([state.centre, state.previous, vertex]))
        return state._replace(covered=covered, newest=vertex, previous=vertex)

    def _with_face(self, covered: np.ndarray, corners: np.ndarray) -> np.ndarray:
        """`covered`, and the points near a face with corners float32 [3, 3]."""
        low, high = corners.min(0) - REACH, corners.max(0) + REACH
        near = np.flatnonzero(~covered & (self.cells >= low).all(1) & (self.cells <= high).all(1))
        if not len(near):
            return covered
        near = near[squared_distances(self.cells[near], corners) <= REACH**2]
        if not len(near):
            return covered
        more = covered.copy()
        more[near] = True
        return _frozen(more)


def _unpacked(cell: int) -> np.ndarray:
    """A packed cell as float32 [3]."""
    return np.array((cell >> 20, cell >> 10 & 1023, cell & 1023), np.float32)


def _frozen(array: np.ndarray) -> np.ndarray:
    """The array, read-only."""
    array.setflags(write=False)
    return array


def squared_distances(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Squared distances [N] of points float [N, 3] to a triangle with corners float [3, 3], which may have no area."""
    nearest = np.full(len(points), np.inf, np.float32)
    for a, b in ((0, 1), (1, 2), (2, 0)):
        edge, rest = corners[b] - corners[a], points - corners[a]
        along = np.clip(rest @ edge / max(float(edge @ edge), 1e-9), 0, 1)
        gap = rest - along[:, None] * edge
        nearest = np.minimum(nearest, np.einsum("nc,nc->n", gap, gap))
    normal = np.cross(corners[1] - corners[0], corners[2] - corners[0])
    area = float(normal @ normal)
    if area < 1e-9:
        return nearest
    rest = points - corners[0]
    first = np.cross(corners[1] - corners[0], rest) @ normal / area  # barycentric, of corner 2
    second = np.cross(rest, corners[2] - corners[0]) @ normal / area  # of corner 1
    inside = (first >= 0) & (second >= 0) & (first + second <= 1)
    return np.where(inside, (rest @ normal) ** 2 / area, nearest)
