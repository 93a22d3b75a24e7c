"""The interface between draft trees and a drafter that reads the model's features, and the one-layer drafter of EAGLE.

Paper: EAGLE, Li et al., arXiv 2401.15077: the drafter's row t reads the token x[t+1] together with the model's last hidden state f[t] and
predicts the state f[t+1]; the model's own output layer turns that into the logits of x[t+2]. Token and feature are shifted by one.
Deviations: both inputs are normalised, because the embeddings and states of our models differ greatly in length. The drafter has no rows
for the prompt, and for meshes no cross-attention to the points: in every layer of the model, each state that it reads has attended
to the prompt and, for pictures, every embedding includes a summary of the caption. So one block serves all backbones, and a tree level
costs one block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.cache import FixedView, KVCache
from engine.core import Sequence
from engine.errors import MissingWeights
from engine.kernels.cpu.library import native
from engine.kernels.tree_attention import Chain, fixed_mask, pack
from engine.layout import Layout, Raster
from engine.networks.native_blocks import quick_linear, quicken
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import RMSNorm, TransformerDecoder, rotary_table
from engine.networks.weights import build_network, need, read_tensors, refuse_stale
from engine.sampling import guide

NAME = "feature_draft"  # name of the capability, of the weights file's stem and of the card's entry
FIELD = 16.0  # the range of a picture's rotary coordinates along each side, at every size
SEEN = 512  # rows after the committed ones that a pass in fixed shapes may refer to
COLUMNS = 4 + SEEN // 64  # of the inputs of such a pass
ROOM = 512  # nodes that fit into the cache after the longest sequence: the widest tree has 11 levels of 40


class FeatureGrowth(Protocol):
    """One run of a drafter. It owns a cache of the committed tokens, followed by the nodes grown since then.

    The drafter handles both branches of a guidance pair itself, as the backbone does: the same tokens go into both, and it returns guided
    logits. The logits are raw, without grammar, temperature and filters; `Sequence.probs_after` turns them into a distribution.
    """

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """Adds the newest committed tokens, in order, and forgets the nodes of the previous cycle.

        hidden : [branches, k, H], for each token the model's last hidden state in the row that predicted it: row 0 of a pass and the rows
        of the accepted nodes. tokens : k, the accepted tokens and the token after them. A drafter must never keep rows computed from its
        own states. The first call of a run passes the first token; the drafter reads everything else about the prompt from the
        sequence at the start.
        Returns the guided logits [V] of the token after the newest one.
        """
        ...

    def expand(self, parents: list[int] | Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Grows nodes, each after an earlier one, in one pass: a node sees the committed tokens, its ancestors and itself.

        parents : each node's parent, numbered in the order of growth since `root`; -1 is the root. A node reads its token together with
        the drafter's own state of its parent. Both may be on the device, if all are until the next `root`; then nothing is sent.
        Returns the guided logits [k, V] of the tokens after the nodes.
        """
        ...


class FeatureDraft(Protocol):
    """The result of a backbone's `drafter("feature_draft")`: weights that all runs share."""

    def start(self, sequence: Sequence) -> FeatureGrowth:
        """Starts a run. It needs no closing."""
        ...


class FeatureDrafter(nn.Module):
    """Maps a token's embedding and a feature to the next feature, with one block. The output layer is the backbone's own.

    width, heads : of the backbone's hidden states; inner : of the feed-forward part
    """

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.settings = {"width": width, "heads": heads, "inner": inner}
        self.token_norm, self.feature_norm = RMSNorm(width), RMSNorm(width)
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.decoder = TransformerDecoder(1, width, heads, inner)
        self.bias = nn.Parameter(torch.zeros(width))  # a mesh model's final norm has an offset

    def forward(
        self, embedded: Tensor, features: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, kv_cache: KVCache | None = None
    ) -> Tensor:
        """embedded, features [B, R, width]; cos, sin [R, head width]; mask bool [R, all] -> predicted features [B, R, width]."""
        x = self.mix(torch.cat([self.token_norm(embedded), self.feature_norm(features)], -1))
        return self.decoder(x, cos, sin, mask, kv_cache) + self.bias

    def rotary(self, layout: Layout, count: int) -> tuple[Tensor, Tensor]:
        """cos and sin [count, head width] of the first positions of a layout: by row and column in a picture, else by position."""
        head = self.settings["width"] // self.settings["heads"]
        at = torch.arange(count, device=self.bias.device)
        if isinstance(layout, Raster):
            sides = ((at // layout.columns + 0.5) / layout.rows, (at % layout.columns + 0.5) / layout.columns)
            return rotary_table(torch.stack(sides, -1) * FIELD, head)
        return rotary_table(at[:, None], head, base=10_000.0)


class NetworkFeatures:
    """A trained drafter for trees: weights that all runs share."""

    def __init__(self, network: FeatureDrafter):
        self.network = network.eval()

    def start(self, sequence: TransformerSequence) -> NetworkGrowth:
        """Starts a run."""
        return NetworkGrowth(self.network, sequence)


class NetworkGrowth:
    """One run of `NetworkFeatures`. The cache keeps the committed tokens, followed by the nodes grown since `root`, until the next `root`.
    Node 0 of its tables is the root.

    states : [branches, 1 + SEEN, H], the predicted features; levels : int64 [1 + SEEN]; seen : bool [1 + SEEN, SEEN], or in graphs
    sets : int64 [1 + SEEN, words], of each node, its ancestors and itself
    """

    def __init__(self, network: FeatureDrafter, sequence: TransformerSequence):
        self.network, self.trunk, self.device, self.workspace = network, sequence.trunk, sequence.device, sequence.workspace
        self.dtype, self.guidance = network.bias.dtype, sequence.sampling.guidance
        self.cos, self.sin = network.rotary(sequence.layout, sequence.limit)
        settings, branches = network.settings, sequence.kv_cache.branches
        self.scale = self.guidance if branches > 1 and self.trunk.drafts_once else 1.0
        self.branches = 1 if self.scale != 1 else branches
        head = settings["width"] // settings["heads"]
        self.kv_cache = KVCache(1, self.branches, settings["heads"], sequence.limit + ROOM, head, self.device, self.dtype)
        self.committed, self.grown = 0, 0
        if self.workspace is not None:
            self.kv_cache.use(self.workspace.zeros(NAME, self.kv_cache.shape, self.dtype))
            self.cos, self.sin = self.workspace.hold(f"{NAME} cos", self.cos), self.workspace.hold(f"{NAME} sin", self.sin)
        self.states = self.zeros("states", (self.branches, 1 + SEEN, settings["width"]), self.dtype)
        self.sets, self.levels = self.zeros("sets", (1 + SEEN, SEEN // 64)), self.zeros("levels", (1 + SEEN,))
        self.seen = torch.zeros(1 + SEEN, SEEN, dtype=torch.bool, device=self.device)
        self.key = NAME, network, self.kv_cache.shape

    def zeros(self, name: str, shape: tuple[int, ...], dtype: torch.dtype = torch.int64) -> Tensor:
        """Zeros on the device, where graphs read them."""
        if self.workspace is not None:
            return self.workspace.zeros(f"{NAME} {name}", shape, dtype)
        return torch.zeros(shape, dtype=dtype, device=self.device)

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """hidden [branches, k, H], k tokens -> guided logits [V] after the newest token. Forgets all nodes."""
        self.kv_cache.rewind(self.committed)
        count, kept = len(tokens), self.committed
        self.committed, self.grown = kept + count, 0
        ids = torch.tensor(tokens, device=self.device)
        states = self._states(ids, hidden, slice(kept, kept + count), Chain(count, kept), self.kv_cache)[:, -1:]
        self.kv_cache.keep(list(range(count)))
        self.states[:, :1] = states
        return self._logits(states, self.guidance)[0]

    def expand(self, parents: list[int] | Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Numbers of parents (-1 is the root) and tokens -> guided logits [k, V]."""
        behind, tokens = (torch.as_tensor(each, device=self.device) for each in (parents, tokens))
        first, count = self.grown + 1, len(tokens)  # in the tables, where 0 is the root
        self.grown, after, behind = self.grown + count, slice(first, first + count), behind + 1
        seen, levels = self.seen[behind], self.levels[behind] + 1
        seen[:, first - 1 : self.grown].fill_diagonal_(True)
        mask = F.pad(seen[:, : self.grown], (self.committed, 0), value=True)
        states = self._states(tokens, self.states[:, behind], levels + (self.committed - 1), mask, self.kv_cache)
        self.kv_cache.keep(list(range(count)))
        self.states[:, after], self.seen[after], self.levels[after] = states, seen, levels
        return self._logits(states, self.guidance)

    def newest(self, hidden: Tensor, tokens: list[int], rows: int) -> tuple[Tensor, Tensor]:
        """The inputs of `begin_there` for the arguments of `root`, padded: int64 [rows, COLUMNS] and features [branches, rows, H]."""
        count, kept = len(tokens), self.committed
        ids, places = (F.pad(each, (0, rows - count)) for each in (torch.tensor(tokens), torch.arange(kept, kept + count)))
        columns = torch.stack([torch.full_like(places, kept)] * 2 + [ids, places], 1)
        own = F.pad(torch.ones(rows, rows, dtype=torch.bool).tril(), (0, SEEN - rows))  # fillers see all before them
        self.committed += count
        return torch.cat([columns, pack(own)], 1), F.pad(hidden.to(self.dtype), (0, 0, 0, rows - count))

    def _states(
        self, tokens: Tensor, features: Tensor, places: Tensor | slice, mask: Tensor | Chain, kv_cache: KVCache | FixedView
    ) -> Tensor:
        """One pass over k rows: predicted features [branches, k, H]. Of a guidance pair whose drafts are computed once, it is the first
        branch, and guidance multiplies its logits (see `TransformerSequence`)."""
        embedded, features = self.trunk.embed(tokens)[: self.branches], features[: self.branches]
        embedded = embedded.expand(self.branches, -1, -1)
        return self.network(embedded.to(self.dtype), features.to(self.dtype), self.cos[places], self.sin[places], mask, kv_cache)

    def _logits(self, states: Tensor, guidance: float | Tensor) -> Tensor:
        """Guided logits [k, V] of predicted features."""
        logits = guide(self.trunk.head(states).float(), guidance)
        return logits if self.scale == 1 else logits * self.scale

    # Functions of tensors. span : of a pass in fixed shapes, see engine/networks/static_step.py

    def begin_there(self, span: int, inputs: Tensor, last: Tensor, features: Tensor, guidance: float | Tensor) -> Tensor:
        """`root`: the guided logits [1, V] after row `last`, int64 [1]."""
        states = self._fixed_pass(span, inputs, features).index_select(1, last)
        self.states[:, :1] = states
        return self._logits(states, guidance)

    def expand_there(
        self, span: int, behind: Tensor, tokens: Tensor, own: Tensor, committed: Tensor, guidance: float | Tensor
    ) -> Tensor:  # fmt: skip
        """`expand`: the guided logits [k, V]. behind, own : int64 [k], numbers of parents and nodes; committed : int64 []"""
        bit = torch.where(torch.arange(SEEN // 64, device=own.device) == own[:, None] // 64, 1 << own[:, None] % 64, 0)
        sets, levels = self.sets[behind + 1] | bit, self.levels[behind + 1] + 1
        columns = torch.stack([committed.expand_as(own), committed + own[:1].expand_as(own), tokens, levels + (committed - 1)], 1)
        states = self._fixed_pass(span, torch.cat([columns, sets], 1), self.states[:, behind + 1])
        for table, rows, axis in ((self.states, states, 1), (self.sets, sets, 0), (self.levels, levels, 0)):
            table.index_copy_(axis, own + 1, rows)
        return self._logits(states, guidance)

    def _fixed_pass(self, span: int, inputs: Tensor, features: Tensor) -> Tensor:
        """One pass over k rows, whose keys and values are kept: predicted features [branches, k, H].

        inputs : int64 [k, COLUMNS], for each row: the number of committed rows and of kept rows, its token, its position, and the set of
        rows after the committed ones that it sees; features : [branches, k, H]
        """
        committed, kept, tokens, places = inputs[:, :4].unbind(1)
        at = kept + torch.arange(len(inputs), device=inputs.device)
        mask = fixed_mask(inputs[:, 4:], committed, span)
        return self._states(tokens, features, places, mask, FixedView(self.kv_cache.block, at, span))


def weights_file(folder: Path, suffix: str = "") -> Path:
    """The file in a backbone's folder with the drafter that was trained for its weights."""
    return folder / f"{NAME}{suffix}.safetensors"


def read_drafter(
    path: Path, card: dict[str, Any], device: torch.device, weights_hash: str | None = None, dtype: torch.dtype = torch.float32
) -> NetworkFeatures:
    """The drafter in a weights file, with its shape from the backbone's card; raises MissingWeights, also for a drafter that was trained
    for weights with another hash. dtype : of its block and cache; on a CPU, of the products of its block alone"""
    if NAME not in card:
        raise MissingWeights(f"The card next to {path} does not describe it. Train it again: python launch.py train feature-draft.")
    refuse_stale(path, card[NAME], weights_hash, "feature-draft")
    settings = need(card, f"{NAME}.settings", dict, path.parent)
    network = build_network(FeatureDrafter, settings, read_tensors(path), path).eval().requires_grad_(False)
    network.to(device, torch.float32 if device.type == "cpu" else dtype)
    if device.type == "cpu":
        network.mix = quick_linear(network.mix)
        quicken(network.decoder, dtype if native(dtype) is not None else torch.float32)
    return NetworkFeatures(network)
