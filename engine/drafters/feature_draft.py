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
from engine.kernels.tree_attention import fixed_mask, pack
from engine.layout import Layout, Raster
from engine.networks.native_blocks import quick_linear, quicken
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import RMSNorm, TransformerDecoder, rotary_table
from engine.networks.weights import build_network, need, read_tensors, refuse_stale
from engine.networks.workspace import Bucket, bucket
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

    states : [branches, 1 + nodes, H], the predicted features of the root and of every node
    trails : bool [1 + nodes, nodes], for the root and every node, its ancestors and itself; None: no nodes
    levels : int64 [1 + nodes], with the trails
    """

    def __init__(self, network: FeatureDrafter, sequence: TransformerSequence):
        self.network, self.trunk, self.device = network, sequence.trunk, sequence.device
        self.dtype = network.bias.dtype
        self.guidance = sequence.sampling.guidance
        self.cos, self.sin = network.rotary(sequence.layout, sequence.limit)
        settings, self.branches = network.settings, sequence.kv_cache.branches
        head = settings["width"] // settings["heads"]
        self.kv_cache = KVCache(1, self.branches, settings["heads"], sequence.limit + ROOM, head, self.device, self.dtype)
        self.committed = 0
        self.states = torch.empty(0)
        self.trails: Tensor | None = None
        self.workspace = sequence.workspace
        if self.workspace is not None:
            zeros, hold = self.workspace.zeros, self.workspace.hold
            self.kv_cache.use(zeros(NAME, self.kv_cache.shape, self.dtype))
            self.cos, self.sin = hold(f"{NAME} cos", self.cos), hold(f"{NAME} sin", self.sin)
            self.states = zeros(f"{NAME} states", (self.branches, 1 + SEEN, settings["width"]), self.dtype)
            self.sets = zeros(f"{NAME} sets", (1 + SEEN, SEEN // 64), torch.int64)
            self.levels = zeros(f"{NAME} levels", (1 + SEEN,), torch.int64)
        self.key = NAME, network, self.guidance, self.kv_cache.shape

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """hidden [branches, k, H], k tokens -> guided logits [V] after the newest token. Forgets all nodes."""
        self.kv_cache.rewind(self.committed)
        places = torch.arange(self.committed, self.committed + len(tokens))
        states, logits = self._rows(torch.tensor(tokens), hidden, places, torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril())
        self.committed += len(tokens)
        self.states, self.trails = states[:, -1:], None
        return logits[-1]

    def expand(self, parents: list[int] | Tensor, tokens: list[int] | Tensor) -> Tensor:
        """Numbers of parents (-1 is the root) and tokens -> guided logits [k, V]."""
        behind, tokens = torch.as_tensor(parents) + 1, torch.as_tensor(tokens)
        if self.trails is None:
            self.trails = torch.zeros(1, 0, dtype=torch.bool, device=behind.device)
            self.levels = torch.zeros(1, dtype=torch.int64, device=behind.device)
        count = len(tokens)
        visible = torch.cat([self.trails[behind], torch.eye(count, dtype=torch.bool, device=behind.device)], 1)
        levels = self.levels[behind] + 1
        states, logits = self._rows(tokens, self.states[:, behind.to(self.device)], levels + (self.committed - 1), visible)
        self.states, self.levels = torch.cat([self.states, states], 1), torch.cat([self.levels, levels])
        self.trails = torch.cat([F.pad(self.trails, (0, count)), visible])
        return logits

    def _rows(self, tokens: Tensor, features: Tensor, places: Tensor, visible: Tensor) -> tuple[Tensor, Tensor]:
        """One pass over k rows, whose keys and values are kept: tokens int64 [k], features [branches, k, H], positions of the tokens
        int64 [k], and the visible rows after the committed ones bool [k, n] -> states [branches, k, H], guided logits [k, V]."""
        mask = F.pad(visible, (self.committed, 0), value=True)
        results = self._pass(*(each.to(self.device) for each in (tokens, features, places, mask)), self.kv_cache)
        self.kv_cache.keep(list(range(len(tokens))))
        return results

    def _pass(self, tokens: Tensor, features: Tensor, places: Tensor, mask: Tensor, kv_cache: KVCache | FixedView) -> tuple[Tensor, Tensor]:
        embedded = self.trunk.embed(tokens).expand(self.branches, -1, -1)
        states = self.network(embedded.to(self.dtype), features.to(self.dtype), self.cos[places], self.sin[places], mask, kv_cache)
        return states, guide(self.trunk.head(states).float(), self.guidance)

    # --- in fixed shapes: functions of tensors, as in engine/networks/static_step.py --------------------------------------

    def newest(self, hidden: Tensor, tokens: list[int]) -> tuple[Bucket, Tensor, Tensor]:
        """The inputs of `begin_there` for the arguments of `root`, and their bucket: int64 [R, COLUMNS], features [branches, R, H]."""
        count, kept = len(tokens), self.committed
        shape = bucket(count, kept, self.kv_cache.capacity)
        ids, places = (F.pad(each, (0, shape.rows - count)) for each in (torch.tensor(tokens), torch.arange(kept, kept + count)))
        columns = torch.stack([torch.full_like(places, kept)] * 2 + [ids, places], 1)
        own = F.pad(torch.ones(shape.rows, shape.rows, dtype=torch.bool).tril(), (0, SEEN - shape.rows))  # fillers see all before them
        self.committed += count
        return shape, torch.cat([columns, pack(own)], 1), F.pad(hidden.to(self.dtype), (0, 0, 0, shape.rows - count))

    def begin_there(self, span: int, inputs: Tensor, last: Tensor, features: Tensor) -> Tensor:
        """`root`: the guided logits [V] after row `last`, int64 [1]."""
        states, logits = self.fixed_pass(span, inputs, features)
        self.states[:, :1] = states.index_select(1, last)
        return logits.index_select(0, last)

    def expand_there(self, span: int, behind: Tensor, tokens: Tensor, own: Tensor, committed: Tensor) -> Tensor:
        """`expand`: the guided logits [k, V]. behind, own : int64 [k], numbers of the parents and of the nodes; committed : int64 []"""
        bit = torch.where(torch.arange(SEEN // 64, device=own.device) == own[:, None] // 64, 1 << own[:, None] % 64, 0)
        sets, levels = self.sets[behind + 1] | bit, self.levels[behind + 1] + 1
        columns = torch.stack([committed.expand_as(own), committed + own[:1].expand_as(own), tokens, levels + (committed - 1)], 1)
        states, logits = self.fixed_pass(span, torch.cat([columns, sets], 1), self.states[:, behind + 1])
        for table, rows, axis in ((self.states, states, 1), (self.sets, sets, 0), (self.levels, levels, 0)):
            table.index_copy_(axis, own + 1, rows)
        return logits

    def fixed_pass(self, span: int, inputs: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        """States and guided logits of a pass.

        inputs : int64 [R, COLUMNS], for each row: the number of committed rows and of kept rows, its token, its position, and the set of
        rows after the committed ones that it sees; features : [branches, R, H]
        """
        committed, kept, tokens, places = inputs[:, :4].unbind(1)
        view = FixedView(self.kv_cache.block, kept + torch.arange(len(inputs), device=inputs.device), span)
        return self._pass(tokens, features, places, fixed_mask(inputs[:, 4:], committed, span), view)


def weights_file(folder: Path, suffix: str = "") -> Path:
    """The file in a backbone's folder with the drafter that was trained for its weights."""
    return folder / f"{NAME}{suffix}.safetensors"


def read_drafter(
    path: Path, card: dict[str, Any], device: torch.device, weights_hash: str | None = None, dtype: torch.dtype = torch.float32
) -> NetworkFeatures:
    """The drafter in a weights file, with its shape from the backbone's card; raises MissingWeights, also for a drafter that was trained
    for weights with another hash. dtype : of its block and cache; on a CPU always float32, which its packed layers need"""
    if NAME not in card:
        raise MissingWeights(f"The card next to {path} does not describe it. Train it again: python launch.py train feature-draft.")
    refuse_stale(path, card[NAME], weights_hash, "feature-draft")
    settings = need(card, f"{NAME}.settings", dict, path.parent)
    network = build_network(FeatureDrafter, settings, read_tensors(path), path).eval().requires_grad_(False)
    network.to(device, torch.float32 if device.type == "cpu" else dtype)
    if device.type == "cpu":
        network.mix = quick_linear(network.mix)
        quicken(network.decoder)
    return NetworkFeatures(network)
