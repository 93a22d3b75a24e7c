"""`bench generate`: its rows, and the acceptance from which a window pays."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from engine.errors import BadPrompt, NotSupported
from research.bench.generation import GenerateBench, bench, break_even


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_rows(guidance: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = bench(GenerateBench(size="tiny", tokens=6, window=4, dtype="float32", guidance=guidance, csv=tmp_path / "rows.csv"))
    by_name = {row["method"]: row for row in rows}
    lookup = [] if guidance > 1 else ["transformers prompt lookup"]  # with guidance it gives wrong tokens
    assert [*by_name] == [
        "cost of a pass", "sjdpp: cost of a step", "transformers generate", "foretoken ar", "foretoken sjdpp", *lookup, "memory",
    ]  # fmt: skip
    assert by_name["foretoken ar"]["forwards"] == by_name["foretoken ar"]["tokens"] == 6
    assert 0 < by_name["sjdpp: cost of a step"]["model_share"] < 1
    assert by_name["memory"]["weight_bytes"] == 4 * by_name["memory"]["parameters"]
    assert by_name["memory"]["cache_bytes"] > 0
    assert all(row["guidance"] == guidance for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows)
    with (tmp_path / "rows.csv").open(encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


def test_break_even() -> None:
    """Three drafts, each accepted with chance 1/2: 1 + 1/2 + 1/4 + 1/8 tokens per pass."""
    assert break_even(4, 1.875) == pytest.approx(0.5)
    assert break_even(4, 1.0) == pytest.approx(0.0, abs=1e-9)
    assert break_even(2, 3.0) == 1.5  # no chance is enough


def test_plans_that_cannot_be_measured() -> None:
    with pytest.raises(BadPrompt, match="no size '7b'"):
        GenerateBench(size="7b")
    with pytest.raises(NotSupported, match="eagle needs"):
        GenerateBench(method="eagle")
