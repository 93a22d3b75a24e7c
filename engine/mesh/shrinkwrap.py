"""Shrinkwrap: moves the vertices of a finished mesh until its surface matches the points of the input.

A decoder places vertices in cells of a lattice, and misplaces some if the shape is unfamiliar. The topology stays; only positions change.
Each round is a step of iterative closest point registration (Besl and McKay 1992), with a vector per vertex instead of one
motion for all: points of the surface are drawn to the nearest points of the input and vice versa, and vertices joined by an edge move
alike. Weights fall with the distance, so that the mean of plain distances decreases, not the mean of their squares.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, diags_array, eye_array
from scipy.sparse.linalg import spsolve

from engine.mesh import surface
from engine.mesh.distance import distance
from engine.mesh.nearest import Nearest
from engine.mesh.random_streams import WRAP, generator

COUNT = 4096  # points of each side per round
ROUNDS = 12
ALIKE = 0.05  # weight of the smoothness along an edge, as a share of the pull on a vertex
FEWEST = 256  # minimum distinct points of an input; fewer would pull the surface into dents
NEAR = 0.005  # share of the input's longest side; nearer pairs get no more weight
ASIDE = 0.02  # share of it; a mesh point farther from the input is over a hole or on an unseen part, and stays
FAR = 0.1  # share of it; an input point farther from the mesh belongs to a part that the mesh lacks


def shrink_to_points(vertices: np.ndarray, faces: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The vertices [V, 3], float64, of the same faces [F, 3], moved to the points [N, 3 or 6] of an input in the same coordinates.

    Coinciding vertices stay together. Unit normals of the points distinguish the back of a thin part from its front. The mesh is returned
    unchanged if it has no area, if there are too few points, or if it would be no nearer to them.
    """
    start = np.asarray(vertices, np.float64)
    if not len(faces) or len(np.unique(points[:, :3], axis=0)) < FEWEST or not surface.areas(start, faces).sum() > 0:
        return start.copy()
    cloud, random = np.asarray(points, np.float64), generator(WRAP)
    places, owner = np.unique(start, axis=0, return_inverse=True)
    corners = owner.reshape(-1)[faces]
    smooth = _differences(corners, len(places))
    size = float(np.ptp(cloud[:, :3], axis=0).max())
    chosen = cloud[random.permutation(len(cloud))[:COUNT]]
    for _ in range(ROUNDS):
        if not surface.areas(places, corners).sum() > 0:
            break
        places = places + _moves(places, corners, chosen, smooth, size, random)
    moved = places[owner.reshape(-1)]
    before, after = (distance((each, faces), points)["chamfer"] for each in (start, moved))
    return moved if before is not None and after is not None and after < before else start.copy()


def _differences(corners: np.ndarray, count: int) -> csr_array:
    """Matrix [E, count] that maps a vector per vertex to its differences along the edges."""
    ends = np.unique(np.sort(np.concatenate([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [2, 0]]]), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    rows = np.repeat(np.arange(len(ends)), 2)
    return csr_array((np.tile([1.0, -1.0], len(ends)), (rows, ends.ravel())), shape=(len(ends), count))


def _moves(
    places: np.ndarray, corners: np.ndarray, cloud: np.ndarray, smooth: csr_array, size: float, random: np.random.Generator
) -> np.ndarray:
    """The move of every vertex in one round, [V, 3]: the least-squares solution for all pairs and for the differences along edges."""
    face, u, v = surface.places(surface.areas(places, corners), COUNT, random)
    share = np.stack([1 - u - v, u, v], 1)
    at = np.einsum("nk,nkc->nc", share, places[corners[face]])
    far, nearest = Nearest(cloud[:, :3]).query(at)
    near, back = Nearest(at).query(cloud[:, :3])
    pair, point = np.concatenate([np.arange(len(at)), back]), np.concatenate([nearest, np.arange(len(cloud))])
    wanted = cloud[point, :3] - at[pair]
    distances = np.concatenate([far, near])
    reach = np.repeat([ASIDE, FAR], [len(at), len(cloud)]) * size
    draws = (distances < reach) & _are_alike(surface.crosses(places, corners)[face[pair]], cloud[point, 3:])
    weight = np.where(draws, 1 / np.maximum(distances, NEAR * size), 0.0)
    rows = np.repeat(np.arange(len(pair)), 3)
    mix = csr_array((share[pair].ravel(), (rows, corners[face[pair]].ravel())), shape=(len(pair), len(places)))
    pull = mix.T @ diags_array(weight) @ mix
    alike = ALIKE * float(pull.diagonal().mean())
    system = pull + alike * (smooth.T @ smooth) + (0.02 * alike + 1e-9) * eye_array(len(places))
    return spsolve(system.tocsc(), mix.T @ (weight[:, None] * wanted)).reshape(-1, 3)


def _are_alike(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """True where pairs of normals [N, 3] face the same way: the back of a thin part must not be drawn to its front. Where most pairs face
    opposite ways, the normals of the input are inside out. True where the input has no normals."""
    if not theirs.shape[1]:
        return np.ones(len(ours), bool)
    same = np.einsum("nc,nc->n", ours, theirs)
    return same * (np.sign(np.sign(same).sum()) or 1.0) >= 0
