"""The simulated device: it refuses what a GPU refuses, and records what makes the host wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.nn import functional as F

from tests.engine.device.far import FAR, Far, MixedDevices


@pytest.fixture
def device() -> Iterator[Far]:
    """The device, entered."""
    with Far() as far, torch.inference_mode():
        yield far


def far_numbers(*shape: int) -> torch.Tensor:
    """Numbers on the device."""
    return torch.arange(float(torch.Size(shape).numel()), device=FAR).view(shape)


MIXED: dict[str, Callable[[], object]] = {
    "a sum": lambda: far_numbers(3) + torch.ones(3),
    "a product": lambda: far_numbers(2, 3) @ torch.ones(3, 2),
    "a concatenation": lambda: torch.cat([far_numbers(3), torch.ones(3)]),
    "attention": lambda: F.scaled_dot_product_attention(far_numbers(1, 1, 2, 2), far_numbers(1, 1, 2, 2), torch.ones(1, 1, 2, 2)),
    "values": lambda: far_numbers(3).index_copy(0, far_numbers(1).long(), torch.ones(1)),
    "indices elsewhere": lambda: torch.ones(3)[far_numbers(2).long()],
}


@pytest.mark.parametrize("mixed", MIXED.values(), ids=MIXED)
def test_two_devices_in_an_operation_are_refused(device: Far, mixed: Callable[[], object]) -> None:
    with pytest.raises(MixedDevices):
        mixed()


READS: dict[str, Callable[[], object]] = {
    "item": lambda: far_numbers(1).item(),
    "tolist": lambda: far_numbers(3).tolist(),
    "cpu": lambda: far_numbers(3).cpu(),
    "to": lambda: far_numbers(3).to("cpu"),
    "like": lambda: far_numbers(3).to(torch.ones(1)),
    "copy": lambda: torch.ones(3).copy_(far_numbers(3)),
    "truth": lambda: bool(far_numbers(1)),
    "int": lambda: int(far_numbers(1)),
    "nonzero": lambda: far_numbers(3).nonzero(),
    "a mask as an index": lambda: far_numbers(3)[far_numbers(3) > 1],
    "repetition": lambda: far_numbers(3).repeat_interleave(far_numbers(3).long()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_what_makes_the_host_wait_is_noted(device: Far, read: Callable[[], object]) -> None:
    with device.count_traffic() as traffic:
        read()
    assert traffic.reads == {"outside": 1} and not traffic.sends


SENDS: dict[str, Callable[[], object]] = {
    "tensor": lambda: torch.tensor([1, 2], device=FAR),
    "to": lambda: torch.ones(2).to(FAR),
    "like": lambda: torch.ones(2).to(far_numbers(1)),
    "copy": lambda: far_numbers(2).copy_(torch.ones(2)),
    "indices": lambda: far_numbers(3)[torch.tensor([1, 2])],
}


@pytest.mark.parametrize("send", SENDS.values(), ids=SENDS)
def test_what_is_sent_is_noted(device: Far, send: Callable[[], object]) -> None:
    with device.count_traffic() as traffic:
        send()
    assert traffic.sends == {"outside": 1} and not traffic.reads


def test_what_stays_is_not_noted(device: Far) -> None:
    with device.count_traffic() as traffic:
        x = torch.zeros(3, device=FAR) + far_numbers(3)[1:2].expand(3)
        x[far_numbers(2).long()] = 1.0
        torch.where(x > 1, x, 0).softmax(-1).argmax(-1, keepdim=True).to(torch.float64)
        x.to(FAR), x.to(x)
    assert not traffic.reads and not traffic.sends


def test_values_cannot_be_had_without_an_operation(device: Far) -> None:
    with pytest.raises(TypeError, match="another device"):
        far_numbers(3).numpy()
