"""`verify --mutation`: the changes of a line, the tests nearest to a file, and that a mutant is applied, detected and taken back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from engine.errors import BadPrompt
from research.commands import verify
from research.exactness import mutation_score
from research.exactness.line_mutants import line_mutants
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import apply_mutant
from research.exactness.nearest_tests import failing_claim, nearest_files, nearest_methods

TEXT = '''"""Text with 1."""
LIMIT: int = 3


def rule(x: int, y: int = 2) -> int:
    """Not 4 either."""
    if x < y and not done:
        raise ValueError(f"{x + 1}")
    total[x] = f(x, y)[: x + 1]
    return min(total, y)
'''
CHANGES = [
    (5, "2", "3"), (7, "x < y", "(x <= y)"), (7, "x < y and not done", "(not (x < y and (not done)))"),
    (7, "x < y and not done", "(x < y or not done)"), (7, "not done", "(done)"), (9, "total[x] = f(x, y)[: x + 1]", "pass"),
    (9, "f(x, y)", "(f(y, x))"), (9, "x + 1", "(x - 1)"), (9, "x + 1", "x + 1 + 1"), (9, "1", "2"), (10, "min", "max"),
]  # fmt: skip


def test_the_changes_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "rule.py").write_text(TEXT)
    mutants = line_mutants(tmp_path, "rule.py")
    assert {(m.line, m.before, m.after) for m in mutants} == set(CHANGES) and len(mutants) == len(CHANGES)
    changed = next(m for m in mutants if m.after == "max").apply(TEXT.encode()).decode()
    assert changed == TEXT.replace("min", "max")


def test_a_sample_is_the_same_for_a_seed_and_compiles() -> None:
    mutants = mutation_score.sample(60, 3)
    assert mutants == mutation_score.sample(60, 3) != mutation_score.sample(60, 4)
    for mutant in mutants:
        compile(mutant.apply((mutation_score.ROOT / mutant.path).read_bytes()), mutant.path, "exec")


def test_the_nearest_tests() -> None:
    assert nearest_methods("engine/methods/sjd.py") == ["sjd"] and "sjdpp" in nearest_methods("engine/decoding/windows.py")
    assert nearest_methods("engine/kernels/gate.py") == []
    assert nearest_files("engine/decoding/windows.py")[0] == "tests/engine/decoding/test_windows.py"
    assert "tests/engine/kernels/test_other_kernels.py" in nearest_files("engine/kernels/gate.py")  # by the cases of the benchmark
    assert "tests/engine/methods/test_badges.py" in nearest_files("engine/methods/sjd.py")


def test_a_false_claim_is_named() -> None:
    with apply_mutant("inverted ratio", MUTANTS["inverted ratio"]):
        assert failing_claim(["sjd"], time.process_time() + 60).startswith("verify sjd[")


def test_a_mutant_is_detected_in_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    mutants = line_mutants(mutation_score.ROOT, "engine/methods/sjd.py")
    wrong = next(m for m in mutants if m.after.startswith("(speculative_jacobi(knobs, sequence"))
    monkeypatch.setattr(mutation_score, "sample", lambda count, seed: [wrong])
    before = (mutation_score.ROOT / wrong.path).read_bytes()
    (result,) = mutation_score.measure(1, 0)
    assert result.detected_by and wrong.path in result.text()
    assert (mutation_score.ROOT / wrong.path).read_bytes() == before


@pytest.mark.parametrize("option", ["--mutation", "--ceiling"])
def test_counts_out_of_range_are_a_sentence(option: str) -> None:
    with pytest.raises(BadPrompt, match="0 is out of range"):
        verify.main([option, "0"])
