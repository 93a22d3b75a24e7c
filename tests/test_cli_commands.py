"""The commands as a whole: their options, their help, and the effect of Ctrl-C on each."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from app import cli
from research.commands import bench

ROOT = Path(__file__).resolve().parent.parent
MODEL = {"--backbone", "--device", "--dtype", "--weights"}
SAMPLING = {"--temperature", "--top-k", "--top-p"}
RUN = {"--method", "--set", "--verify", "--seed", "--compare", "--out", "--json"}
TABLE = {"--methods", "--sweep", "--grid", "--set", "--verify", "--count", "--repeats", "--judge", "--csv", "--sheet", "--figure", "--json"}
OPTIONS = {  # the public ones; removing one breaks users' scripts
    "studio": MODEL
    | {"--port", "--host", "--api-key-file", "--allow-host", "--no-browser", "--data", "--keep", "--mcp", "--any-model", "--root-path"},
    "image": MODEL | SAMPLING | RUN | {"--guidance", "--size", "--from", "--at", "--token"},
    "mesh": MODEL
    | SAMPLING
    | RUN
    | {"--guide", "--faces", "--about", "--up", "--formats", "--best-of", "--shrinkwrap", "--baseline", "--from", "--at", "--token"},
    "batch": MODEL
    | SAMPLING
    | (RUN - {"--compare"})
    | {"--guide", "--guidance", "--size", "--faces", "--about", "--up", "--formats", "--shrinkwrap"}
    | {"--retries", "--no-sheet", "--ray", "--actors", "--at-once"},
    "verify": {"--full", "--json", "--others", "--dispatch", "--draws", "--mutation", "--seed", "--ceiling"},
    "bench image": MODEL | SAMPLING | TABLE | {"--guidance", "--size", "--prompts"},
    "bench mesh": MODEL | SAMPLING | TABLE | {"--guide", "--faces", "--size", "--about", "--up", "--packs", "--seeds"},
    "bench generate": {"--size", "--tokens", "--window", "--method", "--guidance", "--repeats", "--device", "--dtype", "--csv", "--json"},
    "bench kernels": {"--only", "--csv", "--json"},
    "bench expected": MODEL | {"--count", "--write", "--json"},
    "bench weights": MODEL | {"--count", "--tokens", "--write", "--csv", "--json"},
    "bench cpu": {"--threads", "--csv", "--json"},
    "bench gpu": {"--first", "--tokens", "--csv", "--json"},
    "models": {"--json"},
    "export": {"--out", "--json"},
    "space": {"--name", "--hardware", "--json"},
    "doctor": {"--json", "--again", "--model"},
}


@pytest.mark.parametrize("command", OPTIONS)
def test_the_options_of_a_command(command: str) -> None:
    room = "app" if command in cli.COMMANDS and command not in cli.RESEARCH else "research"
    kind = command.removeprefix("bench ")
    own = bench.parser_of(kind) if kind != command else importlib.import_module(f"{room}.commands.{command}").parser()
    options = own._option_string_actions
    assert set(options) - {"-h", "--help"} == OPTIONS[command]


def test_help_names_every_command_and_each_has_its_own(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(f"\n  {name} " in overview for name in cli.COMMANDS)
    for command in (*([name] for name in cli.COMMANDS if name not in ("test", "train")), ["bench", "image"], ["bench", "mesh"]):
        with pytest.raises(SystemExit) as end:
            cli.main([*command, "--help"])
        assert end.value.code == 0 and f"launch.py {' '.join(command)}" in capsys.readouterr().out
    assert cli.main(["train", "--help"]) == 0
    assert "pictogram-tokenizer" in capsys.readouterr().out


def test_help_loads_nothing_heavy() -> None:
    """A fact instead of a time: printing help imports neither PyTorch nor Gradio nor numpy."""
    code = (
        "import sys\nfrom app import cli\n"
        "for words in (['--help'], ['image', '--help'], ['bench', 'mesh', '--help'], ['studio', '--help']):\n"
        "    try:\n        cli.main(words)\n    except SystemExit:\n        pass\n"
        "print(sorted({'torch', 'gradio', 'numpy', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_what_is_measured_may_stand_behind_options(capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["bench", "--methods", "sjdp", "image"]) == 2
    assert "Did you mean" in capsys.readouterr().err


def test_the_studio_gets_what_was_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder is passed with the name from its card or its form."""
    from app.server import studio

    launches: list[tuple] = []
    monkeypatch.setattr(studio, "launch", lambda *arguments, allowed_hosts, **named: launches.append((*arguments, allowed_hosts)))
    folders = {"lowpoly": tmp_path / "mesh", "janus": tmp_path / "checkpoint"}
    for folder in folders.values():
        folder.mkdir()
    (folders["lowpoly"] / "card.json").write_text('{"name": "lowpoly"}')
    (folders["janus"] / "config.json").write_text('{"model_type": "janus"}')
    save_file({"weight": torch.ones(2)}, folders["janus"] / "model.safetensors")
    assert cli.main(["--port", "8123", "--no-browser", "--allow-host", "a.example", "--allow-host", "b.example"]) == 130
    for folder in folders.values():
        assert cli.main(["studio", "--backbone", str(folder), "--host", "127.0.0.1"]) == 130
    assert launches == [
        ("pictogram", None, "auto", 8123, "127.0.0.1", False, "auto", ["a.example", "b.example"]),
        *((name, str(folder), "auto", None, "127.0.0.1", True, "auto", []) for name, folder in folders.items()),
    ]


def test_the_studio_keeps_runs_where_and_as_many_as_was_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    from app.server import studio

    launches: list[dict] = []
    monkeypatch.setattr(studio, "launch", lambda *_, **named: launches.append(named))
    assert cli.main(["studio", "--data", str(tmp_path / "runs"), "--keep", "7"]) == 130
    assert launches[0]["data"] == tmp_path / "runs" and launches[0]["limits"].runs == 7
    (tmp_path / "file").write_text("")
    assert cli.main(["studio", "--data", str(tmp_path / "file")]) == 2
    error = capsys.readouterr().err
    assert "Cannot write in" in error and len(error.splitlines()) == 1 and len(launches) == 1


def test_a_comparison_is_in_seconds_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fast run ends sooner because it is shorter; each of its tokens took twice as long."""
    from app.commands import report
    from engine import run
    from engine.methods import METHODS

    class Finished:
        def __init__(self, method: object):
            self.seconds, self.tokens = (4.0, [1] * 100) if method is METHODS["ar"] else (2.0, [1] * 25)
            self.in_order = self.tokens

        def finish(self) -> Finished:
            return self

    monkeypatch.setattr(run, "generate", lambda backbone, method, prompt, knobs=None, name="": Finished(method))
    fast, summary = report.compare(None, METHODS["xspecmesh"], None, {}, "xspecmesh")
    assert len(fast.tokens) == 25
    assert summary == {"compare": {"method": "ar", "seconds": 4.0, "speedup": 0.5, "same_tokens": False}}


STOPPED = {  # where Ctrl-C strikes, by command
    "studio": ([], "app.server.studio.launch"),
    "image": (["image", "a red cat"], "engine.backbones.load"),
    "mesh": (["mesh", str(ROOT / "assets/examples/clouds/chair.ply")], "engine.backbones.load"),
    "verify": (["verify", "sjd"], "research.exactness.exactness.verify"),
    "bench image": (["bench", "image"], "research.bench.plan.prepare"),
    "bench mesh": (["bench", "mesh"], "engine.backbones.lowpoly.load"),
    "train": (["train", "judge"], "engine.backbones.pictogram.load_tokenizer"),
    "models": (["models"], "engine.networks.weights.read_card"),
    "doctor": (["doctor"], "engine.machine.machine_facts"),
    "test": (["test"], "subprocess.Popen"),
}


@pytest.mark.parametrize("command", STOPPED)
def test_an_interrupted_command_ends_with_130_and_says_nothing(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    arguments, place = STOPPED[command]

    def strike(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, strike)
    assert cli.main(arguments) == 130
    captured = capsys.readouterr()
    assert captured.err == "" and "Traceback" not in captured.out


@pytest.mark.skipif(os.name == "nt", reason="a signal is sent")
def test_ctrl_c_in_a_running_benchmark(tmp_path: Path) -> None:
    """A separate process, interrupted while it measures: it has printed the current input."""
    code = "from app.cli import main_from_command_line; main_from_command_line()"
    command = ["bench", "mesh", "--methods", "sjdpp", "--count", "4", "--csv", str(tmp_path / "rows.csv")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, "-c", code, *command], cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True) as running:
        progress = next(line for line in running.stderr if line.startswith("input 1 of"))
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert progress and running.returncode == 130 and "Traceback" not in rest


def parsers_with_a_device() -> dict[str, Any]:
    """The parsers of the commands and kinds of bench that take --device, by module."""
    names = [(room, path.stem) for room in ("app", "research") for path in sorted((ROOT / room / "commands").glob("*.py"))]
    modules = {name: importlib.import_module(f"{room}.commands.{name}") for room, name in names if name != "__init__"}
    parsers = {name: module.parser() for name, module in modules.items() if hasattr(module, "parser")}
    parsers |= {f"bench {name}": bench.parser_of(name) for name in bench.KINDS}
    return {name: parser for name, parser in parsers.items() if any(a.dest == "device" for a in parser._actions)}


def test_every_command_that_takes_a_device_takes_it_from_the_same_words() -> None:
    parsers = parsers_with_a_device()
    assert set(parsers) >= {"image", "mesh", "studio", "bench image", "bench mesh", "bench generate"}
    for parser in parsers.values():
        action = next(a for a in parser._actions if a.dest == "device")
        assert (action.default, action.choices) == ("auto", ["auto", "cpu", "cuda", "mps"])


def test_the_studio_serves_on_what_auto_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the GPU where PyTorch sees one; a CPU keeps a core for the server."""
    from app.server import studio

    launches: list[tuple] = []

    def prepare(*arguments: object, weights: str, measures: bool) -> None:
        launches.append((*arguments, weights))
        raise KeyboardInterrupt

    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path))
    monkeypatch.setattr(studio, "prepare", prepare)
    monkeypatch.setattr(studio.os, "cpu_count", lambda: 6)
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        with pytest.raises(KeyboardInterrupt):
            studio.launch(open_browser=False)
    assert launches == [("pictogram", None, "cuda", "auto", 5, "auto"), ("pictogram", None, "cpu", "auto", 5, "auto")]
    monkeypatch.setattr(studio.os, "cpu_count", lambda: 1)
    assert studio.spare_core() == 1
