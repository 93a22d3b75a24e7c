"""The head's product with the draw inside it: the tokens of some rows without their logits ever being stored.

Mathematics: s = (u + g (c - u)) / temperature with c, u = h W^T of the two branches; token = argmax(s + Gumbel noise of the position),
a draw from softmax(s) (Gumbel-max). Along with it come log sum exp(s) and the entropy, log Z - sum e^(s - m) (s - m) / Z. Valid where no
filter and no grammar is on: those need all of a row's scores before they can drop any.

Fewest bytes: the head's weights once, V x H x size; the rows, and 20 bytes a row and tile of the vocabulary. Storing and reading
the logits of both branches would add 2 x C R V x size. A program has a tile of the vocabulary and all rows; a second kernel joins
the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.core import Sampling
from engine.kernels.choice import choose
from engine.kernels.language import LAUNCH, power_of_two, tl, triton
from engine.kernels.noise import base_on, gumbel_of, gumbel_reference, key_of
from engine.sampling import draw_gumbel, entropy, guide, warp

COLUMNS, INNER = 64, 32  # of a tile
MOST = 32  # rows


@dataclass(frozen=True)
class Drawn:
    """tokens : int64 [R]; entropy : float32 [R], in nats"""

    tokens: Tensor
    entropy: Tensor


def is_plain(sampling: Sampling) -> bool:
    """Whether a sampling has no filter, so that the draw can be made inside the product."""
    return sampling.top_k == 0 and sampling.top_p >= 1 and sampling.temperature > 0


def head_draw_reference(hidden: Tensor, weight: Tensor, sampling: Sampling, base: int, positions: Tensor) -> Drawn:
    """The same by the engine's own functions; shapes as in `head_draw`."""
    scores = warp(guide(F.linear(hidden, weight).float(), sampling.guidance), sampling)
    noise = gumbel_reference(base, positions, len(weight)).to(scores.dtype)
    return Drawn(draw_gumbel(scores, noise), entropy(torch.softmax(scores, -1)))


@triton.jit
def _head_tile_kernel(
    hidden_at, weight_at, base_at, positions_at, best_at, token_at, top_at, mass_at, heat_at,
    rows, vocabulary, width, guidance, temperature, hidden_branch, hidden_row,
    PAIR: tl.constexpr, ROUNDED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    row, columns, lanes = tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, INNER)
    here, inside = row < rows, columns < vocabulary
    c, u = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, width, INNER):
        deep = start + lanes
        w_here = weight_at + columns[None, :].to(tl.int64) * width + deep[:, None]
        w = tl.load(w_here, inside[None, :] & (deep < width)[:, None], 0.0)
        h_here = hidden_at + row[:, None].to(tl.int64) * hidden_row + deep[None, :]
        wanted = here[:, None] & (deep < width)[None, :]
        c = tl.dot(tl.load(h_here, wanted, 0.0), w, c, input_precision=PRECISION)
        if PAIR:
            u = tl.dot(tl.load(h_here + hidden_branch, wanted, 0.0), w, u, input_precision=PRECISION)
    if ROUNDED:  # the head's own type, as a stored logit has it
        c, u = c.to(weight_at.dtype.element_ty).to(tl.float32), u.to(weight_at.dtype.element_ty).to(tl.float32)
    if PAIR:
        c = tl.where(tl.abs(guidance) < 0.5, u + guidance * (c - u), c - (c - u) * (1.0 - guidance))
    s = tl.where(inside[None, :], tl.div_rn(c, temperature), float("-inf"))
    key = key_of(tl.load(base_at), tl.load(positions_at + row, here, 0))
    loud = s + gumbel_of(key[:, None], columns[None, :])
    best = tl.max(loud, 1)
    token = tl.min(tl.where(loud == best[:, None], columns[None, :], vocabulary), 1)
    top = tl.max(s, 1)
    share = tl.exp(s - top[:, None])
    at = tile * rows + row
    tl.store(best_at + at, best, here)
    tl.store(token_at + at, token, here)
    tl.store(top_at + at, top, here)
    tl.store(mass_at + at, tl.sum(share, 1), here)
    tl.store(heat_at + at, tl.sum(tl.where(share > 0, share * (s - top[:, None]), 0.0), 1), here)


@triton.jit
def _head_join_kernel(best_at, token_at, top_at, mass_at, heat_at, out_at, entropy_at, rows, tiles, vocabulary, BLOCK: tl.constexpr):
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    best, token = tl.full([BLOCK], float("-inf"), tl.float32), tl.zeros([BLOCK], tl.int32) + vocabulary
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    for start in range(0, tiles, BLOCK):
        at, inside = (start + lanes) * rows + row, start + lanes < tiles
        loud = tl.load(best_at + at, inside, float("-inf"))
        token = tl.where(loud > best, tl.load(token_at + at, inside, 0), token)
        best = tl.maximum(best, loud)
        top = tl.maximum(top, tl.load(top_at + at, inside, float("-inf")))
    most = tl.max(top, 0)
    mass, heat = tl.zeros([BLOCK], tl.float32), tl.zeros([BLOCK], tl.float32)
    for start in range(0, tiles, BLOCK):
        at, inside = (start + lanes) * rows + row, start + lanes < tiles
        gap = tl.load(top_at + at, inside, float("-inf")) - most
        fade, own = tl.exp(gap), tl.load(mass_at + at, inside, 0.0)
        mass += fade * own
        heat += tl.where(fade > 0, fade * (tl.load(heat_at + at, inside, 0.0) + tl.where(fade > 0, gap, 0.0) * own), 0.0)
    total = tl.sum(mass, 0)
    first = tl.min(tl.where(best == tl.max(best, 0), token, vocabulary), 0)
    tl.store(out_at + row, tl.where(first < vocabulary, first, -1).to(tl.int64))
    tl.store(entropy_at + row, tl.log(total) - tl.sum(heat, 0) / total)


def head_draw_triton(hidden: Tensor, weight: Tensor, sampling: Sampling, base: int, positions: Tensor) -> Drawn:
    """The same by the kernels."""
    branches, rows, width = hidden.shape
    vocabulary, device = len(weight), hidden.device
    tiles = triton.cdiv(vocabulary, COLUMNS)
    numbers = torch.empty(4, tiles, rows, dtype=torch.float32, device=device)
    tokens = torch.empty(tiles, rows, dtype=torch.int32, device=device)
    out, nats = torch.empty(rows, dtype=torch.int64, device=device), torch.empty(rows, dtype=torch.float32, device=device)
    _head_tile_kernel[(tiles,)](
        hidden, weight, base_on(device, base), positions, numbers[0], tokens, *numbers[1:],
        rows, vocabulary, width, float(sampling.guidance), float(sampling.temperature), hidden.stride(0), hidden.stride(1),
        branches == 2, weight.dtype != torch.float32, max(16, power_of_two(rows)), COLUMNS, INNER,
        "ieee" if weight.dtype == torch.float32 else "tf32", num_warps=4, **LAUNCH,
    )  # fmt: skip
    _head_join_kernel[(rows,)](numbers[0], tokens, *numbers[1:], out, nats, rows, tiles, vocabulary, 512, num_warps=4, **LAUNCH)
    return Drawn(out, nats)


def head_draw(hidden: Tensor, weight: Tensor, sampling: Sampling, base: int, positions: Tensor) -> Drawn:
    """Tokens drawn with the noise of their positions, and entropies, without storing logits. The sampling must be `is_plain`.

    hidden : [C, R, H], C = 2 with guidance; weight : the head's [V, H]; base : of the stream of Gumbel noise; positions : int64 [R]
    """
    assert is_plain(sampling), f"a draw inside the product cannot filter: {sampling}"
    fits = hidden.shape[1] <= MOST and hidden.dtype == weight.dtype and hidden.stride(-1) == 1 and weight.is_contiguous()
    chosen = fits and choose(hidden.device, weight.dtype).is_triton
    return (head_draw_triton if chosen else head_draw_reference)(hidden, weight, sampling, base, positions)
