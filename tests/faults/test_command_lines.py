"""Every row of the table of command lines: its exit code, one sentence if that is 2, and no change in the checkout."""

from __future__ import annotations

import contextlib
import errno
import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from app import cli
from app.server import studio
from engine import backbones
from engine.backbones import lowpoly
from engine.errors import ForetokenError
from research.train import loop
from tests.engine.mesh import files
from tests.engine.mesh.shapes import sphere_points
from tests.faults import folders, forked
from tests.faults.command_lines import Row, rows
from tests.faults.faulty_disk import ALWAYS, Disk
from tests.faults.sentences import hold

ROOT = Path(__file__).resolve().parents[2]
FEWEST = 150
SECONDS = 6  # of work for one line; those that are refused take milliseconds


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folders and files that the table names."""
    folder = tmp_path_factory.mktemp("lines")
    paths = {name: folder / name for name in ("pictogram", "lowpoly", "empty", "folder", "other", "file", "binary", "nothing", "missing")}
    folders.pictogram(paths["pictogram"])
    folders.lowpoly(paths["lowpoly"])
    for name in ("empty", "folder", "other"):
        paths[name].mkdir()
    (paths["other"] / "card.json").write_text('{"name": "other"}')
    paths["binary"].write_bytes(bytes(range(256)) * 4)
    paths["nothing"].touch()
    paths["cloud"] = files.text(folder / "cloud.xyz", sphere_points(300))
    paths |= {name: folder / name for name in ("blank", "latin", "nul", "crooked", "void")}
    paths |= {"damaged": folder / "damaged.ply", "three": folder / "three.xyz", "lines": folder}
    (folder / "void.ply").touch()
    for name, content in {
        "file": b"a cat\n", "blank": b"\n \n", "latin": "a caf\xe9\n".encode("latin-1"), "nul": b"a red\0cat\n",
        "crooked": b"a,b\n1,2,3\n", "damaged": b"ply\nformat ascii 1.0\nelement vertex 99\n", "three": b"0 0 0\n1 0 0\n0 1 0\n",
    }.items():  # fmt: skip
        paths[name].write_bytes(content)
    return {name: str(path) for name, path in paths.items()}


def run_line(row: Row, places: dict[str, str]) -> Callable[[], str]:
    """Runs a row in a child with a read-only checkout: a command that should have been refused must not train or ship."""
    argv = [re.sub(r"\{(\w+)\}", lambda name: places[name[1]], argument) for argument in row.argv]

    def do() -> str:
        out, err, before = io.StringIO(), io.StringIO(), sorted(Path(places["cloud"]).parent.iterdir())
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), no_model() if row.early else contextlib.nullcontext():
            try:
                code = cli.main(argv)
            except SystemExit as e:  # argparse, after --help
                code = int(e.code or 0)
        text = err.getvalue()
        assert code == row.code, f"exit code {code} instead of {row.code}; it said: {text[-500:]}"
        assert sorted(Path(places["cloud"]).parent.iterdir()) == before, "it wrote something"
        if code != 2:
            assert re.search(row.word, out.getvalue()), f"{row.word} is not in: {out.getvalue()[-500:]}"
            return f"exit code {code}"
        assert text.count("\n") == 1 and not out.getvalue(), f"not one line: {text[-500:]!r} {out.getvalue()[-200:]!r}"
        assert re.search(row.word, text), f"'{row.word}' is not in: {text[-500:]}"
        for value in (argument.partition("=")[2] or argument for argument in argv):
            text = text.replace(value, value[:12]) if len(value) > 100 else text  # text that the user typed may be long
        raise ForetokenError(text.rstrip("\n"))

    return do


@contextlib.contextmanager
def no_model() -> Iterator[None]:
    """Makes loading a model a failure."""
    refuse = AssertionError("a model was loaded before the command line was checked")
    with patch.object(backbones, "load", side_effect=refuse), patch.object(lowpoly, "load", side_effect=refuse):
        yield


def guard() -> None:
    """In a child: makes the checkout read-only and refuses long operations."""
    loop.Training.__post_init__ = _begins
    studio.build = _begins
    Disk(ROOT, ALWAYS, errno.EROFS).install()


def _begins(*_: object, **__: object) -> None:
    raise AssertionError("it was not refused: a training, or the studio, begins")


def test_the_table_of_command_lines(places: dict[str, str]) -> None:
    table = list(rows())
    assert len(table) >= FEWEST and len({row.argv for row in table}) == len(table)
    cases = [forked.Case(row.title, run_line(row, places)) for row in table]
    outcomes = forked.run(cases, guard, SECONDS)
    assert sum(o.end == "value" for o in outcomes) >= 10
    hold(outcomes)
