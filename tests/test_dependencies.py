"""The run-time requirements are what app/ and engine/ import: nothing less, and nothing that only tests need."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OURS = {"app", "engine", "research", "integrations"}
OPTIONAL = {
    "triton",  # has wheels for Linux only, and comes with the CUDA build of PyTorch; see engine/dispatch/language.py
    "ray",  # 0.6 GB that only batches over many machines need; see app/batch/with_ray.py
    "matplotlib",  # only figures of research/ need it
    "jax",  # only rules of another project need it; see research/exactness/others/rules.py
    "pytest",  # only verify --mutation runs tests; see research/exactness/nearest_tests.py
    "imageio-ffmpeg",  # a large encoder that only the MP4 files of races need; see app/runs/video.py
}


def declared_requirements() -> set[str]:
    """Names of the run-time requirements."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {canonicalize_name(Requirement(text).name) for text in project["dependencies"]}


def imported_packages() -> set[str]:
    """Names of the third-party packages that app/ and engine/ import anywhere."""
    modules: set[str] = set()
    for path in (path for folder in OURS for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                modules.add(node.module.split(".")[0])
    owners = packages_distributions()
    foreign = modules - set(sys.stdlib_module_names) - OURS
    return {canonicalize_name(name) for module in foreign for name in owners.get(module, [module])}


def test_all_that_is_imported_is_declared() -> None:
    assert imported_packages() - declared_requirements() <= OPTIONAL


def test_all_that_is_declared_is_imported() -> None:
    assert declared_requirements() <= imported_packages()


def test_what_is_optional_is_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {canonicalize_name(Requirement(text).name) for group in project["optional-dependencies"].values() for text in group}
    assert extras >= OPTIONAL
