"""Draft heads on a CPU by the compiled functions of native_heads.c: one call from a hidden state to the logits of the next tokens.

Mathematics. With r the hidden state h brought to mean 0 and variance 1, head d computes x = g_d h and, if it attends to the condition, adds
what it finds there to x and to r; its logits are those of the output layer at x + silu(r U_d) D_d.
Fewest bytes: the weights of the asked heads, keys and values of the condition, and the output layer, once each.

The reference is `MeshHeads` in engine/drafters/mesh_heads.py. A head has the same bits in a call of any number of heads, with any number
of threads (tests/engine/kernels/cpu/test_heads.py).
"""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_long, c_void_p
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from engine.kernels.cpu.layers import NativeLinear, at, can_attend, panels, threads
from engine.kernels.cpu.library import Library


class Heads(ctypes.Structure):
    """The arguments of `draft_heads`; native_heads.c describes them."""

    _fields_ = (
        ("hidden", c_void_p), ("gain", c_void_p), ("count", c_long), ("width", c_long),
        *((name, c_void_p) for name in ("up", "down", "query", "cross", "norms", "keys", "values")), ("heads", c_long), ("seen", c_long),
        ("panels", c_void_p), ("bias", c_void_p), ("half", c_int), ("vocabulary", c_long), ("logits", c_void_p), ("work", c_void_p),
        ("epsilon", c_float), ("scale", c_float), ("threads", c_int),
    )  # fmt: skip


@dataclass(frozen=True)
class Weights:
    """The weights of all heads, float32. Those of the last four are None for heads without attention to the condition.

    gain : [D]; up : [D, width, 2 width]; down : [D, 2 width, width]; norms : [D, width]; query, cross : [D, width, width]
    heads, scale : of the attention
    """

    gain: Tensor
    up: Tensor
    down: Tensor
    norms: Tensor | None = None
    query: Tensor | None = None
    cross: Tensor | None = None
    heads: int = 1
    scale: float = 1.0


class NativeHeads:
    """Heads whose weights lie in the panels of native.c. Later changes of a weight have no effect."""

    def __init__(self, library: Library, weights: Weights, output: NativeLinear, epsilon: float):
        """output : of either type, which the products of the heads have, too; epsilon : of the norm of the hidden state"""
        self.library, self.output, self.width = library, output, output.in_features
        laid = partial(_panels, library=library, dtype=torch.bfloat16 if output.half else torch.float32)
        side = [weights.gain.detach().flatten().contiguous(), laid(weights.up), laid(weights.down)]
        cross = [None] * 3
        if weights.query is not None:
            norms = weights.norms.detach().flatten(1).contiguous()
            cross = [norms, laid(weights.query), laid(weights.cross)]
        self.kept = (*side, *cross)  # keeps their addresses
        gain, up, down, norms, query, out = map(at, self.kept)
        self.fixed = Heads(
            gain=gain, width=self.width, up=up, down=down, norms=norms, query=query, cross=out, heads=weights.heads, epsilon=epsilon,
            panels=output.panels.data_ptr(), bias=at(output.bias), half=output.half, vocabulary=output.out_features, scale=weights.scale,
        )  # fmt: skip

    def can_run(self, hidden: Tensor) -> bool:
        """Whether the function knows hidden states, and no hook of the output layer has to be called."""
        return (
            hidden.dtype == torch.float32 and hidden.device.type == "cpu" and not torch.is_grad_enabled() and not self.output._forward_hooks
        )

    def __call__(self, hidden: Tensor, looked: tuple[Tensor, Tensor] | None, count: int, row: int = 0) -> Tensor:
        """Logits [count, V] of the first heads.

        hidden : float32 [.., width], of which one row is read
        looked : keys and values [D, heads, C, head width], contiguous, of heads that attend to the condition
        """
        hidden = hidden.contiguous()
        call = Heads.from_buffer_copy(self.fixed)
        keys, values = (None, None) if looked is None else looked
        seen = 0 if keys is None else keys.shape[2]
        logits = torch.empty(count, self.output.out_features)
        work = torch.empty(self.width * (1 + 4 * count) + count * (seen + self.library.lanes))
        call.hidden, call.count, call.threads, call.logits, call.work = (
            hidden.data_ptr() + 4 * self.width * row,
            count,
            threads(),
            logits.data_ptr(),
            work.data_ptr(),
        )
        call.keys, call.values, call.seen = at(keys), at(values), seen
        self.library.draft_heads(ctypes.byref(call))
        return logits


def native_heads(library: Library | None, weights: Weights, output: object, epsilon: float) -> NativeHeads | None:
    """Heads by the function; None where it does not know them: another output layer, another type, or odd widths."""
    if library is None or not isinstance(output, NativeLinear) or weights.up.device.type != "cpu":
        return None
    width = output.in_features
    known = weights.up.dtype == torch.float32 and width % library.lanes == 0
    if not known or (weights.query is not None and not can_attend(width // weights.heads)):
        return None
    return NativeHeads(library, weights, output, epsilon)


def best_allowed(library: Library, logits: Tensor, row: int, allowed: int) -> int:
    """The first of the greatest allowed logits of a row, 0 if none is allowed.

    logits : float32 [N, V], contiguous; allowed : the address of a mask bool [V], 0 for none
    """
    vocabulary = logits.shape[1]
    return library.best_allowed(logits.data_ptr() + 4 * row * vocabulary, vocabulary, allowed)


def _panels(weights: Tensor, library: Library, dtype: torch.dtype) -> Tensor:
    """Weights [D, in, out] in panels of a type, head after head."""
    return torch.stack([panels(each.T.to(dtype), 2 * library.lanes) for each in weights.detach()])
