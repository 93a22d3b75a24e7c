"""The contents of a point cloud's blocks, from which lowpoly reads coordinates.

A vertex is a block (8 per axis) and an offset in it (16 per axis; `bpt_tokens.py`). A few condition vectors for a whole cloud cannot encode
the position of every plane to the cell. So each block with points gets its *contents*: the number of points in each cell along each axis,
the number of these whose normal points along the axis, either way, and coarse maps of the points in two and three dimensions. A plane is
one high bin; a vertex is where three of them meet. Contents reach `MARGIN` cells into the neighbours, since a plane on a border falls
to either side.

`BlockReader` turns contents into a vector that is added to the block's embedding: when the decoder has named a block, it reads the
contents and names the offset. (The same vectors as 160 more rows of the condition were tried too: after 1,300 steps the decoder did not
notice when they came from another cloud.)
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PER_AXIS, CELLS = 8, 16  # blocks along an axis of the model's cube, and cells along an axis of a block
BLOCKS = PER_AXIS**3
MARGIN = 4  # cells
BINS = CELLS + 2 * MARGIN
COARSE = 4  # cells along an axis of the coarse maps
SIDE = BINS // COARSE
LINES, AREAS, VOLUME = 3 * 3 * BINS, 3 * SIDE**2, SIDE**3
CONTENTS = LINES + AREAS + VOLUME + 1  # numbers per block
SLOTS = 192  # blocks of a cloud that are read: 99 % of the blocks that its mesh names
FLAT = 0.03  # importance of a block whose normals are all alike, relative to other blocks
USUAL = 1024.0  # counts are scaled to a cloud with this many points


def block_contents(points: Tensor, slots: int = SLOTS) -> tuple[Tensor, Tensor]:
    """The blocks of clouds [B, N, 6] (xyz in -1..1, unit normals or zeros) that contain points, in the order of their ids, int64 [B,
    slots], -1 where there are no more; and their contents float32 [B, slots, CONTENTS]. A cloud in more blocks loses the flat ones and the
    ones with few points."""
    count, many = points.shape[:2]
    owner, block, place, normal = _members(points)
    key = owner * BLOCKS + block
    best, ids = _importance(key, normal, count * BLOCKS).view(count, BLOCKS).topk(slots)
    ids = torch.where(best > 0, ids, BLOCKS).sort(1).values  # the empty ones last
    rows = torch.full((count, BLOCKS + 1), -1, dtype=torch.int64, device=points.device)
    rows.scatter_(1, ids, torch.arange(slots, device=points.device).expand(count, -1))
    rows[:, BLOCKS] = -1
    slot = rows[owner, block]
    has_slot = slot >= 0
    row, place, normal = (owner * slots + slot)[has_slot], place[has_slot], normal[has_slot]
    index, weight = _features(place, normal)
    sums = torch.zeros(count * slots * CONTENTS, device=points.device)
    sums.index_add_(0, (index + row[:, None] * CONTENTS).flatten(), weight.flatten())
    contents = torch.log1p(sums * (USUAL / many)).view(count, slots, CONTENTS)
    return torch.where(ids < BLOCKS, ids, -1), contents


def _members(points: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One entry for each point and each block that it is in or near: cloud and block int64 [M], place in cells of the block,
    -MARGIN..CELLS + MARGIN, float [M, 3], and normal [M, 3]."""
    cells = ((points[..., :3] + 1) * (PER_AXIS * CELLS / 2)).flatten(0, 1)
    normals = points[..., 3:].flatten(0, 1)
    owners = torch.arange(len(points), device=points.device).repeat_interleave(points.shape[1])
    own = (cells / CELLS).floor().clamp(0, PER_AXIS - 1)
    rest = cells - own * CELLS
    other = own + (rest >= CELLS - MARGIN).to(own) - (rest < MARGIN).to(own)
    known = (other != own) & (other >= 0) & (other < PER_AXIS)
    members = []
    for near in product((False, True), repeat=3):
        chosen = torch.tensor(near, device=points.device)
        inside = (known | ~chosen).all(1)
        block = torch.where(chosen, other, own)[inside]
        place = cells[inside] - block * CELLS
        at = block.long()
        members.append((owners[inside], (at[:, 0] * PER_AXIS + at[:, 1]) * PER_AXIS + at[:, 2], place, normals[inside]))
    return tuple(torch.cat(parts) for parts in zip(*members, strict=True))


def _importance(key: Tensor, normal: Tensor, count: int) -> Tensor:
    """The importance of each of `count` blocks, float [count]: more for many points, most where surfaces meet, since corners are
    there; 0 without points. key : each point's block, int64 [M]."""
    counts = torch.bincount(key, minlength=count).float()
    pairs = torch.stack([normal[:, a] * normal[:, b] for a, b in ((0, 0), (1, 1), (2, 2), (0, 1), (1, 2), (2, 0))], 1)
    spread = torch.zeros(count, 6, device=key.device).index_add_(0, key, pairs)
    total = spread[:, :3].sum(1).clamp(min=1e-6)
    flat = ((spread[:, :3] ** 2).sum(1) + 2 * (spread[:, 3:] ** 2).sum(1)) / total**2  # 1: all normals on one line
    return counts.sqrt() * torch.where(total > 1e-3, 1 + FLAT - flat, 1.0)


def _features(place: Tensor, normal: Tensor) -> tuple[Tensor, Tensor]:
    """The entries of a block's contents that each point adds to, int64 [M, 14], and the amounts, [M, 14]."""
    bins = (place + MARGIN).floor().long().clamp(0, BINS - 1)
    coarse = bins // COARSE
    along = [bins + BINS * (3 * torch.arange(3, device=bins.device) + kind) for kind in range(3)]
    weights = [torch.ones_like(normal), normal.clamp(min=0) ** 2, normal.clamp(max=0) ** 2]
    x, y, z = coarse.unbind(1)
    maps = [LINES + i * SIDE**2 + a * SIDE + b for i, (a, b) in enumerate(((x, y), (y, z), (z, x)))]
    whole = [LINES + AREAS + (x * SIDE + y) * SIDE + z, torch.full_like(x, CONTENTS - 1)]
    rest = torch.stack(maps + whole, 1)
    return torch.cat([*along, rest], 1), torch.cat([*weights, torch.ones_like(rest, dtype=normal.dtype)], 1)


class BlockReader(nn.Module):
    """Contents of blocks -> vectors that are added to their embeddings."""

    def __init__(self, width: int, contents: int = CONTENTS, inner: int = 256):
        super().__init__()
        self.contents = nn.Linear(contents, inner)
        self.straight = nn.Linear(contents, width)
        self.mixed = nn.Linear(inner, width, bias=False)

    def begin(self) -> None:
        """Makes the output zero, so that weights trained without a reader behave as before."""
        for layer in (self.straight, self.mixed):
            nn.init.zeros_(layer.weight)

    def forward(self, points: Tensor) -> Tensor:
        """points [B, N, 6] -> vectors to add to the blocks' embeddings [B, BLOCKS + 1, width], the last of which is 0."""
        with torch.no_grad():
            ids, contents = block_contents(points.float())
        contents = contents.to(self.straight.weight.dtype)
        vectors = (self.straight(contents) + self.mixed(F.gelu(self.contents(contents)))).float()
        rows = torch.where(ids < 0, BLOCKS, ids)[..., None].expand_as(vectors)
        added = vectors.new_zeros(len(points), BLOCKS + 1, vectors.shape[-1])
        return added.scatter(1, rows, torch.where((ids < 0)[..., None], 0.0, vectors))
