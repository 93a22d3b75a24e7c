"""The bound of a pass: its work counted by hand, and what is compared with it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from engine.core import Backbone, Draft
from engine.errors import NotSupported
from engine.tuning import bound
from engine.tuning.bound import Rates, Work, begun, bounds, measured_rates, pass_of, work_of
from engine.tuning.load_monitor import Lap, Watch
from research.bench import passes
from research.exactness.toy import Toy
from tests.engine.backbones import tiny

RATES = Rates({"float32": 1e9, "bfloat16": 2e9}, 1e8)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    """No gradients, as in a run."""
    with torch.inference_mode():
        yield


def test_the_bound_adds_products_and_bytes() -> None:
    assert RATES.seconds(Work({"float32": 10**9, "bfloat16": 10**9}, 10**8)) == pytest.approx(1 + 0.5 + 1)


def test_the_work_of_a_picture_model_is_counted() -> None:
    backbone = tiny.pictogram()
    sequence = begun(backbone, 5)
    decoder, branches = backbone.model.decoder, sequence.slab.branches
    width, layers, inner = decoder.width, len(decoder.blocks), decoder.blocks[0].feed_out.in_features
    weights, head = layers * (4 * width * width + 3 * width * inner), width * sequence.vocabulary
    for rows in (1, 3):
        seen = 2 * branches * width * layers * (sequence.slab.kept + rows)
        assert sequence.slab.kept == sequence.prefix + 4
        assert work_of(backbone, sequence, rows) == Work(
            {"float32": 2 * rows * (branches * (weights + head) + seen)}, 4 * (weights + head + seen)
        )


def test_the_head_of_a_model_in_bfloat16_is_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = tiny.pictogram()
    sequence = begun(backbone, 5)
    monkeypatch.setattr(backbone, "dtype", "bfloat16")
    work, head = work_of(backbone, sequence, 1), backbone.model.decoder.width * sequence.vocabulary
    assert work.products["float32"] == 2 * sequence.slab.branches * head and work.products["bfloat16"] > 0


def test_keys_and_values_of_a_condition_are_read_and_not_computed() -> None:
    backbone = tiny.lowpoly()
    sequence = begun(backbone, 3)
    s = backbone.model.settings
    weights = s.layers * (3 * s.width**2 + s.width**2 + 2 * s.width**2 + 3 * s.width * s.inner)
    condition = sequence.trunk.looked[0][0].shape[2]
    seen = 2 * s.width * s.layers * (sequence.slab.kept + 1 + condition)
    head = s.width * s.vocabulary
    assert work_of(backbone, sequence, 1) == Work({"float32": 2 * (weights + head + seen)}, 4 * (weights + head + seen))


def test_only_our_own_models_have_a_known_bound() -> None:
    with pytest.raises(NotSupported, match="known for pictogram and lowpoly, not for toy"):
        work_of(Toy(), Toy().start(bound.prompt_of(Toy())), 1)


@pytest.mark.parametrize("make", [tiny.pictogram, tiny.lowpoly])
def test_a_pass_has_its_rows_and_commits_nothing(make: type[Backbone]) -> None:
    sequence = begun(make(), 4)
    before = sequence.length
    assert before > 0 and pass_of(sequence, 5)().shape[1] == 5 and sequence.length == before
    sequence.forward(Draft(torch.zeros(0, dtype=torch.int64)))


def test_bounds_compare_the_best_pass_with_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watch, "lap", lambda self, call: (call(), Lap(1.0, True)))  # every call takes one second
    backbone = tiny.pictogram()
    found = bounds(backbone, RATES, tries=2)
    assert list(found) == ["1 row", "32 rows"]
    for rows, row in zip((1, 32), found.values(), strict=True):
        seconds = RATES.seconds(work_of(backbone, begun(backbone), rows))
        assert (
            "disturbed" not in row
            and row["measured"] == 1000
            and row["bound"] == round(1000 * seconds, 3)
            and row["ratio"] == round(1 / seconds, 2)
        )


def test_a_bound_that_other_programs_disturbed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([9.0, 5.0, 9.0, 9.0, 9.0] * 100)
    monkeypatch.setattr(Watch, "lap", lambda self, call: (call(), Lap(next(seconds), False)))
    found = bounds(tiny.pictogram(), RATES, tries=2)
    assert all(row["disturbed"] and row["measured"] == 5000 for row in found.values())


def test_the_best_of_quiet_calls_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    laps = iter([Lap(1.0, False), Lap(3.0, True), Lap(0.5, False), Lap(2.0, True), Lap(0.1, True)])
    monkeypatch.setattr(Watch, "lap", lambda self, call: (None, next(laps)))
    assert bound.best(lambda: None, 2) == Lap(2.0, True)


def test_rates_are_those_of_the_best_way(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([4.0, 2.0, 3.0] * 2)
    monkeypatch.setattr(bound, "best", lambda call, tries: Lap(next(spent, 1.0), True))
    monkeypatch.setattr(bound, "can_pack", lambda: False)
    monkeypatch.setattr(bound, "native", lambda dtype: None)
    rates = measured_rates(("float32",))
    assert rates.products["float32"] == 2 * 256 * 512 * 1024 / 4 and rates.bytes == bound.READ / 2


def test_a_row_of_the_benchmark_reads_well() -> None:
    row = {"backbone": "pictogram", "dtype": "float32", "size": 128, "method": "ar", "reference_seconds": 4.0, "native_seconds": 2.0}
    assert passes.readable(row | {"times": 2.0, "native_passes": 256}).endswith("4.000 ->  2.000 s, 2.00 times per pass (256 passes)")


def test_a_wish_lasts_as_long_as_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(passes.VARIABLE, "")
    with passes.wished("reference"):
        assert passes.native_choice().reason == "FORETOKEN_KERNELS=reference."
    assert passes.os.environ[passes.VARIABLE] == ""
