"""constraints.txt: well formed, consistent with pyproject.toml, and written and checked by .ci/constraints.py."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = """
[build-system]
requires = ["builder"]
[project]
dependencies = ["torch==2.0", "page[nice]>=1"]
[project.optional-dependencies]
test = ["checker; sys_platform == 'linux'", "tester"]
"""
INSTALLED = {  # name: version, requirements
    "builder": ("80.0", ()),
    "torch": ("2.0+cpu", ("sums", "nvidia-sums; platform_system == 'Linux'")),
    "sums": ("1.1+local", ()),
    "nvidia-sums": ("9", ()),
    "page": ("1.5", ("Server", "colours; sys_platform == 'win32'", "sound; python_version >= '3.13'", "secret; extra == 'other'")),
    "server": ("3", ("Old.Loop; extra == 'fast'",)),
    "checker": ("4", ()),
    "tester": ("5", ("server[fast]",)),
    "old-loop": ("0.7", ("server",)),  # a circle
    "sound": ("6", ()),
    "secret": ("7", ()),
    "unasked": ("8", ()),
}


def the_script() -> ModuleType:
    """.ci/constraints.py as a module; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("constraints", ROOT / ".ci" / "constraints.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script in a separate folder, where INSTALLED lists the installed packages."""
    module = the_script()

    def distribution(name: str) -> SimpleNamespace:
        if name not in INSTALLED:
            raise PackageNotFoundError(name)
        version, requires = INSTALLED[name]
        return SimpleNamespace(version=version, requires=list(requires))

    monkeypatch.setattr(module, "distribution", distribution)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "FILE", tmp_path / "constraints.txt")
    (tmp_path / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    return module


def test_every_line_is_one_public_version_that_any_system_has() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    names = [line.partition("==")[0] for line in lines]
    assert names == sorted(set(names))
    assert [line for line in lines if re.match(r"torch|triton|nvidia-|cuda-|colorama", line)] == []


def test_every_requirement_of_the_project_has_a_version_that_fits() -> None:
    module = the_script()
    pinned = module.read((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    requirements = [Requirement(text) for text in module.requirements((ROOT / "pyproject.toml").read_text(encoding="utf-8"))]
    requirements = [each for each in requirements if each.name not in ("torch", "triton")]  # pinned in pyproject.toml
    assert len(requirements) > 12
    assert [each for each in requirements if not each.specifier.contains(pinned.get(canonicalize_name(each.name), "0"))] == []


def test_pins_are_what_every_system_and_python_needs(script: ModuleType) -> None:
    assert script.pins(PYPROJECT) == {"builder": "80.0", "old-loop": "0.7", "page": "1.5", "server": "3", "sums": "1.1", "tester": "5"}


def test_what_is_needed_must_be_installed(script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.delitem(INSTALLED, "tester")
    assert script.main([]) == 1
    assert capsys.readouterr().err == "tester is not installed. Start first: python launch.py test\n"


def test_what_was_written_is_current_until_something_changes(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    assert script.main([]) == 0
    assert script.read(script.FILE.read_text(encoding="utf-8")) == script.pins(PYPROJECT)
    assert script.main(["--check"]) == 0
    monkeypatch.setitem(INSTALLED, "server", ("3.1", ("newcomer",)))
    monkeypatch.setitem(INSTALLED, "newcomer", ("1", ()))
    capsys.readouterr()
    assert script.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "constraints.txt is not current: newcomer 1 is installed and has no line; old-loop==0.7 is pinned and nothing needs it; "
        "server==3 is pinned and 3.1 is installed. Write it again: .venv/bin/python .ci/constraints.py\n"
    )


def test_a_missing_file_is_not_current(script: ModuleType, capsys: pytest.CaptureFixture) -> None:
    assert script.main(["--check"]) == 1
    assert "builder 80.0 is installed and has no line" in capsys.readouterr().err
