"""Mutants: a mutant that patches nothing is an error, and every patch is undone."""

from __future__ import annotations

import pytest

from engine.core import Prompt
from engine.decoding import verdict
from engine.methods import METHODS, cross_regression
from engine.run import generate
from research.exactness import exactness
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import CallRecorder, IdleMutant, Mutant, Patch, apply_mutant
from research.exactness.toy import Toy


def tokens(method: str = "sjd", **knobs: float | str) -> list[int]:
    """A run on the toy."""
    return generate(Toy(), METHODS[method], Prompt(seed=1), {"window": 4, **knobs} if method == "sjd" else knobs).finish().tokens


def test_a_mutant_is_taken_back() -> None:
    before, right = tokens(), verdict.ratio
    with apply_mutant("inverted ratio", MUTANTS["inverted ratio"]):
        assert verdict.ratio is not right
        tokens()
    assert verdict.ratio is right and tokens() == before


def test_a_mutant_is_taken_back_behind_an_error() -> None:
    right = verdict.ratio
    with pytest.raises(ZeroDivisionError), apply_mutant("inverted ratio", MUTANTS["inverted ratio"]):
        raise ZeroDivisionError
    assert verdict.ratio is right


def test_a_mutant_that_nobody_calls_is_an_error() -> None:
    patches: list[Patch] = [(verdict, "ratio", lambda p, q, tokens, u: (u < 0, u))]
    with pytest.raises(IdleMutant, match=r"'heads' was never called \(ratio\)"), apply_mutant("heads", lambda: patches):
        tokens(verify="match seed")  # verified by equality: no ratio is asked for


def test_a_measurement_whose_mutant_patches_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MUTANTS, "commit one answer more", lambda: [(verdict, "draw_gumbel", lambda scores, noise: scores.argmax(-1))])
    monkeypatch.setattr(exactness, "MUTANT_RUNS", 600)
    task = next(t for t in exactness.tasks(["jacobi"], False) if t.mutant == "commit one answer more")
    with pytest.raises(IdleMutant, match="commit one answer more"):
        exactness.measure(task)


def test_a_patch_by_the_value_that_is_there_is_an_error() -> None:
    with pytest.raises(IdleMutant, match="by itself"):
        Mutant("same", [(verdict, "ratio", verdict.ratio)])


@pytest.mark.parametrize("patch", [(verdict, "gone", len), (cross_regression.RULES, "gone", len), (Toy, "gone", len)])
def test_a_patch_of_what_is_not_there_is_an_error(patch: Patch) -> None:
    with pytest.raises((AttributeError, KeyError), match="gone"):
        Mutant("lost", [patch])


def test_calls_of_a_record_of_functions_count() -> None:
    with apply_mutant("stream: literal rule", MUTANTS["stream: literal rule"]):
        tokens("cross_regression", horizon=3)


def test_a_patch_that_only_looks_on_does_not_count() -> None:
    right = verdict.ratio
    with (
        pytest.raises(IdleMutant),
        apply_mutant("looking on", lambda: [(verdict, "ratio", CallRecorder(lambda *arguments: right(*arguments)))]),
    ):
        tokens()
