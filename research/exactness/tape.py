"""A CUDA graph that a processor replays: the operations of a call, with the host's values of that call.

PyTorch's own graphs need a GPU, and calling the function again hides what a capture freezes: Python's numbers, shapes, and which tensors
are read. A `Tape` records the operations and repeats them on the same tensors. Then it overwrites every intermediate, because other graphs
use that memory too. What the host cannot do in a capture is refused: reading a value, making a tensor of values that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from engine.networks.cuda_graph import WARMED

aten = torch.ops.aten
SIZED_BY_VALUES = {  # the size of their result depends on values, so a GPU's host waits for them
    aten.nonzero, aten.masked_select, aten._unique2, aten.unique_dim, aten.unique_consecutive, aten.bincount, aten.repeat_interleave,
    aten.equal, aten.nonzero_numpy,
}  # fmt: skip
READS = {aten._local_scalar_dense, aten.item, aten.is_nonzero}
TAKES_NEAR_INDICES = {aten.index, aten.index_put, aten.index_put_, aten._unsafe_index, aten._index_put_impl_}
SENT = {aten.lift_fresh, aten.lift_fresh_copy}
VALUES = {getattr(torch.Tensor, name) for name in (
    "item", "tolist", "numpy", "data_ptr", "__array__", "__bool__", "__int__", "__float__", "__index__",
)}  # fmt: skip
POISON = -7_777_777  # of integers; no position, id or row


class CaptureRefused(RuntimeError):
    """A capture would fail here."""


class NoReads(TorchFunctionMode):
    """Refuses the functions that give the host a tensor's values, which are not all operations on a processor."""

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs any other function."""
        if func in VALUES:
            raise CaptureRefused(f"{func.__name__} in a capture")
        return func(*args, **kwargs or {})


class Recorder(TorchDispatchMode):
    """Records the operations in this context that make or change a tensor: function, arguments, results, whether these are new."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[tuple[Any, tuple, dict[str, Any], Any, bool]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs an operation; refuses one that a capture refuses."""
        kwargs = kwargs or {}
        packet = func.overloadpacket
        sent = packet in SENT and args[0].ndim  # a number is an argument of a kernel
        counts = packet in TAKES_NEAR_INDICES and any(x is not None and x.dtype == torch.bool for x in args[1])
        if packet in READS or sent or counts or (packet in SIZED_BY_VALUES and kwargs.get("output_size") is None):
            raise CaptureRefused(f"{func} in a capture")
        out = func(*args, **kwargs)
        known = {storage(x) for x in tensors((args, kwargs))}
        fresh = any(storage(x) not in known for x in tensors(out))
        if fresh or any(each.alias_info is not None and each.alias_info.is_write for each in func._schema.arguments):
            self.operations.append((func, args, kwargs, out, fresh))
        return out


class Tape:
    """A captured call of a function without arguments, in the place of `Graph`."""

    def __init__(self, function: Callable[[], tuple[Tensor, ...]]):
        for _ in range(WARMED):
            function()
        with NoReads(), Recorder() as recorder:
            self.outputs = function()
        self.operations = recorder.operations
        kept = {storage(x) for x in self.outputs}
        new = [x for *_, out, fresh in self.operations if fresh for x in tensors(out)]
        self.intermediates = [x for x in new if storage(x) not in kept]
        self.poison()

    def __call__(self) -> tuple[Tensor, ...]:
        """Repeats the operations; returns copies of the results."""
        for func, args, kwargs, out, fresh in self.operations:
            again = func(*args, **kwargs)
            if fresh:
                for old, value in zip(tensors(out), tensors(again), strict=True):
                    old.copy_(value)
        results = tuple(each.clone() for each in self.outputs)
        self.poison()
        return results

    def poison(self) -> None:
        """Overwrites every intermediate."""
        for each in self.intermediates:
            each.fill_(math.nan if each.is_floating_point() else True if each.dtype == torch.bool else POISON)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors in arguments or results."""
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor) and x.layout is torch.strided]


def storage(x: Tensor) -> int:
    """The identity of a tensor's memory."""
    return x.untyped_storage()._cdata
