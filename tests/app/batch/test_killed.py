"""A batch of 80 prompts that is killed four times at random moments: 80 results, each made once."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.batch.folder import BatchFolder
from app.batch.inputs import read_inputs
from tests.app.batch import lists
from tests.app.batch.lists import CODE, OPTIONS, ROOT, marks, rows_of

COUNT, KILLS = 80, 4
LIMIT = 300.0  # maximum seconds from a start to its kill
WORDS = ("apple", "cat", "dog", "fish", "star", "tree", "balloon", "house")
COLOURS = ("red", "blue", "green", "yellow", "white")


def start(prompts: Path, out: Path) -> subprocess.Popen:
    """Starts the batch in a separate process."""
    command = [sys.executable, "-c", CODE, "batch", str(prompts), "--out", str(out), *OPTIONS, "--no-sheet"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(running: subprocess.Popen, out: Path, count: int, pause: float) -> None:
    """Kills the batch once there are this many results and this many more seconds have passed."""
    until = time.monotonic() + LIMIT
    while len(marks(out)) < count:
        assert running.poll() is None and time.monotonic() < until, f"It stood at {len(marks(out))} results: {running.returncode}"
        time.sleep(0.01)
    time.sleep(pause)
    running.kill()
    assert running.wait() == -9, "it ended before it was killed"


def test_80_prompts_killed_four_times_are_80_results_each_made_once(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """--moments repeats the moments of a failed run."""
    seed = pytestconfig.getoption("moments") or random.randrange(1, 10**6)
    print(f"--moments={seed}")  # pytest shows it where the test fails
    moments = random.Random(seed)
    out = tmp_path / "out"
    scenes = [f"a {colour} {word}" for colour in COLOURS for word in WORDS]
    prompts = lists.prompts(tmp_path, scenes * (COUNT // len(scenes)))  # equal lines get different seeds
    before: dict[str, tuple[int, int]] = {}
    for count in sorted(moments.choices(range(COUNT - 20), k=KILLS)):
        kill(start(prompts, out), out, count, moments.uniform(0.0, 0.3))
        after = marks(out)
        assert after.items() >= before.items(), "a result that was there was lost or made again"
        before = after
    assert before and len(before) < COUNT
    assert start(prompts, out).wait() == 0
    assert marks(out).items() >= before.items() and len(marks(out)) == COUNT
    rows = rows_of(out)
    assert [row["status"] for row in rows] == ["done"] * COUNT == ["done"] * len(rows)
    assert [row["input"] for row in rows] == scenes * (COUNT // len(scenes))
    assert len({row["hash"] for row in rows}) == len({row["file"] for row in rows}) == COUNT
    assert all(BatchFolder(out).checked_row(entry) for entry in read_inputs(prompts).entries), "a file is not what was written"
    assert sorted(path.name for path in (out / "results").iterdir()) == sorted(marks(out)), "a kill left something behind"
