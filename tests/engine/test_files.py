"""Files are written whole or not at all, even if the writer is killed; leftovers of dead processes are removed, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import files
from tests.faults import forked
from tests.faults.faulty_disk import Disk


def dead_process() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def test_a_file_is_replaced_whole_and_only_when_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, call=call, name=name: (order.append(name), call(*a))[1])
    path = tmp_path / "a.txt"
    files.write_text(path, "one")
    assert path.read_text() == "one" and order == ["fsync", "replace", "fsync"]  # the file, its name, the folder
    with pytest.raises(RuntimeError), files.whole_file(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(sys.platform != "linux", reason="the harness needs Linux")
def test_a_folder_is_swapped_at_any_kill(tmp_path: Path) -> None:
    """kill -9 at each call that touches the disk: the old folder or the new one, never a mixture."""
    seen = set()
    for calls in range(1, 100):
        root = tmp_path / str(calls)
        with files.whole_folder(tmp_path, str(calls)) as part:
            (part / "model").mkdir()
            for name in ("a", "b"):
                (part / "model" / name).write_text("old")

        def write(root: Path = root, calls: int = calls) -> None:
            Disk(root, calls, 0).install()
            with files.whole_folder(root, "model") as part:
                for name in ("a", "b"):
                    (part / name).write_text("new")

        ended = forked.run_once(write)[0] == 0
        assert files.recover(root / "model")
        versions = {(root / "model" / name).read_text() for name in ("a", "b")}
        assert len(versions) == 1, f"a mixture after {calls} calls"
        seen |= versions
        files.clean(root)
        with files.whole_folder(root, "model") as part:
            (part / "c").write_text("next")
        assert [p.name for p in root.rglob("*")] == ["model", "c"]  # and nothing is left of it
        if ended:
            break
    assert ended and seen == {"old", "new"}


def test_somebody_who_recovers_between_the_renames_does_not_stop_the_swap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, new = tmp_path / "model", tmp_path / "new"
    for folder, text in ((target, "old"), (new, "new")):
        folder.mkdir()
        (folder / "a").write_text(text)
    rename, disturbed = Path.rename, []

    def disturb(self: Path, other: Path) -> Path:
        if self == new and not disturbed:
            disturbed.append(files.recover(target))
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", disturb)
    files.swap(new, target)
    assert disturbed == [True] and (target / "a").read_text() == "new" and not files.set_aside_folders(target)


def test_parts_of_dead_processes_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    dead, own, other = (tmp_path / f".part-{process}-ab-run" for process in (dead_process(), os.getpid(), os.getppid()))
    earlier, foreign, unnamed = tmp_path / f".part-{os.getpid()}-cd-run", tmp_path / "run", tmp_path / ".part-x1y2"
    for folder in (dead, own, other, earlier, foreign, unnamed):
        folder.mkdir()
        (folder / "file").write_text("half")
    for folder in (earlier, unnamed):  # one by a process with our number, and one by an earlier version
        os.utime(folder, (0, 0))
    files.clean(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in (own, other, foreign))


def test_the_writers_of_a_name_are_known_while_they_live(tmp_path: Path) -> None:
    for process in (os.getpid(), os.getppid(), dead_process()):
        (tmp_path / f".part-{process}-ab-lowpoly").mkdir()
    assert files.writers(tmp_path / "lowpoly") == [os.getppid()] and files.writers(tmp_path / "poly") == []
    assert time.time() >= files.STARTED
