"""Rotation matrices about an axis."""

from __future__ import annotations

import math

import numpy as np


def rotation(degrees: float, axis: str = "y") -> np.ndarray:
    """The matrix [3, 3] of a right-handed rotation; exact for quarter turns."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    if degrees % 90 == 0:
        cosine, sine = float(round(cosine)), float(round(sine))
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    matrix = np.eye(3)
    matrix[first, first] = matrix[second, second] = cosine
    matrix[second, first], matrix[first, second] = sine, -sine
    return matrix
