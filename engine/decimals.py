"""Parses numbers written as ASCII decimals, and nothing else that Python would read as a number."""

from __future__ import annotations

import re
from numbers import Real

DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)

DIGITS = re.compile(r"[+-]?\d{1,1000}", re.ASCII)  # Python refuses to read more than 4,300


def decimal(value: object) -> Real | None:
    """A number, or the number in a text; None for booleans, other digits, "1_000", "nan" and everything else."""
    if isinstance(value, str):
        return float(value) if DECIMAL.fullmatch(value.strip()) else None
    return value if isinstance(value, Real) and not isinstance(value, bool) else None


def whole_number(value: object) -> int | None:
    """A whole number, or the one in a text such as "12" or "12.0"; None for everything else."""
    if isinstance(value, str) and DIGITS.fullmatch(value.strip()):
        return int(value)  # exact, where a float would be rounded
    read = decimal(value)
    return int(read) if read is not None and abs(read) < float("inf") and read == int(read) else None
