"""The caller's model as a backbone: its own forward pass, our cache as its cache, explicit positions and visibility masks.

The whole `forward` of the class runs, head included, so that whatever it does to logits (a cap, a scale, a mask) is in the distribution.
The inputs of a pass are ids, not embeddings: the "embedding" of TransformerSequence is the id itself, [branches, R, 1].

A guidance pair is one batch of two. The shorter prompt is padded on its left; its padding is never attended to.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.cache import KVCache
from engine.core import Backbone, DeviceIds, Prompt, Rows, Sampling
from engine.errors import NotSupported
from engine.kernels.attention_backends import without_cudnn
from engine.layout import Layout, Line, Raster
from engine.networks.hosted import DRAFT_ROWS, PaddedTrunk, cache_over
from engine.networks.rows import RowSplit
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import causal_mask
from engine.sampling import guide, warp
from engine.transformers.attention import LAST, LayerVisibility, attention_of
from engine.transformers.processors import CallerDistribution
from engine.verify.choice import warped_scores

Stop = Callable[[Tensor, Any], Tensor]  # a stopping criterion


@dataclass(frozen=True)
class Branch:
    """One prompt of a guidance pair: its ids int64 [n], and the position of the first."""

    ids: Tensor
    first: int = 0


class LateKVCache(KVCache):
    """A KVCache that takes heads, width, device and number type from the first rows that are written."""

    def __init__(self, layers: int, branches: int, capacity: int):
        self.block: Tensor | None = None
        self.layers, self.rows = layers, capacity
        self.kept, self.branches = 0, branches

    @property
    def capacity(self) -> int:
        """The maximum number of rows."""
        return self.rows

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores [branches, heads, R, width] after the kept rows; returns all visible keys and values."""
        branches, heads, _, width = keys.shape
        if self.block is None:
            shape = (self.layers, 2, branches, heads, self.rows, width)
            self.block = torch.zeros(shape, device=keys.device, dtype=keys.dtype)
        expected = (self.block.shape[2], self.block.shape[3], self.block.shape[5])
        if not expected == (branches, heads, width) == (*values.shape[:2], values.shape[3]) or keys.device != self.block.device:
            raise NotSupported("The layers of this model differ in their keys and values, or lie on several devices. Use plain generate.")
        return super().write(layer, keys, values)


class CallerTrunk(PaddedTrunk):
    """The caller's model for one run."""

    def __init__(self, model: PreTrainedModel, branches: Sequence[Branch], attention: LayerVisibility):
        self.model, self.attention = model, attention
        self.prefix = max(len(branch.ids) for branch in branches)
        super().__init__([self.prefix - len(branch.ids) for branch in branches], model.device)
        self.first = torch.tensor([branch.first for branch in branches], device=model.device)[:, None]
        self._last = torch.stack([branch.ids[-1] for branch in branches]).to(model.device)[:, None, None]
        self._first: Tensor | None = None  # logits [branches, 1, V] after the prompt, until the first pass takes them
        self._additive = model.config.get_text_config(decoder=True)._attn_implementation == "eager"
        self._last_only = "logits_to_keep" in inspect.signature(model.forward).parameters

    def embed(self, tokens: Tensor) -> Tensor:
        """[R] ids -> the same ids, [1, R, 1]"""
        return tokens[None, :, None]

    def run(self, x: Tensor, slots: Tensor, mask: Tensor | None, kv_cache: KVCache, split: RowSplit | None = None) -> Tensor:
        """See Trunk; x are ids [branches, R, 1], and the result is logits [branches, R, V]: the class computes its head in the same
        pass. The pass over the prompt takes its last id, too, and gives the logits of the first pass, as `generate` does."""
        assert split is None, "a model of transformers has no predictive stream"
        if kv_cache.kept < self.prefix - 1:
            return self._prefill(x, kv_cache)
        first, self._first = self._first, None
        if first is not None and kv_cache.kept == self.prefix - 1 and x.shape[1] == 1:
            return first  # the row of the cache is written
        return self._pass(x, slots, mask, kv_cache)

    def _prefill(self, x: Tensor, kv_cache: KVCache) -> Tensor:
        """The pass over a whole prompt, of which x [branches, P - 1, 1] lacks the last id; returns and keeps logits [branches, 1, V]."""
        slots = torch.arange(self.prefix, device=x.device)
        mask = causal_mask(self.prefix, 0, x.device) if self._padded else None  # None: causal, which transformers knows a faster way for
        self._first = self._pass(torch.cat([x, self._last], 1), slots, mask, kv_cache, last_only=self._last_only)[:, -1:]
        return self._first

    def _pass(self, x: Tensor, slots: Tensor, mask: Tensor | None, kv_cache: KVCache, last_only: bool = False) -> Tensor:
        """Logits [branches, R, V] of one call of the class."""
        with without_cudnn(x.device):
            return self.model(
                input_ids=x[..., 0],
                attention_mask=self._visible(mask, slots, kv_cache.kept),
                position_ids=self._positions(slots) + self.first,
                past_key_values=cache_over(kv_cache, self.attention.layers, whole=False),
                use_cache=True,
                return_dict=True,
                **({"logits_to_keep": 1} if last_only else {}),
            ).logits

    def _visible(self, mask: Tensor | None, slots: Tensor, kept: int) -> Tensor | dict[str, Tensor] | None:
        """The visibility of a pass as the class takes it, [1 or branches, 1, R, kept + R], or one for each kind of layer; None where every
        row sees everything before."""
        count = len(slots)
        causal = mask is None if count > 1 else self.attention.reaches(kept + 1)
        if causal and not self._padded:
            return None
        if mask is None:
            mask = torch.ones(count, kept + count, dtype=torch.bool, device=slots.device)
        visible = self._without_padding(mask, torch.arange(kept, kept + count, device=slots.device))
        masks = {kind: self._as_taken(each) for kind, each in self.attention.masks(visible[:, None], slots, kept).items()}
        return masks if self.attention.mixed else masks[LAST]

    def _as_taken(self, visible: Tensor) -> Tensor:
        """A mask as the attention takes it: bool, or numbers to add."""
        if not self._additive:
            return visible
        dtype = self.model.dtype
        return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill(~visible, torch.finfo(dtype).min)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits unchanged: the pass has computed them."""
        return hidden


class Path:
    """A grammar that allows everything and only remembers: its state is the tuple of all ids so far, prompt included."""

    masks = None

    def __init__(self, ids: Sequence[int], vocabulary: int):
        self.start, self.vocabulary = tuple(ids), vocabulary

    def next(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The ids followed by one more."""
        return (*state, token)

    def allowed_ids(self, state: tuple[int, ...]) -> Tensor:
        """Every id."""
        return torch.ones(self.vocabulary, dtype=torch.bool)


class CallerSequence(TransformerSequence):
    """One run on one prompt, with the caller's processors in its distributions and the caller's criteria at its end."""

    def __init__(self, trunk: CallerTrunk, prefix: Tensor, kv_cache: KVCache, model: CallerModel, sampling: Sampling):
        self.model = model
        path = Path(model.input_ids, model.vocabulary) if model.reading.needs_paths else None
        super().__init__(
            trunk, prefix, None, kv_cache, vocabulary=model.vocabulary, limit=model.limit, layout=model.layout, sampling=sampling,
            grammar=path, codebook=model.codebook,
        )  # fmt: skip

    def _rows(self, *arguments: Any) -> Rows:
        rows = super()._rows(*arguments)
        if (width := rows.logits.shape[-1]) != self.vocabulary:
            raise NotSupported(f"The model gives {width:,} logits per row, and its head has {self.vocabulary:,}. Use plain generate.")
        if self.model.reading.called:
            rows.settings = rows.make_host = None  # a kernel knows nothing of the caller's processors
        return rows

    def _warp(self, parents: list[int] | None, tokens: DeviceIds, state: Any, logits: Tensor, soft: bool = False) -> Tensor:
        sampling = self.sampling.soften() if soft else self.sampling
        if not self.model.reading.called:
            return warped_scores(logits, sampling, None)
        scores = logits.float()
        if len(scores) > 1:
            scores = torch.log_softmax(scores, -1)  # as the caller's guidance does: some processors look at the size of scores
        paths = []
        if self.grammar is not None:
            states = [state]
            for i, token in enumerate(tokens.to_list()):
                states.append(self.grammar.next(states[i if parents is None else parents[i] + 1], token))
            paths = [torch.tensor(each, device=scores.device) for each in states[: scores.shape[1]]]
        return warp(self.model.reading.apply(guide(scores, sampling.guidance), paths), sampling)

    def probs_after(self, logits: Tensor, *paths: list[int]) -> Tensor:
        """Distributions [k, V] from guided logits [k, V], after the committed tokens and hypothetical paths, one per row or one for all."""
        ids = [torch.tensor(self.state(path), device=logits.device) for path in paths] if self.grammar else []
        if len(ids) == 1:
            ids *= len(logits)
        return torch.softmax(warp(self.model.reading.apply(logits.float(), ids), self.sampling), -1)

    def commit(self, nodes: list[int], token: int) -> list[int]:
        """Keeps a path of the last pass and makes `token` pending; cut where a criterion of the caller ends the sequence."""
        new = [*(self._draft.to_list()[i] for i in nodes), token][: self.limit - self.length]
        count = self._stop(new)
        if count is not None:
            nodes, token = nodes[: count - 1], new[count - 1]
        committed = super().commit(nodes, token)
        self.done = self.done or count is not None
        return committed

    def _stop(self, new: list[int]) -> int | None:
        """The number of new tokens up to the one that ends the sequence; None if none does."""
        for count, token in enumerate(new, 1):
            if token in self.model.ends:
                return count
            if self.model.criteria:
                ids = torch.tensor([[*self.model.input_ids, *self.tokens, *new[:count]]], device=self.device)
                if any(bool(criterion(ids, None).all()) for criterion in self.model.criteria):
                    return count
        return None


class CallerModel(Backbone):
    """The backbone of one prompt: a model of transformers, the prompt, and the caller's settings."""

    def __init__(
        self,
        model: PreTrainedModel,
        branches: Sequence[Branch],
        limit: int,
        reading: CallerDistribution,
        *,
        input_ids: Sequence[int] = (),
        ends: frozenset[int] = frozenset(),
        criteria: Sequence[Stop] = (),
        grid: tuple[int, int] | None = None,
        codebook: Tensor | None = None,
    ):
        """branches : the prompt, and with guidance the unconditional one; limit : the most new tokens; input_ids : the caller's own ids,
        padding included, for processors and criteria that read them; ends : ids that end the sequence; criteria : what else ends it;
        grid : rows and columns of a picture; codebook : [V, e], a vector for each id (default: the input embeddings).

        Raises NotSupported for a class that it cannot run."""
        self.model, self.branches, self.limit, self.reading = model, tuple(branches), limit, reading
        self.input_ids, self.ends, self.criteria = tuple(input_ids), ends, tuple(criteria)
        self.name, self.device = type(model).__name__, model.device
        self.dtype = str(model.dtype).removeprefix("torch.")
        self.attention = attention_of(model, max(len(branch.ids) for branch in branches) + limit)
        self.vocabulary = vocabulary_of(model)
        self.sampling = reading.sampling
        self.layout: Layout = Line() if grid is None else Raster(*grid)
        self.codebook = model.get_input_embeddings().weight.detach() if codebook is None else codebook
        self.capabilities = frozenset({"text", "codebook", *(() if grid is None else ("raster", "wavefront"))})

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.model.parameters())

    def start(self, prompt: Prompt) -> CallerSequence:
        """Prefills the prompt that the backbone was made for; reads only the sampling of `prompt`."""
        trunk = CallerTrunk(self.model, self.branches, self.attention)
        prefix = torch.zeros(len(self.branches), trunk.prefix, 1, dtype=torch.int64, device=self.device)
        for row, branch in zip(prefix, self.branches, strict=True):
            row[trunk.prefix - len(branch.ids) :, 0] = branch.ids
        kv_cache = LateKVCache(self.attention.layers, len(self.branches), trunk.prefix + self.limit + DRAFT_ROWS)
        return CallerSequence(trunk, prefix, kv_cache, self, prompt.sampling or self.sampling)

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> list[int]:
        """The tokens in order of their positions: the caller interprets them."""
        return [token for _, token in sorted(zip(positions, tokens, strict=True))]


def vocabulary_of(model: PreTrainedModel) -> int:
    """The number of logits of a row."""
    head = model.get_output_embeddings()
    if head is not None and hasattr(head, "weight"):
        return head.weight.shape[0]
    return model.config.get_text_config(decoder=True).vocab_size
