"""The queue of trainings resumes after any interruption; the table of dependencies says what no longer fits."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from app.cli import main
from engine.backbones import lowpoly, pictogram
from engine.errors import BadFile, BadKnob, MissingWeights
from engine.networks.weights import hash_of, parts, ship
from research.train import RECIPES, feature_draft, loop, queue, status
from research.train.decision import Measure, may_ship
from research.train.dependencies import THINGS, state_of
from research.train.loop import Training
from research.train.queue import Options, everything, read_plan
from tests.research.train import tiny_folders

PLAN = "tiny --minutes 0.01  # first\n\ntiny --minutes 0.02 --fresh\n"


class Tiny:
    """A recipe that is over in a second: it writes down what it did, and may be disturbed in the middle."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.trainings: list[Training] = []
        self.disturb: Callable[[Tiny, int], object] = lambda *_: None

    def main(self, options: loop.Options) -> None:
        """Trains and "ships"."""
        torch.manual_seed(0)
        training = Training("tiny", nn.Linear(4, 1), 1e-2, options.minutes_of({"minutes": 0.01}), "cpu")
        training.resume(options.fresh, options.slice)
        self.trainings.append(training)
        self.log.append(f"train {options.slice}")

        def loss_of(step: int) -> torch.Tensor:
            self.disturb(self, step - training.first)
            return (training.model(torch.ones(1, 4)) - 1).square().mean()

        training.run(loss_of, lambda: {"number": 1.0})
        if may_ship(training, options, Measure("number"), None):
            self.log.append(f"ship {options.slice}")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tiny:
    """The only recipe, with checkpoints of its own and a plan of two slices."""
    made, module = Tiny(), ModuleType("tiny_recipe")
    module.main, module.Options = made.main, loop.Options
    monkeypatch.setitem(sys.modules, "tiny_recipe", module)
    monkeypatch.setitem(RECIPES, "tiny", "tiny_recipe")
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    monkeypatch.setattr(os, "nice", lambda by: made.log.append(f"nice {by}"))
    monkeypatch.setattr(status, "main", lambda options: made.log.append("status"))
    (tmp_path / "plan.txt").write_text(PLAN)
    return made


def run(tmp_path: Path, **options: object) -> None:
    """The command."""
    queue.main(Options(plan=tmp_path / "plan.txt", **options))


FIRST, SECOND = "0.1 tiny --minutes 0.01", "0.2 tiny --minutes 0.02 --fresh"


def test_slices_run_in_order_once_at_the_lowest_priority(tiny: Tiny, tmp_path: Path) -> None:
    run(tmp_path)
    assert tiny.log == ["nice 19", f"train {FIRST}", f"ship {FIRST}", f"train {SECOND}", f"ship {SECOND}", "status"]
    run(tmp_path)
    assert tiny.log[6:] == ["nice 19", "status"]
    run(tmp_path, again=True)
    assert tiny.log[9] == "train 1.1 tiny --minutes 0.01" and len(tiny.log) == 14
    assert sorted(p.name for p in loop.CHECKPOINTS.iterdir()) == ["queue.json", "tiny.pt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_queue_goes_on_in_the_middle_of_a_slice(tiny: Tiny, tmp_path: Path, number: int, capsys) -> None:
    tiny.disturb = lambda self, step: step == 5 and len(self.trainings) == 2 and os.kill(os.getpid(), number)
    run(tmp_path)
    assert tiny.log[1:] == [f"train {FIRST}", f"ship {FIRST}", f"train {SECOND}"]
    assert "queue: stopped at 2 of 2" in capsys.readouterr().out
    stopped = tiny.trainings[-1]
    run(tmp_path)
    assert tiny.log[5:] == [f"train {SECOND}", f"ship {SECOND}", "status"]
    assert tiny.trainings[-1].first == stopped.step == 6, "--fresh belongs to the beginning of a slice"
    assert stopped.spent < tiny.trainings[-1].spent == pytest.approx(1.2)


def test_a_killed_queue_begins_no_slice_that_is_done(tiny: Tiny, tmp_path: Path) -> None:
    if not hasattr(os, "fork"):
        pytest.skip("this system has no fork")
    child = os.fork()
    if child == 0:
        tiny.disturb = lambda self, step: step == 3 and len(self.trainings) == 2 and os.kill(os.getpid(), signal.SIGKILL)
        try:
            run(tmp_path)
        finally:
            os._exit(3)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    run(tmp_path)
    assert tiny.log == ["nice 19", f"train {SECOND}", f"ship {SECOND}", "status"]
    assert sorted(p.name for p in loop.CHECKPOINTS.iterdir()) == ["queue.json", "tiny.pt"]


def test_there_is_one_queue(tiny: Tiny, tmp_path: Path) -> None:
    loop.CHECKPOINTS.mkdir()
    (loop.CHECKPOINTS / f".part-{os.getppid()}-ab-queue").touch()
    with pytest.raises(BadKnob, match=f"process {os.getppid()}"):
        run(tmp_path)
    assert tiny.log == ["nice 19"] and len(list(loop.CHECKPOINTS.iterdir())) == 1


@pytest.mark.parametrize(
    ("plan", "word"),
    [
        ("tiny --minutes 0.01\nstrange", "'strange' names no recipe"),
        ("queue", "names no recipe"),
        ("tiny --minutes -3", "--minutes -3 is not"),
        ("tiny --strange 3", "--strange 3"),
        ("tiny 'x", "cannot be read"),
        ("# nothing", "has no command"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_a_plan_is_read_before_anything_runs(tiny: Tiny, tmp_path: Path, plan: str | bytes, word: str, capsys) -> None:
    (tmp_path / "plan.txt").write_bytes(plan if isinstance(plan, bytes) else plan.encode())
    assert main(["train", "queue", "--plan", str(tmp_path / "plan.txt")]) == 2
    said = capsys.readouterr().err.strip()
    assert word in said and "\n" not in said and tiny.log == []


@pytest.mark.parametrize("content", ["", "[]", '{"round": "x", "done": []}', '{"done": 3}'])
def test_a_damaged_record_is_a_sentence(tiny: Tiny, tmp_path: Path, content: str) -> None:
    loop.CHECKPOINTS.mkdir()
    (loop.CHECKPOINTS / "queue.json").write_text(content)
    with pytest.raises(BadFile, match=r"queue\.json is damaged"):
        run(tmp_path)


# --- dependencies -----------------------------------------------------------------------------------------------------


def test_everything_is_trained_after_what_it_needs() -> None:
    names = [thing.name for thing in THINGS]
    assert all(not thing.base or names.index(thing.base) < place for place, thing in enumerate(THINGS))
    plan = read_plan(Options(preset="gpu", compiled=True))
    assert [each.line for each in plan] == everything(Options(preset="gpu", compiled=True))
    assert all(each.options.preset == "gpu" and each.options.compiled for each in plan)
    made = {each.line.split()[0] for each in plan}
    assert made == set(RECIPES) - set(queue.NOT_IN_A_PLAN)


def test_the_shipped_things_fit() -> None:
    found = {thing.name: state_of(thing) for thing in THINGS}
    assert found.pop("pictogram's row and column heads") in ("fits", "missing")  # they may not have been trained for these weights yet
    assert set(found.values()) == {"fits"}


def test_what_is_missing_stale_or_damaged_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    tiny_folders.ship(tmp_path, monkeypatch)
    folder = tmp_path / "lowpoly"
    fits = {"backbone": hash_of(parts(folder, "model")), "held_out": {"step": 3, "acceptance": [0.5]}, "minutes": 2.5}
    ship(folder, {}, {"feature_draft": fits, "heads": {"heads_cross": {"backbone": "other"}, "heads_mlp": {}}})
    states = {thing.name: state_of(thing) for thing in THINGS}
    assert states["lowpoly"] == states["lowpoly's drafter"] == "fits" and states["lowpoly's stream"] == "missing"
    assert states["cross-attention heads"] == "stale" and states["multilayer heads"] == "unknown"
    assert queue.fits("feature-draft --backbone lowpoly --preset cpu") and not queue.fits("mesh-heads")
    assert main(["train", "status"]) == 0
    said = capsys.readouterr().out
    assert "acceptance [0.5]" in said and "2.5 min" in said and "launch.py train mesh-heads" in said
    assert main(["train", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lowpoly's drafter"]["state"] == "fits"
    (folder / "card.json").write_text("[]")
    assert "not an object" in next(state_of(thing) for thing in THINGS if thing.name == "lowpoly")
    assert main(["train", "status"]) == 0


def test_a_drafter_that_is_stale_is_refused_and_trained_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better numbers of other weights do not stand in the way of a drafter that fits."""
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(feature_draft, "UNSEEN", 4)
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", {"minutes": 0.01, "sequences": 4, "batch": 2, "rows": 64})
    feature_draft.main(feature_draft.Options())
    card = pictogram.read_card(tmp_path / "pictogram")
    other = card["feature_draft"] | {"backbone": "0123456789abcdef", "held_out": {"acceptance": [1.0]}}
    ship(tmp_path / "pictogram", {}, {"feature_draft": other})
    with pytest.raises(MissingWeights, match="was trained for the weights 0123456789abcdef"):
        pictogram.load(str(tmp_path / "pictogram")).drafter("feature_draft")
    feature_draft.main(feature_draft.Options())
    assert pictogram.load(str(tmp_path / "pictogram")).drafter("feature_draft") is not None
    assert tmp_path / "lowpoly" == lowpoly.FOLDER
