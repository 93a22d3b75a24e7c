"""`bench gpu --first` on the processor: every check passes, and each finds its fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.networks import static_step
from research.bench import gpu, gpu_first
from research.bench import kernel_cases as cases
from research.bench.gpu_first import METHODS_TRIED, Mismatch, difference, row_text, rows
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Mutant
from tests.engine.kernels.near import DEVICE, needs_triton

SMALL: dict[str, tuple[Callable[..., Any], ...]] = {
    "noise": (partial(cases.noise_case, rows=2, vocabulary=1000),),
    "verify": (partial(cases.verify_case, rows=3, vocabulary=1000),),
    "keep_rows": (partial(cases.keep_rows_case, layers=1, heads=1, width=16),),
    "tree_attention": (partial(cases.attention_case, rows=3, cached=40, dtype=torch.float16),),
    "pooled_mass": (partial(cases.pooled_mass_case, rows=3, vocabulary=1000, count=20),),
    "energy_scan": (partial(cases.energy_case, drafts=3, vocabulary=1000),),
}


@needs_triton
def test_every_check_passes() -> None:
    table = list(rows(DEVICE, SMALL, pictures=1))
    assert [row["check"] for row in table] == ["kernel"] * len(SMALL) + ["replay"] * 5 + ["exactness"] * 5
    assert all(row["what"] in row_text(row) for row in table)


def broken_kernel(device: torch.device) -> cases.KernelCall:
    """A kernel with one wrong number."""
    case = cases.noise_case(device, 2, 1000)
    right = case.reference()
    wrong = right.clone()
    wrong[1, 7] += 1
    return replace(case, kernel=lambda: wrong)


def frozen_slots(right: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The host's description of a pass, with the slots of the first pass."""
    first: list[Tensor] = []

    def inputs(*arguments: Any) -> Tensor:
        told = right(*arguments)
        first.append(told[:, 6])
        told[:, 6] = first[0] if len(first[0]) == len(told) else told[:, 6]
        return told

    return inputs


def test_each_check_finds_its_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Mismatch, match=r"kernel noise differs from its reference on 2 rows of 1,000: result 0 differs by 1\. Report"):
        list(rows(DEVICE, {"noise": (broken_kernel,)}))
    with monkeypatch.context() as patched:
        patched.setattr(static_step, "pass_inputs", frozen_slots(static_step.pass_inputs))
        with pytest.raises(Mismatch, match=r"ar: step \d+ gives the tokens .* with graphs and .* without"):
            list(rows(DEVICE, {}))
    monkeypatch.setattr(gpu_first, "METHODS_TRIED", {"sjdpp": METHODS_TRIED["sjdpp"]})
    mutant = Mutant("residual is p", MUTANTS["residual is p"]())
    with mutant.in_force(), pytest.raises(Mismatch, match=r"sjdpp: 2,304 tokens do not have the distribution of plain decoding"):
        list(gpu_first.exactness_checks(gpu_first.tiny_model(DEVICE), gpu_first.PICTURES))
    mutant.check()


@pytest.mark.parametrize(
    ("ours", "theirs", "text"),
    [
        (torch.tensor([1.0, 2.0]), torch.tensor([1.001, 2.0]), None), (torch.tensor([torch.inf]), torch.tensor([torch.inf]), None),
        (torch.tensor([torch.nan]), torch.tensor([0.0]), "result 0 differs by nan"),
        (torch.arange(99), torch.arange(99).flip(0), "99.0% of the integers of result 0 differ"),
        (torch.zeros(2), torch.zeros(3), "result 0 has the shape (2,) instead of (3,)"),
    ],
)  # fmt: skip
def test_differences(ours: Tensor, theirs: Tensor, text: str | None) -> None:
    assert difference((ours,), (theirs,)) == text


@pytest.mark.parametrize("fault", [False, True])
def test_the_table_comes_after_the_checks(fault: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of both are in one file; after a fault there is no table."""

    def checks(device: torch.device) -> Iterator[dict[str, Any]]:
        yield {"check": "kernel", "what": "noise", "result": "equals the reference", "seconds": 0.1}
        if fault:
            raise Mismatch("The kernel verify differs.")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100")
    monkeypatch.setattr(gpu, "machine_facts", dict)
    monkeypatch.setattr(gpu, "rows", lambda *plan: iter([{"model": "janus", "left_out": "Too large."}]))
    monkeypatch.setattr(gpu_first, "rows", checks)
    plan = gpu.GpuBench(first=True, csv=tmp_path / "first.csv")
    with pytest.raises(Mismatch, match="verify differs") if fault else nullcontext():
        table = gpu.bench(plan)
        assert [(row["gpu"], row.get("check"), row.get("model")) for row in table] == [
            ("NVIDIA H100", "kernel", None), ("NVIDIA H100", None, "janus")
        ]  # fmt: skip
    assert plan.csv.exists() == (not fault)
