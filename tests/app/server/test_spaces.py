"""The folder of `launch.py space`: its content, refusals, and a server started from it in a clean environment."""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import pytest
from gradio_client import Client, handle_file

import launch
from app.cli import main
from app.limits import LOCAL, SHARED
from app.server import space_folder, spaces
from engine.errors import BadOutput, NotSupported
from tests.app.conftest import START_LIMIT, wait_for

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder to push."""
    out = tmp_path_factory.mktemp("space") / "foretoken"
    space_folder.make(out, "someone/foretoken")
    return out


def front(folder: Path) -> dict[str, str]:
    """The front matter of a folder's README."""
    _, matter, _ = (folder / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    return dict(line.split(": ", 1) for line in matter.splitlines())


# ---------------------------------------------------------------- what is in it


def test_the_front_matter_names_the_tested_gradio_and_what_the_hub_shows(folder):
    fields = front(folder)
    assert fields["sdk"] == "gradio" and f"gradio=={fields['sdk_version']}" in (ROOT / "constraints.txt").read_text().splitlines()
    assert fields["license"] == "apache-2.0" and "Apache License" in (folder / "LICENSE").read_text()
    assert (folder / fields["app_file"]).exists() and len(fields["short_description"]) <= 60
    assert fields["python_version"] == '"3.11"' and fields["suggested_hardware"] == "cpu-basic"
    assert fields["thumbnail"].endswith("/someone/foretoken/resolve/main/thumbnail.jpg") and (folder / "thumbnail.jpg").exists()


def test_the_requirements_are_those_of_the_project_in_the_tested_versions(folder):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tested = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line and line[0] != "#")
    first, *lines = (folder / "requirements.txt").read_text().splitlines()
    assert first.split() == list(launch.CPU_INDEX[:2])
    wanted = {r.split(">")[0].split("=")[0].replace("_", "-") for r in project["dependencies"]}
    assert {line.split("==")[0] for line in lines} == wanted
    assert all(version == tested.get(name, version) for name, version in (line.split("==") for line in lines))
    assert next(line for line in lines if line.startswith("torch==")) in project["dependencies"]


def test_a_space_with_a_gpu_installs_pytorch_for_it_and_the_package_that_lends_it():
    text = space_folder.requirements((ROOT / "pyproject.toml").read_text(), (ROOT / "constraints.txt").read_text(), space_folder.ZERO)
    assert "index-url" not in text and "spaces" in text.splitlines()


def test_no_file_needs_large_file_storage_and_nothing_is_lacking(folder):
    sizes = {path.relative_to(folder): path.stat().st_size for path in folder.rglob("*") if path.is_file()}
    assert max(sizes.values()) <= 10 * 2**20
    for room in ("app", "engine", "research", "assets"):
        tracked = subprocess.run(["git", "ls-files", room], cwd=ROOT, capture_output=True, text=True)
        if tracked.returncode:
            pytest.skip("this is no checkout of git")
        assert {Path(line) for line in tracked.stdout.splitlines()} <= set(sizes)
    assert not [path for path in sizes if "__pycache__" in path.parts or path.parts[0] in ("tests", ".venv", ".git")]


# ---------------------------------------------------------------- what it refuses


def test_a_folder_that_is_not_empty_is_refused_in_one_sentence(tmp_path, capsys):
    (tmp_path / "letter.txt").write_text("dear")
    assert main(["space", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "is not empty. Choose a folder" in error and len(error.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    with pytest.raises(BadOutput, match="not empty"):
        space_folder.make(tmp_path / "letter.txt")


def test_an_empty_folder_is_filled_and_the_commands_are_printed(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(space_folder, "FOLDERS", {"docs/bench": (".csv",)})
    assert main(["space", str(tmp_path), "--name", "someone/foretoken"]) == 0
    text = capsys.readouterr().out
    assert (
        "hf repos create someone/foretoken --type space --space-sdk gradio" in text and f"hf upload someone/foretoken {tmp_path} ." in text
    )
    assert (tmp_path / "app.py").exists()


def test_a_file_that_is_too_large_is_refused_by_name_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(space_folder, "LARGEST", 1000)
    with pytest.raises(BadOutput, match=r"launch\.py has 0\.0 MB; a file of a Space"):
        space_folder.make(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_name_and_an_installed_package_are_refused(tmp_path, monkeypatch):
    with pytest.raises(NotSupported, match="Write OWNER/NAME"):
        space_folder.make(tmp_path / "out", "foretoken")
    monkeypatch.setattr(space_folder, "checkout", lambda: None)
    with pytest.raises(NotSupported, match="Clone the repository"):
        space_folder.make(tmp_path / "out")


# ---------------------------------------------------------------- which hardware


def test_the_gpu_is_borrowed_only_where_the_space_has_one_and_the_package(monkeypatch):
    lent = SimpleNamespace(GPU=lambda duration: None)
    monkeypatch.setitem(sys.modules, "spaces", lent)
    assert spaces.zero_gpu({}) is None and spaces.zero_gpu({"SPACES_ZERO_GPU": "false"}) is None
    assert spaces.zero_gpu({"SPACES_ZERO_GPU": "true"}) is lent.GPU
    monkeypatch.setitem(sys.modules, "spaces", None)  # its import raises ModuleNotFoundError
    importlib.invalidate_caches()
    assert spaces.zero_gpu({"SPACES_ZERO_GPU": "true"}) is None


# ---------------------------------------------------------------- a stranger's first minute


def free() -> int:
    """An unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def space(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of the running folder, and its log: a process of its own, started there as the hub starts it, which sees this machine's
    packages and nothing of this checkout."""
    home, port = tmp_path_factory.mktemp("home"), free()
    inherited = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    own = {"SPACE_ID": "someone/foretoken", "HOME": str(home), "OMP_NUM_THREADS": "1", "GRADIO_SERVER_PORT": str(port)}
    log = home / "log.txt"
    with log.open("w") as file:
        process = subprocess.Popen([sys.executable, "app.py"], cwd=folder, env=inherited | own, stdout=file, stderr=file)
    try:
        yield wait_for(process, log), log
    finally:
        process.terminate()
        process.wait(START_LIMIT)


def test_the_folder_serves_a_picture_and_a_mesh_to_a_stranger(space, folder, tmp_path):
    address, log = space
    client = Client(address, verbose=False, download_files=tmp_path)
    picture, totals = client.predict("two cats under a green balloon", size=64, api_name="/generate_image")
    assert Path(picture).stat().st_size > 1000 and totals["state"] == "done"
    cloud = folder / "assets" / "examples" / "clouds" / "table.ply"
    mesh, totals = client.predict(handle_file(str(cloud)), settings={"face_budget": 32}, api_name="/generate_mesh")
    assert Path(mesh).read_bytes()[:4] == b"glTF" and totals["faces"] > 0
    logged = log.read_text()
    assert "Traceback" not in logged and "Runs are not saved." in logged
    assert str(ROOT) not in logged
    client.close()


def test_the_page_says_what_is_true_there_and_offers_no_folders(space):
    with urlopen(f"{space[0]}/config", timeout=60) as answer:
        page = answer.read().decode()
    ids = {component["props"].get("elem_id") for component in json.loads(page)["components"]}
    assert SHARED in page and LOCAL not in page and str(ROOT) not in page
    assert "privacy" in ids and "import-path" not in ids
