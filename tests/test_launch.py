"""launch.py: its decisions as pure functions, and one real start with a virtual environment that needs no installation."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import launch

ROOT = Path(launch.__file__).parent
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CONSTRAINTS = (ROOT / "constraints.txt").read_text(encoding="utf-8")
TESTED = ("install", "-c", "constraints.txt")
CPU_TORCH = (*TESTED, "torch==2.13.0", "--extra-index-url", "https://download.pytorch.org/whl/cpu")
PLAIN_TORCH = (*TESTED, "torch==2.13.0")
TOOLS = (*TESTED, "setuptools>=77")
NEW = "580.65.06"  # a driver that runs every build
FILES = ("launch.py", "pyproject.toml", "constraints.txt")  # the files that a start reads


def decide(*argv: str, python=(3, 11), driver="", stamp="", pyproject=PYPROJECT, constraints=CONSTRAINTS, system="linux") -> launch.Plan:
    """The plan on a Linux machine without a GPU unless told otherwise."""
    return launch.decide(python, argv, bool(driver), lambda: driver, stamp, pyproject, constraints, system)


def project(plan: launch.Plan) -> str:
    """Packages of the last call of pip."""
    return plan.steps[-1][0][-1]


def test_first_start_without_gpu():
    torch, tools, rest = decide().steps
    assert torch[0][:6] == CPU_TORCH  # alone, from the CPU index as an extra source, asked once
    assert torch[0][6:] == ("--timeout", "15", "--retries", "0")
    assert torch[1] == PLAIN_TORCH  # and without it, should pip stumble over it
    assert tools == (TOOLS,)
    assert rest == ((*TESTED, "--no-build-isolation", "-e", "."),)  # built with the setuptools of the line above


def test_first_start_with_gpu():
    torch, tools, rest = decide(driver=NEW).steps
    assert torch == (PLAIN_TORCH,)
    assert tools == (TOOLS,)
    assert rest == ((*TESTED, "--no-build-isolation", "-e", ".[cuda]"),)
    assert project(decide(driver=NEW, system="win32")) == "."  # Triton is for Linux


@pytest.mark.parametrize(
    ("driver", "system", "build"),
    [("580.65.06", "win32", "cu130"), ("575.51", "linux", "cu128"), ("570", "win32", "cu128"), ("535.129.03", "linux", "cu126")],
)
def test_a_driver_gets_a_build_that_it_runs_from_an_index_that_has_it(driver, system, build):
    plan = decide(driver=driver, system=system)
    index = ("--extra-index-url", f"https://download.pytorch.org/whl/{build}")
    assert plan.torch == build and plan.steps[0] == ((*TESTED, f"torch==2.13.0+{build}", *index),)  # no second attempt without CUDA
    assert not decide(driver=NEW, system=system, stamp=plan.stamp).steps, "an installed build stays when the driver is renewed"
    spoken = decide("--torch", "cpu", driver=driver, system=system)
    assert decide("--torch", "cuda", driver=driver, system=system, stamp=spoken.stamp).torch == build


def test_a_driver_that_is_too_old_is_one_sentence():
    plan = decide(driver="470.256.02")
    assert "needs driver 525 or newer; this machine has 470.256.02" in plan.refusal and not plan.steps
    assert decide("--torch", "cpu", driver="470.256.02").steps and decide("--torch", "cu126", driver="470.256.02").steps


@pytest.mark.parametrize(("printed", "version"), [("580.65.06\n580.65.06\n", "580.65.06"), ("NVIDIA-SMI has failed\n", ""), ("", "")])
def test_the_driver_is_read_from_nvidia_smi(printed, version, tmp_path, monkeypatch, capsys):
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nprintf '{printed}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.nvidia_driver() == version
    assert bool(version) != ("reports no driver" in capsys.readouterr().err), "the processor is never taken in silence"
    assert launch.decide((3, 11), [], True, lambda: version, "", PYPROJECT, CONSTRAINTS).torch == ("cu130" if version else "cpu")
    monkeypatch.setenv("PATH", "")
    assert launch.nvidia_driver() == ""


def test_torch_option_overrides_what_is_seen():
    assert decide("--torch", "cpu", driver=NEW).steps[0][0][:6] == CPU_TORCH
    assert decide("--torch=cuda").steps[0] == (PLAIN_TORCH,)


def test_torch_skip_installs_everything_else():
    plan = decide("--torch", "skip", "test")
    everything = [argument for attempts in plan.steps for call in attempts for argument in call]
    assert not any(argument.startswith(("torch", "triton")) for argument in everything)
    assert any(argument.startswith("gradio") for argument in everything)
    assert any(argument.startswith("pytest") for argument in everything)
    assert plan.steps[-1] == (("install", "--no-deps", "--no-build-isolation", "-e", "."),)
    assert not plan.isolated


@pytest.mark.parametrize("torch", launch.TORCH_CHOICES)
def test_every_step_installs_the_tested_versions(torch):
    calls = [call for attempts in decide("--torch", torch, "test").steps for call in attempts]
    assert [call for call in calls if call[1:3] != ("-c", "constraints.txt") and "--no-deps" not in call] == []


@pytest.mark.parametrize("torch", launch.TORCH_CHOICES)
def test_latest_upgrades_and_knows_no_constraints(torch):
    calls = [call for attempts in decide("--latest", "--torch", torch, "test").steps for call in attempts]
    assert [call for call in calls if "constraints.txt" in call] == []
    assert [call for call in calls if "--upgrade" not in call and "--no-deps" not in call] == []


def test_latest_upgrades_what_others_need_but_never_a_torch_that_is_yours():
    assert "eager" in decide("--latest").steps[-1][0]
    assert not any("eager" in call for attempts in decide("--latest", "--torch", "skip").steps for call in attempts)


def test_going_from_the_tested_versions_to_the_latest_and_back_installs_again():
    tested, latest = decide().stamp, decide("--latest").stamp
    assert decide("--latest", stamp=tested).steps
    assert decide(stamp=latest).steps
    assert not decide("--latest", stamp=latest).steps
    assert not decide("--latest", stamp=latest, constraints=CONSTRAINTS + "# changed").steps  # nothing of it was used


def test_without_constraints_only_the_latest_can_be_installed():
    plan = decide("doctor", constraints="")
    assert plan.refusal == "constraints.txt is missing. Restore it with git, or install the newest versions with --latest."
    assert not plan.steps
    assert decide("--latest", constraints="").steps


@pytest.mark.parametrize("value", ["rocm", ""])
def test_bad_torch_is_one_sentence(value):
    refusal = decide(f"--torch={value}", "doctor").refusal
    assert refusal == f"--torch cannot be '{value}'. Choose one of: cpu, cuda, cu126, cu128, cu130, mps, skip."
    assert decide("--torch").refusal


@pytest.mark.parametrize("version", [(2, 7, 18), (3, 8, 0), (3, 10, 13, "final", 0)])
def test_old_python_is_one_sentence(version):
    plan = decide(python=version)
    assert "needs Python 3.11" in plan.refusal
    assert f"this is {version[0]}.{version[1]}." in plan.refusal
    assert not plan.steps


def test_old_python_can_read_the_file():
    tree = ast.parse((ROOT / "launch.py").read_text(encoding="utf-8"), feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) == {"app"}


@pytest.mark.parametrize(
    ("argv", "arguments"),
    [
        ((), ("studio",)),
        (("--port", "7861"), ("studio", "--port", "7861")),
        (("--torch", "cpu", "image", "a red apple", "--json"), ("image", "a red apple", "--json")),
        (("test", "-k", "launch", "--torch", "x"), ("test", "-k", "launch", "--torch", "x")),  # behind the command: not ours
        (("--dry-run", "doctor"), ("doctor",)),
        (("--latest", "--torch", "cpu", "doctor"), ("doctor",)),
    ],
)
def test_arguments_for_the_command_line(argv, arguments):
    assert decide(*argv).arguments == arguments


def test_stamp_makes_the_second_start_idle():
    first = decide()
    assert first.steps
    second = decide("doctor", stamp=first.stamp)
    assert not second.steps
    assert second.arguments == ("doctor",)


@pytest.mark.parametrize(
    "change",
    [
        {"python": (3, 12)},
        {"pyproject": PYPROJECT + "\n# changed"},
        {"constraints": CONSTRAINTS + "\n# changed"},
        {"driver": NEW},
        {"stamp": "{broken"},
        {"stamp": "[]"},
        {"stamp": ""},
    ],
)
def test_stamp_is_void(change):
    assert decide(**({"stamp": decide().stamp} | change)).steps


def test_test_extras_are_added_once_and_stay():
    plain = decide().stamp
    tests = decide("test", stamp=plain)
    assert project(tests) == ".[test]" and project(decide("papers", stamp=plain)) == ".[research]"
    assert not decide("test", stamp=tests.stamp).steps
    assert not decide("studio", stamp=tests.stamp).steps  # more than needed is fine
    assert project(decide("studio", stamp=tests.stamp, pyproject=PYPROJECT + "\n")) == ".[test]"


def test_another_torch_replaces_the_old_one():
    steps = decide(stamp=decide().stamp, driver=NEW).steps
    assert steps[:2] == ((("uninstall", "-y", "torch"),), (PLAIN_TORCH,))
    assert project(decide("--torch", "cpu", stamp=decide(driver=NEW).stamp)) == "."  # and Triton is no longer asked for


def test_a_spoken_choice_of_torch_is_kept():
    skip = decide("--torch", "skip").stamp
    assert not decide(stamp=skip, driver=NEW).steps
    assert decide("--torch", "cuda", stamp=skip).steps[0] == (PLAIN_TORCH,)  # what the user brought is not uninstalled


@pytest.mark.parametrize(
    ("inside", "exists", "entered", "where"),
    [
        (True, True, False, "stay"),
        (True, True, True, "stay"),
        (False, True, False, "enter"),
        (False, False, False, "make"),
        (False, True, True, "lost"),  # entered and still outside: never a loop
    ],
)
def test_route(inside, exists, entered, where):
    assert launch.route(inside, exists, entered) == where


def test_failing_pip_is_one_sentence_and_leaves_no_stamp(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(launch, "pip", lambda arguments, folder: calls.append(arguments))
    stamp = tmp_path / "stamp.json"
    stamp.write_text("{}")
    sentence = launch.install(decide(), str(tmp_path), str(stamp))
    assert "Installation failed at 'pip install -c constraints.txt torch==2.13.0'" in sentence
    assert "add --latest" in sentence
    assert [tuple(call[:6]) for call in calls] == [CPU_TORCH, PLAIN_TORCH]  # the extra index, then without; nothing after
    assert not stamp.exists()
    assert "--latest" not in launch.install(decide("--latest"), str(tmp_path), str(stamp))  # no way out of what was chosen


def test_an_installation_shows_its_steps_and_keeps_pip_in_a_log(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(launch.sys, "executable", shutil.which("echo"))  # its output is what pip would have been asked
    assert launch.install(decide("test"), str(tmp_path), str(tmp_path / "stamp.json")) == ""
    shown = capsys.readouterr().err
    assert "1 of 3: PyTorch 2.13.0 for the processor" in shown and "2 of 3: the tools" in shown and "3 of 3: Foretoken" in shown
    assert "-m pip" not in shown and (tmp_path / launch.LOG).read_text().count("-m pip") == 3


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("Downloading a.whl (1.5 MB)\nDownloading b.whl (500.0 kB)\nSuccessfully installed a-1 b-2\n", "2 packages, 2 MB"),
        ("Processing a.whl\nSuccessfully installed a-1\n", "1 package"),
        ("Downloading torch.whl (2.1 GB)\nSuccessfully installed torch-2\n", "1 package, 2,100 MB"),
        ("Requirement already satisfied: a\n", "nothing new"),
    ],
)
def test_what_a_step_fetched(output, line):
    assert launch.install_summary(output) == line


def test_stamp_is_written_when_all_went_well(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "pip", lambda arguments, folder: True)
    plan = decide("test")
    assert launch.install(plan, str(tmp_path), str(tmp_path / "stamp.json")) == ""
    assert json.loads((tmp_path / "stamp.json").read_text())["extras"] == ["test"]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout with a complete .venv, whose app.cli only prints its arguments."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    (folder / "app").mkdir()
    (folder / "app" / "__init__.py").touch()  # else a regular package `app` on PYTHONPATH would win
    (folder / "app" / "cli.py").write_text("import sys\ndef main(argv):\n    print(sys.prefix, *argv, sep='|')\n    return 7\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True)
    plan = launch.decide(sys.version_info, (), shutil.which("nvidia-smi") is not None, launch.nvidia_driver, "", PYPROJECT, CONSTRAINTS)
    (folder / ".venv" / "foretoken-stamp.json").write_text(plan.stamp)
    return folder


def start(checkout: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess:
    """Runs the launcher of a checkout with this Python."""
    command = [sys.executable, checkout / "launch.py", *arguments]
    return subprocess.run(command, env=os.environ | env, cwd=checkout.parent, capture_output=True, text=True, timeout=60)


def test_second_start_enters_the_environment_at_once(checkout):
    """It only compares a stamp: the environment's Python is called once, and never for pip."""
    done = start(checkout, "image", "a red apple", "--json")
    assert done.stdout.strip() == f"{checkout / '.venv'}|image|a red apple|--json" and done.stderr == ""
    assert done.returncode == 7


def test_guard_ends_a_loop(checkout):
    done = start(checkout, launch.ENTERED, "doctor")
    assert done.returncode == 1
    assert "does not run inside .venv" in done.stderr


def test_dry_run_and_help_touch_nothing(tmp_path):
    for name in FILES:
        shutil.copy(ROOT / name, tmp_path)
    done = start(tmp_path, "--torch", "cpu", "--dry-run", "test", "-q")
    assert done.stdout.splitlines()[0] == "python -m venv .venv"
    assert done.stdout.splitlines()[-1] == "then: app.cli test -q"
    assert "usage: python launch.py" in start(tmp_path, "--help").stdout
    assert not (tmp_path / ".venv").exists()
