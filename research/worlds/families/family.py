"""The definition of a family in lowpoly's world: parametric objects with few faces and clean topology, like an artist's models.

A family is a table of a few values per parameter (a coarse lattice, which makes the world learnable for a small model) and a function
from one value each to named parts. Parts sink into each other instead of sharing edges, so that every part stays a closed solid with
its own vertices. +Y is up, +Z the front, shapes rest on y = 0; units are free, a typical object is 8 to 24 units long and no feature
is thinner than half a unit. Each family also has two boxes of parameters that are never trained.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import Generator

from engine.mesh.bpt_tokens import quantize, sort_keys
from research.worlds.solids import Solid, join

YES_NO = (False, True)
Parts = dict[str, Solid]
Box = Mapping[str, Sequence[Any]]  # parameter: its values inside the box


@dataclass(frozen=True)
class MeshShape:
    """One object: convex polygons over vertices, and the triangles they are split into at their final place.

    vertices   : float64 [V, 3]
    polygons   : int64 [P, K], counter-clockwise seen from outside, padded with -1
    labels     : int64 [P], the part of each polygon, an index into `part_names`
    parameters : the value of every parameter of the family
    """

    vertices: np.ndarray
    polygons: np.ndarray
    labels: np.ndarray
    part_names: tuple[str, ...]
    family: str
    parameters: Mapping[str, Any]

    @cached_property
    def _split(self) -> tuple[np.ndarray, np.ndarray]:
        return split(self.vertices, self.polygons)

    @property
    def faces(self) -> np.ndarray:
        """Triangles int64 [F, 3]."""
        return self._split[0]

    @property
    def parts(self) -> np.ndarray:
        """The part of each triangle, int64 [F]."""
        return self.labels[self._split[1]]


def split(vertices: np.ndarray, polygons: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Triangles int64 [F, 3] of convex polygons int [P, K], and the polygon of each, int64 [F].

    All diagonals start in the corner that comes first in the order of the tokens. The rule depends on quantised places only, so a model
    that sees the corners can know the diagonal, however the shape was turned.
    """
    keys = np.append(sort_keys(quantize(vertices)[0]), np.iinfo(np.int64).max)  # the last one is for the padding -1
    size = (polygons >= 0).sum(1)
    start = keys[polygons].argmin(1)
    turn = (start[:, None] + np.arange(polygons.shape[1])) % size[:, None]
    ordered = np.take_along_axis(polygons, turn, 1)
    owner = np.repeat(np.arange(len(polygons)), size - 2)
    second = np.concatenate([np.arange(1, n - 1) for n in size]) if len(size) else np.zeros(0, np.int64)
    return np.stack([ordered[owner, 0], ordered[owner, second], ordered[owner, second + 1]], 1), owner


@dataclass(frozen=True)
class ShapeFamily:
    """Called with a generator, draws one value for each parameter and builds the shape; round parts get 1 + `detail` times the sides.

    build    : named parts from one value per parameter
    lattice  : the values of each parameter (one that has many may be a range)
    held_out : two boxes of parameters that are never trained
    """

    build: Callable[..., Parts]
    lattice: Mapping[str, Sequence[Any]]
    held_out: tuple[Box, Box]

    @property
    def name(self) -> str:
        """The name of the function that builds it."""
        return self.build.__name__

    def __call__(self, rng: Generator, detail: int = 0) -> MeshShape:
        return self.make({name: values[rng.integers(len(values))] for name, values in self.lattice.items()}, detail)

    def make(self, parameters: Mapping[str, Any], detail: int = 0) -> MeshShape:
        """The shape with the given parameters."""
        finer = {"sides": parameters["sides"] * (1 + detail)} if "sides" in parameters else {}
        parts = self.build(**{**parameters, **finer})
        whole = join(parts.values())
        # Rounded, so that the last digit of a sine never decides the cell of a vertex.
        vertices = np.round(whole.points - [0, whole.points[:, 1].min(), 0], 4)
        width = max(len(polygon) for polygon in whole.polygons)
        polygons = np.array([polygon + (-1,) * (width - len(polygon)) for polygon in whole.polygons], np.int64)
        labels = np.repeat(np.arange(len(parts)), [len(solid.polygons) for solid in parts.values()])
        return MeshShape(vertices, polygons, labels, tuple(parts), self.name, {**parameters, "detail": detail})
