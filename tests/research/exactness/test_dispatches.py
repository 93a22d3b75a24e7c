"""`verify --dispatch`: every method commits the reference's tokens by every dispatch, and a mutant of each dispatch does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from engine.dispatch.choice import VARIABLE
from engine.errors import NotSupported
from engine.methods import METHODS
from engine.networks import static_step
from engine.networks.native_blocks import QuickBlocks
from engine.verify import choice
from engine.verify.host import HostVerdict
from research.commands import verify
from research.exactness.dispatches import (
    DISPATCHES,
    MethodSetting,
    Sequences,
    enumerate_distribution,
    network,
    row_of,
    sequences,
    settings_of,
)
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Patches, apply_mutant, wrap
from research.exactness.small_network import SmallNetwork
from research.exactness.tape import Tape
from tests.engine.kernels.near import needs_triton

RUNS = 4
SETTINGS = {s.label: s for name in METHODS if METHODS[name].needs <= SmallNetwork.capabilities for s in settings_of(name)}
OTHERS = [pytest.param(name, marks=needs_triton if name == "triton" else ()) for name in DISPATCHES if name != "reference"]


@cache
def by_reference(label: str) -> Sequences:
    """The sequences that the reference commits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, DISPATCHES["reference"].kernels)
        return sequences(DISPATCHES["reference"], SETTINGS[label], RUNS)


def committed(
    name: str, setting: MethodSetting, monkeypatch: pytest.MonkeyPatch, runs: int = RUNS, tapes: list[Tape] | None = None
) -> Sequences:
    """The sequences that a dispatch commits, in this process."""
    dispatch = DISPATCHES[name]
    if reason := dispatch.missing():
        pytest.skip(reason)
    monkeypatch.setenv(VARIABLE, dispatch.kernels)
    return sequences(dispatch, setting, runs, tapes)


@pytest.mark.parametrize("name", OTHERS)
def test_every_method_commits_the_tokens_of_the_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the interpreter, which takes seconds per run, a chain, a block and a tree."""
    labels, runs = (("sjd", "sjd block", "eagle"), 1) if name == "triton" else (list(SETTINGS), RUNS)
    tapes: list[Tape] = []
    for label in labels:
        assert committed(name, SETTINGS[label], monkeypatch, runs, tapes) == by_reference(label)[:runs], label
    assert bool(tapes) == (name == "static")


def _rows_in_another_order(right: Any, *arguments: Any) -> torch.Tensor | None:
    hidden = right(*arguments)
    return None if hidden is None else hidden.flip(1)


def _reversed_numbers(right: Any, request: Any) -> Any:
    return right(replace(request, uniforms=request.uniforms.flip(0)))


def _frozen_numbers() -> list[tuple[Any, str, Any]]:
    """A captured verdict reads the random numbers of the capture."""
    first: list[torch.Tensor] = []
    right = static_step.columns

    def columns(*arguments: Any) -> torch.Tensor:
        inputs = right(*arguments)
        first.append(inputs)
        return torch.cat([first[0][:1, :3].expand(len(inputs), -1), inputs[:, 3:]], 1)

    return [(static_step, "columns", columns)]


BROKEN: dict[str, tuple[str, Patches]] = {
    "host": ("sjd", wrap(lambda right, self, i: not right(self, i), (HostVerdict, "_accepts"))),
    "native": ("sjd", wrap(_rows_in_another_order, (QuickBlocks, "__call__"))),
    "triton": ("sjd", wrap(_reversed_numbers, (choice, "verify_triton"))),
    "joined": ("sjd", MUTANTS["one seed for a batch"]),
    "static": ("sjd", _frozen_numbers),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_broken_dispatch_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    label, patches = BROKEN[name]
    with apply_mutant(name, patches):
        broken = committed(name, SETTINGS[label], monkeypatch)
    row = row_of(label, name, broken, by_reference(label), enumerate_distribution(network(False)))
    assert row.differing and not row.holds and "FALSE" in row.text()


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main(["--dispatch", "host", "--draws", "40", "sjd", "mulo"]) == 0
    lines: list[str] = capsys.readouterr().out.splitlines()
    assert "skipped: the network has no at_scale." in lines[0] and lines[-1] == "Every dispatch holds"
    assert all("holds   0 runs differ" in line and "in 40 runs" in line for line in lines[1:3])


def test_a_dispatch_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotSupported, match="no dispatch 'gpu'"):
        verify.main(["--dispatch", "gpu"])
