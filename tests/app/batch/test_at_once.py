"""A batch that decodes several inputs together: the same files and rows as one at a time, even if some inputs fail."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app import cli
from app.batch import making
from engine.core import Backbone
from tests.app.batch.lists import CHAIR, CODE, OPTIONS, PROMPTS, ROOT, batch, marks, pixels, prompts, rows_of


def test_the_pictures_are_those_of_one_after_another(tmp_path: Path) -> None:
    path = prompts(tmp_path)
    (one, alone), (many, together) = batch(path, tmp_path / "one", "--at-once", "1"), batch(path, tmp_path / "many", "--at-once", "4")
    assert one == many == 0
    shown = [[pixels(tmp_path / name / row["file"]) for row in rows] for name, rows in (("one", alone), ("many", together))]
    assert shown[0] == shown[1]
    same = ("input", "seed", "status", "method", "tokens", "passes", "hash")
    assert [[row[name] for name in same] for row in alone] == [[row[name] for name in same] for row in together]
    assert batch(path, tmp_path / "one", "--at-once", "2")[0] == 0  # --at-once does not change the results


def test_a_result_that_cannot_be_written_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = prompts(tmp_path, PROMPTS[:3])
    plain = making.Maker.word_columns

    def word_columns(self: making.Maker, text: str) -> dict:
        if text == "two cats":
            raise OSError("the disk is away")
        return plain(self, text)

    monkeypatch.setattr(making.Maker, "word_columns", word_columns)
    code, rows = batch(path, tmp_path / "out", "--at-once", "3", "--retries", "0")
    assert code == 2 and [row["status"] for row in rows] == ["done", "failed", "done"]


def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    path, out = prompts(tmp_path), tmp_path / "out"
    command = ["batch", str(path), "--out", str(out), *OPTIONS, "--no-sheet", "--at-once", "2"]
    running = subprocess.Popen([sys.executable, "-c", CODE, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while " done" not in (line := running.stderr.readline()):
        assert line, "it ended before it was killed"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stderr.close()
    before = marks(out)
    assert before
    code, rows = batch(path, out, "--at-once", "2")
    after = marks(out)
    assert code == 0 and after.items() >= before.items()
    assert [row["status"] for row in rows] == ["done"] * 6 and len(after) == len({row["hash"] for row in rows}) == 6


def test_clouds_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds, seen = tmp_path / "clouds", []
    clouds.mkdir()
    for i in range(2):
        shutil.copy(CHAIR, clouds / f"chair{i}.ply")
    (clouds / "damaged.ply").write_text("ply\n")
    plain = making.generate_many

    def watch(backbone: Backbone, *rest, **more):
        for ended in plain(backbone, *rest, **more):
            seen.append(ended.index)
            yield ended

    monkeypatch.setattr(making, "generate_many", watch)
    out = tmp_path / "out"
    options = ["--method", "xspecmesh", "--faces", "8", "--up", "y", "--retries", "0", "--no-sheet", "--at-once", "2"]
    assert cli.main(["batch", str(clouds), "--out", str(out), *options]) == 2
    assert [row["status"] for row in rows_of(out)] == ["done", "done", "failed"]
    assert sorted(seen) == [0, 1]
