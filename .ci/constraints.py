"""Writes constraints.txt, the tested versions, from the packages installed in .venv; --check tests if it is current.

usage: .venv/bin/python .ci/constraints.py [--check]

It pins all direct and indirect dependencies of the project, its extras and its build that every system and Python of ENVIRONMENTS needs.
It omits PyTorch, which pyproject.toml pins, and packages that only some environments need (nvidia-*, triton, colorama), because the
others could not install them.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "constraints.txt"
SYSTEMS = (("linux", "Linux", "posix"), ("darwin", "Darwin", "posix"), ("win32", "Windows", "nt"))
PYTHONS = ("3.11", "3.14")
ENVIRONMENTS = tuple(
    {"sys_platform": platform, "platform_system": system, "os_name": os, "python_version": python, "python_full_version": f"{python}.0"}
    for platform, system, os in SYSTEMS
    for python in PYTHONS
)
PINNED_ELSEWHERE = frozenset({"torch"})
UNTESTED = frozenset({"ray", "lossless"})  # extras that the tests do not install, so no version of them is tested
HEADER = """\
# The versions that were tested. launch.py installs them, launch.py --latest the newest ones.
# Written by .ci/constraints.py; CI checks that it is current. PyTorch is pinned in pyproject.toml.
"""


class NotInstalled(Exception):
    """A package that every environment needs is not installed."""


def requirements(pyproject: str) -> list[str]:
    """All requirements in pyproject.toml: of the build, the project and its extras except UNTESTED."""
    settings = tomllib.loads(pyproject)
    extras = [wanted for name, wanted in settings["project"]["optional-dependencies"].items() if name not in UNTESTED]
    return [*settings["build-system"]["requires"], *settings["project"]["dependencies"], *(r for extra in extras for r in extra)]


def needed_versions(wanted: Iterable[str], environment: Mapping[str, str]) -> dict[str, str | None]:
    """Versions by name of all packages that the requirements need in an environment; None = not installed."""
    versions: dict[str, str | None] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(requirement, "") for requirement in wanted]  # (requirement, extra that adds it)
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        if requirement.marker and not requirement.marker.evaluate({**default_environment(), **environment, "extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for each in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, each))
            try:
                package = distribution(name)
            except PackageNotFoundError:
                versions[name] = None
                continue
            versions[name] = Version(package.version).public  # the index has no versions like +cpu
            waiting += [(r, each) for r in package.requires or ()]
    return versions


def pins(pyproject: str) -> dict[str, str]:
    """Versions by name, sorted, of the packages that every environment needs; raises NotInstalled."""
    wanted = requirements(pyproject)
    first, *others = (needed_versions(wanted, environment) for environment in ENVIRONMENTS)
    everywhere = {name: version for name, version in first.items() if all(name in other for other in others)}
    missing = [name for name, version in everywhere.items() if version is None]
    if missing:
        raise NotInstalled(f"{', '.join(sorted(missing))} is not installed. Start first: python launch.py test")
    return {name: version for name, version in sorted(everywhere.items()) if version and name not in PINNED_ELSEWHERE}


def read(text: str) -> dict[str, str]:
    """Versions by name of a constraints file."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("==") for line in lines if line and not line.startswith("#"))
    return {name: version for name, _, version in pairs}


def differences(written: Mapping[str, str], installed: Mapping[str, str]) -> list[str]:
    """A phrase for each difference between constraints.txt and the installed packages."""
    names = sorted({*written, *installed})
    wrong = [(name, written.get(name), installed.get(name)) for name in names if written.get(name) != installed.get(name)]
    return [
        f"{name} {here} is installed and has no line" if pinned is None
        else f"{name}=={pinned} is pinned and nothing needs it" if here is None
        else f"{name}=={pinned} is pinned and {here} is installed"
        for name, pinned, here in wrong
    ]  # fmt: skip


def main(argv: list[str]) -> int:
    """Writes or checks; returns the exit code."""
    parser = argparse.ArgumentParser(description="Writes constraints.txt from the installed packages.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if the file is not current")
    options = parser.parse_args(argv)
    try:
        installed = pins((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    except NotInstalled as e:
        print(e, file=sys.stderr)
        return 1
    if not options.check:
        FILE.write_text(HEADER + "".join(f"{name}=={version}\n" for name, version in installed.items()), encoding="utf-8")
        print(f"{FILE.name}: {len(installed)} versions")
        return 0
    wrong = differences(read(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}, installed)
    if wrong:
        print(f"constraints.txt is not current: {'; '.join(wrong)}. Write it again: .venv/bin/python .ci/constraints.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
