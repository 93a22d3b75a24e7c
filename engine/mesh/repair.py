"""Reports the watertightness, holes and winding of a mesh with trimesh, and the flaws that trimesh can mend.
Its verdict is independent of quality.py, and the mended mesh can be written."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from engine.mesh.quality import merge
from engine.mesh.surface import is_simple


@dataclass(frozen=True)
class Repair:
    """The report, and the mended mesh.

    watertight, winding_consistent, holes : of the original mesh; a hole is a loop of edges with one face
    closed, turned                        : numbers of holes closed and of faces turned over
    watertight_after, winding_after       : of the mended mesh
    vertices [V, 3], faces [F, 3]         : the mended mesh; coinciding vertices are merged, faces without height are dropped
    """

    watertight: bool
    winding_consistent: bool
    holes: int
    closed: int
    turned: int
    watertight_after: bool
    winding_after: bool
    vertices: np.ndarray
    faces: np.ndarray

    @property
    def mends(self) -> bool:
        """True if the mended mesh differs from the original."""
        return bool(self.turned or self.closed)

    @property
    def compared(self) -> str:
        """The state before and after, in a sentence."""
        before = state(self.watertight, self.holes, self.winding_consistent)
        return f"Before: {before}; after: {state(self.watertight_after, self.holes - self.closed, self.winding_after)}"

    @property
    def text(self) -> str:
        """The repairs, in a sentence."""
        if self.watertight and not self.turned:
            return "closed, and all faces agree on the outside: nothing to repair"
        steps = [f"turns {plural_text(self.turned, 'face')}"] if self.turned else []
        steps += [f"closes {self.closed} of {plural_text(self.holes, 'hole')}"] if self.holes else []
        result = "it stays open" if not self.watertight_after else "then all agree" if self.watertight else "then it is watertight"
        return f"trimesh {' and '.join(steps) or 'finds nothing that it can mend'}; {result}"


def plural_text(number: int, what: str) -> str:
    """ "1 face", "2 faces"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def state(watertight: bool, holes: int, consistent: bool) -> str:
    """The state of a mesh in a few words."""
    return f"{'watertight' if watertight else 'open'}, {plural_text(holes, 'hole')}, {'consistent' if consistent else 'mixed'} winding"


def repair(vertices: np.ndarray, faces: np.ndarray) -> Repair:
    """Repairs a mesh, vertices [V, 3] and faces [F, 3], and returns the report."""
    from trimesh import Trimesh
    from trimesh import repair as mend  # slow to import

    places, corners = merge(vertices, faces)
    simple = corners[is_simple(corners)]
    if not len(simple):
        return Repair(False, False, 0, 0, 0, False, False, places, simple)
    mesh = Trimesh(places, simple.copy(), process=False)  # mended in place
    watertight, consistent, before = bool(mesh.is_watertight), bool(mesh.is_winding_consistent), holes(mesh.edges_sorted)
    mend.fix_winding(mesh)
    mend.fill_holes(mesh, use_fan=True)
    mend.fix_inversion(mesh, multibody=True)
    mended = np.array(mesh.faces)
    turned = int(is_flipped(simple, mended[: len(simple)]).sum())
    closed = max(0, before - holes(mesh.edges_sorted))
    after = bool(mesh.is_watertight), bool(mesh.is_winding_consistent)
    return Repair(watertight, consistent, before, closed, turned, *after, np.array(mesh.vertices), mended)


def is_flipped(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """bool [F]: True for faces with reversed corners, whichever comes first."""
    same = np.zeros(len(before), bool)
    for shift in range(3):
        same |= (np.roll(after, shift, 1) == before).all(1)
    return ~same


def holes(edges: np.ndarray) -> int:
    """Number of loops that the open edges form. edges: [E, 2], sorted, one row for each face that uses an edge"""
    unique, users = np.unique(edges, axis=0, return_counts=True)
    open_edges = unique[users == 1]
    ends, corners = np.unique(open_edges, return_inverse=True)
    graph = coo_matrix((np.ones(len(open_edges)), tuple(corners.reshape(-1, 2).T)), (len(ends), len(ends)))
    # number of cycles of a graph: edges - vertices + pieces
    return len(open_edges) - len(ends) + (connected_components(graph, directed=False)[0] if len(ends) else 0)
