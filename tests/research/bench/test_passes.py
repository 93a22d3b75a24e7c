"""`bench cpu`: its rows, and the variable that chooses the kernels."""

from __future__ import annotations

import pytest

from research.bench import passes


def test_a_row_of_the_benchmark_reads_well() -> None:
    row = {"backbone": "pictogram", "dtype": "float32", "size": 128, "method": "ar", "reference_seconds": 4.0, "native_seconds": 2.0}
    assert passes.row_text(row | {"times": 2.0, "native_passes": 256}).endswith("4.000 ->  2.000 s, 2.00 times per pass (256 passes)")


def test_a_wish_lasts_as_long_as_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(passes.VARIABLE, "")
    with passes.kernel_kind("reference"):
        assert passes.native_choice().reason == "FORETOKEN_KERNELS=reference."
    assert passes.os.environ[passes.VARIABLE] == ""
