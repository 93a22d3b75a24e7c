"""A triangle mesh as a surface: areas, face normals, and points drawn uniformly from it."""

from __future__ import annotations

import numpy as np


def crosses(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Face normals [F, 3], with a length of twice the area."""
    a, b, c = (np.asarray(vertices, np.float64)[faces[:, k]] for k in range(3))
    return np.cross(b - a, c - a)


def areas(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """The areas of the faces, [F]."""
    return np.linalg.norm(crosses(vertices, faces), axis=1) / 2


def is_simple(faces: np.ndarray) -> np.ndarray:
    """True for faces [F, 3] with three different corners, bool [F]."""
    return (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])


def places(areas: np.ndarray, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Places drawn uniformly from faces with these areas [F], in any unit: faces int [count], and the weights of their second and third
    corners [count]."""
    ends = np.cumsum(areas)
    chosen = np.searchsorted(ends, random.random(count) * ends[-1], side="right").clip(0, np.searchsorted(ends, ends[-1]))
    u, v = random.random((2, count))
    return chosen, *(np.where(u + v > 1, 1 - each, each) for each in (u, v))  # the other half of the parallelogram, folded back


def draw(vertices: np.ndarray, faces: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Points and unit normals [count, 6], float64, uniform over the area, which must not be zero."""
    normals = crosses(vertices, faces)
    length = np.linalg.norm(normals, axis=1)
    chosen, *shares = places(length, count, random)
    u, v = (share[:, None] for share in shares)
    a, b, c = (np.asarray(vertices, np.float64)[faces[chosen, k]] for k in range(3))
    return np.concatenate([a + u * (b - a) + v * (c - a), normals[chosen] / length[chosen, None]], 1)
