"""What point clouds hold of each block, on a CPU, by the compiled function of native_cloud.c.

Mathematics. `block_contents` in engine/networks/cloud_blocks.py up to its logarithm; sums are taken point by point.
Fewest bytes: the points, and the contents once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.kernels.cpu.library import Library


def cloud_contents(library: Library, points: Tensor, slots: int, flat: float) -> tuple[Tensor, Tensor]:
    """Blocks int64 [B, slots] in the order of their ids, -1 where there are no more, and the sums of their contents float32 [B, slots, C].

    points : float32 [B, N, 6], contiguous; flat : what a block is worth whose normals are all alike
    """
    clouds, many = points.shape[:2]
    ids = torch.empty(clouds, slots, dtype=torch.int64)
    found = torch.zeros(clouds, slots, library.contents_size)
    library.cloud_contents(points.data_ptr(), clouds, many, slots, flat, ids.data_ptr(), found.data_ptr(), torch.get_num_threads())
    return ids, found
