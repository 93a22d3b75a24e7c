"""A batch that decodes several inputs together: the same files and rows as one after another, whatever goes wrong in some."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from app import cli
from app.batch import making, table
from app.batch.folder import ROW
from engine.core import Backbone, Prompt

ROOT = Path(__file__).resolve().parents[3]
OPTIONS = ["--method", "sjdpp", "--set", "window=8", "--size", "64", "--dtype", "float32", "--no-sheet"]
PROMPTS = ["a red apple", "two cats", "a green balloon", "a dog and a tree", "a yellow star", "a red apple"]


def made(path: Path, out: Path, *more: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code of a batch, and the rows of its table."""
    code = cli.main(["batch", str(path), "--out", str(out), *OPTIONS, *more])
    with (out / table.NAME).open(newline="", encoding="utf-8") as file:
        return code, list(csv.DictReader(file))


def pictures(out: Path, rows: list[dict[str, str]]) -> list[bytes]:
    """The pixels of the pictures of a table; the files also say how long they took."""
    found = []
    for row in rows:
        with Image.open(out / row["file"]) as picture:
            found.append(picture.tobytes())
    return found


def test_the_pictures_are_those_of_one_after_another(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS), encoding="utf-8")
    (one, alone), (many, together) = made(path, tmp_path / "one", "--at-once", "1"), made(path, tmp_path / "many", "--at-once", "4")
    assert one == many == 0
    assert pictures(tmp_path / "one", alone) == pictures(tmp_path / "many", together)
    same = ("input", "seed", "status", "method", "tokens", "passes", "hash")
    assert [[row[name] for name in same] for row in alone] == [[row[name] for name in same] for row in together]
    assert made(path, tmp_path / "one", "--at-once", "2")[0] == 0  # how many at once is no setting of the results


def test_what_fails_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "list.csv"
    path.write_text("prompt,seed,size\na red apple,,\n,3,\nxyzzy,,\na dog,1,100\na bee,5,\na cat,1,\n", encoding="utf-8")
    plain = making.Maker.prompt

    def prompt(self: making.Maker, entry, given) -> Prompt:
        if entry.text == "a bee":
            raise ZeroDivisionError("a bug")
        return plain(self, entry, given)

    monkeypatch.setattr(making.Maker, "prompt", prompt)
    code, rows = made(path, tmp_path / "out", "--at-once", "3", "--retries", "0")
    assert code == 2 and [row["status"] for row in rows] == ["done", *["failed"] * 4, "done"]
    told = ("no prompt", "knows no word", "not 100", "a bug")
    assert all(part in row["error"] for part, row in zip(told, rows[1:5], strict=True))
    assert "ZeroDivisionError" in capsys.readouterr().err
    monkeypatch.undo()
    assert [row["status"] for row in made(path, tmp_path / "out", "--at-once", "3")[1]].count("done") == 3


def test_a_result_that_cannot_be_written_leaves_the_others_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text("\n".join(PROMPTS[:3]), encoding="utf-8")
    plain = making.Maker.of_words

    def of_words(self: making.Maker, text: str) -> dict:
        if text == "two cats":
            raise OSError("the disk is away")
        return plain(self, text)

    monkeypatch.setattr(making.Maker, "of_words", of_words)
    code, rows = made(path, tmp_path / "out", "--at-once", "3", "--retries", "0")
    assert code == 2 and [row["status"] for row in rows] == ["done", "failed", "done"]


def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    path, out = tmp_path / "prompts.txt", tmp_path / "out"
    path.write_text("\n".join(PROMPTS), encoding="utf-8")
    command = ["batch", str(path), "--out", str(out), *OPTIONS, "--at-once", "2"]
    code = "import sys; from app import cli; cli.main(sys.argv[1:])"
    running = subprocess.Popen([sys.executable, "-c", code, *command], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while " done" not in (line := running.stderr.readline()):
        assert line, "it ended before it was killed"
    os.kill(running.pid, signal.SIGKILL)
    running.wait()
    running.stderr.close()
    before = {mark.parent.name: mark.stat().st_mtime_ns for mark in out.glob(f"results/*/{ROW}")}
    assert before
    code, rows = made(path, out, "--at-once", "2")
    after = {mark.parent.name: mark.stat().st_mtime_ns for mark in out.glob(f"results/*/{ROW}")}
    assert code == 0 and after.items() >= before.items()
    assert [row["status"] for row in rows] == ["done"] * 6 and len(after) == len({row["hash"] for row in rows}) == 6


def test_clouds_are_decoded_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clouds, seen = tmp_path / "clouds", []
    clouds.mkdir()
    for i in range(2):
        (clouds / f"chair{i}.ply").write_bytes((ROOT / "assets/examples/clouds/chair.ply").read_bytes())
    (clouds / "damaged.ply").write_text("ply\n")
    plain = making.generate_many

    def watched(backbone: Backbone, *rest, **more):
        for ended in plain(backbone, *rest, **more):
            seen.append(ended.index)
            yield ended

    monkeypatch.setattr(making, "generate_many", watched)
    out = tmp_path / "out"
    asked = ["--method", "xspecmesh", "--faces", "8", "--up", "y", "--retries", "0", "--no-sheet", "--at-once", "2"]
    assert cli.main(["batch", str(clouds), "--out", str(out), *asked]) == 2
    with (out / table.NAME).open(newline="", encoding="utf-8") as file:
        assert [row["status"] for row in csv.DictReader(file)] == ["done", "done", "failed"]
    assert sorted(seen) == [0, 1]
