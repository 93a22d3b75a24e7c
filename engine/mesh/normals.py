"""Normals of a cloud: from the file if they are valid, else estimated from neighbours and oriented outward."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components, minimum_spanning_tree

from engine.mesh.nearest import Nearest

NEIGHBOURS = 20  # neighbours that give a point's plane; fewer follow noise, more round the edges
LINKS = 12  # neighbours in the graph along which orientation spreads
DIRECTIONS = 40  # number of directions from which the cloud is viewed
WIDE = 1.3  # width of a grid cell in a view, in distances to the last of the LINKS neighbours
GRID = 1024  # maximum cells along a side
TRUST = 20.0  # weight of a link: votes beyond it must oppose it this strongly to break it, if its two normals agree perfectly
BLOCK = 16_384  # points processed at once, to limit memory


def unit(normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Normals [N, 3] of length 1, float64, and a mask of the valid ones, bool [N]: zero, NaN and infinity are not normals."""
    normals = np.asarray(normals, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        length = np.sqrt(np.einsum("nc,nc->n", normals, normals))
        good = np.isfinite(length) & (length > 1e-6)
        return np.where(good[:, None], normals / np.where(good, length, 1.0)[:, None], 0.0), good


def complete(points: np.ndarray, from_file: np.ndarray | None) -> tuple[np.ndarray, str]:
    """Unit normals [N, 3] for points [N, 3], and a note about their origin ("" = all are from the file).

    A few missing normals are copied from the nearest point that has one; if most are missing, all are estimated.
    """
    if from_file is None:
        return estimate(points), "The normals were estimated from neighbouring points and turned outward."
    normals, good = unit(from_file)
    if good.all():
        return normals, ""
    if good.mean() < 0.5:
        return estimate(points), "Most normals were zero or NaN, so all were estimated from neighbouring points and turned outward."
    nearest = Nearest(points[good]).query(points[~good])[1]
    normals[~good] = normals[good][nearest]
    return normals, f"{int((~good).sum()):,} normals were zero or NaN and were taken from the nearest point."


def estimate(points: np.ndarray) -> np.ndarray:
    """Unit normals [N, 3] that point outward, float64; the points should be distinct."""
    points = np.asarray(points, np.float64)
    count = len(points)
    if count < 4:
        return np.tile([0.0, 1.0, 0.0], (count, 1))  # too few points for a plane
    near = Nearest(points).query(points, min(NEIGHBOURS, max(6, count // 32), count - 1) + 1)[1]
    return orient(points, _planes(points, near), near[:, 1 : LINKS + 1])


def _planes(points: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The direction [N, 3] in which the neighbours `near` [N, k] of each point vary least (PCA); either sign."""
    normals = np.empty_like(points)
    for start in range(0, len(points), BLOCK):
        patch = points[near[start : start + BLOCK]]
        patch = patch - patch.mean(1, keepdims=True)
        normals[start : start + BLOCK] = np.linalg.eigh(np.einsum("nki,nkj->nij", patch, patch))[1][:, :, 0]
    return normals


def orient(points: np.ndarray, normals: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Normals [N, 3] with the signs that agree best along the surface and with the views from outside.

    near : int [N, k], neighbours of each point

    Signs spread along the minimum spanning tree of the neighbour graph (Hoppe et al., 1992). The agreement of two normals is not
    n_i . n_j but n_i . (n_j mirrored in the plane between the points): on any arc through both points that is exactly 1, so signs
    spread across sharp edges and do not jump from one side of a thin plate to the other. On the tree the signs s that maximise
    sum s_i vote_i + TRUST sum s_i s_parent agreement are found exactly, in one pass up and one down.
    """
    count = len(points)
    i, j = np.repeat(np.arange(count), near.shape[1]), near.reshape(-1)
    weight = 1.0 - np.abs(_agreement(points, normals, i, j)) + 1e-9  # zero would not be an edge
    tree = minimum_spanning_tree(coo_matrix((weight, (i, j)), (count, count)).tocsr()).tocoo()
    # an extra node, linked to the first point of every component, so that a single traversal reaches all
    roots = np.unique(connected_components(tree, directed=False)[1], return_index=True)[1]
    i, j = np.concatenate([tree.row, np.full(len(roots), count)]), np.concatenate([tree.col, roots])
    order, parents = breadth_first_order(coo_matrix((np.ones(len(i)), (i, j)), (count + 1, count + 1)).tocsr(), count, directed=False)
    order = order[1:]
    pull = np.zeros(count + 1)
    inner = order[parents[order] < count]
    pull[inner] = TRUST * _agreement(points, normals, parents[inner], inner)
    order, parents, pull = order.tolist(), parents.tolist(), pull.tolist()
    wish = [*votes(points, normals, near).tolist(), 0.0]  # the preferred sign of a point and all below it
    for node in reversed(order):
        strength = abs(pull[node])
        passed = min(max(wish[node], -strength), strength)
        wish[parents[node]] += passed if pull[node] > 0 else -passed
    signs = [1.0] * (count + 1)
    for node in order:
        signs[node] = 1.0 if wish[node] + pull[node] * signs[parents[node]] >= 0 else -1.0
    return normals * np.array(signs[:count])[:, None]


def votes(points: np.ndarray, normals: np.ndarray, near: np.ndarray) -> np.ndarray:
    """Strength with which each normal [N, 3] points to the viewers that see its point from outside, float64 [N]; 0 where none does.

    In each of many directions the frontmost point in each cell of a grid is visible. Cells hold a handful of points each: with finer cells
    the view would pass through the surface.
    """
    scores = np.zeros(len(points))
    cell = WIDE * np.median(np.linalg.norm(points - points[near[:, -1]], axis=1))
    for direction in _directions():
        side = np.cross(direction, [0.0, 1.0, 0.0] if abs(direction[1]) < 0.9 else [1.0, 0.0, 0.0])
        side /= np.linalg.norm(side)
        flat = points @ np.stack([side, np.cross(direction, side)], 1)
        flat -= flat.min(0)
        places = np.floor(flat / max(cell, flat.max() / GRID, 1e-300)).astype(np.int64)
        width = int(places[:, 1].max()) + 1
        front = np.full((int(places[:, 0].max()) + 1) * width, -1)
        nearest_last = np.argsort(points @ direction, kind="stable")
        front[places[nearest_last, 0] * width + places[nearest_last, 1]] = nearest_last  # of several points in a cell the last one stays
        seen = front[front >= 0]
        scores[seen] += normals[seen] @ direction
    return scores


def _directions() -> np.ndarray:
    """Directions spread evenly over the sphere, [DIRECTIONS, 3]: a Fibonacci lattice."""
    k = np.arange(DIRECTIONS) + 0.5
    height, turn = 1.0 - 2.0 * k / DIRECTIONS, np.pi * (1.0 + 5.0**0.5) * k
    ring = np.sqrt(1.0 - height**2)
    return np.stack([ring * np.cos(turn), height, ring * np.sin(turn)], 1)


def _agreement(points: np.ndarray, normals: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """n_i . (n_j mirrored in the plane between the points), -1..1."""
    along = points[j] - points[i]
    length = np.sqrt(np.einsum("nc,nc->n", along, along))
    along /= np.maximum(length, 1e-300)[:, None]
    dot = np.einsum("nc,nc->n", normals[i], normals[j])
    return dot - 2.0 * np.einsum("nc,nc->n", normals[i], along) * np.einsum("nc,nc->n", normals[j], along)


def outwardness(points: np.ndarray, normals: np.ndarray) -> float:
    """Degree to which normals [N, 3] point outward, from -1 (all inward) to 1."""
    near = Nearest(points).query(points, min(LINKS, len(points) - 1) + 1)[1][:, 1:]
    scores = votes(points, normals, near)
    return float(scores.sum() / max(np.abs(scores).sum(), 1e-300))
