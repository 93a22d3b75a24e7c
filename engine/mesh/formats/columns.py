"""The meaning of the columns of a table of points: x y z, then optionally a unit normal, with an optional colour before or after it."""

from __future__ import annotations

import numpy as np

from engine.mesh.formats.source import Raw

WIDTHS = (3, 6, 9)


def cloud(table: np.ndarray, total: int) -> Raw:
    """A cloud from a table [N, 3, 6 or 9]. Three further columns are normals if they have unit length, else a colour."""
    raw = Raw(np.asarray(table[:, :3], np.float64), total=total)
    blocks = [np.asarray(table[:, i : i + 3], np.float64) for i in range(3, table.shape[1], 3)]
    raw.normals = next((block for block in blocks if _are_unit(block)), None)
    if blocks and raw.normals is None:
        raw.notes.append("The columns after x, y and z are not unit normals and were read as colours.")
    return raw


def _are_unit(block: np.ndarray) -> bool:
    """Whether nine of ten rows [N, 3] have unit length within 2 %; zero rows are missing normals and do not count."""
    length = np.sqrt(np.einsum("nc,nc->n", block, block))
    length = length[np.isfinite(length) & (length > 1e-6)]
    return len(length) > 0 and float(np.mean(np.abs(length - 1) < 0.02)) > 0.9
