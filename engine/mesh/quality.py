"""The quality of a single mesh: closed or open, number of pieces, flaws. distance.py compares two meshes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from engine.mesh.surface import areas, crosses, is_simple

THIN = 1e-8  # a triangle is degenerate below this height, as a share of the longest side of the box
FLAT = np.cos(np.radians(10.0))  # two triangles with a smaller angle between their normals can form a quad
CORNER = np.radians([45.0, 135.0])  # range of the angles of a quad
MOST_FOR_QUADS = 50_000  # maximum faces for the search for quads, which is a slow loop


def quality(vertices: np.ndarray, faces: np.ndarray) -> dict[str, Any]:
    """The numbers of the quality panel; coinciding vertices [V, 3] count as one.

    faces, vertices, edges    : how many; vertices only if a face uses them
    watertight                : every edge has exactly two faces
    winding_consistent        : the two faces of an edge run along it in opposite directions
    components                : pieces that share no vertex
    degenerate, duplicate     : faces without height; faces with the same corners as another, in any direction
    open_edges_percent, non_manifold_edges_percent : edges of one face; of more than two
    euler                     : vertices - edges + faces
    quad_percent              : faces that pair up to flat quads with corners of 45 to 135 degrees; None for very large meshes
    """
    vertices, faces = merge(vertices, faces)
    count = len(faces)
    if not count:
        return {
            "faces": 0, "vertices": 0, "edges": 0, "watertight": False, "winding_consistent": False, "components": 0, "degenerate": 0,
            "duplicate": 0, "open_edges_percent": 0.0, "non_manifold_edges_percent": 0.0, "euler": 0, "quad_percent": None,
        }  # fmt: skip
    whole = faces[is_simple(faces)]
    edges, users, along = _edges(whole)
    share = 100.0 / max(len(edges), 1)
    used = len(np.unique(faces))
    return {
        "faces": count,
        "vertices": used,
        "edges": len(edges),
        "watertight": len(edges) > 0 and bool((users == 2).all()),
        "winding_consistent": bool((along[users == 2] == 1).all()),
        "components": _components(faces, len(vertices)),
        "degenerate": int(_is_degenerate(vertices, faces).sum()),
        "duplicate": count - len(np.unique(np.sort(faces, 1), axis=0)),
        "open_edges_percent": float((users == 1).sum() * share),
        "non_manifold_edges_percent": float((users > 2).sum() * share),
        "euler": used - len(edges) + len(whole),
        "quad_percent": _quad_percent(vertices, whole) if count <= MOST_FOR_QUADS else None,
    }


def merge(vertices: np.ndarray, faces: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mesh with one vertex per place: triangles of an STL, or corners split by their normals, are joined again."""
    places, which = np.unique(np.asarray(vertices, np.float64) + 0.0, axis=0, return_inverse=True)  # + 0 makes -0 equal to 0
    return places, which.reshape(-1)[np.asarray(faces, np.int64).reshape(-1, 3)]


def is_inside_out(vertices: np.ndarray, faces: np.ndarray) -> bool:
    """True if a closed mesh with consistent faces has a negative volume; False for any other mesh, where it is undefined."""
    vertices, faces = merge(vertices, faces)
    _, users, along = _edges(faces[is_simple(faces)])
    if not len(users) or not (users == 2).all() or not (along == 1).all():
        return False
    corner = vertices[faces[:, 0]] - vertices.mean(0)
    return float(np.einsum("fc,fc->", corner, crosses(vertices, faces))) < 0


def _edges(faces: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges [E, 2] with the smaller vertex first, the faces that use each, and those in which it runs from small to large."""
    directed = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    forward = directed[:, 0] < directed[:, 1]
    edges, which, users = np.unique(np.sort(directed, 1), axis=0, return_inverse=True, return_counts=True)
    return edges, users, np.bincount(which.reshape(-1), forward, len(edges)).astype(np.int64)


def _components(faces: np.ndarray, count: int) -> int:
    """Number of pieces that share no vertex."""
    ends = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]]])
    part = connected_components(coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), (count, count)), directed=False)[1]
    return len(np.unique(part[faces[:, 0]]))


def _is_degenerate(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """True for faces without height over their longest side, bool [F]."""
    corners = vertices[faces]
    longest = np.linalg.norm(corners - np.roll(corners, 1, 1), axis=2).max(1)
    return 2 * areas(vertices, faces) <= longest * (THIN * np.ptp(vertices, 0).max())


def _quad_percent(vertices: np.ndarray, faces: np.ndarray) -> float:
    """The share of faces in flat quads: pairs with a common edge, the squarest first, every face in at most one pair."""
    directed = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])
    opposite = faces[:, [2, 0, 1]].T.reshape(-1)
    owner = np.tile(np.arange(len(faces)), 3)
    edges, which, users = np.unique(np.sort(directed, 1), axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(which.reshape(-1), kind="stable")
    first = np.cumsum(users) - users
    one, two = order[first[users == 2]], order[first[users == 2] + 1]
    # the quad a, c, b, d around the edge a b, with the tips c and d of its two triangles
    (a, b), c, d = edges[users == 2].T, opposite[one], opposite[two]
    normals = crosses(vertices, faces)
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    flat = np.abs(np.einsum("ec,ec->e", normals[owner[one]], normals[owner[two]])) > FLAT
    flat &= directed[one, 0] != directed[two, 0]  # the triangles are next to each other, not folded together
    ring = np.stack([vertices[a], vertices[c], vertices[b], vertices[d]], 1)
    angles = _corners(ring)
    good = flat & (angles > CORNER[0]).all(1) & (angles < CORNER[1]).all(1)
    skew = np.abs(angles - np.pi / 2).max(1)
    taken: set[int] = set()
    for e in np.flatnonzero(good)[np.argsort(skew[good], kind="stable")].tolist():
        pair = {int(owner[one[e]]), int(owner[two[e]])}
        if not pair & taken:
            taken |= pair
    return 100.0 * len(taken) / len(faces) if len(faces) else 0.0


def _corners(ring: np.ndarray) -> np.ndarray:
    """The angles [E, 4] of quads [E, 4, 3], in radians."""
    after, before = np.roll(ring, -1, 1) - ring, np.roll(ring, 1, 1) - ring
    length = np.linalg.norm(after, axis=2) * np.linalg.norm(before, axis=2)
    return np.arccos(np.clip(np.einsum("eqc,eqc->eq", after, before) / np.maximum(length, 1e-300), -1, 1))
