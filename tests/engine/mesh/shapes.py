"""Small shapes for the tests of engine/mesh, and points on them."""

from __future__ import annotations

import numpy as np

from engine.mesh import surface

Mesh = tuple[np.ndarray, np.ndarray]

QUADS = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]  # of a box, seen from outside


def box(sides: tuple[float, float, float] = (1.0, 1.0, 1.0), middle: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> Mesh:
    """A closed box of 12 triangles."""
    corners = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (-0.5, 0.5)])
    faces = np.array([[q[0], q[k], q[k + 1]] for q in QUADS for k in (1, 2)])
    return corners * sides + middle, faces


def join(*meshes: Mesh) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(v) for v, _ in meshes)])
    return np.concatenate([v for v, _ in meshes]), np.concatenate([f + s for (_, f), s in zip(meshes, starts)])


def torus(around: int = 48, across: int = 24, radius: float = 1.0, thickness: float = 0.3) -> Mesh:
    """A closed ring around the y axis."""
    u, v = np.meshgrid(np.arange(around), np.arange(across), indexing="ij")
    a, b = 2 * np.pi * u / around, 2 * np.pi * v / across
    ring = radius + thickness * np.cos(b)
    vertices = np.stack([ring * np.cos(a), thickness * np.sin(b), ring * np.sin(a)], -1).reshape(-1, 3)

    def at(du: int, dv: int) -> np.ndarray:
        return ((u + du) % around * across + (v + dv) % across).reshape(-1)

    faces = [np.stack([at(0, 0), at(0, 1), at(1, 1)], 1), np.stack([at(0, 0), at(1, 1), at(1, 0)], 1)]
    return vertices, np.concatenate(faces)


def table() -> Mesh:
    """A top on four thin legs."""
    legs = [box((0.2, 1.0, 0.2), (x, -0.6, z)) for x in (-0.85, 0.85) for z in (-0.85, 0.85)]
    return join(box((2.0, 0.2, 2.0)), *legs)


def points_on(mesh: Mesh, count: int, seed: int = 0) -> np.ndarray:
    """Points and normals [count, 6] on a mesh."""
    return surface.draw(*mesh, count, np.random.default_rng(seed))


def sphere_points(count: int, seed: int = 0) -> np.ndarray:
    """Points and normals [count, 6] on the unit sphere."""
    normals = np.random.default_rng(seed).normal(size=(count, 3))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return np.concatenate([normals, normals], 1)
