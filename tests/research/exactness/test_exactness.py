"""Every claim of exactness, by distribution, and every mutant: the table of `launch.py verify`, measured once.

The short suite measures only the claims; the whole suite also measures the mutants.
"""

from __future__ import annotations

from collections import Counter

import pytest

from engine.methods import METHODS
from research.exactness import exactness
from research.exactness.mutants import MUTANTS

POWER = 0.1  # the total variation distance that every claim's runs find


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> dict:
    """All rows; without mutants if no test needs them."""
    mutants = any(item.originalname == "test_every_mutant_is_found" for item in request.session.items)
    rows, holds, _ = exactness.verify(exactness.table(), target=POWER, mutants=mutants)
    return {"rows": rows, "holds": holds}


def test_every_claim_holds(table: dict) -> None:
    assert table["holds"], table["rows"]


def test_exact_rows_pass(table: dict) -> None:
    for key, row in table["rows"].items():
        assert not row["exact"] or abs(row["z"]) < exactness.Z_ACCEPTED, (key, row)


def test_every_mutant_is_found(table: dict) -> None:
    for key, row in table["rows"].items():
        assert row["mutants"] or not row["exact"], f"{key} has no mutant: a claim that nothing can break proves nothing"
        for mutant, z in row["mutants"].items():
            assert z > exactness.Z_DETECTED, (key, mutant, z)


def test_every_claim_says_what_it_could_have_found(table: dict) -> None:
    for key, row in table["rows"].items():
        if row["exact"]:
            assert row["detects"] <= (POWER if row["tv"] is not None else 0.012), (key, row)


def test_the_published_reuse_rule_is_found_inexact(table: dict) -> None:
    row = table["rows"]["sjdpp[published]"]
    assert not row["exact"] and row["z"] > exactness.Z_DETECTED


def test_every_mutant_is_used() -> None:
    used = {m for method in exactness.table().values() for case in exactness.cases_of(method) for m in case.mutants}
    assert used == set(MUTANTS)


def test_every_initialisation_and_every_exact_refresh_has_a_case() -> None:
    named = {(name, c.knobs.get("init"), c.knobs.get("refresh")) for name, m in METHODS.items() for c in m.cases}
    inits = next(k for k in METHODS["sjd"].knobs if k.name == "init").choices
    assert set(inits) <= {init for name, init, _ in named if name == "sjd"}
    refreshes = next(k for k in METHODS["sjdpp"].knobs if k.name == "refresh").choices
    assert set(refreshes) <= {refresh for name, _, refresh in named if name == "sjdpp"}


def test_the_statistic_accepts_the_distribution_and_refuses_another() -> None:
    distribution = {(i,): 0.25 for i in range(4)}
    even = Counter({(i,): 2500 for i in range(4)})
    bent = Counter({(0,): 2900, (1,): 2500, (2,): 2500, (3,): 2100})
    assert abs(exactness.statistic(even, distribution, 10_000)["z"]) < 2
    assert exactness.statistic(bent, distribution, 10_000)["z"] > 10


def test_the_statistic_counts_impossible_sequences() -> None:
    distribution = {(0,): 0.5, (1,): 0.5}
    counts = Counter({(0,): 450, (1,): 450, (0, 1): 100})
    assert exactness.statistic(counts, distribution, 1000)["z"] > 10
