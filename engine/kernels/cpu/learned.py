"""What a training step on a CPU needs beside large products, by compiled functions (native_learned.c): attention, and a loss of logits.

Mathematics. softmax(scale q k^T) v and its gradients; the mean cross-entropy of rows h W^T + b and its gradients. Tensors are bfloat16,
what is computed inside is float32. PyTorch's operators are the references: both are compared with them.
Fewest bytes: q, k, v and the result once, and again with their gradients: neither scores nor probabilities are stored. Of logits, a piece
that stays in the cache.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_float, c_int, c_long, c_void_p
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.kernels.cpu.library import Library, native

PIECE = 256  # rows whose logits are computed together: 2.6 MB in bfloat16 with lowpoly's vocabulary


class Heads(ctypes.Structure):
    """A tensor [batch, heads, rows, width] and its strides."""

    _fields_ = (("at", c_void_p), ("batch", c_long), ("head", c_long), ("row", c_long))


class Learned(ctypes.Structure):
    """The arguments of `learned_attention`; native_learned.c describes them."""

    _fields_ = (
        *((name, Heads) for name in ("q", "k", "v", "out", "gradient", "grad_q", "grad_k", "grad_v")),
        *((name, c_void_p) for name in ("mask", "logs", "scratch")),
        *((name, c_long) for name in ("batch", "heads", "rows", "keys", "width")), ("scale", c_float), ("unit", c_int), ("threads", c_int),
    )  # fmt: skip


def learns(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> bool:
    """Whether the function computes an attention: with gradients, of [B, heads, rows, d] in bfloat16 on a CPU, where it was compiled."""
    known = all(x.dtype == torch.bfloat16 and x.ndim == 4 and x.device.type == "cpu" for x in (q, k, v))
    return known and (mask is None or mask.ndim == 2) and torch.is_grad_enabled() and q.requires_grad and _compiled()


def _compiled() -> bool:
    return native() is not None


def compiled_by_torch(function: Callable, **options: Any) -> Callable:
    """torch.compile of a function that may call these, which must not trace how they were compiled. It is not said where `_compiled` is
    defined, because PyTorch's compiler would be imported at every start, which takes 1.5 s."""
    torch.compiler.assume_constant_result(_compiled)
    return torch.compile(function, **options)


def learned_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, unit: bool = False) -> Tensor:
    """Attention [B, heads, R, d] of q [B, heads, R, d] over k and v [B, heads, S, d], differentiable.

    mask : bool [R, S], what the rows see, or None: everything. unit : rows of q and k are first divided by their lengths
    """
    return _attention(*(_rows(x) for x in (q, k, v)), mask, scale, unit)[0].transpose(1, 2)


def _rows(x: Tensor) -> Tensor:
    """A tensor whose rows are contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _heads(x: Tensor) -> Heads:
    return Heads(x.data_ptr(), *x.stride()[:3])


def _call(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, unit: bool, logs: Tensor, backward: bool, **others: Tensor
) -> None:
    """Calls the function; others : further tensors [B, heads, rows, d] by the names of its arguments."""
    library = _library()
    (batch, heads, rows, width), keys, threads = q.shape, k.shape[2], torch.get_num_threads()
    scratch = torch.empty(threads * library.learned_scratch(keys, width))
    seen = None if mask is None else mask.contiguous()
    call = Learned(
        q=_heads(q), k=_heads(k), v=_heads(v), mask=None if seen is None else seen.data_ptr(), logs=logs.data_ptr(), batch=batch,
        heads=heads, rows=rows, keys=keys, width=width, scale=scale, unit=unit, threads=threads, scratch=scratch.data_ptr(),
        **{name: _heads(x) for name, x in others.items()},
    )  # fmt: skip
    library.learned_attention(ctypes.byref(call), backward)


def _library() -> Library:
    """The compiled functions, which `learns` found."""
    library = native()
    assert library is not None
    return library


@torch.library.custom_op("foretoken::learned_attention", mutates_args=())
def _attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, unit: bool) -> tuple[Tensor, Tensor]:
    """-> attention [B, R, heads, d], and the logarithms of the sums of exponentials [B, heads, R]."""
    batch, heads, rows, width = q.shape
    out, logs = q.new_empty(batch, rows, heads, width), torch.empty(batch, heads, rows)
    _call(q, k, v, mask, scale, unit, logs, backward=False, out=out.transpose(1, 2))
    return out, logs


@_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, unit: bool) -> tuple[Tensor, Tensor]:
    batch, heads, rows, width = q.shape
    return q.new_empty(batch, rows, heads, width), q.new_empty(batch, heads, rows, dtype=torch.float32)


@torch.library.custom_op("foretoken::learned_attention_backward", mutates_args=())
def _backward(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, logs: Tensor, scale: float, unit: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients [B, rows, heads, d] of q, k and v from that of the attention [B, R, heads, d]."""
    found = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v)]
    parts = {f"grad_{name}": x.transpose(1, 2) for name, x in zip("qkv", found, strict=True)}
    _call(q, k, v, mask, scale, unit, logs, backward=True, gradient=_rows(gradient).transpose(1, 2), **parts)
    return found[0], found[1], found[2]


@_backward.register_fake
def _(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, logs: Tensor, scale: float, unit: bool
) -> tuple[Tensor, Tensor, Tensor]:
    found = [x.new_empty(x.shape[0], x.shape[2], x.shape[1], x.shape[3]) for x in (q, k, v)]
    return found[0], found[1], found[2]


def _keep(ctx: Any, inputs: tuple, output: tuple[Tensor, Tensor]) -> None:
    q, k, v, mask, ctx.scale, ctx.unit = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(q, k, v, mask, output[1])


def _gradients(ctx: Any, gradient: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    found = _backward(gradient, *ctx.saved_tensors, ctx.scale, ctx.unit)
    return *(x.transpose(1, 2) for x in found), None, None, None


_attention.register_autograd(_gradients, setup_context=_keep)


def mean_loss(states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of labels int64 [N], 0 to V - 1, under the logits of states [N, width].

    weight, bias : the output layer's, [V, width] and [V]
    The compiled function computes it where autocast multiplies in bfloat16 on a CPU and gradients are wanted; else PyTorch does.
    """
    narrow = states.device.type == "cpu" and torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    if narrow and torch.is_grad_enabled() and not torch.compiler.is_compiling() and _compiled():
        return MeanLoss.apply(states, weight, bias, labels)
    return F.cross_entropy(F.linear(states, weight, bias).float(), labels)


def gates(mixed: Tensor) -> bool:
    """Whether the function computes a gate: with gradients, in bfloat16 on a CPU, of a width that vectors divide."""
    known = mixed.dtype == torch.bfloat16 and mixed.device.type == "cpu" and mixed.requires_grad and torch.is_grad_enabled()
    return known and not torch.compiler.is_compiling() and _compiled() and mixed.shape[-1] % (2 * _library().lanes) == 0


class Gate(torch.autograd.Function):
    """value * gelu(gate), [..., inner], of both side by side, [..., 2 inner]."""

    @staticmethod
    def forward(ctx: Any, mixed: Tensor) -> Tensor:
        """Computes it, and keeps only its input."""
        mixed = mixed.contiguous()
        out = mixed.new_empty(*mixed.shape[:-1], mixed.shape[-1] // 2)
        ctx.save_for_backward(mixed)
        _library().learned_gate(mixed.data_ptr(), out.numel() // out.shape[-1], out.shape[-1], out.data_ptr(), torch.get_num_threads())
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient of both."""
        (mixed,) = ctx.saved_tensors
        found, given, inner = torch.empty_like(mixed), gradient.contiguous(), gradient.shape[-1]
        rows = given.numel() // inner
        _library().learned_gate_backward(mixed.data_ptr(), given.data_ptr(), rows, inner, found.data_ptr(), torch.get_num_threads())
        return found


class MeanLoss(torch.autograd.Function):
    """Mean cross-entropy of rows, with the gradients that are computed beside it."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor, labels: Tensor) -> Tensor:
        """Computes the loss and all gradients, a piece of the rows at a time."""
        rows, columns, narrow = states.bfloat16(), weight.bfloat16(), bias.bfloat16()
        library, vocabulary, labels = _library(), len(weight), labels.contiguous()
        assert not len(labels) or (labels.min() >= 0 and labels.max() < vocabulary), "a label is no id"  # C would read beside the logits
        losses, scratch = torch.empty(len(rows)), torch.empty(vocabulary + library.lanes)
        grad_states, grad_weight, grad_bias = torch.empty_like(states), torch.zeros(weight.shape), torch.zeros(vocabulary)
        for first in range(0, len(rows), PIECE):
            piece, own = rows[first : first + PIECE], labels[first : first + PIECE]
            logits = torch.addmm(narrow, piece, columns.t())
            library.learned_losses(
                logits.data_ptr(), own.data_ptr(), len(piece), vocabulary, len(rows), losses[first:].data_ptr(), grad_bias.data_ptr(),
                scratch.data_ptr(),
            )  # fmt: skip
            grad_states[first : first + PIECE] = logits @ columns
            grad_weight += logits.t() @ piece
        ctx.save_for_backward(grad_states, grad_weight, grad_bias)
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        """Scales what `forward` found."""
        states, weight, bias = ctx.saved_tensors
        return states * gradient, weight * gradient, bias * gradient, None
