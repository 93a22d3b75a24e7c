"""Special rows of a pass: rows that run with an adapter, and rows that split at a layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn


class RowAdapter(Protocol):
    """The adapter of predictive rows: see engine/drafters/predictive_stream.py."""

    first_layer: int  # the first block that it changes
    scale: float
    updates: Any  # its form for compiled blocks, made once; None before

    def pairs(self) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
        """The adapted layers, each with A [rank, in] and B [out, rank]: y += scale B A x."""
        ...

    def on_rows_from(self, first: int | Tensor) -> AbstractContextManager[None]:
        """In this context, rows from number `first` on of every pass of this thread run with the adapter; all others run without it."""
        ...


@dataclass(frozen=True)
class RowSplit:
    """A layer at which one row becomes several: from this layer on, row i continues row rows[i] of the layers below.

    layer : 1 to the last; rows : int64 [R]; mask : bool [R, kept + R], the visibility from that layer on
    """

    layer: int
    rows: Tensor
    mask: Tensor


@dataclass(frozen=True)
class AdapterRows:
    """An adapter for the rows of a pass from number `first` on; with a RowSplit, rows are numbered as above the split.

    once : only the first branch of a guidance pair needs these rows; the others may hold anything
    """

    adapter: RowAdapter
    first: int
    once: bool = False


def adapter_hooks(adapter_rows: AdapterRows | None) -> AbstractContextManager[None]:
    """Context in which the layers add an adapter's output to its rows; None: without an adapter."""
    return nullcontext() if adapter_rows is None else adapter_rows.adapter.on_rows_from(adapter_rows.first)
