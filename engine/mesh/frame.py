"""The transform from file coordinates to the model's frame and back: +Y up, centred, longest side 1.9; and the removal of outliers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.errors import BadPrompt
from engine.mesh.nearest import Nearest

SIDE = 1.9  # of the box of points and meshes in the model's frame, inside the cube -1..1
UP = {  # proper rotations that take the axis to +Y, so that no face is reversed
    "y": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "z": [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
    "x": [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
    "-y": [[1, 0, 0], [0, -1, 0], [0, 0, -1]],
    "-z": [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
    "-x": [[0, 1, 0], [-1, 0, 0], [0, 0, 1]],
}
Y_UP = {".glb", ".gltf", ".obj", ".off"}  # the first two by specification, the others by convention
Z_UP = {".stl", ".pcd"}  # by convention, with many exceptions
GROUND = 0.02  # a shape stands on zero within this share of its longest side
LIKELIER = 2.0  # z is taken as up only if the shape is this many times less symmetric along z than along y
NEIGHBOURS = 8  # an outlier is found by the mean distance to this many neighbours
FAR = 5.0  # in medians of that distance
MOST = 0.1  # if more than this share of the points is far, the cloud is uneven and none is dropped
FEWEST = 512  # points; fewer do not give a density


@dataclass(frozen=True)
class Frame:
    """model = rotation (file - centre) scale; both directions in float64."""

    up: str
    centre: np.ndarray  # [3]
    scale: float

    @property
    def rotation(self) -> np.ndarray:
        """[3, 3], a permutation of axes with signs."""
        return np.array(UP[self.up], np.float64)

    def to_model(self, points: np.ndarray) -> np.ndarray:
        """Points [N, 3] of the file in the model's frame."""
        return (np.asarray(points, np.float64) - self.centre) @ self.rotation.T * self.scale

    def from_model(self, points: np.ndarray) -> np.ndarray:
        """Points [N, 3] of the model's frame in the scale, position and axes of the file."""
        return np.asarray(points, np.float64) / self.scale @ self.rotation + self.centre

    def turn(self, directions: np.ndarray) -> np.ndarray:
        """Directions [N, 3] of the file in the model's frame."""
        return np.asarray(directions, np.float64) @ self.rotation.T

    def turn_back(self, directions: np.ndarray) -> np.ndarray:
        """Directions [N, 3] of the model's frame in the file's."""
        return np.asarray(directions, np.float64) @ self.rotation


def fit(points: np.ndarray, up: str) -> Frame:
    """The frame in which the box of points [N, 3] is centred and has the longest side SIDE."""
    low, high = points.min(0), points.max(0)
    return Frame(up, (low + high) / 2, SIDE / float((high - low).max()))


def choose_up(points: np.ndarray, suffix: str, wanted: str = "auto") -> tuple[str, str]:
    """The axis of the file that is up, and a note if an axis other than y was chosen by estimate.

    points : [N, 3], on the surface

    Formats that define the up axis are trusted. Otherwise z is chosen if two conditions hold, else y. First, convention must favour z: the
    format is one of printers and robots, or the shape stands on z = 0 and not on y = 0. Second, the shape must agree: most things
    are symmetric left to right but not top to bottom, so the shape must be much less like its mirror image along z than along y.
    """
    if wanted != "auto":
        if wanted.lower() not in UP:
            raise BadPrompt(f"The axis that is up cannot be '{wanted}'. Choose one of: auto, {', '.join(UP)}.")
        return wanted.lower(), ""
    low, size = points.min(0), np.ptp(points, 0)
    stands = np.abs(low) < GROUND * size.max()
    if suffix in Y_UP or not (suffix in Z_UP or (stands[2] and not stands[1])):
        return "y", ""
    some = points[:: max(1, len(points) // 2048)]
    tree = Nearest(some)

    def unlike(axis: int) -> float:
        mirrored = some.copy()
        mirrored[:, axis] = 2 * low[axis] + size[axis] - mirrored[:, axis]
        return float(tree.query(mirrored)[0].mean())

    if unlike(2) <= LIKELIER * unlike(1):
        return "y", ""
    return "z", "The z axis was taken as up, because the shape is alike on both sides along y and not along z; choose another if not."


def outliers(points: np.ndarray) -> np.ndarray:
    """Which points [N, 3] are far from all others, bool [N]."""
    none = np.zeros(len(points), bool)
    if len(points) < FEWEST:
        return none
    distance = Nearest(points).query(points, NEIGHBOURS + 1)[0][:, 1:].mean(1)
    far = distance > FAR * np.median(distance[distance > 0] if distance.any() else distance)  # points may coincide and differ in normals
    return far if far.mean() <= MOST else none
