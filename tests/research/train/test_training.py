"""A training learns and can be stopped and resumed; when its weights replace the shipped ones, and where else they can be written."""

from __future__ import annotations

import itertools
import math
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from app.cli import main
from engine.backbones import lowpoly, pictogram
from engine.errors import BadFile, BadKnob, BadOutput, MissingWeights, NotSupported
from engine.networks.weights import hash_of, part_files, read_card, ship
from research.train import RECIPES, feature_draft, loop
from research.train.decision import Measure, may_ship, obstacle, prepare, target
from research.train.loop import RecipeOptions, Training
from tests.research.train import tiny_folders

LOSS = Measure("loss_there")


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Makes trainings of one small regression, whose checkpoints go to a temporary folder."""
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")

    def make(minutes: float = 0.005, name: str = "tiny") -> Training:
        torch.manual_seed(0)
        return Training(name, nn.Linear(4, 1), 1e-2, minutes, "cpu", warm_steps=5)

    return make


def loss_of(training: Training):
    """The loss of a step."""
    x = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    return lambda step: (training.model(x) - 1).square().mean()


def train_briefly(made: Training, number: float = 1.0) -> Training:
    """Trained for a moment, with a held-out number."""
    made.run(loss_of(made), lambda: {"loss_there": number})
    return made


# --- the loop -----------------------------------------------------------------------------------------------------------


def test_it_learns_and_reports(training) -> None:
    first = training(minutes=0.02)
    loss = loss_of(first)
    before = loss(0).item()
    first.run(loss, lambda: {"number": loss(0).item()})
    assert loss(0).item() < before / 4
    assert first.curve[-1]["number"] < before
    assert first.step > 20


def test_a_stopped_run_goes_on_where_it_was(training) -> None:
    first, second = train_briefly(training()), training()
    assert second.resume(fresh=False)
    assert second.step == first.step and second.seconds == first.seconds
    assert torch.equal(second.model.weight, first.model.weight)
    state, kept = first.optimizers[0].state_dict()["state"], second.optimizers[0].state_dict()["state"]
    assert all(torch.equal(state[k]["exp_avg"], kept[k]["exp_avg"]) for k in state)


def test_fresh_forgets_the_checkpoint(training) -> None:
    train_briefly(training())
    second = training()
    assert not second.resume(fresh=True)
    assert second.step == 0


def test_muon_takes_the_named_matrices_only() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    made = Training("two", model, 1e-3, 1, "cpu", muon="0.")
    assert [len(g["params"]) for g in made.optimizers[0].param_groups] == [1]
    assert sum(len(g["params"]) for g in made.optimizers[1].param_groups) == 3


def test_muon_takes_a_stack_of_matrices_one_by_one() -> None:
    """Three stacked matrices move like three separate ones."""
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


# --- what is asked ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_gpu_preset_without_a_gpu_is_a_sentence(recipe: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", recipe, "--preset", "gpu"]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("--preset gpu needs an NVIDIA GPU") and "\n" not in said


@pytest.mark.parametrize("arguments", [["feature-draft", "--loss", "paper"]])
def test_a_variant_needs_a_folder_of_its_own(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    tiny_folders.ship(tmp_path, monkeypatch)
    assert main(["train", *arguments]) == 2
    assert "--out DIR" in capsys.readouterr().err
    assert main(["train", *arguments, "--out", str(tmp_path / "pictogram")]) == 2
    assert "in the shipped folder" in capsys.readouterr().err


def test_a_variant_is_written_beside_and_its_checkpoint_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(feature_draft, "UNSEEN", 4)
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", {"minutes": 0.01, "sequences": 4, "batch": 2, "rows": 64})
    before = {p.name: p.read_bytes() for p in (tmp_path / "pictogram").iterdir()}
    feature_draft.main(feature_draft.FeatureDraftOptions(loss="paper", out=tmp_path / "out"))
    feature_draft.main(feature_draft.FeatureDraftOptions())
    assert read_card(tmp_path / "out")["feature_draft"]["loss"] == "paper"
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before if name != "card.json"} == {
        name: content for name, content in before.items() if name != "card.json"
    }
    assert read_card(tmp_path / "pictogram")["feature_draft"]["loss"] == "kl"
    names = sorted(path.stem for path in loop.CHECKPOINTS.glob("*.pt"))
    assert len(names) == 2 and names[0].startswith("feature-draft-pictogram-") and names[1] == f"{names[0]}-paper"


def test_an_out_that_is_something_else_is_refused(tmp_path: Path) -> None:
    ship(tmp_path / "shipped", {"a.safetensors": {"x": torch.ones(2)}}, {"name": "a"})
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    for out, word in (
        ("shipped", "shipped folder"),
        ("shipped/x", "shipped folder"),
        ("full", "notes.txt"),
        ("full/notes.txt", "is a file"),
    ):
        with pytest.raises(BadKnob, match=word):
            target(RecipeOptions(out=tmp_path / out), tmp_path / "shipped")
    for out in ("empty", "new", "deep/er"):
        assert read_card(prepare(RecipeOptions(out=tmp_path / out), tmp_path / "shipped"))["name"] == "a"
    assert prepare(RecipeOptions(), tmp_path / "shipped") == tmp_path / "shipped"


# --- what is shipped --------------------------------------------------------------------------------------------------


def test_nothing_is_shipped_without_a_step(training, capsys: pytest.CaptureFixture[str]) -> None:
    made = training()
    assert not may_ship(made, RecipeOptions(), LOSS, None)
    assert "it made no step" in capsys.readouterr().out
    with pytest.raises(BadKnob, match=r"no checkpoint .*tiny\.pt to export"):
        may_ship(made, RecipeOptions(export=True), LOSS, None)


@pytest.mark.parametrize(
    ("number", "higher", "shipped", "ships"),
    [
        (1.0, False, None, True),
        (1.0, False, 1.0, True),
        (1.0, False, 0.99, False),
        (1.0, True, 0.99, True),
        (1.0, True, 1.01, False),
        (math.nan, False, None, False),
        (math.inf, True, 0.5, False),
        ([0.5, 0.7], True, [0.6, 0.5], True),
        ([0.5, 0.7], True, [0.6, 0.7], False),
    ],
)
def test_worse_numbers_are_not_shipped_unless_they_are_exported(training, number, higher: bool, shipped, ships: bool) -> None:
    made, measure = train_briefly(training(), number), Measure("loss_there", higher)
    row = None if shipped is None else {"held_out": {"loss_there": shipped}}
    assert may_ship(made, RecipeOptions(), measure, row) == ships
    again = training()
    again.resume(False)
    assert may_ship(again, RecipeOptions(export=True), measure, row)


def test_numbers_that_cannot_be_compared_ship_nothing(training, tmp_path: Path) -> None:
    made, row = train_briefly(training()), {"held_out": {"loss_there": 5.0}}
    assert obstacle(made, RecipeOptions(), LOSS, row, "the shipped one learned other families") == "the shipped one learned other families"
    assert obstacle(made, RecipeOptions(out=tmp_path), LOSS, row, "other families") == ""
    assert obstacle(made, RecipeOptions(), LOSS, {"held_out": {}}, "") == ""


def test_a_stopped_training_is_not_shipped(training) -> None:
    made = training(minutes=10)
    loss = loss_of(made)

    def stop(step: int):
        made.stopped = step == 5
        return loss(step)

    made.run(stop, lambda: {"loss_there": 0.0})
    assert "stopped" in obstacle(made, RecipeOptions(), LOSS, None, "")


def test_a_signal_saves_and_goes_on_to_whoever_had_it(training) -> None:
    made = training(minutes=10)
    loss, heard = loss_of(made), []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append(made.path.exists()))
    try:
        made.run(lambda step: (step == 5 and os.kill(os.getpid(), signal.SIGTERM), loss(step))[1], lambda: {})
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [True] and made.stopped and made.step < 20


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_checkpoints_lie_in_the_checkout_or_in_the_users_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    assert loop.checkpoints(tmp_path) == tmp_path / "home" / "training"
    (tmp_path / "launch.py").touch()
    assert loop.checkpoints(tmp_path) == tmp_path / ".training"


@pytest.mark.parametrize("damage", ["short", "empty", "text", "other", "keys", "recipe"])
def test_a_checkpoint_that_cannot_be_resumed_is_a_sentence(training, damage: str) -> None:
    made = training()
    made.save()
    content = made.path.read_bytes()
    if damage in ("short", "empty", "text"):
        made.path.write_bytes({"short": content[:-200], "empty": b"", "text": b"not a checkpoint at all"}[damage])
    elif damage == "other":
        Training("tiny", nn.Linear(5, 2), 1e-2, 1, "cpu").save()
    elif damage == "keys":
        torch.save({"model": {}}, made.path)
    else:
        Training("another", nn.Linear(4, 1), 1e-2, 1, "cpu").save()
        (loop.CHECKPOINTS / "another.pt").replace(made.path)
    with pytest.raises(BadFile, match="--fresh") as caught:
        training().resume(False)
    assert "\n" not in str(caught.value) and str(made.path) in str(caught.value)
    assert not training().resume(True)


def test_a_checkpoint_of_an_earlier_version_is_resumed(training) -> None:
    made = train_briefly(training())
    state = torch.load(made.path, weights_only=True)
    del state["recipe"]
    for old in (state, state | {"recipe": "tiny", "slice": "0.1 tiny", "spent": 3.0}):
        torch.save(old, made.path)
        again = training()
        assert again.resume(False) and again.step == made.step


def test_a_disk_that_is_full_for_a_while_costs_no_training(training, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    made = training(minutes=5)
    save, tries, ticks = torch.save, [], itertools.count(0, 31)

    def full(state: dict, path: Path) -> None:
        tries.append(made.step)
        if len(tries) == 1:
            raise RuntimeError("PytorchStreamWriter failed writing file")
        save(state, path)

    monkeypatch.setattr(torch, "save", full)
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    train_briefly(made)
    assert "PytorchStreamWriter failed" in (said := capsys.readouterr().out) and "Training goes on." in said
    assert len(tries) > 2 and tries[0] < made.step == tries[-1] and made.path.exists()
    monkeypatch.setattr(torch, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(BadOutput, match="No space left"):
        made.save()


def test_the_time_of_a_paused_process_does_not_count(training, monkeypatch: pytest.MonkeyPatch) -> None:
    made, ticks = training(minutes=30), iter([0.0, 1.0, 100_001.0, *range(100_002, 200_000, 600)])
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    made.run(loss_of(made), lambda: {})
    assert made.seconds == 1 + loop.LONGEST + 1 + 600 + 600


# --- drafters of other weights ----------------------------------------------------------------------------------------


def test_a_drafter_that_is_stale_is_refused_and_trained_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better numbers for other weights do not block a drafter that fits."""
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(feature_draft, "UNSEEN", 4)
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", {"minutes": 0.01, "sequences": 4, "batch": 2, "rows": 64})
    feature_draft.main(feature_draft.FeatureDraftOptions())
    card = pictogram.read_card(tmp_path / "pictogram")
    other = card["feature_draft"] | {"backbone": "0123456789abcdef", "held_out": {"acceptance": [1.0]}}
    ship(tmp_path / "pictogram", {}, {"feature_draft": other})
    with pytest.raises(MissingWeights, match="was trained for the weights 0123456789abcdef"):
        pictogram.load(str(tmp_path / "pictogram")).drafter("feature_draft")
    feature_draft.main(feature_draft.FeatureDraftOptions())
    assert pictogram.load(str(tmp_path / "pictogram")).drafter("feature_draft") is not None
    assert tmp_path / "lowpoly" == lowpoly.FOLDER


def test_what_is_shipped_was_trained_for_the_shipped_weights() -> None:
    """Drafters, streams and heads for other weights would be refused when used."""
    for module, name in ((pictogram, "decoder"), (lowpoly, "model")):
        base = hash_of([*([module.FOLDER / "tokenizer.safetensors"] if name == "decoder" else []), *part_files(module.FOLDER, name)])
        card, stream = read_card(module.FOLDER), read_card(module.FOLDER / "predictive_stream")
        rows = [card["feature_draft"], *card.get("heads", {}).values(), *([card["spatial_heads"]] if "spatial_heads" in card else [])]
        assert {row["backbone"] for row in rows} == {stream["base"]["weights_hash"]} == {base}
    card = read_card(pictogram.FOLDER)
    assert card["resampler"]["tokens"] == card["tokenizer"]["tokens"]


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_are_checked_wherever_they_come_from() -> None:
    with pytest.raises(BadKnob):
        RecipeOptions(minutes=-1)
    assert RecipeOptions(minutes=2).minutes_of({"minutes": 5}) == 2 and RecipeOptions().minutes_of({"minutes": 5}) == 5
    assert RecipeOptions().device == "cpu"


def test_a_gpu_preset_asks_for_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(NotSupported, match="needs an NVIDIA GPU"):
        _ = RecipeOptions(preset="gpu").device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert RecipeOptions(preset="gpu").device == "cuda"


@pytest.mark.parametrize(("name", "flag"), [
    ("lowpoly", "--meshes"), ("mesh-heads", "--backbone"), ("feature-draft", "--loss"), ("spatial-heads", "--prompts"),
    ("pictogram", "--lessons"), ("judge", "--lessons"), ("upright", "--minutes"),
])  # fmt: skip
def test_the_command_line_has_the_options_of_the_recipe(name: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", name, "--help"])
    assert flag in capsys.readouterr().out
