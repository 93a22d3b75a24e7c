"""What `TransformerSequence` needs from a model: the trunk, and the adapter of predictive rows."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from engine.kernels.tree_attention import Chain, Seen
from engine.networks.transformer import Fork

if TYPE_CHECKING:
    from engine.cache import FixedView, Slab


class Trunk(Protocol):
    """A model with one prompt. A class that subclasses this has the members that it does not define.

    takes_sets  : its attention is `tree_attention`; on a GPU it gets sets of bits instead of a mask
    takes_chains : it is told that a pass is a chain, instead of getting the mask of one
    takes_forks : it knows forks; else twins run through all layers
    reads_slots : it looks at slots on the host, and gets them there, so that it need not wait for a GPU
    fixed       : its `run` depends on slots, mask and slab through tensors alone, so passes can have fixed shapes (static_step.py)
    """

    takes_sets: bool = False
    takes_chains: bool = False
    takes_forks: bool = True
    reads_slots: bool = False
    fixed: bool = False

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids of the picture or mesh vocabulary -> [1 or branches, R, H]"""
        ...

    def ended(self, x: Tensor, ends: Tensor) -> Tensor:
        """x [branches, P, H] with row ends where `ends` bool [P] says so; x itself for a model whose rows have none."""
        return x

    def run(self, x: Tensor, slots: Tensor, mask: Tensor | Chain | Seen | None, slab: Slab | FixedView, fork: Fork | None = None) -> Tensor:
        """x [branches, R, H] at slots int64 [R] (0 = first of the prefix), mask bool [R, kept+R] or None -> hidden, same shape; with a
        fork, one hidden row for each of the fork's rows."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """[branches, R, H] -> logits [branches, R, V]"""
        ...


class RowAdapter(Protocol):
    """The adapter of predictive rows: see engine/drafters/predictive_stream.py."""

    first_layer: int  # the first block that it changes

    def worn(self, first: int | Tensor) -> AbstractContextManager[None]:
        """In this context, rows from number `first` on of every pass of this thread run with the adapter; all others run without it."""
        ...
