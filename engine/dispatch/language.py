"""Triton, where it is installed; elsewhere a stand-in whose `jit` does nothing, so that every kernel's file can be imported."""

from __future__ import annotations

from types import SimpleNamespace

try:
    import triton
    import triton.language as tl
except ImportError:  # no wheel for this system; then no kernel is ever launched, see engine/dispatch/choice.py
    triton, tl = SimpleNamespace(jit=lambda function=None, **options: function or (lambda each: each), cdiv=lambda a, b: -(-a // b)), None

LAUNCH = {"enable_fp_fusion": False}  # for kernels compared with PyTorch's products and sums; Triton changed its default


def version() -> str | None:
    """The version of Triton; None where it is not installed."""
    return None if tl is None else triton.__version__


def is_interpreted() -> bool:
    """True if kernels were defined under TRITON_INTERPRET=1: then they run slowly on CPU tensors, for tests."""
    return tl is not None and bool(triton.knobs.runtime.interpret)


def power_of_two(count: int) -> int:
    """The smallest power of two not below `count`."""
    return 1 << max(0, count - 1).bit_length()
