"""A visitor without a browser, for the tests; `launch.py bench studio` sends the same ones."""

from __future__ import annotations

from app.visitor import QUICK, Visitor

__all__ = ["QUICK", "Visitor"]
