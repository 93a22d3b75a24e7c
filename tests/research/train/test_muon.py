"""The stacked Muon makes the steps of PyTorch's Muon and reads its states."""

from __future__ import annotations

import torch
from torch import nn

from research.train.muon import StackedMuon

SHAPES = [(24, 16), (16, 24), (24, 16), (16, 16), (24, 16)]
RATES = {"lr": 0.02, "weight_decay": 0.05, "momentum": 0.95}


def matrices() -> list[nn.Parameter]:
    numbers = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=numbers)) for shape in SHAPES]


def step(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], seed: int) -> None:
    numbers = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = torch.randn(p.shape, generator=numbers)
    parameters[3].grad = None if seed == 1 else parameters[3].grad  # a matrix that had no part in a step
    optimizer.step()


def test_steps_and_states_are_those_of_pytorch() -> None:
    own, other = matrices(), matrices()
    stacked = StackedMuon(own, **RATES)
    plain = torch.optim.Muon(other, adjust_lr_fn="match_rms_adamw", **RATES)
    for seed in range(3):
        step(stacked, own, seed)
        step(plain, other, seed)
    for start, a, b in zip(matrices(), own, other, strict=True):
        moved, true = a.detach() - start, b.detach() - start
        assert (moved - true).norm() < 0.02 * true.norm()
        torch.testing.assert_close(stacked.state[a]["momentum_buffer"], plain.state[b]["momentum_buffer"])


def test_a_checkpoint_of_pytorchs_muon_is_resumed() -> None:
    own, other = matrices(), matrices()
    plain, stacked = torch.optim.Muon(other, adjust_lr_fn="match_rms_adamw", **RATES), StackedMuon(own, **RATES)
    step(plain, other, 0)
    stacked.load_state_dict(plain.state_dict())
    assert all(torch.equal(stacked.state[a]["momentum_buffer"], plain.state[b]["momentum_buffer"]) for a, b in zip(own, other, strict=True))
    assert stacked.state_dict()["param_groups"] == plain.state_dict()["param_groups"]
