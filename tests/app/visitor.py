"""A visitor without a browser, for the tests; `launch.py bench studio` sends the same ones."""

from __future__ import annotations

from research.bench.client import QUICK, Visitor

__all__ = ["QUICK", "Visitor"]
