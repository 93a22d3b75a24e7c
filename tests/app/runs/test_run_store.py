"""Stored runs stay within their limits: the oldest are deleted, never the newest, one being written, or a foreign folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.limits import STRANGERS, Limits
from app.live.boards.lazy import Lazy
from app.runs.run_store import RunStore
from app.server import endpoints, studio
from app.shared import StudioState
from engine.files import part_beside
from tests.app.boards import picture_run


def make_run(folder: Path, name: str, when: float, size: int = 100) -> Path:
    """A finished run of an age and a size."""
    run = folder / name
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    (run / "result.png").write_bytes(bytes(size - 2))
    os.utime(run / "run.json", (when, when))
    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def ar_run(picto):
    return picture_run(picto, "ar").finish()


def test_the_oldest_runs_go_when_there_are_too_many(tmp_path, ar_run):
    for age, name in enumerate(("c", "a", "b")):
        make_run(tmp_path, name, 1000 + age)
    run_store = RunStore(tmp_path, Limits(runs=3))
    newest = run_store.save(ar_run)
    assert names(tmp_path) == sorted(["a", "b", newest.name]) and (newest / "trace.npz").exists()


def test_the_oldest_runs_go_when_they_are_too_large(tmp_path):
    for age, name in enumerate("abcd"):
        make_run(tmp_path, name, 1000 + age)
    assert RunStore(tmp_path, Limits(run_bytes=250)).prune() == [tmp_path / "a", tmp_path / "b"]
    assert names(tmp_path) == ["c", "d"]


def test_the_newest_run_stays_even_if_it_is_too_large_by_itself(tmp_path, ar_run):
    make_run(tmp_path, "old", 1000)
    newest = RunStore(tmp_path, Limits(run_bytes=1)).save(ar_run)
    assert names(tmp_path) == [newest.name]


def test_a_run_in_progress_and_other_folders_are_not_touched(tmp_path):
    part = part_beside(tmp_path / "b")
    make_run(tmp_path, part.name, 1)
    make_run(tmp_path, "a", 1000)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    RunStore(tmp_path, Limits(runs=1, run_bytes=0)).prune()
    assert names(tmp_path) == sorted([part.name, "mine"])


def test_strangers_leave_no_run_on_the_server(tmp_path, ar_run):
    assert RunStore(tmp_path / "runs", STRANGERS).save(ar_run) is None
    assert not (tmp_path / "runs").exists()


def test_a_studio_writes_its_runs_where_it_was_told_and_says_so(tmp_path, picto, low, monkeypatch):
    """The folder of `launch.py studio --data` reaches the tabs, and nothing is written to the user's own folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    studios: list[StudioState] = []
    monkeypatch.setattr(endpoints, "build", lambda page, shared: studios.append(shared))
    run_store = RunStore(tmp_path / "data", Limits(runs=5, run_bytes=3 * 2**30))
    studio.build(picto, Lazy("lowpoly", tmp_path, lambda: low), run_store=run_store)
    assert studios[0].run_store is run_store and not (tmp_path / "home" / "runs").exists()
    assert studio.storage_note(run_store) == f"Runs are saved in {tmp_path / 'data'}, at most 5 or 3 GiB; then the oldest are deleted."
    assert studio.storage_note(RunStore(tmp_path, STRANGERS)) == "Runs are not saved."
