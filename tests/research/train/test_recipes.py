"""Training can be stopped and resumed, and learns: checked on tiny models in seconds."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from engine.errors import BadFile, BadKnob, BadOutput
from research.train import keep, loop, unfinished
from research.train.loop import Training
from research.train.profiling import kind_of


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes trainings of one small regression, whose checkpoints go to a temporary folder."""
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path)
    monkeypatch.setattr(unfinished, "FOLDER", tmp_path / "unfinished")

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


def test_a_stop_signal_ends_the_run_at_once_and_saves(training) -> None:
    first, model = training(minutes=10)
    loss = loss_of(model)

    def stop_at_ten(step: int):
        if step == 10:
            first.stopped = True
        return loss(step)

    first.run(stop_at_ten, lambda: {})
    assert first.step == 11
    second, _ = training()
    assert second.resume(fresh=False) and second.step == 11


def test_a_half_written_checkpoint_is_never_seen(training, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _model = training()
    first.save()
    good = first.path.read_bytes()

    def broken(state: dict, path: Path) -> None:
        Path(path).write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", broken)
    with pytest.raises(BadOutput, match="disk full"):
        first.save()
    assert first.path.read_bytes() == good


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


@pytest.mark.parametrize("name", ["pictogram-tokenizer", "pictogram"])
def test_recipes_can_be_imported(name: str) -> None:
    import importlib

    from research.train import RECIPES

    assert callable(importlib.import_module(RECIPES[name]).main)


def test_a_profile_measures_steps_and_keeps_nothing(training, capsys: pytest.CaptureFixture[str]) -> None:
    first, model = training()
    first.run(loss_of(model), lambda: {}, profile=3)
    said = capsys.readouterr().out
    assert "ms a step" in said and "products" in said and "optimiser" in said
    assert first.step == 1 + 3 + 3 and first.stopped and not first.path.exists()


def test_an_operator_counts_as_what_it_is_part_of() -> None:
    assert kind_of(["aten::bmm", "foretoken::attend_by_blocks"]) == "attention"
    assert kind_of(["aten::mm", "aten::matmul"]) == "products"
    assert kind_of(["aten::relu"]) == "other operators"


def test_a_negative_number_of_steps_is_refused() -> None:
    with pytest.raises(BadKnob, match="--profile -1"):
        loop.Options(profile=-1)


def test_kept_weights_take_the_place_of_a_lost_checkpoint(training, capsys: pytest.CaptureFixture[str]) -> None:
    first, model = training()
    loss = loss_of(model)
    first.run(loss, lambda: {"number": loss(0).item()})
    keep.main(keep.Options("tiny"))
    first.path.unlink()
    second, other = training()
    assert second.resume(fresh=False) and not second.resumed  # there is no checkpoint to export
    assert (second.step, second.curve) == (first.step, first.curve)
    torch.testing.assert_close(other.weight, first.averaged["weight"], atol=1e-3, rtol=0)  # stored in half precision
    third, _ = training()
    assert not third.resume(fresh=True) and third.step == 0
    larger, _ = training(inputs=5)
    assert not larger.resume(fresh=False)
    assert "left alone" in capsys.readouterr().out


def test_only_a_checkpoint_is_kept(training, tmp_path: Path) -> None:
    with pytest.raises(BadKnob, match=r"no checkpoint 'tiny'\. There are: none"):
        keep.main(keep.Options("tiny"))
    (tmp_path / "tiny.pt").write_bytes(b"nothing")
    with pytest.raises(BadFile, match=r"tiny\.pt cannot be read"):
        keep.main(keep.Options("tiny"))
