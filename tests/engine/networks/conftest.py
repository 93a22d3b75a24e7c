"""Fixtures of the tests of networks."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from engine.networks import static_step
from engine.networks.static_step import fixed_pass
from engine.networks.workspace import Bucket
from tests.engine.kernels.conftest import inference

__all__ = ["inference"]


@pytest.fixture
def buckets_used(monkeypatch: pytest.MonkeyPatch) -> list[Bucket]:
    """The buckets of all passes in fixed shapes."""
    buckets: list[Bucket] = []

    def record(trunk: Any, block: Tensor, inputs: Tensor, drafted: Tensor | None, span: int, *more: Any) -> tuple[Tensor, Tensor, Tensor]:
        buckets.append(Bucket(len(inputs), span))
        return fixed_pass(trunk, block, inputs, drafted, span, *more)

    monkeypatch.setattr(static_step, "fixed_pass", record)
    return buckets
