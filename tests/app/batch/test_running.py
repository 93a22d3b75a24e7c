"""A batch on one machine: it makes each input once despite interrupts, lists and retries failures, and notices damage."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from app import cli
from app.batch import making, table
from app.batch.folder import BatchFolder, locked_batch, stored_settings
from app.batch.inputs import BatchInput, read_inputs
from app.batch.plan import BatchPlan
from app.batch.progress import ProgressLine
from app.batch.running import Batch
from app.batch.sheet import COLUMNS as ACROSS
from app.sentences import duration
from engine.core import Prompt
from engine.errors import BadOutput
from tests.app.batch.lists import CHAIR, OPTIONS, PROMPTS, batch, marks, pixels, prompts, rows_of


def test_each_prompt_becomes_the_picture_that_the_image_command_makes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    assert cli.main(["batch", str(prompts(tmp_path)), "--out", str(out), *OPTIONS, "--seed", "3", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["inputs"], summary["done"], summary["failed"], summary["before"]) == (6, 6, 0, 0)
    rows = rows_of(out)
    assert [(row["input"], row["seed"], row["status"]) for row in rows] == [
        (p, "3" if i < 5 else "4", "done") for i, p in enumerate(PROMPTS)
    ]
    assert all(int(row["tokens"]) == 64 > int(row["passes"]) and float(row["seconds"]) > 0 for row in rows)
    alone_in = tmp_path / "alone"
    assert cli.main(["image", PROMPTS[1], *OPTIONS, "--seed", "3", "--out", str(alone_in)]) == 0
    assert pixels(out / rows[1]["file"]) == pixels(alone_in / "result.png")
    with Image.open(out / "sheet.jpg") as sheet:
        assert sheet.width > sheet.height and len(PROMPTS) < ACROSS
    before, summary = marks(out), capsys.readouterr()
    assert cli.main(["batch", str(prompts(tmp_path, [*PROMPTS, "a blue fish"])), "--out", str(out), *OPTIONS, "--seed", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["before"] == 6
    assert {name: mark for name, mark in marks(out).items() if name in before} == before and len(marks(out)) == 7


@pytest.mark.parametrize("at_once", ["1", "3"])
def test_bad_lines_and_bugs_fail_and_the_others_are_made(at_once: str, tmp_path: Path, monkeypatch, capsys) -> None:
    lines = ["prompt,seed,size", "a red apple,,", ",3,", "two cats,no,", "xyzzy,,", "a dog,1,100", "a bee,5,", "a cat,1,"]
    out, plain = tmp_path / "out", making.Maker.prompt

    def prompt(self: making.Maker, entry: BatchInput, prepared: Any) -> Prompt:
        if entry.text == "a bee":
            raise ZeroDivisionError("a bug")
        return plain(self, entry, prepared)

    monkeypatch.setattr(making.Maker, "prompt", prompt)
    code, rows = batch(prompts(tmp_path, lines, "list.csv"), out, "--at-once", at_once, "--retries", "0")
    assert code == 2 and [row["status"] for row in rows] == ["done", *["failed"] * 5, "done"]
    parts, output = ("no prompt", "'no' is not a whole number", "knows no word", "not 100", "a bug"), capsys.readouterr()
    assert all(part in row["error"] and row["error"] in output.err for part, row in zip(parts, rows[1:6], strict=True))
    assert "2 of 7 done" in output.out and "5 failed" in output.out and output.err.count("Traceback") == 1  # a bug keeps its own
    monkeypatch.undo()
    before = marks(out)
    mended = prompts(tmp_path, [*lines[:2], "a bee,3,", "two cats,,", "a fish,,", "a dog,1,64", *lines[-2:]], "list.csv")
    code, rows = batch(mended, out, "--at-once", at_once)
    assert code == 0 and [row["status"] for row in rows] == ["done"] * 7 and marks(out).items() >= before.items()


class Fails(making.Maker):
    """A maker that breaks on its first inputs."""

    broken = 0

    def prompt(self, entry: BatchInput, prepared: Any) -> Prompt:
        if type(self).broken:
            type(self).broken -= 1
            raise OSError("the disk is away")
        return super().prompt(entry, prepared)


@pytest.mark.parametrize(("retries", "done"), [("0", 1), ("1", 2)])
def test_a_failure_is_tried_again(retries: str, done: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(Fails, "broken", 1)
    monkeypatch.setattr(making, "Maker", Fails)
    command = ["batch", str(prompts(tmp_path, PROMPTS[:2])), "--out", str(tmp_path / "out"), *OPTIONS, "--retries", retries, "--no-sheet"]
    assert cli.main(command) == (0 if done == 2 else 2)
    output, rows = capsys.readouterr(), rows_of(tmp_path / "out")
    assert [row["status"] for row in rows].count("done") == done
    assert "Traceback" in output.err  # a bug keeps its own
    assert rows[0].get("attempts") == ("2" if done == 2 else "1")
    assert cli.main(command) == 0 and [row["status"] for row in rows_of(tmp_path / "out")] == ["done", "done"]


def test_a_damaged_result_is_made_again(tmp_path: Path) -> None:
    command = ["batch", str(prompts(tmp_path, PROMPTS[:2])), "--out", str(tmp_path / "out"), *OPTIONS, "--no-sheet"]
    assert cli.main(command) == 0
    out = tmp_path / "out"
    first, second = (out / row["file"] for row in rows_of(out))
    shown, before = pixels(first), marks(out)
    first.write_bytes(first.read_bytes()[:-1])
    assert cli.main(command) == 0
    assert pixels(first) == shown
    after = marks(out)
    assert after[first.parent.name] != before[first.parent.name] and after[second.parent.name] == before[second.parent.name]


def test_other_settings_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path, out = prompts(tmp_path, PROMPTS[:1]), tmp_path / "out"
    assert cli.main(["batch", str(path), "--out", str(out), *OPTIONS, "--no-sheet"]) == 0
    for other in (["--size", "128"], ["--set", "window=9"], ["--temperature", "0.5"], ["--method", "ar"]):
        changed = [*OPTIONS, *other] if other[0] != "--method" else [*other, "--size", "64"]
        assert cli.main(["batch", str(path), "--out", str(out), *changed, "--no-sheet"]) == 2
        assert "has a batch with" in capsys.readouterr().err


@pytest.mark.parametrize("settings", ["null", "[]", "{", "", '{"method": 3}'])
def test_settings_that_are_none_are_refused(settings: str, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text(settings)
    with pytest.raises(BadOutput, match="Choose another folder with --out"):
        stored_settings(tmp_path)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with locked_batch(tmp_path), pytest.raises(BadOutput, match="Another process"), locked_batch(tmp_path):
        pass
    with locked_batch(tmp_path):  # another process may start after its end
        assert (tmp_path / ".lock").exists()


def test_the_first_result_stays(tmp_path: Path) -> None:
    """Two workers make the same input at once: the second result is discarded, and both return the same row."""
    folder = BatchFolder(tmp_path)
    plan = BatchPlan("toy", None, None, "float32", "ar", "ar", {}, {}, None, "auto", ("glb",))
    folder.open(plan)
    entry = BatchInput(1, "a cat", key="ab" * 32)

    def write(own: str):
        def fill(part: Path) -> dict:
            (part / "result.png").write_text(own)
            if own == "slow":
                folder.keep(entry, write("quick"))
            return {"status": "done", "process": own}

        return fill

    assert folder.keep(entry, write("slow"))["process"] == "quick"
    assert [path.read_text() for path in folder.results.rglob("result.png")] == ["quick"]
    assert folder.checked_row(entry)["process"] == "quick"


def test_a_stop_leaves_a_table_of_all_inputs(tmp_path: Path) -> None:
    folder = BatchFolder(tmp_path)
    entries = read_inputs(prompts(tmp_path)).entries
    batch = Batch(folder, entries, 0)

    def make(waiting: list[BatchInput]):
        yield {"number": waiting[0].number, "input": waiting[0].text, "status": "done", "seed": 0}
        raise KeyboardInterrupt

    folder.results.mkdir()
    with pytest.raises(KeyboardInterrupt):
        batch.run(make, ProgressLine(len(entries), 0, io.StringIO()))
    assert [row["status"] for row in rows_of(tmp_path)] == ["done", *["failed"] * 5]
    assert "not tried yet" in rows_of(tmp_path)[5]["error"]


def test_where_all_is_done_nothing_is_asked_for(tmp_path: Path) -> None:
    entries = [BatchInput(1, "", problem="It has no prompt.")]
    requests: list = []
    Batch(BatchFolder(tmp_path), entries, 3).run(lambda waiting: requests.append(waiting) or [], ProgressLine(1, 0, io.StringIO()))
    assert not requests and [row["status"] for row in rows_of(tmp_path)] == ["failed"]


def test_progress_says_what_is_left() -> None:
    now = iter([0.0, 2.0, 8.0, 9.0])
    out = io.StringIO()
    progress = ProgressLine(13, 10, out, lambda: next(now))
    progress.add({"status": "done", "input": "a"})
    progress.add({"status": "failed", "input": "b"})
    assert out.getvalue().splitlines() == [
        "11 of 13 done · 2.0 s each · 4 s left · done: a",
        "11 of 13 done, 1 failed · 4.0 s each · 4 s left · failed: b",
    ]
    assert [duration(s) for s in (3, 600, 90_000)] == ["3 s", "10 min", "25.0 h"]


class Terminal(io.StringIO):
    """A terminal of 80 columns."""

    def isatty(self) -> bool:
        return True


def test_progress_stays_on_one_line_whatever_a_prompt_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    odd = {"status": "done", "input": "a cat\nand \x1b[2Ja dog\r" + "z" * 99}
    for out in (Terminal(), io.StringIO()):
        progress = ProgressLine(20_000, 0, out)
        for _ in range(2):
            progress.add(odd)
        shown = out.getvalue()
        lines = shown.lstrip("\r").split("\r") if out.isatty() else shown.splitlines()
        assert len(lines) == 2 and all(line.rstrip("\n").isprintable() for line in lines)
        assert not out.isatty() or all(len(line) < 80 for line in lines)


def test_the_table_holds_any_text(tmp_path: Path) -> None:
    odd = ["a\rb", "a\nb", "a\r\nb", 'a "b", c', "\u2028", "赤いりんご 🍎", "=1+1", ""]
    table.write([{"number": i, "input": text, "status": "done", "error": "\r" + text} for i, text in enumerate(odd)], tmp_path)
    assert [(row["input"], row["error"]) for row in rows_of(tmp_path)] == [(text, "\r" + text) for text in odd]
    assert (tmp_path / table.NAME).read_bytes().startswith(b"number,input,file,") and b",hash" not in (tmp_path / table.NAME).read_bytes()


def test_clouds_become_meshes(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    clouds = tmp_path / "clouds"
    clouds.mkdir()
    shutil.copy(CHAIR, clouds)
    (clouds / "damaged.ply").write_text("ply\n")
    out = tmp_path / "out"
    command = [
        "batch",
        str(clouds),
        "--out",
        str(out),
        "--method",
        "xspecmesh",
        "--faces",
        "24",
        "--about",
        "20",
        "--formats",
        "obj",
        "--up",
        "y",
    ]
    assert cli.main([*command, "--shrinkwrap", "--retries", "0"]) == 2
    chair, damaged = rows_of(out)
    assert damaged["status"] == "failed" and "damaged.ply" in damaged["error"]
    assert chair["status"] == "done" and chair["file"].endswith("result.obj") and (out / chair["file"]).exists()
    assert 12 <= int(chair["guide_faces"]) <= 26  # as few as the limit of its faces, or a few more
    assert 0 < int(chair["faces"]) <= 24 and 0 < float(chair["shrinkwrapped_chamfer"]) <= float(chair["chamfer"])
    assert (out / chair["file"]).with_name("shrinkwrapped.obj").exists()
    assert json.loads((out / chair["file"]).with_name("run.json").read_text())["about"] == 20
    capsys.readouterr()
    assert cli.main(command) == 2 and "shrinkwrap = True, but this one has False" in capsys.readouterr().err


WRONG = [
    (["--faces", "9"], "do not use --faces"),
    (["--about", "9"], "do not use --about"),
    (["--shrinkwrap"], "do not use --shrinkwrap"),
    (["--actors", "2"], "--actors belongs to --ray"),
    (["--at-once", "0"], "out of range"),
    (["--backbone", "lowpoly"], "makes meshes from clouds"),
    (["--method", "sjdp"], "Did you mean"),
    (["--ray", "--actors", "0"], "out of range"),
]


@pytest.mark.parametrize(("more", "sentence"), WRONG)
def test_wrong_options_are_one_sentence(more: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["batch", str(prompts(tmp_path)), "--out", str(tmp_path / "out"), *more]) == 2
    error = capsys.readouterr().err
    assert sentence in error and len(error.splitlines()) == 1 and not list(tmp_path.glob("out/results/*"))
