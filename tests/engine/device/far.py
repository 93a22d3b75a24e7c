"""A simulated device: its tensors report another device and obey the rules of a GPU, but have values.

`Far` is the device. While it is entered, tensors that are created on `FAR` or moved there are `FarTensor`s: each wraps a tensor of the
processor that does its work. An operation that mixes the two devices is refused, as PyTorch refuses it on a GPU, and every transfer
between them is recorded with the place in the engine that caused it. A whole run on this device therefore shows that no tensor is on the
wrong device, and which places make the host wait.

PyTorch's own FakeTensorMode has the same rules and no values. A method cannot run in it, because it must know how many drafts were
accepted. A compiled pass in fixed shapes can (tests/engine/networks/test_static_step.py).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from engine import noise
from engine.decoding import trees, verdict
from engine.methods import cross_regression, xspecmesh
from research.exactness.tape import READS, SIZED_BY_VALUES, TAKES_NEAR_INDICES

FAR = torch.device("lazy")  # a device of PyTorch that this machine lacks and that all operations of this project accept
NEAR = torch.device("cpu")
ENGINE = str(Path(__file__).parents[3] / "engine")
aten = torch.ops.aten
MOVES = {aten._to_copy, aten.to, aten.copy_, aten.lift_fresh, aten.lift_fresh_copy}


class MixedDevices(RuntimeError):
    """An operation got tensors from both devices."""


class FarTensor(torch.Tensor):
    """A tensor on the far device. near : its values, on the processor"""

    near: Tensor

    @staticmethod
    def __new__(cls, near: Tensor) -> FarTensor:
        """A tensor of the same shape and values on the far device."""
        shape = {"strides": near.stride(), "storage_offset": near.storage_offset(), "dtype": near.dtype}
        with torch.inference_mode(False):  # PyTorch cannot make a view of a normal tensor from an inference tensor
            tensor = torch.Tensor._make_wrapper_subclass(cls, near.shape, device=FAR, **shape)
        tensor.near = near
        return tensor

    def __repr__(self) -> str:
        return f"FarTensor({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Attention in one piece, as on the processor. Records or refuses functions that give the host values without an operation."""
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return _current().compute(func, args, kwargs)
        if func is torch.Tensor.tolist:
            return _current().read(args[0]).tolist()
        if func in (torch.Tensor.numpy, torch.Tensor.__array__, torch.Tensor.data_ptr):
            raise TypeError(f"{func.__name__} of a tensor on another device")
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Works only where the device is entered."""
        return _current().compute(func, args, kwargs or {})


@dataclass
class Traffic:
    """Number of transfers between the devices for each place ("decoding/verdict.py: correct").

    reads : the host got values and waited for the device; sends : the host sent values, and waited unless it said otherwise
    """

    reads: Counter[str] = field(default_factory=Counter)
    sends: Counter[str] = field(default_factory=Counter)


class Far(TorchDispatchMode):
    """The device. traffic : transfers since `count_traffic` was last entered"""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic()
        self._lifting: list[bool] = []

    def __enter__(self) -> Far:
        """Enters the device. `torch.tensor` creates its tensor on the processor and moves it, which is recorded."""
        self._lifting.append(torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        torch._C._set_only_lift_cpu_tensors(self._lifting.pop())
        super().__exit__(*raised)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs an operation on the device of its inputs; see the module."""
        return self.compute(func, args, kwargs or {})

    @contextmanager
    def count_traffic(self) -> Iterator[Traffic]:
        """Counts from zero in this context."""
        before, self.traffic = self.traffic, Traffic()
        try:
            yield self.traffic
        finally:
            self.traffic = before

    def read(self, tensor: FarTensor) -> Tensor:
        """The values of a tensor, recorded as a read."""
        self._note(self.traffic.reads)
        return tensor.near

    def compute(self, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """The result of an operation, on the device of its inputs or on the requested one."""
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        far = [x for x in tensors if isinstance(x, FarTensor)]
        target = next((x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.device)), None)
        packet = getattr(func, "overloadpacket", func)
        follows = isinstance(tensors[-1], FarTensor) if packet is aten.to else bool(far)  # `to` may be given a tensor to be like
        to_far = follows if target is None else target.type == FAR.type
        if packet in MOVES:
            self._note_move(packet, tensors, to_far)
        elif far:
            self._check(func, packet, tensors, args)
        if packet in READS and far:
            self.read(far[0])
        if packet in SIZED_BY_VALUES and far and kwargs.get("output_size") is None:
            self._note(self.traffic.reads)
        inside, named = tree_map_only((FarTensor, torch.device), lambda x: NEAR if isinstance(x, torch.device) else x.near, (args, kwargs))
        out = func(*inside, **named)
        if packet is aten.copy_:
            return args[0]
        if not to_far:
            return out
        same = {id(x.near): x for x in far}  # an operation in place gives back what it got
        return tree_map_only(Tensor, lambda x: same.get(id(x)) if id(x) in same else FarTensor(x), out)

    def _note_move(self, packet: Any, tensors: list[Tensor], to_far: bool) -> None:
        source = tensors[1 if packet is aten.copy_ else 0]
        comes_far = isinstance(source, FarTensor)
        goes_far = isinstance(tensors[0], FarTensor) if packet is aten.copy_ else to_far
        if comes_far and not goes_far:
            self._note(self.traffic.reads)
        elif goes_far and not comes_far and (packet is not aten.copy_ or source.ndim):
            self._note(self.traffic.sends)

    def _note(self, transfers: Counter[str], count: int = 1) -> None:
        place = _place()
        if count and not place.endswith("_reference"):  # a kernel takes its place on a GPU
            transfers[place] += count

    def _check(self, func: Any, packet: Any, tensors: list[Tensor], args: tuple) -> None:
        """Refuses an operation on both devices. A number in a tensor of the processor may take part, as on a GPU, and so may indices, which
        are sent."""
        near = [x for x in tensors if not isinstance(x, FarTensor) and x.ndim]
        if near and packet in TAKES_NEAR_INDICES and isinstance(args[0], FarTensor):
            indices = [x for x in args[1] if x is not None]
            self._note(self.traffic.sends, sum(not isinstance(x, FarTensor) for x in indices))
            near = [x for x in near if not any(x is index for index in indices)]
        if near:
            where = ", ".join(f"{list(x.shape)} on {x.device.type}" for x in tensors)
            raise MixedDevices(f"{func} at {_place()}: {where}")
        if packet in TAKES_NEAR_INDICES and any(x is not None and x.dtype == torch.bool for x in args[1]):
            self._note(self.traffic.reads)  # the number of true entries


def _current() -> Far:
    modes = [mode for mode in _stack() if isinstance(mode, Far)]
    assert modes, "a tensor of the far device outside of it"
    return modes[-1]


def _stack() -> list[Any]:
    return torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def _place() -> str:
    """The innermost function of the engine that is running: "decoding/verdict.py: correct"."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(ENGINE):
            return f"{frame.f_code.co_filename[len(ENGINE) + 1 :]}: {_function(frame.f_code)}"
        frame = frame.f_back
    return "outside"


@cache
def _function(code: Any) -> str:
    parts = [part for part in code.co_qualname.split(".") if not part.startswith("<")]
    return ".".join(parts)


@contextmanager
def as_on_a_gpu(monkeypatch: Any) -> Iterator[Far]:
    """The device, entered; verdicts and noise go through the kernels' interface, and the references do their work."""
    for module in (verdict, trees, cross_regression, xspecmesh):
        monkeypatch.setattr(module, "is_fused", lambda rows: rows.settings is not None)
    monkeypatch.setattr(noise, "is_made_there", lambda device, dtype: device.type == FAR.type)
    with Far() as device:
        yield device


def move_module(module: nn.Module) -> nn.Module:
    """The module with its parameters and buffers on the far device, as after `Module.to`; shared ones stay shared."""
    done: dict[int, Tensor] = {}
    for part in module.modules():
        for table in (part._parameters, part._buffers):
            for name, value in table.items():
                if value is not None:
                    table[name] = done.setdefault(id(value), FarTensor(value.detach()))
    return module
