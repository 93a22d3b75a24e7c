"""A small picture of a growing mesh, drawn face by face; engine/mesh/picture.py draws finished ones, in another process."""

from __future__ import annotations

import numpy as np

from engine.mesh.picture import ANGLE, EYE, RADIUS

SIDE, SAMPLES = 240, 2  # pixels, and samples per pixel along each side
FILLED = 0.84  # share of the side that the input fills
SKIN, EDGE, LINE = np.array([219.0, 226.0, 236.0]), np.array([70.0, 80.0, 97.0]), 1.1  # colours, and half the width of an edge in samples
SUN, DARKEST = np.array([0.1, 0.86, 0.5]), 0.4  # direction of the light, and brightness of a face that turns away from it


class Sketch:
    """The picture of the faces so far, from the direction of picture.py. A new face costs only its own area, whatever was drawn before.

    points : [N, 3 or more], the input that the picture frames, in the model's frame
    """

    def __init__(self, points: np.ndarray) -> None:
        size = SIDE * SAMPLES
        self.near = np.zeros((size, size), np.float32)  # 1 / distance of the visible face, 0 = none
        self.colours = np.zeros((size, size, 3), np.float32)
        back = EYE / np.linalg.norm(EYE)
        right = np.cross([0.0, 1.0, 0.0], back) / np.hypot(back[0], back[2])
        self.axes = np.stack([right, np.cross(right, back), back])  # x to the right, y down, z to the eye
        flat = self._flat(points[:, :3])[0]
        low, high = flat.min(0), flat.max(0)
        self.middle, self.zoom = (low + high) / 2, FILLED * size / max(*(high - low), 1e-6)

    def _flat(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Places [..., 2] of points [..., 3] in the image plane, and 1 / distance [...]."""
        seen = points @ self.axes.T
        near = 1 / (RADIUS / np.sin(np.radians(ANGLE / 2)) - seen[..., 2])
        return seen[..., :2] * near[..., None], near

    def add(self, corners: np.ndarray) -> None:
        """Draws further faces. corners : float [F, 3, 3], in the model's frame"""
        flat, near = self._flat(corners)
        normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
        normals *= np.where(normals @ self.axes[2] < 0, -1, 1)[:, None]  # both sides of a face are lit
        lit = 1 + normals @ SUN / np.maximum(np.linalg.norm(normals, axis=1), 1e-9)
        for face, depth, light in zip(flat, near, DARKEST + (1 - DARKEST) * lit / 2, strict=True):
            self._draw(len(self.near) / 2 + self.zoom * (face - self.middle), depth, SKIN * light)

    def _draw(self, face: np.ndarray, depth: np.ndarray, colour: np.ndarray) -> None:
        """Draws one face. face : places [3, 2]; depth : 1 / distance of its corners"""
        first, last = np.floor([face.min(0), face.max(0) + 1]).astype(int).clip(0, len(self.near))
        x, y = np.arange(first[0], last[0]) + 0.5, np.arange(first[1], last[1])[:, None] + 0.5
        # the edge opposite to each corner
        begins, along = face[[1, 2, 0], :, None, None], (face[[2, 0, 1]] - face[[1, 2, 0]])[..., None, None]
        across = along[:, 0] * (y - begins[:, 1]) - along[:, 1] * (x - begins[:, 0])
        twice = np.linalg.det(np.diff(face, axis=0))  # area with its sign, doubled
        if abs(twice) < 1e-6:
            return
        near, box = np.tensordot(depth, across / twice, 1), (slice(first[1], last[1]), slice(first[0], last[0]))
        visible = (across * twice >= 0).all(0) & (near > self.near[box])
        is_edge = (abs(across) < LINE * np.hypot(along[:, 0], along[:, 1])).any(0)
        self.near[box][visible] = near[visible]
        self.colours[box][visible] = np.where(is_edge[visible][:, None], EDGE, colour)

    def picture(self) -> np.ndarray:
        """uint8 [SIDE, SIDE, 4]: red, green, blue, and opacity."""
        filled = np.concatenate([self.colours, 255.0 * (self.near > 0)[..., None]], 2)
        sums = filled.reshape(SIDE, SAMPLES, SIDE, SAMPLES, 4).sum((1, 3))
        sums[..., :3] *= 255 / np.maximum(sums[..., 3:], 255)  # mean over the filled samples
        sums[..., 3] /= SAMPLES**2
        return sums.round().astype(np.uint8)
