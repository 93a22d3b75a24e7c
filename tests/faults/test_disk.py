"""Disk faults at every operation of save, ship and checkpoint, and kill -9 before each: afterwards the state is the old or the new one.

A fault gives an error message and leaves no files. After a kill, repeating the operation removes all leftovers.
"""

from __future__ import annotations

import errno
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from app.runs import history
from engine.backbones import load
from engine.core import Prompt
from engine.methods import METHODS
from engine.networks.weights import read_tensors, ship
from engine.run import generate
from research.train import loop
from tests.engine.backbones import tiny
from tests.faults import folders, forked
from tests.faults.faulty_disk import ERRORS, Disk, full_at
from tests.faults.outcome import Outcome
from tests.faults.sentences import hold

MOST = 400  # operations of one change; more would be an endless loop
BYTES = (0, 1, 100, 1_000, 4_096, 20_000, 60_000)


@dataclass
class Change:
    """A state on disk and a function that changes it.

    do    : makes the change, in a child
    state : "old", "new", or the fault of the folder's content
    """

    name: str
    folder: Path
    do: Callable[[], None]
    state: Callable[[], str]


# --- what is changed --------------------------------------------------------------------------------------------------


def save_change(folder: Path) -> Change:
    """A second run is written into the history."""
    runs = folder / "runs"
    first, second = (generate(tiny.pictogram(), METHODS["ar"], Prompt(folders.PROMPT, seed=seed, size=64)) for seed in (1, 2))
    next(first), next(second)
    history.save(first, runs)

    def state() -> str:
        seeds = []
        for saved_run in sorted(p for p in runs.iterdir() if not p.name.startswith(".")):
            settings = json.loads((saved_run / "run.json").read_text(encoding="utf-8"))
            with Image.open(saved_run / "result.png") as picture:
                picture.load()
                assert json.loads(picture.text["foretoken"])["seed"] == settings["seed"]
            with np.load(saved_run / "trace.npz") as trace:
                assert all(len(trace[name]) >= 0 for name in trace.files)
            seeds.append(settings["seed"])
        again = tuple(dict.fromkeys(seeds))  # the second run may have been saved twice, when it was saved after a kill
        return {(1,): "old", (1, 2): "new"}.get(again, f"the runs with the seeds {seeds}")

    return Change("save", folder, lambda: history.save(second, runs), state)


def ship_change(folder: Path) -> Change:
    """Other weights of all parts are shipped over those of a pictogram."""
    target = folders.pictogram(folder / "model")
    other = folders.pictogram(folder / "other", 2)
    files = {path.name: read_tensors(path) for path in sorted(other.glob("*.safetensors"))}
    card = json.loads((other / "card.json").read_text(encoding="utf-8")) | {"shipped": "second"}
    weights = {name: mark(path) for name, path in (("old", target), ("new", other))}
    shutil.rmtree(other)

    def state() -> str:
        weights_mark = mark(target)
        written = json.loads((target / "card.json").read_text(encoding="utf-8")).get("shipped", "first")
        which = next((name for name, known in weights.items() if torch.equal(known, weights_mark)), "a mix of old and new weights")
        return which if (which, written) in (("old", "first"), ("new", "second")) else f"{which} with the {written} card"

    return Change("ship", folder, lambda: ship(target, files, card), state)


def mark(folder: Path) -> torch.Tensor:
    """All weights of a loadable pictogram in one row."""
    load("pictogram", str(folder))
    return torch.cat([v.flatten() for path in sorted(folder.glob("*.safetensors")) for _, v in sorted(read_tensors(path).items())])


def checkpoint_change(folder: Path) -> Change:
    """A checkpoint is written over the one before it."""
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    training = loop.Training("faults", model, 1e-3, 1.0, "cpu")
    training.path = folder / "faults.pt"
    advance(training, model)
    training.save()
    advance(training, model)

    def state() -> str:
        fresh = loop.Training("faults", nn.Linear(64, 64), 1e-3, 1.0, "cpu")
        fresh.path = training.path
        assert fresh.resume(False), "there is no checkpoint"
        same = torch.equal(fresh.model.weight, model.weight)
        return {(1, False): "old", (2, True): "new"}.get((fresh.step, same), f"step {fresh.step}, its weights new: {same}")

    return Change("checkpoint", folder, training.save, state)


def advance(training: loop.Training, model: nn.Module) -> None:
    """One step of training."""
    training._advance(lambda step: model(torch.ones(1, 64)).square().sum(), training.step, 0.0)


CHANGES = {"save": save_change, "ship": ship_change, "checkpoint": checkpoint_change}


# --- the faults -------------------------------------------------------------------------------------------------------


def with_disk(change: Change, at: int, error: int) -> Callable[[], Any]:
    """The change on a disk that fails at an operation."""

    def do() -> str:
        disk = Disk(change.folder, at, error)
        disk.install()
        change.do()
        return f"{disk.count} operations"

    return do


def with_limit(change: Change, size: int, deadly: bool) -> Callable[[], Any]:
    """The change on a disk that is full."""

    def do() -> None:
        full_at(size, deadly)
        change.do()

    return do


def judge_change(change: Change, name: str, do: Callable[[], Any], whole: Path) -> Outcome:
    """Makes the change in a child, checks the result, repeats it without a fault, and restores the old state."""
    status, text = forked.run_once(do)
    try:
        wrong = complaint(change, status, text)
        if not wrong and litter(change.folder):
            again, ending = forked.run_once(change.do)
            left = litter(change.folder)
            wrong = complaint(change, again, ending) or (f"{', '.join(left)} is still there after the next try" if left else "")
    finally:
        shutil.rmtree(change.folder)
        shutil.copytree(whole, change.folder, symlinks=True)
    end = "bug" if wrong else "sentence" if status == 3 else "value"
    return Outcome(name, end, wrong or text)


def complaint(change: Change, status: int, text: str) -> str:
    """The fault of the state after a child that ended with a status and a text; "" if there is none."""
    try:
        state = change.state()
    except Exception as e:  # any error of the reader is a finding
        state = f"a state that cannot be read ({type(e).__name__}: {e})"
    ending = f"the child ended with {status}: {text}"
    if state not in ("old", "new") or (status == 0 and state != "new"):
        return f"afterwards there was {state}; {ending}"
    left = litter(change.folder)
    if left and status > 0:  # a killed process, or one that cannot clean up, leaves that to the next one
        return f"{', '.join(left)} was left behind; {ending}"
    return ending if status not in (0, 3, -signal.SIGKILL, -signal.SIGXFSZ) else ""


def litter(folder: Path) -> list[str]:
    """Unfinished files and folders."""
    return [p.name for p in folder.rglob("*") if ".part" in p.name or p.name.startswith((".aside", ".tmp"))]


@pytest.mark.parametrize("name", CHANGES)
def test_faults_and_kills_leave_the_old_state_or_the_new_one(name: str, tmp_path: Path) -> None:
    (folder := tmp_path / "disk").mkdir()
    change = CHANGES[name](folder)
    assert change.state() == "old"
    whole = shutil.copytree(folder, tmp_path / "whole", symlinks=True)
    status, text = forked.run_once(with_disk(change, 0, 1))
    assert status == 0 and change.state() == "new", text
    shutil.rmtree(folder)
    shutil.copytree(whole, folder, symlinks=True)
    operations = int(text.split()[0])
    assert 1 < operations < MOST
    outcomes = []
    for at in range(1, operations + 1):
        for error in (0, ERRORS[at % len(ERRORS)]):
            how = f"{name}: {errno.errorcode[error] if error else 'kill'} at operation {at} of {operations}"
            outcomes.append(judge_change(change, how, with_disk(change, at, error), whole))
    for size in BYTES:
        for deadly in (False, True):
            how = f"{name}: {'killed' if deadly else 'full'} at {size} bytes of a file"
            outcomes.append(judge_change(change, how, with_limit(change, size, deadly), whole))
    hold(outcomes)
