"""The wheel: built, installed into a separate environment, and used from another folder.

PyTorch and the other packages come from the running environment, without its editable Foretoken: a .pth line adds a folder but does not
read the .pth files in it.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from PIL import Image

from tests.readme import ROOT, python_block, run_python

SOURCES = ("app", "engine", "research", "assets", "docs/bench", "pyproject.toml", "setup.py", "README.md", "LICENSE")
CARRIED = {
    "app": (".py", ".js", ".css"), "engine": (".py", ".c", ".h", ".toml"), "research": (".py", ".js"),
    "assets/models": (".json", ".safetensors"), "assets/examples": (".ply",),
    "docs/bench": (".csv",),
}  # fmt: skip
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def without_checkout() -> dict[str, str]:
    """The environment, without the checkout on the path."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def carry_out(*command: str | Path) -> None:
    """Runs a command that must succeed; pip must not take the checkout for an installation."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=without_checkout())
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without the network from a copy, so that the checkout neither gets leftovers nor adds its own."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "source").mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    carry_out(*PIP, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", folder, folder / "source")
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with python and foretoken of an environment into which the wheel is installed."""
    environment = tmp_path_factory.mktemp("environment")
    carry_out(sys.executable, "-m", "venv", "--without-pip", environment)
    folder = environment / ("Scripts" if os.name == "nt" else "bin")
    carry_out(*PIP, "--python", folder / "python", "install", "--no-deps", "--no-index", wheel)
    (packages,) = environment.rglob("site-packages")
    lent = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (packages / "lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    return folder


def test_it_carries_every_source_model_and_example(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    wanted = [path for folder, ends in CARRIED.items() for path in (ROOT / folder).rglob("*") if path.suffix in ends]
    named = [path.relative_to(ROOT).as_posix() for path in wanted if path.name != "clouds.py"]
    assert [
        name for name in named if re.sub("^docs/bench/", "foretoken_bench/", re.sub("^assets/", "foretoken_assets/", name)) not in inside
    ] == []
    assert {name.split("/")[0] for name in inside if ".dist-info" not in name} == {
        "app",
        "engine",
        "research",
        "foretoken_assets",
        "foretoken_bench",
    }


def test_what_is_imported_lies_in_the_new_environment(programs: Path, tmp_path: Path) -> None:
    code = "import app, engine; from engine import assets; print(app.__file__, engine.__file__, *assets.clouds().glob('*.ply'), sep='\\n')"
    files = run_python(programs / "python", code, tmp_path).splitlines()
    assert len(files) == 2 + len(list((ROOT / "assets" / "examples" / "clouds").glob("*.ply")))
    assert [file for file in files if not Path(file).is_relative_to(programs.parent)] == []


def test_readme_s_block_runs_from_another_folder(programs: Path, tmp_path: Path) -> None:
    assert re.fullmatch(r"256 tokens in \d+ passes\n", run_python(programs / "python", python_block(), tmp_path))
    with Image.open(tmp_path / "apple.png") as picture:
        assert picture.size == (128, 128)


def foretoken(programs: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """Runs the installed command in a folder."""
    command = [programs / "foretoken", *arguments]
    return subprocess.run(command, cwd=folder, env=without_checkout(), capture_output=True, text=True, timeout=120)


def test_the_command_knows_the_models(programs: Path, tmp_path: Path) -> None:
    done = foretoken(programs, tmp_path, "models", "--json")
    assert done.returncode == 0, done.stderr
    models = json.loads(done.stdout.splitlines()[-1])
    assert [name for name, row in models.items() if row["how"] == "shipped" and row["ready"]] == ["pictogram", "lowpoly"]


def test_the_command_says_that_tests_are_elsewhere(programs: Path, tmp_path: Path) -> None:
    done = foretoken(programs, tmp_path, "test")
    assert done.returncode == 2
    assert done.stderr.strip() == "The tests are not part of an installed Foretoken. Run 'python launch.py test' in a checkout."
