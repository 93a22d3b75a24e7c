"""`launch.py verify --mutation N`: the share of random one-line mutants of the engine that claims and tests detect.

mutmut and cosmic-ray run one test command for every mutant; here verify's claims and the choice of the nearest tests are most of the work,
so both would only replace the list of changes in line_mutants.py. Mutants are applied one by one in a temporary copy of the project.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from engine.errors import NotSupported
from research.exactness.line_mutants import LineMutant, line_mutants

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("decoding", "kernels", "methods", "transformers", "verify")
MOST = 1000  # mutants of a sample
SECONDS = 300  # of processor time for a mutant's claims and tests, at most
COPIED = ("app", "engine", "research", "tests", "launch.py", "pyproject.toml", "constraints.txt")
LINKED = ("assets", "docs", "README.md", "LICENSE", "CHANGELOG.md", "CONTRIBUTING.md")


@dataclass(frozen=True)
class MutantResult:
    """A mutant and what detected it: a claim, a test, or None. seconds : by the clock, with Python's start"""

    mutant: LineMutant
    detected_by: str | None
    seconds: float

    def text(self) -> str:
        """A row of the table in Markdown."""
        change = " -> ".join(" ".join(part.split()).replace("|", "\\|") for part in (self.mutant.before, self.mutant.after))
        return f"| {self.mutant.path}:{self.mutant.line} | `{change}` | {self.detected_by or '**survived**'} | {self.seconds:.0f} |"


HEADER = "| line | change | detected by | seconds |\n|---|---|---|--:|"


def sample(count: int, seed: int) -> list[LineMutant]:
    """Random mutants, each place of a change in ROOMS as likely as any other; the same for a seed and a state of the code."""
    files = sorted(path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / "engine" / room).rglob("*.py"))
    mutants = [mutant for path in files for mutant in line_mutants(ROOT, path)]
    return random.Random(seed).sample(mutants, count)


def measure(count: int, seed: int) -> Iterator[MutantResult]:
    """Results of a sample, one by one. Raises NotSupported where there are no tests, and AssertionError if a test that detected a mutant
    also fails without it."""
    if not (ROOT / "tests").is_dir():
        raise NotSupported("--mutation needs the tests, which are not installed. Run it in a clone of the repository.")
    detected = set()
    with tempfile.TemporaryDirectory(prefix="foretoken-mutants-") as folder, _server(_copy(Path(folder) / "tree")) as server:
        for mutant in sample(count, seed):
            result = server.run(mutant)
            detected.add(result.detected_by)
            yield result
        tests = sorted(name for name in detected if name and "::" in name)
        failing = server.call("failing_test", tests, SECONDS * len(tests)) if tests else None
        assert failing is None, f"{failing} fails without a mutant, so it detects nothing"


def _copy(tree: Path) -> Path:
    tree.mkdir()
    for name in COPIED:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy2)(ROOT / name, tree / name)
    for name in LINKED:
        (tree / name).symlink_to(ROOT / name)
    return tree


@dataclass(frozen=True)
class TestServer:
    """The copy of the project, and the process that runs tests in it."""

    copy: Path
    process: subprocess.Popen[str]

    def run(self, mutant: LineMutant) -> MutantResult:
        """Applies a mutant and runs the nearest tests."""
        start, source = time.monotonic(), ROOT / mutant.path
        (self.copy / mutant.path).write_bytes(mutant.apply(source.read_bytes()))
        detected_by = self.call("first_failure", mutant.path, SECONDS)
        shutil.copy2(source, self.copy / mutant.path)
        return MutantResult(mutant, detected_by, time.monotonic() - start)

    def call(self, function: str, argument: str | list[str], seconds: float) -> str | None:
        """The result of a function of nearest_tests.py."""
        self.process.stdin.write(json.dumps([function, argument, seconds]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextmanager
def _server(copy: Path) -> Iterator[TestServer]:
    """Bytecode of a mutant is not stored: two mutants of a file can have the same size and second."""
    variables = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    command = [sys.executable, "research/exactness/nearest_tests.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=copy, env=variables, text=True, **pipes) as process:
        try:
            yield TestServer(copy, process)
        finally:
            process.kill()
