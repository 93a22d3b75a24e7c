"""Training can be stopped and resumed, and learns: checked on tiny models in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from research.train import loop
from research.train.loop import Training


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes trainings of one small regression, whose checkpoints go to a temporary folder."""
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path)

    def make(minutes: float = 0.02, inputs: int = 4) -> tuple[Training, nn.Linear]:
        torch.manual_seed(0)
        model = nn.Linear(inputs, 1)
        return Training("tiny", model, 1e-2, minutes, "cpu", warm_steps=5), model

    return make


def loss_of(model: nn.Linear):
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    y = x @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
    return lambda step: (model(x) - y).square().mean()


def test_it_learns_and_reports(training) -> None:
    first, model = training()
    loss = loss_of(model)
    before = loss(0).item()
    first.run(loss, lambda: {"number": loss(0).item()})
    assert loss(0).item() < before / 4
    assert first.curve[-1]["number"] < before
    assert first.step > 20


def test_a_stopped_run_goes_on_where_it_was(training) -> None:
    first, model = training()
    first.run(loss_of(model), lambda: {})
    second, other = training()
    assert second.resume(fresh=False)
    assert second.step == first.step and second.seconds == first.seconds
    assert torch.equal(other.weight, model.weight)
    state, kept = first.optimizers[0].state_dict()["state"], second.optimizers[0].state_dict()["state"]
    assert all(torch.equal(state[k]["exp_avg"], kept[k]["exp_avg"]) for k in state)


def test_fresh_forgets_the_checkpoint(training) -> None:
    first, model = training()
    first.run(loss_of(model), lambda: {})
    second, _ = training()
    assert not second.resume(fresh=True)
    assert second.step == 0


def test_muon_takes_the_named_matrices_only() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    made = Training("two", model, 1e-3, 1, "cpu", muon="0.")
    assert [len(g["params"]) for g in made.optimizers[0].param_groups] == [1]
    assert sum(len(g["params"]) for g in made.optimizers[1].param_groups) == 3


def test_muon_takes_a_stack_of_matrices_one_by_one() -> None:
    """Three stacked matrices move as three matrices of their own would."""
    torch.manual_seed(0)
    start, data = torch.randn(3, 8, 8), torch.randn(3, 3, 4, 8)  # other data in every step

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stack = nn.Parameter(start.clone())

    class Singles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.singles = nn.ParameterList(m.clone() for m in start)

    one, other = Stack(), Singles()
    for model, weights in ((one, lambda: one.stack), (other, lambda: torch.stack([*other.singles]))):
        training = Training("stack", model, 1e-2, 1, "cpu", muon="s", warm_steps=1)
        for step in range(3):
            training._advance(lambda i, weights=weights: (data[i] @ weights()).square().sum(), step, 0.0)
    torch.testing.assert_close(one.stack, torch.stack([*other.singles]))
    assert (one.stack - start).abs().max() > 1e-3
