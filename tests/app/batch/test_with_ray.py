"""A batch through Ray: the size of the pool, and two actors, one of which is killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from app import cli
from app.batch.inputs import BatchInput
from app.batch.with_ray import ActorPool, check_address, error_in, parts, path_of_code, pool
from engine.errors import BadFile, NotSupported
from tests.app.batch.lists import CODE, ROOT, prompts, rows_of

HAS_RAY = find_spec("ray") is not None and find_spec("pyarrow") is not None
WORDS = ("apple", "cat", "dog", "fish", "star", "tree", "balloon", "house")


@pytest.mark.parametrize(
    ("resources", "inputs", "actors", "expected"),
    [
        ({"CPU": 16.0, "GPU": 4.0}, 100, None, ActorPool(4, 1, 1)),
        ({"CPU": 16.0, "GPU": 4.0}, 100, 2, ActorPool(2, 1, 1)),
        ({"CPU": 8.0}, 100, None, ActorPool(8, 1, 0)),
        ({"CPU": 8.0}, 3, None, ActorPool(3, 1, 0)),
        ({"CPU": 8.0}, 100, 20, ActorPool(8, 1, 0)),
        ({}, 5, None, ActorPool(1, 1, 0)),
    ],
)
def test_the_pool(resources: dict, inputs: int, actors: int | None, expected: ActorPool) -> None:
    assert pool(resources, inputs, actors) == expected


@pytest.mark.parametrize(
    ("inputs", "at_once", "actors", "sizes"),
    [(5, 1, 2, [1] * 5), (10, 4, 2, [4, 4, 2]), (6, 8, 2, [3, 3]), (1, 8, 4, [1]), (9, 8, 2, [5, 4])],
)
def test_the_parts(inputs: int, at_once: int, actors: int, sizes: list[int]) -> None:
    entries = [BatchInput(i, f"a cat {i}") for i in range(inputs)]
    slices = parts(entries, at_once, actors)
    assert [len(part) for part in slices] == sizes and [entry for part in slices for entry in part] == entries


def test_actors_find_this_code_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert path_of_code() == f"{ROOT}{os.pathsep}elsewhere"


def test_an_error_of_ours_is_found_in_the_text_of_an_actors_end() -> None:
    error = error_in(
        'The actor died.\n  File "x.py", line 50\n    raise BadFile("..")\nengine.errors.BadFile: This machine does not see it.\n'
    )
    assert type(error) is BadFile and str(error) == "This machine does not see it."
    assert error_in("The actor died.\nModuleNotFoundError: No module named 'engine.errors'") is None
    assert error_in("engine.errors.Elsewhere: made up") is None


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nonsense", "127.0.0.1:999999", "http://[", ":6379", ""])
def test_a_cluster_that_does_not_answer_is_a_sentence_at_once(address: str) -> None:
    with pytest.raises(NotSupported, match=r"^Ray cannot be used at .*Start it with `ray start --head`, or leave ADDRESS out\.$"):
        check_address(address)


def test_a_cluster_that_answers_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")
    check_address("local")
    check_address("auto")


BLIND = """
import sys
from pathlib import Path
from app.batch.folder import BatchFolder
from app.batch.inputs import Entry
from app.batch.plan import Plan
from app.batch.with_ray import Cluster
from engine.errors import BadFile

plan = Plan("toy", None, None, "float32", "ar", "ar", {}, {}, None, "auto", ("glb",))
with Cluster("local", plan, BatchFolder(Path(sys.argv[1])), 1) as cluster:
    try:
        list(cluster.rows([Entry(1, "a cat", key="1")]))
    except BadFile as e:
        print(e)
"""


@pytest.mark.skipif(not HAS_RAY, reason="Ray Data is not installed: pip install 'ray[data]>=2.60,<2.64'")
def test_a_machine_that_does_not_see_the_folder_ends_the_batch_with_a_sentence(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", BLIND, str(tmp_path / "away")], cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"This machine does not see {tmp_path / 'away'}. Give --out a folder" in done.stdout.splitlines()[-1], done.stderr


@pytest.mark.skipif(HAS_RAY, reason="Ray is installed here")
def test_without_ray_it_says_what_to_install(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    command = [
        "batch",
        str(prompts(tmp_path, ["a red apple"])),
        "--out",
        str(tmp_path / "out"),
        "--method",
        "sjdpp",
        "--size",
        "64",
        "--ray",
    ]
    assert cli.main(command) == 2
    assert "Install it" in capsys.readouterr().err


@pytest.mark.skipif(not HAS_RAY, reason="Ray Data is not installed: pip install 'ray[data]>=2.60,<2.64'")
@pytest.mark.parametrize("at_once", ["1", "4"])
def test_an_actor_is_killed_and_nothing_is_lost_or_made_twice(at_once: str, tmp_path: Path) -> None:
    inputs = prompts(tmp_path, [f"{n} {word}" for word in WORDS for n in ("one", "two", "three")])
    out = tmp_path / "out"
    options = ["--method", "sjdpp", "--size", "64", "--dtype", "float32", "--at-once", at_once]
    command = ["batch", str(inputs), "--out", str(out), *options, "--ray", "--actors", "2"]
    running = subprocess.Popen(
        [sys.executable, "-c", CODE, *command], cwd=ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    output, killed = [], 0
    for line in running.stderr:
        output.append(line)
        if not killed and " done · " in line and (lines := list(rows_before(out))):
            killed = lines[0]
            os.kill(killed, signal.SIGKILL)
    running.stderr.close()
    assert running.wait() == 0, "".join(output)
    assert killed
    rows = rows_of(out)
    results = list(out.glob("results/*/row.json"))
    assert [row["status"] for row in rows] == ["done"] * 24 and len(results) == len({row["hash"] for row in rows}) == 24
    processes = {int(row["process"].rpartition(":")[2]) for row in rows}
    assert killed in processes and len(processes) >= 2 and not list(out.rglob(".part-*/row.json"))


def rows_before(out: Path):
    """Processes that have made a result so far."""
    import json

    for path in out.glob("results/*/row.json"):
        yield int(json.loads(path.read_text(encoding="utf-8"))["process"].rpartition(":")[2])
