"""Noise on the device: the same integers as on the host, and numbers that differ in the last digits at most."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.dispatch.choice import TRITON, VARIABLE
from engine.noise import ACCEPT, Noise
from engine.noise import kernel as noise
from tests.engine.kernels.near import DEVICE, near, needs_triton

pytestmark = needs_triton
POSITIONS = torch.tensor([0, 1, 4095, 2**31, 2**40], device=DEVICE)


@pytest.mark.parametrize("base", [0, 1, 2**63, 2**64 - 1, noise.mix(7)])
def test_every_bit_is_the_host_s(base: int) -> None:
    slots = np.arange(1, 1001, dtype=np.uint64) * np.uint64(noise.GOLDEN)
    theirs = noise.mix_array(noise.keys(base, POSITIONS.cpu().numpy())[:, None] + slots).view(np.int64)
    assert torch.equal(noise.gumbel_triton(base, POSITIONS, 1000, torch.int64).cpu(), torch.from_numpy(theirs))


@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 5121), (7, 1000), (63, 1000), (1, 16384), (1, 131072)])
def test_gumbel_noise_is_the_reference(rows: int, vocabulary: int) -> None:
    at = torch.arange(rows, device=DEVICE)
    near("noise", noise.gumbel_triton(3, at, vocabulary), noise.gumbel_reference(3, at, vocabulary), 1e-6, 1e-6)


def test_the_greatest_numbers_have_their_digits() -> None:
    """They win the draws and come from u near 1, where u as float32 would be 1."""
    at = torch.arange(8, device=DEVICE)
    theirs = noise.gumbel_reference(5, at, 65537)
    where = theirs.argmax(-1, keepdim=True)
    assert theirs.max() > 12
    near("greatest", noise.gumbel_triton(5, at, 65537).gather(1, where), theirs.gather(1, where), 2e-7)


@pytest.mark.parametrize("slot", [0, 1, 65536])
def test_uniforms_are_the_host_s(slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TRITON)
    assert torch.equal(noise.uniform(9, POSITIONS, slot), noise.uniform_reference(9, POSITIONS, slot))


def test_a_run_s_noise_is_made_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Noise(11, 50).gumbel(3, 5)
    monkeypatch.setenv(VARIABLE, TRITON)
    monkeypatch.setattr(noise, "gumbel_reference", None)  # the host must not be asked
    ours = Noise(11, 50, DEVICE)
    near("noise", ours.gumbel(3, 5), theirs, 1e-6, 1e-6)
    assert ours.gumbel(0, 0).shape == (0, 50)


def test_a_run_s_uniforms_are_made_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Noise(11, 50).uniform(ACCEPT, 3, 20, 4, 2)
    monkeypatch.setenv(VARIABLE, TRITON)
    monkeypatch.setattr(Noise, "host_uniform", None)
    assert torch.equal(Noise(11, 50, DEVICE).uniform(ACCEPT, 3, 20, 4, 2).cpu(), theirs)
