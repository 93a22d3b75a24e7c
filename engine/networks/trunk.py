"""A model as `TransformerSequence` uses it: the trunk, passes that several runs share, and the adapter of predictive rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from engine.kernels.tree_attention import Visibility
from engine.networks.rows import AdapterRows, RowSplit

if TYPE_CHECKING:
    from engine.cache import FixedView, KVCache


@dataclass(frozen=True)
class PassArguments:
    """A pass that a run requests: the arguments of `Trunk.run`."""

    trunk: Trunk
    x: Tensor
    slots: Tensor
    mask: Visibility
    kv_cache: KVCache

    def run_alone(self) -> tuple[Tensor, Tensor]:
        """Runs the pass alone; returns its hidden states and logits."""
        hidden = self.trunk.run(self.x, self.slots, self.mask, self.kv_cache)
        return hidden, self.trunk.head(hidden)


class Trunk(Protocol):
    """A model with one prompt; subclasses override the members that differ.

    takes_sets  : its attention is `tree_attention`; on a GPU it gets sets of bits instead of a mask
    takes_chains : for a chain it gets a `Chain` instead of a mask
    takes_splits : its `run` takes a RowSplit; else shared rows run through all layers separately
    takes_adapters : its `run` takes an adapter of rows; else its layers get hooks during the pass
    drafts_once : its `run` computes rows with an adapter in the first branch alone, so drafts have another distribution
    reads_slots : it reads slots on the host, and gets them there, so that it need not wait for a GPU
    joins       : its passes may be computed together with those of other runs of this model (`run_together`)
    fixed       : its `run` depends on slots, mask and cache through tensors alone, so passes can have fixed shapes (static_step.py)
    """

    takes_sets: bool = False
    takes_chains: bool = False
    takes_splits: bool = True
    takes_adapters: bool = False
    drafts_once: bool = False
    reads_slots: bool = False
    joins: bool = False
    fixed: bool = False

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids of the picture or mesh vocabulary -> [1 or branches, R, H]"""
        ...

    def with_row_ends(self, x: Tensor, ends: Tensor) -> Tensor:
        """x [branches, P, H] with row ends where `ends` bool [P] says so; x itself for a model without row ends."""
        return x

    def run(
        self, x: Tensor, slots: Tensor, mask: Visibility, kv_cache: KVCache | FixedView, split: RowSplit | None = None,
        adapter_rows: AdapterRows | None = None,
    ) -> Tensor:  # fmt: skip
        """x [branches, R, H] at slots int64 [R] (0 = first of the prefix), mask bool [R, kept+R] or None -> hidden, same shape; with a
        split, one hidden row for each of its rows. With `takes_adapters`, adapter_rows : the rows that run with an adapter"""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[branches, R, H] -> logits [branches, R, V]"""
        ...

    def move_tensors(self, hold: Callable[[Tensor], Tensor]) -> Hashable:
        """With `fixed`: replaces every tensor of this run that a pass reads by `hold` of it, a copy where the graphs of the model read it.
        Returns what else of the run a pass depends on; graphs are shared by runs that agree in this and in the shapes."""
        return None

    def run_together(self, passes: Sequence[PassArguments]) -> list[tuple[Tensor, Tensor]] | None:
        """Hidden states and logits of the passes of several runs of this model, computed in one pass that reads the weights once; None if
        this model, or one of the passes, does not support that. Every row has the same bits as in a separate pass."""
        return None


class OwnTrunk(Trunk):
    """A model of our own with one prompt. decoder : its blocks, which a compiled call may compute (`native_blocks.py`)"""

    takes_sets = takes_adapters = fixed = True

    def __init__(self, decoder: Any):
        self.decoder = decoder
        self.takes_chains = self.joins = decoder.quick is not None

    def rows(self, arguments: PassArguments) -> Any:
        """The rows of this run for a joint pass, in the form that the compiled call takes."""
        ...

    def run_together(self, passes: Sequence[PassArguments]) -> list[tuple[Tensor, Tensor]] | None:
        """See Trunk."""
        quick = self.decoder.quick
        hidden = None if quick is None else quick.run_together([each.trunk.rows(each) for each in passes])
        return None if hidden is None else divide(hidden, self.head(hidden), passes)


def divide(hidden: Tensor, logits: Tensor, passes: Sequence[PassArguments]) -> list[tuple[Tensor, Tensor]]:
    """Divides the rows of a joint pass, hidden [rows, H] and logits [rows, V], into [branches, R, H] and [branches, R, V] for each run."""
    shapes = [each.x.shape[:2] for each in passes]
    counts = [branches * rows for branches, rows in shapes]
    parts = zip(hidden.split(counts), logits.split(counts), shapes, strict=True)
    return [(h.unflatten(0, shape), scores.unflatten(0, shape)) for h, scores, shape in parts]
