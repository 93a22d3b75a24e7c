"""Several processes compute one step: their gradient is the mean over the shares, and what goes wrong in one of them ends the training."""

from __future__ import annotations

import os
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from research.train.data_parallel import WHOLE, LossOf, Share, Team, alone, processes
from research.train.loop import Training
from research.train.lowpoly import World
from research.worlds.lowpoly_shapes import EASY, stretch


def lessons(model: nn.Linear, share: Share, ends_at: int = -1) -> LossOf:
    """The loss of a step depends on the step, the share and the weights; another process ends at the step `ends_at`."""

    def loss_of(step: int) -> Tensor:
        if step == ends_at and share.index:
            os._exit(3)
        return (share.index + 1) * (step + 1) * model.weight.square().sum()

    return loss_of


def test_the_gradient_is_the_mean_over_the_shares_and_all_see_the_new_weights() -> None:
    model = nn.Linear(3, 2, bias=False)
    first = model.weight.detach().clone()
    threads = torch.get_num_threads()
    with Team(model, lessons, 3) as team:
        loss = team.gradient(lessons(model, team.share), 0)
        assert torch.allclose(model.weight.grad, 2 * (1 + 2 + 3) / 3 * first)
        assert loss == pytest.approx(2 * first.square().sum().item())
        with torch.no_grad():
            model.weight.copy_(2 * first)
        model.zero_grad(set_to_none=True)
        team.gradient(lessons(model, team.share), 4)
        assert torch.allclose(model.weight.grad, 2 * 2 * 5 * 2 * first)  # not the sum with the step before
    assert torch.get_num_threads() == threads


def test_a_team_of_one_is_this_process() -> None:
    model = nn.Linear(3, 2, bias=False)
    with Team(model, lessons, 1) as team:
        assert team.share == WHOLE
        team.gradient(lessons(model, team.share), 1)
        assert not model.weight.is_shared()
    found, model.weight.grad = model.weight.grad, None
    alone(lessons(model, WHOLE), 1)
    assert torch.equal(found, model.weight.grad)


def test_there_is_a_process_for_each_thread_as_long_as_a_share_is_worth_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert [processes("cpu", batch) for batch in (64, 32, 8, 4)] == [6, 4, 1, 1] and processes("cuda", 64) == 1


def test_a_process_that_ends_stops_the_training_with_its_exit_code() -> None:
    model = nn.Linear(3, 2, bias=False)
    own = partial(lessons, ends_at=1)
    with Team(model, own, 2) as team:
        team.gradient(own(model, team.share), 0)
        with pytest.raises(RuntimeError, match="exit code 3"):
            team.gradient(own(model, team.share), 1)


def test_a_training_in_two_processes_takes_the_same_steps_as_the_mean_in_one() -> None:
    def trained(count: int) -> Tensor:
        torch.manual_seed(0)
        model = nn.Linear(4, 4, bias=False)
        training = Training("pair", model, 1e-2, 1.0, "cpu", muon="weight")

        def both(step: int) -> Tensor:
            return (lessons(model, Share(0, 2))(step) + lessons(model, Share(1, 2))(step)) / 2

        with Team(model, lessons, count) as team:
            training.gradient = team.gradient
            for _ in range(3):
                training._advance(both if count == 1 else lessons(model, team.share), 500, 0.0)
        return model.weight.detach()

    assert torch.allclose(trained(2), trained(1), atol=1e-6)


def test_shares_of_a_batch_are_other_shapes_of_about_the_same_length() -> None:
    whole = World(EASY, 8, stretch, 0.3, 460)
    halves = [World(EASY, 8, stretch, 0.3, 460, share=Share(index, 2)) for index in range(2)]
    for step in range(4):
        one, other = (half.batch(step) for half in halves)
        assert len(one[0]) == len(other[0]) == len(whole.batch(step)[0]) // 2
        assert not torch.equal(one[0], other[0])
    lengths = [[half.batch(step)[2].shape[1] for step in range(16)] for half in halves]
    assert torch.corrcoef(torch.tensor(lengths, dtype=torch.float32))[0, 1] > 0.9
