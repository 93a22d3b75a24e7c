"""Fixtures of the tests of verification."""

from __future__ import annotations

from tests.engine.kernels.conftest import inference

__all__ = ["inference"]
