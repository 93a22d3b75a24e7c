"""Transforms file coordinates to the model's frame (+Y up, centred, longest side 1.9) and back, and removes outliers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import BadPrompt
from engine.mesh.nearest import Nearest

SIDE = 1.9  # longest side of a shape's box in the model's frame, inside the cube -1..1
UP = {  # proper rotations that take the axis to +Y, so that no face is reversed
    "y": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "z": [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
    "x": [[0, -1, 0], [1, 0, 0], [0, 0, 1]],
    "-y": [[1, 0, 0], [0, -1, 0], [0, 0, -1]],
    "-z": [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
    "-x": [[0, 1, 0], [-1, 0, 0], [0, 0, 1]],
}
Z_UP = {".stl", ".pcd"}  # convention of printers and robots, with many exceptions; other formats have y up
NEIGHBOURS = 8  # an outlier is found by the mean distance to this many neighbours
FAR = 5.0  # in medians of that distance
SINGLE = 1e-4  # share of the longest side: the largest invisible step between two float32 numbers
MOST = 0.1  # if more than this share of the points is far, the cloud is uneven and none is dropped
FEWEST = 512  # minimum points for an estimate of density


@dataclass(frozen=True)
class MeshFrame:
    """model = rotation (file - centre) scale; both directions in float64."""

    up: str
    centre: np.ndarray  # [3]
    scale: float

    @property
    def shift(self) -> np.ndarray:
        """Round numbers [3] to subtract from file coordinates before conversion to float32; zeros where float32 is precise enough."""
        side = SIDE / self.scale
        if np.spacing(np.float32(np.abs(self.centre).max())) <= SINGLE * side:
            return np.zeros(3)
        return np.round(self.centre, -math.floor(math.log10(side))) + 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """The frame as JSON; its values are the arguments of this class."""
        return {"up": self.up, "centre": self.centre.tolist(), "scale": self.scale}

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


def fit(points: np.ndarray, up: str) -> MeshFrame:
    """The frame in which the box of points [N, 3] is centred and has the longest side SIDE."""
    low, high = points.min(0), points.max(0)
    return MeshFrame(up, (low + high) / 2, SIDE / float((high - low).max()))


def centre(points: np.ndarray) -> np.ndarray:
    """A cloud [N, 3] or [N, 6] whose box is moved to 0 and scaled to the longest side SIDE; normals stay."""
    low, high = points[:, :3].min(0), points[:, :3].max(0)
    places = (points[:, :3] - (low + high) / 2) * (SIDE / float((high - low).max()))
    return np.concatenate([places, points[:, 3:]], 1)


def choose_up(suffix: str, wanted: str = "auto") -> str:
    """The up axis of the file: the wanted one, or the one by the format's specification or convention.

    `engine/recognition/up.py` decides by the shape. Raises BadPrompt for an unknown axis.
    """
    if wanted == "auto":
        return "z" if suffix in Z_UP else "y"
    if wanted.lower() not in UP:
        raise BadPrompt(f"The axis that is up cannot be '{wanted}'. Choose one of: auto, {', '.join(UP)}.")
    return wanted.lower()


def outliers(points: np.ndarray) -> np.ndarray:
    """True for points [N, 3] that are far from all others, bool [N]."""
    none = np.zeros(len(points), bool)
    if len(points) < FEWEST:
        return none
    distance = Nearest(points).query(points, NEIGHBOURS + 1)[0][:, 1:].mean(1)
    far = distance > FAR * np.median(distance[distance > 0] if distance.any() else distance)  # points may coincide and differ in normals
    return far if far.mean() <= MOST else none
