"""A pass in fixed shapes, so that a GPU can replay it as one CUDA graph instead of launching every operation again.

The host describes a pass in one small tensor: the number of kept rows in the cache, and for each row its id, its slot and the rows that it
sees. The device computes everything else: embeddings, mask, trunk, head. The shapes come in buckets: rows are padded to 1, 8, 16, 24, ...
with fillers that see only themselves and the kept rows, and the cache is read up to a power of two. Fillers write after the last row that
is ever kept.

`fixed_pass` is that computation, a function of tensors that changes nothing but the cache. `StaticPasses` runs it for a sequence: on a GPU
it captures a graph for each bucket, and elsewhere, for tests, it calls the function (engine/networks/workspace.py). The next replay of a
graph overwrites its results, so a pass returns copies. A drafter's passes can be replayed too (engine/drafters/feature_draft.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.cache import FixedView, KVCache, PassRows
from engine.core import ChosenTokens, Sampling
from engine.dispatch.choice import REFERENCE, choose, requested_kernel
from engine.kernels.tree_attention import VisibleRows, fixed_mask
from engine.networks.rows import RowAdapter
from engine.networks.trunk import Trunk
from engine.networks.workspace import USES, Bucket, Workspace, bucket, lengths
from engine.verify.fixed import VerdictKind, columns, fixed_verdict, kind_of, unpack_verdict
from engine.verify.request import Verdict, VerifyRequest

NAMED = 7  # numbers of a place before its set


def is_static(device: torch.device) -> bool:
    """True if passes on a device have fixed shapes: on an NVIDIA GPU, unless FORETOKEN_KERNELS is `reference`."""
    return device.type == "cuda" and requested_kernel() != REFERENCE


@dataclass(frozen=True)
class PassShape:
    """The input of a pass.

    pending : the first row's id; drafted : int64 [R-1], the other ids, on any device; places : the rows' places, on the host
    adapted : the first place of a row that runs with an adapter, or None
    """

    pending: int
    drafted: Tensor
    places: PassRows
    adapted: int | None = None

    @property
    def is_known(self) -> bool:
        """True if the ids are on the host."""
        return self.drafted.device.type == "cpu"


def pass_inputs(what: PassShape, kept: int, rows: int) -> Tensor:
    """The host's description of a pass, int64 [rows, NAMED + words], padded: the kept rows, the first place with an adapter, then the id,
    row, end, last place, slot and set of each place."""
    places, count = what.places, len(what.places.slots)
    ids = [what.pending, *(what.drafted.tolist() if what.is_known else [-1] * len(what.drafted))]
    inputs = np.zeros((rows, NAMED + words(rows)), dtype=np.int64)  # numpy, because PyTorch's calls cost more than the numbers
    inputs[:, 0], inputs[:, 1] = kept, rows if what.adapted is None else what.adapted
    inputs[: len(ids), 2] = ids
    for at, column in enumerate((places.rows, places.ends, places.last, places.slots), 3):
        inputs[: len(column), at] = column.numpy()
    visible = np.zeros((rows, 64 * words(rows)), dtype=bool)
    visible[:count, :count] = places.visible.numpy()
    visible.ravel()[:: visible.shape[1] + 1] = True  # the diagonal
    inputs[:, NAMED:] = np.packbits(visible, axis=1, bitorder="little").view(np.int64)
    return torch.from_numpy(inputs)


def words(rows: int) -> int:
    """The number of 64-bit words in a set of this many places."""
    return -(-rows // 64)


def fixed_pass(
    trunk: Trunk, block: Tensor, inputs: Tensor, drafted: Tensor | None, span: int, adapter: RowAdapter | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Runs a pass and writes its keys and values into the cache. Returns hidden states [branches, R, H], logits [branches, R, V] and ids
    int64 [R].

    block : the cache's; inputs : int64 [R, NAMED + words], see `pass_inputs`; drafted : int64 [R], the ids that the host does not know
    (-1 in `inputs`); None: it knows all
    """
    rows, branches = len(inputs), block.shape[2]
    kept, first, ids, of, ends, last, slots = inputs[:, :NAMED].unbind(1)
    sets = inputs[:, NAMED : NAMED + words(rows)]
    at = kept + torch.arange(rows, device=inputs.device)
    as_sets = trunk.takes_sets and choose(block.device, block.dtype).is_triton
    mask = VisibleRows(sets.contiguous(), span - rows, kept_now=kept[0]) if as_sets else fixed_mask(sets, kept, span)
    ids = ids if drafted is None else torch.where(ids < 0, drafted, ids)
    x = trunk.embed(ids)[:, of].expand(branches, -1, -1)
    with nullcontext() if adapter is None else adapter.on_rows_from(first[0]):
        hidden = trunk.run(trunk.with_row_ends(x, ends > 0), slots, mask, FixedView(block, at, span))[:, last]
    return hidden, trunk.head(hidden), ids


# (hidden states [branches, R, H] of a pass, the row int64 [] after its accepted drafts, *tensors) -> the tensors that a drafter reads
LookAhead = Callable[..., tuple[Tensor, ...]]
# (number of rows) -> sampling, the table of grammar masks bool [M, V] or None = all, and each row's mask number; None: no such table
Rules = Callable[[int], tuple[Sampling, Tensor | None, list[int]] | None]


class StaticPasses:
    """The passes of one run in fixed shapes. Its drafter may use the same workspace.

    ahead : a drafter's computation after a verdict, inside the pass, and the tensors of the run that it reads, or None
    """

    def __init__(self, trunk: Trunk, kv_cache: KVCache, workspace: Workspace, vocabulary: int):
        self.trunk, self.kv_cache, self.workspace, self.vocabulary = trunk, kv_cache, workspace, vocabulary
        self.ahead: tuple[LookAhead, tuple[Tensor, ...]] | None = None
        shapes: list[Hashable] = []

        def hold(tensor: Tensor) -> Tensor:
            shapes.append((tensor.shape, tensor.dtype))
            return workspace.hold(f"trunk {len(shapes)}", tensor)

        self._kind = (type(trunk), trunk.move_tensors(hold), tuple(shapes))

    def look_ahead(self, function: LookAhead, tensors: Sequence[Tensor]) -> None:
        """Sets `ahead`. function : part of a graph's key"""
        self.ahead = function, tuple(self.workspace.hold(f"ahead {i}", each) for i, each in enumerate(tensors))

    def prepare(self, what: PassShape, rules: Rules, adapter: RowAdapter | None = None) -> WaitingPass | None:
        """A pass that waits for its verdict, or None if no bucket fits. adapter : the adapter of its adapted rows"""
        fits = bucket(self.count(what), self.kv_cache.kept, self.kv_cache.capacity) is not None
        return WaitingPass(self, what, rules, adapter) if fits else None

    def warm_up(self, what: PassShape, request: VerifyRequest, rules: Rules) -> None:
        """Captures a pass with its verdict for every length of the cache; afterwards the cache is empty."""
        for kept in lengths(self.count(what), self.kv_cache.capacity):
            self.kv_cache.kept = kept
            for _ in range(USES):
                self.prepare(what, rules).verdict(request)
        self.kv_cache.rewind(0)

    def count(self, what: PassShape) -> int:
        """The number of places that a pass's bucket needs: with the row ends that the same pass has elsewhere in the sequence."""
        return max(len(what.places.slots), what.places.most)

    def key(self, what: PassShape, adapter: RowAdapter | None, kind: VerdictKind | None, masks: Tensor | None) -> Hashable:
        """The key of a pass's graph, besides its bucket."""
        function, tensors = (None, ()) if kind is None or self.ahead is None else self.ahead
        shapes = None if masks is None else masks.shape, *(each.shape for each in tensors)
        return self._kind, adapter, kind, function, shapes, what.is_known


class WaitingPass:
    """A pass that has not started: see `Launch` in engine/core/rows.py. It starts before the cache changes."""

    def __init__(self, static: StaticPasses, what: PassShape, rules: Rules, adapter: RowAdapter | None):
        self.count, self._vocabulary = 1 + len(what.drafted), static.vocabulary
        self.place = static.kv_cache.device, static.kv_cache.dtype
        self.ahead: tuple[Tensor, ...] = ()
        self._rules = rules
        self._begin: Callable[..., tuple[Bucket, tuple[Tensor, ...]]] | None = partial(_begin, static, what, adapter)
        self._found: list[Tensor] = []

    def start(self) -> tuple[Tensor, Tensor]:
        """Hidden states and logits of the rows; starts the pass without a verdict if it has not started."""
        if self._begin is not None:
            self._run(None, None, None, None)
        hidden, logits = (each[:, : self.count] for each in self._found)
        return hidden, logits

    def cancel(self) -> None:
        """Prevents a start: another run may have the workspace now."""
        self._begin = _refuse if self._begin is not None else None

    def verdict(self, request: VerifyRequest) -> Verdict | None:
        """Starts the pass and returns its verdicts; None if it has already started, or if the grammar has no table of masks."""
        rules = None if self._begin is None else self._rules(len(request.positions))
        if rules is None:
            return None
        sampling, masks, numbers = rules
        kind = kind_of(request, sampling, self._vocabulary)
        shape, (integers, floats, *rest) = self._run(kind, request.draft_probs, masks, partial(columns, request, sampling, numbers))
        p = rest.pop(0) if kind.store else None
        self.ahead = tuple(rest)
        return unpack_verdict(kind, integers, floats, p, shape.rows, len(request.positions))

    def _run(self, *request: Any) -> tuple[Bucket, list[Tensor]]:
        shape, (hidden, logits, *rest) = self._begin(*request)
        self._found, self._begin = [hidden, logits], None  # results that somebody keeps must not keep the cache alive
        return shape, rest


def _refuse(*request: Any) -> Any:
    raise RuntimeError("The run is closed, and this pass had not started.")


def _begin(
    static: StaticPasses, what: PassShape, adapter: RowAdapter | None,
    kind: VerdictKind | None, draft_probs: Tensor | ChosenTokens | None, masks: Tensor | None, more: Callable[[int], Tensor] | None,
) -> tuple[Bucket, tuple[Tensor, ...]]:  # fmt: skip
    """Starts a pass; returns its bucket and the results of `_fixed_step`. more : (rows) -> the verdict's inputs, see `columns`"""
    kv_cache, replays, key = static.kv_cache, static.workspace.replays, static.key(what, adapter, kind, masks)
    shape = replays.choose(key, static.count(what), kv_cache.kept, kv_cache.capacity)
    rows, drafted = shape.rows, what.drafted
    inputs = [torch.cat([pass_inputs(what, kv_cache.kept, rows), *([] if more is None else [more(rows)])], 1)]
    inputs += [] if what.is_known else [F.pad(drafted, (1, rows - 1 - len(drafted)))]
    inputs += [] if not isinstance(draft_probs, Tensor) else [F.pad(draft_probs, (0, 0, 0, rows - 1 - len(draft_probs)))]
    ahead = None if kind is None else static.ahead
    whole = partial(_fixed_step, static.trunk, kv_cache.block, shape.span, adapter, kind, masks, ahead, what.is_known)
    return shape, replays.call(key, shape, whole, *inputs)


def _fixed_step(
    trunk: Trunk, block: Tensor, span: int, adapter: RowAdapter | None, kind: VerdictKind | None, masks: Tensor | None,
    ahead: tuple[LookAhead, tuple[Tensor, ...]] | None,
    is_known: bool, inputs: Tensor, *drafts: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Hidden states and logits of a pass; then, with a verdict, its integers, its numbers, p if stored, and the drafter's results.

    drafts : the ids of the drafts, unless they are known, and their distributions, if the verdict needs them
    """
    drafted, *draft_probs = drafts if not is_known else (None, *drafts)
    hidden, logits, ids = fixed_pass(trunk, block, inputs, drafted, span, adapter)
    if kind is None:
        return hidden, logits
    about = inputs[:, NAMED + words(len(inputs)) :]
    integers, numbers, p = fixed_verdict(kind, logits, ids[1:], about, draft_probs[0] if draft_probs else None, masks)
    results = [hidden, logits, integers, numbers, *([] if p is None else [p])]
    if ahead is not None:
        results += ahead[0](hidden, integers[len(inputs) - 1], *ahead[1])
    return tuple(results)
