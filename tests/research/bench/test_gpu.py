"""`bench gpu`: its rows, on a tiny model and the processor, where a graph is a call of the same function; and its refusal."""

from __future__ import annotations

import pytest
import torch

from engine.errors import NotSupported
from engine.networks import static_step
from research.bench import gpu
from research.bench.gpu import GpuBench, bench, row_text, rows
from research.bench.random_models import shape_of

TINY = shape_of(32, 64, 1, 2, 1, 64)
CPU = torch.device("cpu")
PLAN = GpuBench(tokens=3, windows=(4,), keys=(9, 20))


def test_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[tuple[int, int]] = []  # rows and branches
    right = static_step.fixed_pass
    monkeypatch.setattr(
        static_step,
        "fixed_pass",
        lambda trunk, block, told, *rest: passes.append((len(told), block.shape[2])) or right(trunk, block, told, *rest),
    )
    table = list(rows(PLAN, {"tiny": TINY}, CPU, torch.float32))
    kinds = ["transformers generate", "plain, no graphs", "plain, graphs", "window of 4, graphs"]
    assert [(row["keys"], row["what"]) for row in table] == [(keys, kind) for keys in PLAN.keys for kind in kinds]
    steps = 2 * (gpu.WARM_UP + PLAN.tokens) + gpu.PROFILED  # of two pictures; the first pass of each reads the end of the prompt
    assert passes == 2 * ([(1, 2)] * steps + [(8, 2)] * steps)
    theirs, plain, graphs, window = table[4:]
    assert graphs["over_plain"] == 1 and window["over_plain"] == window["milliseconds"] / graphs["milliseconds"]
    assert window["over_generate"] == theirs["milliseconds"] / window["milliseconds"]
    assert plain["captures"] == [0, 0] and graphs["captures"] == window["captures"] == [1, 1]
    assert graphs["nodes"] > plain["nodes"] > 100 and len(graphs["first_seconds"]) == 2
    for row in table:
        assert row["model"] in row_text(row) and f"{row['milliseconds']:.2f} ms" in row_text(row)
        if "nodes" in row:
            assert row["device_milliseconds"] > 0
            assert row["device_milliseconds"] + row["host_milliseconds"] == pytest.approx(row["milliseconds"])


def test_after_ten_minutes_no_model_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 1.0, 601.0])
    monkeypatch.setattr(gpu.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(gpu, "model_rows", lambda name, *rest: iter([{"model": name, "what": "all"}]))
    table = list(rows(PLAN, {"one": TINY, "two": TINY}, CPU, torch.float32))
    assert [row.get("what") for row in table] == ["all", None]
    assert row_text(table[1]) == "two: left out. The models before it took more than 10 minutes."


def test_a_model_that_does_not_fit_is_left_out_with_the_reason() -> None:
    row = next(rows(PLAN, {"huge": shape_of(2**16, 2**20, 64, 2, 1, 64)}, CPU, torch.float32))
    assert row_text(row).startswith("huge: left out. ") and "GB" in row["left_out"]


def test_the_sizes_are_those_of_the_models() -> None:
    """In millions of parameters: lowpoly's decoder, Janus-Pro-1B's and Emu3's trunks with a head for codes only."""
    parameters = {name: round(gpu.memory_size(shape, 4096).parameters / 1e6) for name, shape in gpu.SIZES.items()}
    assert parameters["lowpoly"] < 10 and 1200 < parameters["janus"] < 1500 and 6500 < parameters["emu3"] < 8500


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(NotSupported, match=r"bench gpu needs an NVIDIA GPU, and PyTorch sees none here\. Run it on a machine that has one"):
        bench(GpuBench())
