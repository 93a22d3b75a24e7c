"""Apple's GPUs: a simulated device without float64, on which every CUDA function fails; and the choice of the device by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from engine import machine, memory
from engine.backbones.checkpoint_files import dtype_of
from engine.dispatch.choice import choose
from engine.errors import NotSupported
from engine.machine import device_of, has_bfloat16, widest_float
from engine.networks.static_step import is_static
from engine.noise import ACCEPT, BELOW_ONE, Noise
from tests.engine.device.far import FAR, Far, FarTensor
from tests.engine.device.models import near
from tests.engine.device.test_far_runs import cases, far, outcomes, steps

CUDA = (
    "current_device", "current_stream", "device", "empty_cache", "get_device_name", "graph", "mem_get_info", "memory_reserved",
    "synchronize",
)  # fmt: skip
NAMES = ("pictogram", "lowpoly", "janus", "emu3")
MPS = torch.device("mps")


class WithoutFloat64(Far):
    """The simulated device; it refuses results in float64, as Metal does."""

    def compute(self, func: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> Any:
        """See Far."""
        out = super().compute(func, args, kwargs)
        if any(isinstance(x, FarTensor) and x.dtype == torch.float64 for x in tree_leaves(out)):
            raise TypeError(f"{func}: Metal has no float64")
        return out


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[WithoutFloat64]:
    """The device, entered. It has no kernels, no pinned memory and no CUDA."""

    def fail(*arguments: object, **others: object) -> None:
        raise AssertionError("a CUDA function was called")

    for name in CUDA:
        monkeypatch.setattr(torch.cuda, name, fail)
    monkeypatch.setattr(Tensor, "pin_memory", fail)
    monkeypatch.setattr(machine, "WITHOUT_FLOAT64", (FAR.type,))
    with WithoutFloat64() as device:
        yield device


@pytest.mark.parametrize(("name", "method"), [case for case in cases() if case[0] in ("pictogram", "lowpoly")])
def test_a_run_needs_neither_float64_nor_cuda(device: WithoutFloat64, name: str, method: str) -> None:
    """With the processor's tokens: what float32 changes is far below these models' differences."""
    assert outcomes(steps(far(name), method, device)[0]) == outcomes(steps(near(name), method)[0])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_rendered_needs_no_float64(device: WithoutFloat64, name: str) -> None:
    model = far(name)
    tokens = [(5 * i) % model.backbone.vocabulary for i in range(16)] if model.prompt.points is None else []
    for final in (False, True):
        assert model.backbone.render(tokens, list(range(len(tokens))), final, model.prompt.size) is not None


def test_float64_is_refused_there(device: WithoutFloat64) -> None:
    """The mutant: a draw that sums in float64 everywhere."""
    with pytest.raises(TypeError, match="no float64"):
        torch.rand(3).to(FAR).double()


def test_uniform_numbers_stay_below_one_in_float32(device: WithoutFloat64, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding could make them 1, whose logarithm is 0."""
    noise = Noise(3, 5, FAR)
    monkeypatch.setattr(noise, "host_uniform", lambda *place: torch.tensor([1 - 2**-53, 0.5], dtype=torch.float64))
    assert noise.uniform(ACCEPT, 0, 2, 0).tolist() == [BELOW_ONE, 0.5]


def test_kernels_and_graphs_are_not_for_it() -> None:
    assert not choose(MPS).is_triton and not is_static(MPS) and widest_float(MPS) == torch.float32


def test_it_is_chosen_by_name_where_it_is_there() -> None:
    assert device_of("mps", sees_mps=lambda: True) == "mps" and device_of("auto", lambda: False) == "cpu"
    with pytest.raises(NotSupported, match=r"No GPU of Apple is visible to PyTorch here\."):
        device_of("mps", sees_mps=lambda: False)


@pytest.mark.parametrize(("newer", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_where_the_system_has_it(newer: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: newer)
    assert dtype_of("mps", "auto") == dtype and has_bfloat16(MPS) == newer


def test_its_memory_is_a_part_of_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "of_machine", lambda: 100)
    monkeypatch.setattr(memory, "of_container", lambda: [])
    for most, expected in ((80, 50), (200, 100)):
        monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda most=most: most)
        monkeypatch.setattr(torch.mps, "current_allocated_memory", lambda: 30)
        assert memory.free("mps") == expected
