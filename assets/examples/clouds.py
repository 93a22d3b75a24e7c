"""Makes the clouds of this folder: `python -m assets.examples.clouds`, from the root of the checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from research.worlds.lowpoly_shapes import held_out_shape, sample_points

POINTS = 2048
DRAWS = {  # family: which of its shapes that training never sees
    "table": 104, "chair": 5, "house": 28, "tree": 81, "tower": 7, "bottle": 7, "barrel": 6, "sword": 8,
}  # fmt: skip


def main() -> None:
    """Writes a binary PLY with normals for each."""
    columns = "".join(f"property float {name}\n" for name in ("x", "y", "z", "nx", "ny", "nz"))
    for name, draw in DRAWS.items():
        shape = held_out_shape(name, draw)
        points = sample_points(shape.vertices, shape.faces, POINTS, np.random.default_rng(draw))
        head = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(points)}\n{columns}end_header\n"
        path = Path(__file__).parent / "clouds" / f"{name}.ply"
        path.write_bytes(head.encode() + points.astype("<f4").tobytes())


if __name__ == "__main__":
    main()
