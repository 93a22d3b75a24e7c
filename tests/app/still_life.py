"""A table with a vase, a ball and a box: meshes for the mesh panel's tests."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from app.live.boards.mesh import NOTHING_DRAFTED, records
from app.ui.panels import mesh
from app.ui.panels.mesh import Side, Surface
from engine.mesh.bpt_tokens import dequantize

TOTALS = {"seconds": 1.5, "tokens_per_second": 88.4, "forwards": 61, "step_compression": 3.214}


def box(low: tuple[float, ...], high: tuple[float, ...], cells: int = 1) -> np.ndarray:
    """float [F, 3, 3]: the triangles of a box, each side cut into cells x cells."""
    low, high = np.array(low), np.array(high)
    faces = []
    for axis in range(3):
        across, down = (axis + 1) % 3, (axis + 2) % 3
        for end in (0.0, 1.0):
            for u in range(cells):
                for v in range(cells):
                    quad = np.full((4, 3), end)
                    quad[:, across] = np.array([u, u + 1, u + 1, u]) / cells
                    quad[:, down] = np.array([v, v, v + 1, v + 1]) / cells
                    faces += [quad[corners] for corners in (([0, 1, 2], [0, 2, 3]) if end else ([2, 1, 0], [3, 2, 0]))]
    return low + np.array(faces) * (high - low)


def lathe(profile: list[tuple[float, float]], x: float, z: float, sides: int = 12) -> np.ndarray:
    """float [F, 3, 3]: a profile of (radius, height) turned around an upright axis."""
    angles = np.arange(sides + 1) * 2 * np.pi / sides
    faces = []
    for (r, y), (s, t) in pairwise(profile):
        for a, b in pairwise(angles):
            corners = [(r, y, a), (r, y, b), (s, t, b), (s, t, a)]
            quad = np.array([[x + radius * np.cos(way), height, z + radius * np.sin(way)] for radius, height, way in corners])
            faces += [quad[chosen] for chosen, radius in (([2, 1, 0], r), ([3, 2, 0], s)) if radius > 1e-6]
    return np.array(faces)


def still_life() -> np.ndarray:
    """uint8 [F, 3, 3]: a table with a vase, a ball and a box, from the ground up, the order of a mesh's tokens."""
    legs = [box((x, -0.9, z), (x + 0.12, 0.0, z + 0.12), 2) for x in (-0.86, 0.74) for z in (-0.56, 0.44)]
    top = box((-0.94, 0.0, -0.64), (0.94, 0.1, 0.64), 3)
    vase = lathe([(0, 0.1), (0.16, 0.1), (0.27, 0.3), (0.24, 0.48), (0.11, 0.66), (0.1, 0.76), (0.18, 0.88)], -0.42, -0.08, 14)
    ball = lathe([(0.24 * np.sin(a), 0.34 - 0.24 * np.cos(a)) for a in np.linspace(0, np.pi, 8)], 0.4, -0.22, 14)
    cube = box((0.12, 0.1, 0.16), (0.4, 0.32, 0.44))
    soup = np.concatenate([*legs, top, vase, ball, cube])
    cells = np.clip(((soup + 1) / 2 * 128 - 0.5).round(), 0, 127).astype(np.uint8)
    return cells[np.argsort(cells[:, :, 1].min(1), kind="stable")]


def cloud(count: int = 2048) -> np.ndarray:
    """float32 [N, 6]: points on the still life and their normals."""
    soup = (still_life() + 0.5) / 64 - 1
    noise = np.random.default_rng(3)
    normals = np.cross(soup[:, 1] - soup[:, 0], soup[:, 2] - soup[:, 0])
    area = np.linalg.norm(normals, axis=1)
    chosen = noise.choice(len(soup), count, p=area / area.sum())
    weights = noise.dirichlet((1, 1, 1), count)
    points = (soup[chosen] * weights[:, :, None]).sum(1)
    return np.concatenate([points, normals[chosen] / area[chosen, None]], 1).astype(np.float32)


def side(name: str, count: int, ghosts: int = 0, state: str = "running") -> Side:
    """A side with the first faces of the still life; on the accelerated side about three arrive per step."""
    faces = still_life()
    noise = np.random.default_rng(5)
    tokens = noise.integers(2, 6, len(faces))
    steps = np.repeat(np.arange(len(faces)), noise.integers(1, 6, len(faces)))[: len(faces)]  # faces that one step completed
    depth = np.arange(len(faces)) - np.searchsorted(steps, steps)
    accepted = np.where(depth, 255 - 60 // (depth + 1), noise.integers(0, 150, len(faces)))
    if name == "plain":
        steps, depth, accepted = np.cumsum(tokens), np.full(len(faces), NOTHING_DRAFTED), np.full(len(faces), NOTHING_DRAFTED)
    heat, chance, top = noise.integers(0, 200, len(faces)), accepted[::-1], noise.integers(100, 255, len(faces))
    known = {"accepted": accepted, "depth": depth, "tokens": tokens, "entropy": heat, "probability": chance, "top": top}
    rows = records(faces, steps, **known)[:count]
    title, badge = ("Plain decoding", None) if name == "plain" else ("XSpecMesh", {"exact": False, "why": "Drafts above a threshold pass."})
    return Side(rows, ghost=faces[count : count + ghosts], title=title, state=state, badge=badge, counters=TOTALS)


def surfaces(count: int) -> dict[str, Surface]:
    """Other surfaces of a side with this many faces: the faces pressed flat, and a box."""
    flat = dequantize(still_life()[:count]) * (1, 0.2, 1)
    return {
        mesh.DECODED: Surface("3.1 sampling floors"),
        mesh.SNAPPED: Surface("2.1 sampling floors", flat),
        mesh.CLASSICAL: Surface("1.2 sampling floors, no model", box((-0.8, -0.8, -0.8), (0.8, 0.8, 0.8))),
    }


def waiting() -> dict:
    """The panel before the first run."""
    return mesh.encode({"plain": Side.empty("Plain decoding", "One token at a time."), "accelerated": Side.empty("XSpecMesh")})
