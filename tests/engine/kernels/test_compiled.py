"""The kernels compiled for six compute capabilities, without one. In a separate process, because here they are interpreted."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.dispatch.language import is_interpreted, version
from engine.errors import NotSupported
from research.bench import kernels

ROOT = Path(__file__).resolve().parents[3]
needs_compiler = pytest.mark.skipif(version() is None, reason="Triton is not installed here")


@needs_compiler
def test_every_kernel_compiles_and_verify_spills_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "app.cli", "bench", "kernels", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    rows = [row for row in json.loads(done.stdout.splitlines()[-1]) if "registers" in row]
    assert {row["kernel"] for row in rows} == set(kernels.KERNELS)
    programs = sum(map(len, kernels.KERNELS.values()))
    assert len(rows) == programs * 6 and {row["capability"] for row in rows} == {"8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}
    assert [row for row in rows if row["kernel"] == "verify" and row["spilled_bytes"]] == []
    for row in rows:
        assert 0 < row["registers"] <= 255 and row["shared_bytes"] <= 99 * 1024, row  # the least of these GPUs: 12.0


def test_every_kernel_is_in_the_table() -> None:
    files = {path for path in ROOT.glob("engine/*/*.py") if "@triton.jit" in path.read_text(encoding="utf-8")}
    names = {
        path.stem if path.parent.name == "kernels" else {"cache": "keep_rows"}.get(path.parent.name, path.parent.name) for path in files
    }
    assert names == set(kernels.KERNELS) == set(kernels.CASES) == {work.kernel for work in kernels.WORK}


def test_numbers_of_rows_are_not_compiled_into_a_program() -> None:
    """Windows shrink at the end of a picture: 1 row, or 16, must not compile a kernel again."""
    counts = {"rows", "drafts", "count", "start", "kept"}
    for program in (program for programs in kernels.KERNELS.values() for program in programs):
        exempt = program.function.do_not_specialize if not is_interpreted() else program.function.kwargs["do_not_specialize"]
        assert counts.intersection(program.function.arg_names) <= set(exempt or ()), program.function.fn.__name__


def test_the_page_names_every_kernel() -> None:
    page = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    assert [name for name in kernels.KERNELS if not re.search(rf"^\| `{name}` \|", page, re.MULTILINE)] == []


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(NotSupported, match="no kernel 'sort'"):
        kernels.select_kernels("verify,sort")
    assert kernels.select_kernels("verify, noise") == ["verify", "noise"]


@pytest.mark.skipif(not is_interpreted(), reason="kernels are not interpreted here")
def test_interpreted_kernels_are_not_compiled() -> None:
    with pytest.raises(NotSupported, match="TRITON_INTERPRET"):
        kernels.compile_program(kernels.KERNELS["noise"][0], 90)


def test_the_least_time_is_bytes_over_bandwidth() -> None:
    work = kernels.TypicalCall("verify", "a pass", 33_500_000)
    assert kernels.lower_bound(work, "H100") == pytest.approx(10.0)
