"""How fast what `auto` took is against the best fixed setting of the same table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.methods import AUTO
from engine.run import Run, speedup
from research.bench.rows import bootstrap, quartiles


def against_best(name: str, runs: Mapping[str, list[list[Run]]]) -> dict[str, Any]:
    """Returns the fastest other exact row, and by input how many times as fast as it auto's row is; {} for any other row than auto's, and
    where there is no other exact row.

    runs : by row and input, a list each; times are seconds a token
    """
    others = [other for other in runs if not other.startswith(f"{AUTO}:") and all(run.exact for of in runs[other] for run in of)]
    if not name.startswith(f"{AUTO}:") or not others:
        return {}
    best = max(others, key=lambda other: np.median(ratios(runs[name], runs[other])))
    found = ratios(runs[best], runs[name])
    return {"best_fixed": best, "over_best_fixed": quartiles(found), "over_best_fixed_interval": bootstrap(found)}


def ratios(slow: list[list[Run]], fast: list[list[Run]]) -> np.ndarray:
    """Returns by input how many times as fast the second runs are as the first."""
    return np.array([speedup(a, b) for a, b in zip(slow, fast, strict=True)])


def readable(row: Mapping[str, Any]) -> str:
    """Formats the end of a line; "" for a row without a comparison."""
    if "best_fixed" not in row:
        return ""
    low, high = row["over_best_fixed_interval"]
    return f"   {row['over_best_fixed'][0]:.2f}x ({low:.2f}-{high:.2f}) the speed of {row['best_fixed']}"
