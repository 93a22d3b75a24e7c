"""Counter-based random numbers: SplitMix64 over mixed keys, on the host and on the device, equal in every bit of the integers.

Mathematics. mix(x) is the finaliser of SplitMix64 (Steele, Lea and Flood, 2014), G the golden ratio in 64 bits; all sums are modulo
2^64. A run, a stream and an iteration give a base (`engine/noise.py`). Position i has the key mix(base + (i + 1) G). Its uniform number
of a slot is ((mix(key + slot) >> 12) + 1/2) 2^-52; its Gumbel noise for token v is -log(-log u), with u from mix(key + (v + 1) G).
The device computes the logarithms in float32. A large Gumbel number comes from u near 1, where float32 has no digits left; there -log u
is computed from 1 - u, which is exact in integers.

Fewest bytes: 4 N V written, nothing read. `verify` computes the noise where it needs it and writes nothing.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from engine.dispatch.choice import choose
from engine.dispatch.language import LAUNCH, tl, triton

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
ONE, TWO = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
BLOCK = 1024
MIXING = (np.uint64(30), np.uint64(ONE)), (np.uint64(27), np.uint64(TWO))  # numpy's random numbers, which cost more to make than to store
LAST_SHIFT, UNUSED_BITS = np.uint64(31), np.uint64(12)
KEPT = 2**28  # bytes of Gumbel noise that a run keeps on the host; dropped noise is computed again, with the same bits


# --- reference --------------------------------------------------------------------------------------------------------


def mix(x: int) -> int:
    """The finaliser of SplitMix64 on a Python integer."""
    x = ((x ^ (x >> 30)) * ONE) & MASK
    x = ((x ^ (x >> 27)) * TWO) & MASK
    return x ^ (x >> 31)


def mix_array(x: np.ndarray) -> np.ndarray:
    """The finaliser of SplitMix64 on uint64 arrays, in place."""
    for shift, factor in MIXING:
        x ^= x >> shift
        x *= factor
    x ^= x >> LAST_SHIFT
    return x


def keys(base: int | np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The key of each position: int64 [N] -> uint64 [N]; of several bases, uint64 [B, 1]: [B, N]."""
    return mix_array((positions + 1).astype(np.uint64) * np.uint64(GOLDEN) + np.asarray(base, dtype=np.uint64))


def unit(bits: np.ndarray) -> np.ndarray:
    """Converts 64 bits to a float64 in the open unit interval: the top 52 bits plus a half."""
    numbers = (bits >> UNUSED_BITS) + 0.5
    numbers *= 2.0**-52
    return numbers


def gumbel_reference(base: int | Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Gumbel noise of positions, int64 [N] -> float64 [N, V], computed where they are. base : or its bits, int64 [] where they are"""
    if positions.device.type != "cpu":
        return gumbel_elsewhere(base, positions, vocabulary)
    base = int(base) & MASK
    slots = np.arange(1, vocabulary + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = mix_array(keys(base, positions.numpy())[:, None] + slots)
    return torch.from_numpy(unit(bits)).log_().neg_().log_().neg_()


def gumbel_at(base: int, position: int, ids: np.ndarray) -> np.ndarray:
    """Gumbel noise of some tokens, int64 [K], at one position: float64 [K], with the bits of `gumbel_reference` on the host."""
    bits = ids.view(np.uint64) * np.uint64(GOLDEN)
    bits += np.uint64(mix((base + (position + 1) * GOLDEN) & MASK) + GOLDEN & MASK)
    numbers = unit(mix_array(bits))
    logarithm = torch.from_numpy(numbers).log_  # numpy's logarithm has other bits
    for _ in range(2):
        logarithm()
        np.negative(numbers, numbers)
    return numbers


def uniform_reference(base: int | Tensor, positions: Tensor, slot: int = 0) -> Tensor:
    """Uniform numbers of positions, int64 [N] -> float64 [N] in (0, 1), computed where they are."""
    if positions.device.type != "cpu" or isinstance(base, Tensor):
        base, slot = base.unbind() if isinstance(base, Tensor) else (base, to_int64(slot))
        return unit_of(mix_of(keys_of(base, positions) + slot))
    return torch.from_numpy(unit(mix_array(keys(base, positions.numpy()) + np.uint64(slot))))


# PyTorch has no arithmetic on uint64, so other devices than a CPU use int64 with the same bits: products wrap, and shifts are masked.


def gumbel_elsewhere(base: int | Tensor, positions: Tensor, vocabulary: int) -> Tensor:
    """Gumbel noise by PyTorch's operations on any device, which read nothing: the same bits, more slowly than numpy on a CPU."""
    slots = torch.arange(1, vocabulary + 1, device=positions.device) * to_int64(GOLDEN)
    return -torch.log(-torch.log(unit_of(mix_of(keys_of(base, positions)[:, None] + slots))))


def to_int64(bits: int | Tensor) -> int | Tensor:
    """Reinterprets 64 bits as an int64, which a tensor's already are."""
    return bits if isinstance(bits, Tensor) else bits - (1 << 64) if bits >> 63 else bits


def mix_of(x: Tensor) -> Tensor:
    """mix() of int64 that stand for 64 bits."""
    x = (x ^ shift_right(x, 30)) * to_int64(ONE)
    x = (x ^ shift_right(x, 27)) * to_int64(TWO)
    return x ^ shift_right(x, 31)


def shift_right(x: Tensor, count: int) -> Tensor:
    """Shifts the bits of int64 down, with zeros above."""
    return x >> count & (1 << 64 - count) - 1


def keys_of(base: int | Tensor, positions: Tensor) -> Tensor:
    """keys() as int64."""
    return mix_of((positions + 1) * to_int64(GOLDEN) + to_int64(base))


def unit_of(bits: Tensor) -> Tensor:
    """unit() of int64."""
    return (shift_right(bits, 12).double() + 0.5) * 2.0**-52


# --- kernels ----------------------------------------------------------------------------------------------------------


@triton.jit
def mix_tile(x):
    """mix() of a tile of uint64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit
def key_of(base, position):
    """The key of a position, uint64. base : int64, the same bits; position : int64"""
    return mix_tile(base.to(tl.uint64, bitcast=True) + (position + 1).to(tl.uint64) * 0x9E3779B97F4A7C15)


@triton.jit
def gumbel_of(key, columns):
    """Gumbel noise of the tokens `columns` int [B] under a key, float32 [B]."""
    top = mix_tile(key + (columns + 1).to(tl.uint64) * 0x9E3779B97F4A7C15) >> 12
    near_one = top >= 0x8000000000000
    rest = 0xFFFFFFFFFFFFF - top
    x = (tl.where(near_one, rest, top).to(tl.float32) + 0.5) * 2.220446049250313e-16  # 1 - u where u > 1/2, else u
    # log(1 - x) = log(y) x / (1 - y) with y the rounded 1 - x: the rounding of y cancels
    y = 1.0 - x
    gap = 1.0 - y
    small = tl.where(gap == 0, x, -tl.log(y) * x / tl.where(gap == 0, 1.0, gap))
    return -tl.log(tl.where(near_one, small, -tl.log(x)))


@triton.jit
def _gumbel_kernel(base_at, positions_at, out_at, vocabulary, BLOCK: tl.constexpr, BITS: tl.constexpr):
    row, columns = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    key = key_of(tl.load(base_at), tl.load(positions_at + row))
    if BITS:
        out = mix_tile(key + (columns + 1).to(tl.uint64) * 0x9E3779B97F4A7C15).to(tl.int64, bitcast=True)
    else:
        out = gumbel_of(key, columns)
    tl.store(out_at + row * vocabulary + columns, out, columns < vocabulary)


@triton.jit
def _uniform_kernel(base_at, positions_at, out_at, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = key_of(tl.load(base_at), tl.load(positions_at + at, at < count, 0))
    top = mix_tile(key + tl.load(base_at + 1).to(tl.uint64)) >> 12
    tl.store(out_at + at, (top.to(tl.float64) + 0.5) * 2.220446049250313e-16, at < count)


def base_on(device: torch.device, base: int | Tensor, *more: int) -> Tensor:
    """A base, and more numbers, as int64 with the same bits on a device, written by a kernel from its arguments, so that nothing is
    copied; or the bits that are there."""
    if isinstance(base, Tensor):
        return base[None]
    numbers = [torch.full((1,), to_int64(each), dtype=torch.int64, device=device) for each in (base, *more)]
    return torch.cat(numbers) if more else numbers[0]


def gumbel_triton(base: int | Tensor, positions: Tensor, vocabulary: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """The noise, by the kernel; as int64, the bits that it comes from."""
    out = torch.empty(len(positions), vocabulary, dtype=dtype, device=positions.device)
    where = base_on(positions.device, base)
    if len(positions):
        grid = (len(positions), triton.cdiv(vocabulary, BLOCK))
        _gumbel_kernel[grid](where, positions, out, vocabulary, BLOCK, dtype == torch.int64, **LAUNCH)
    return out


# --- public -----------------------------------------------------------------------------------------------------------


def gumbel(base: int | Tensor, positions: Tensor, vocabulary: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Standard Gumbel noise of every token at some positions: int64 [N] -> [N, V] on the same device.

    base : of the run's stream, 0 .. 2^64 - 1, or its bits, int64 [] on that device
    """
    if choose(positions.device, dtype).is_triton:
        return gumbel_triton(base, positions, vocabulary, torch.float32).to(dtype)
    return gumbel_reference(base, positions, vocabulary).to(dtype)


def uniform(base: int | Tensor, positions: Tensor, slot: int = 0) -> Tensor:
    """Uniform numbers in (0, 1), float64 [N], of int64 positions [N] on the same device. base : of a stream, or its bits and the slot,
    int64 [2] on that device"""
    if not choose(positions.device).is_triton:
        return uniform_reference(base, positions, slot)
    out = torch.empty(len(positions), dtype=torch.float64, device=positions.device)
    where = base if isinstance(base, Tensor) else base_on(positions.device, base, slot)
    if len(positions):
        _uniform_kernel[(triton.cdiv(len(positions), 128),)](where, positions, out, len(positions), 128, **LAUNCH)
    return out
