"""Counter-based randomness: a value depends only on its counter."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.noise import ACCEPT, DRAFTER, DRAW, INITIAL, RESIDUAL, SCHEDULE, Noise, kernel
from engine.noise.kernel import GOLDEN, mix, mix_array

STREAMS = [DRAW, ACCEPT, RESIDUAL, INITIAL, DRAFTER, SCHEDULE]


def test_the_generator_is_splitmix64() -> None:
    """The published outputs of SplitMix64 for the states 0 and 1234567."""
    assert mix(GOLDEN) == 0xE220A8397B1DCDAF
    assert mix(2 * GOLDEN & (1 << 64) - 1) == 0x6E789E6AA1B965F4
    assert mix(1234567 + GOLDEN) == 6457827717110365317


def test_integers_and_arrays_are_mixed_alike() -> None:
    values = [0, 1, 12345, 1 << 40, (1 << 64) - 1, 0x123456789ABCDEF0]
    assert mix_array(np.array(values, dtype=np.uint64)).tolist() == [mix(v) for v in values]


@pytest.mark.parametrize("seed", [0, 7, -1, 2**31, 2**63, 2**64 - 1, -(2**70) + 5, 10**30])
@pytest.mark.parametrize("slot", [0, 3, 65_536])
def test_short_and_long_requests_agree(seed: int, slot: int) -> None:
    """Up to 8 positions go through Python integers, more through arrays: the numbers must be the same bits."""
    noise = Noise(seed, 4)
    long = noise.uniform(ACCEPT, 5, 40, 2, slot)
    for start, count in ((5, 1), (5, 8), (6, 9), (30, 8), (44, 1)):
        assert torch.equal(noise.uniform(ACCEPT, start, count, 2, slot), long[start - 5 : start - 5 + count])
    assert long.dtype == torch.float64


def test_nothing_is_asked_for_nothing() -> None:
    assert Noise(0, 4).uniform(DRAW, 3, 0, 0).shape == (0,)


@pytest.mark.parametrize("seed", [0, -1, -(2**65), 2**64 - 1, 10**30])
def test_uniforms_lie_in_the_open_interval(seed: int) -> None:
    u = Noise(seed, 4).uniform(DRAW, 0, 5000, 0)
    assert u.min() > 0 and u.max() < 1


def test_uniforms_are_uniform() -> None:
    u = Noise(11, 4).uniform(DRAW, 0, 50_000, 0)
    n = len(u)
    assert abs(u.mean().item() - 0.5) < 4 * math.sqrt(1 / 12 / n)
    assert abs(u.var().item() - 1 / 12) < 4 * math.sqrt(1 / 180 / n)
    counts = torch.histc(u, 50, 0, 1)
    assert abs(((counts - n / 50) ** 2 / (n / 50)).sum().item() - 49) < 4 * math.sqrt(2 * 49)
    assert abs(torch.corrcoef(torch.stack([u[1:], u[:-1]]))[0, 1].item()) < 4 / math.sqrt(n)  # neighbours


def test_every_part_of_the_counter_matters() -> None:
    """Seeds, streams, iterations and slots give unrelated numbers."""
    n = 20_000
    rows = [Noise(seed, 4).uniform(ACCEPT, 0, n, 0) for seed in (0, 1, -1, 2**32)]
    rows += [Noise(0, 4).uniform(stream, 0, n, 0) for stream in STREAMS if stream != ACCEPT]
    rows += [Noise(0, 4).uniform(ACCEPT, 0, n, iteration) for iteration in (1, 2, 1000)]
    rows += [Noise(0, 4).uniform(ACCEPT, 0, n, 0, slot) for slot in (1, 2, 77)]
    rows += [Noise(0, 4).uniform(ACCEPT, n, n, 0)]
    correlation = torch.corrcoef(torch.stack(rows)) - torch.eye(len(rows), dtype=torch.float64)
    assert correlation.abs().max() < 5 / math.sqrt(n)


def test_the_same_counter_gives_the_same_number() -> None:
    one, two = Noise(9, 4), Noise(9, 4)
    two.gumbel(0, 3)
    two.uniform(DRAW, 0, 100, 5)
    assert torch.equal(one.uniform(RESIDUAL, 17, 4, 6), two.uniform(RESIDUAL, 17, 4, 6))


PINNED_UNIFORM = [0.3067082981719186, 0.13945012445878457]
PINNED_GUMBEL = [0.9140262096253258, -0.3379957440479554, 2.3167365416164394, 1.5097001124209668]


def test_numbers_never_change_between_versions() -> None:
    """A picture belongs to its seed: a change of these numbers would change every finished run."""
    assert Noise(7, 4).uniform(ACCEPT, 3, 2, 1).tolist() == PINNED_UNIFORM
    assert Noise(7, 4, dtype=torch.float64).gumbel(3, 1)[0].tolist() == pytest.approx(PINNED_GUMBEL, abs=1e-12)


# --- Gumbel -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vocabulary", [5, 100])
@pytest.mark.parametrize("requests", [[(0, 40)], [(20, 1), (0, 40)], [(39, 1), (3, 2), (20, 9), (0, 40)], [(i, 1) for i in range(40)]])
def test_gumbel_noise_does_not_depend_on_the_order_of_requests(vocabulary: int, requests: list[tuple[int, int]]) -> None:
    whole = Noise(3, vocabulary).gumbel(0, 40)
    noise = Noise(3, vocabulary)
    for start, count in requests:
        drawn = noise.gumbel(start, count)
        assert drawn.shape == (count, vocabulary)
        assert torch.equal(drawn, whole[start : start + count])


def test_gumbel_noise_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = Noise(3, 100)
    first = noise.gumbel(0, 5)
    monkeypatch.setattr(noise, "_make", lambda *args: pytest.fail("made again"))
    assert torch.equal(noise.gumbel(0, 5), first)
    assert torch.equal(noise.gumbel(2, 2), first[2:4])


def test_gumbel_noise_has_its_distribution() -> None:
    """Mean: Euler's constant; variance: pi squared over 6."""
    g = Noise(2, 100, dtype=torch.float64).gumbel(0, 400)
    n = g.numel()
    assert abs(g.mean().item() - 0.5772156649) < 4 * math.sqrt(math.pi**2 / 6 / n)
    assert abs(g.var().item() - math.pi**2 / 6) < 4 * math.sqrt(4.4 * (math.pi**2 / 6) ** 2 / n)
    assert torch.isfinite(g).all()


def test_gumbel_noise_belongs_to_seed_and_position() -> None:
    g = Noise(0, 2000).gumbel(0, 4)
    other = Noise(1, 2000).gumbel(0, 4)
    correlation = torch.corrcoef(torch.cat([g, other])) - torch.eye(8)
    assert correlation.abs().max() < 5 / math.sqrt(2000)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gumbel_noise_has_the_asked_type(dtype: torch.dtype) -> None:
    g = Noise(-5, 7, dtype=dtype).gumbel(0, 2)
    assert g.dtype == dtype
    assert torch.equal(g, Noise(-5, 7, dtype=torch.float64).gumbel(0, 2).to(dtype))


def test_a_run_keeps_little_noise_and_makes_the_rest_again(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Noise(7, 100).gumbel(0, 400)
    monkeypatch.setattr("engine.noise.KEPT", 40 * 100 * 4)
    small = Noise(7, 100)
    for start in (*range(0, 392, 8), 200, 0, 390):
        assert torch.equal(small.gumbel(start, 8), whole[start : start + 8])
        assert sum(row.untyped_storage().nbytes() for row in small._gumbel.values()) <= 40 * 100 * 4
    assert torch.equal(small.gumbel(0, 400), whole)  # a pass wider than what is kept
    assert torch.equal(small.gumbel(300, 1), whole[300:301]) and len(small._gumbel) <= 40


@pytest.mark.parametrize("base", [0, 2**63 - 1, 2**63, 2**64 - 1, kernel.mix(7)])
def test_other_devices_make_the_same_bits_by_pytorch_s_operations(base: int) -> None:
    """They have no unsigned integers, and nothing is read back."""
    at = torch.tensor([0, 1, 4095, 2**31, 2**40])
    assert torch.equal(kernel.gumbel_elsewhere(base, at, 1000), kernel.gumbel_reference(base, at, 1000))
    for slot in (0, 3, 2**63 + 1):
        ours = kernel.unit_of(kernel.mix_of(kernel.keys_of(base, at) + kernel.to_int64(slot)))
        assert torch.equal(ours, kernel.uniform_reference(base, at, slot))
