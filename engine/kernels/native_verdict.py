"""Verdicts and scores on a CPU by the compiled functions of native_verdict.c.

Mathematics: verify.py. The k-th largest score and the top-p threshold are found bit by bit among the few tokens that can matter, both
exactly. Only what the filters leave is exponentiated, drawn and given noise; sums of draws are float64. A row has the same bits in every
pass.
Fewest bytes: as in verify.py; a row of scores stays in the second-level cache.
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_int64, c_long, c_uint64, c_void_p
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.core import Sampling
from engine.kernels.choice import COMPUTED
from engine.kernels.native import Library, native
from engine.sampling import guide, warp

MANY = 2**17  # scores; with fewer one thread is as fast
INTEGERS, NUMBERS = 5, 5  # results of a row


class Verdict(ctypes.Structure):
    """The arguments of `verdicts`; native_verdict.c describes them."""

    _fields_ = (
        ("logits", c_void_p), *((name, c_long) for name in ("branches", "rows", "vocabulary", "branch_stride", "row_stride")),
        ("allowed", c_void_p), ("allowed_stride", c_long), ("tokens", c_void_p), ("laws", c_void_p), ("drafts", c_long),
        ("law_stride", c_long), ("positions", c_void_p), ("base", c_uint64), ("uniforms", c_void_p), ("guidance", c_float),
        ("temperature", c_float), ("top_p", c_float), ("temperature_last", c_int), ("top_k", c_long), ("scores", c_void_p), ("p", c_void_p),
        ("numbers", c_void_p), ("integers", c_void_p), ("scratch", c_void_p), ("scratch_size", c_long), ("threads", c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Found:
    """What the function finds of each row.

    integers : int64 [5, R]: answer, fresh draw, residual draw, whether the row is sound, verdict on its draft
    numbers  : float32 [5, R]: entropy, ratio, distance of p and q, chance of the draft, greatest probability; those of drafts are random in
        the other rows
    p        : [R, V] or None
    """

    integers: Tensor
    numbers: Tensor
    p: Tensor | None


def library_for(device: torch.device, dtype: torch.dtype) -> Library | None:
    """The functions if they are chosen for logits of a device and type."""
    return native() if device.type == "cpu" and dtype in COMPUTED else None


def found(
    library: Library, logits: Tensor, sampling: Sampling, allowed: Tensor | None, tokens: Tensor, laws: Tensor | None, uniforms: Tensor,
    base: int, positions: Tensor, store: bool,
) -> Found:  # fmt: skip
    """Verdicts and draws; the arguments are those of `verify.Asked`."""
    rows, vocabulary = logits.shape[1:]
    integers, numbers = torch.empty(INTEGERS, rows, dtype=torch.int64), torch.empty(NUMBERS, rows)
    p = torch.empty(rows, vocabulary) if store else None
    tokens, positions, uniforms = tokens.contiguous(), positions.contiguous(), uniforms.contiguous()
    call, kept = _call(library, logits, sampling, allowed)
    call.tokens, call.drafts, call.positions, call.base, call.uniforms = (
        tokens.data_ptr(), len(tokens), positions.data_ptr(), base, uniforms.data_ptr()
    )  # fmt: skip
    if laws is not None:
        laws = laws.float()
        laws = laws if laws.stride(-1) == 1 else laws.contiguous()
        call.laws, call.law_stride = laws.data_ptr(), laws.stride(0)
    call.p, call.numbers, call.integers = 0 if p is None else p.data_ptr(), numbers.data_ptr(), integers.data_ptr()
    library.verdicts(ctypes.byref(call))
    del kept
    return Found(integers, numbers, p)


def drawn(
    library: Library, logits: Tensor, sampling: Sampling, allowed: Tensor | None, base: int, position: int
) -> tuple[int, Tensor, Tensor]:
    """The answer of one row, logits [C, 1, V], as in `found`, -1 for a row that is not sound; the entropy [1] of its distribution, and the
    greatest probability [1]."""
    call, kept = _call(library, logits, sampling, allowed)
    integers, numbers, positions = (c_int64 * INTEGERS)(), torch.empty(NUMBERS, 1), c_int64(position)
    call.positions, call.base = ctypes.addressof(positions), base
    call.numbers, call.integers = numbers.data_ptr(), ctypes.addressof(integers)
    library.verdicts(ctypes.byref(call))
    del kept
    return integers[0], numbers[0], numbers[4]


def scored(logits: Tensor, sampling: Sampling, allowed: Tensor | None) -> Tensor:
    """Scores [R, V] of raw logits [C, R, V]: `warp(guide(logits))` by the function or by PyTorch's operations."""
    library = library_for(logits.device, logits.dtype)
    if library is None or not logits.numel():
        return warp(guide(logits.float(), sampling.guidance), sampling, allowed)
    scores = torch.empty(logits.shape[1:])
    call, kept = _call(library, logits, sampling, allowed)
    call.scores = scores.data_ptr()
    library.verdicts(ctypes.byref(call))
    del kept
    return scores


def _call(library: Library, logits: Tensor, sampling: Sampling, allowed: Tensor | None) -> tuple[Verdict, tuple[Tensor | None, ...]]:
    """What both kinds of calls are told, and the tensors that must live as long as the call."""
    logits = logits.float()
    logits = logits if logits.stride(-1) == 1 else logits.contiguous()
    branches, rows, vocabulary = logits.shape
    allowed = None if allowed is None else allowed.contiguous()
    threads = torch.get_num_threads() if rows * vocabulary >= MANY else 1
    size = library.verdict_scratch(vocabulary)
    scratch = torch.empty(threads * size)
    call = Verdict(
        logits.data_ptr(), branches, rows, vocabulary, logits.stride(0), logits.stride(1),
        0 if allowed is None else allowed.data_ptr(), 0 if allowed is None or allowed.ndim == 1 else vocabulary,
        guidance=sampling.guidance, temperature=sampling.temperature, top_p=sampling.top_p, temperature_last=sampling.temperature_last,
        top_k=sampling.top_k, scratch=scratch.data_ptr(), scratch_size=size, threads=threads,
    )  # fmt: skip
    return call, (logits, allowed, scratch)
