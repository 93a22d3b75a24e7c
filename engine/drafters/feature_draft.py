"""What trees ask of a drafter that reads the model's features, and the one-layer drafter of EAGLE that answers it.

Paper: EAGLE, Li et al., arXiv 2401.15077: the drafter's row t reads the token x[t+1] beside the model's last hidden state f[t], predicts
the state f[t+1], and the model's own output layer makes of it the logits of x[t+2]. Mind the shift by one between token and feature.
Deviations: both inputs are normalised, because embeddings and states of our models differ in length by far. The drafter has no rows of
the prompt, and for meshes no cross-attention to the points: every state it reads has looked at the prompt in all layers of the model
and, for pictures, every embedding holds the gist of the caption. So one block serves all backbones, and a level of a tree costs one block.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.cache import Slab
from engine.core import Sequence
from engine.errors import MissingWeights
from engine.layout import Layout, Raster
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import Decoder, Norm, causal, rotary_table
from engine.networks.weights import built, need, read_tensors, refuse_stale
from engine.sampling import guide

NAME = "feature_draft"  # the capability, the stem of the weights file, and the key of the card
FIELD = 16.0  # rotary coordinates of a picture run from 0 to this along either side, whatever its size
ROOM = 512  # nodes that fit into the cache behind the longest sequence: the widest tree grows on 11 levels of 40


class FeatureGrowth(Protocol):
    """One run of a drafter. It owns a cache of the committed tokens and, on top, one of the nodes that were grown since.

    Both branches of a guidance pair are the drafter's own affair, as they are the backbone's: the same tokens go into both, and the
    logits come back guided. They come raw, that is without grammar, temperature and filters; `Sequence.law` makes a law of them.
    """

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """The newest committed tokens, in order; forgets the nodes of the cycle before.

        hidden : [branches, k, H], for each token the model's last hidden state in the row that predicted it: of a pass, row 0 and the rows
        of the accepted nodes. tokens : k, the accepted ones and the one behind them. A drafter must never keep rows that it computed
        from states of its own. The first call of a run brings the first token; what a drafter wants to know of the prompt it reads
        from the sequence at the start.
        Returns the guided logits [V] of the token behind the newest one.
        """
        ...

    def expand(self, parents: list[int], tokens: list[int]) -> Tensor:
        """Grows nodes, each behind an earlier one, in one pass: a node sees the committed tokens, its ancestors and itself.

        parents : for each node the number of its parent; nodes are numbered in the order in which they were grown since `root`, and -1 is
        the root. A node reads its token beside the drafter's own state of its parent.
        Returns the guided logits [k, V] of the tokens behind the nodes.
        """
        ...


class FeatureDraft(Protocol):
    """What a backbone's `drafter("feature_draft")` gives: weights, shared by all runs."""

    def start(self, sequence: Sequence) -> FeatureGrowth:
        """For one run; it ends with the run and needs no closing."""
        ...


class FeatureDrafter(nn.Module):
    """A token's embedding beside a feature, one block, the next feature. The output layer is the backbone's own.

    width, heads : those of the backbone's hidden states; inner : of the feed-forward part
    """

    def __init__(self, width: int, heads: int, inner: int):
        super().__init__()
        self.settings = {"width": width, "heads": heads, "inner": inner}
        self.token_norm, self.feature_norm = Norm(width), Norm(width)
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.decoder = Decoder(1, width, heads, inner)
        self.bias = nn.Parameter(torch.zeros(width))  # the final norm of a mesh model has one

    def forward(self, embedded: Tensor, features: Tensor, cos: Tensor, sin: Tensor, mask: Tensor, slab: Slab | None = None) -> Tensor:
        """embedded, features [B, R, width]; cos, sin [R, head width]; mask bool [R, all] -> predicted features [B, R, width]."""
        x = self.mix(torch.cat([self.token_norm(embedded), self.feature_norm(features)], -1))
        return self.decoder(x, cos, sin, mask, slab) + self.bias

    def rotary(self, layout: Layout, count: int) -> tuple[Tensor, Tensor]:
        """cos and sin [count, head width] of the first positions of a layout: rows and columns of a picture, else the position itself."""
        head = self.settings["width"] // self.settings["heads"]
        at = torch.arange(count, device=self.bias.device)
        if isinstance(layout, Raster):
            sides = ((at // layout.columns + 0.5) / layout.rows, (at % layout.columns + 0.5) / layout.columns)
            return rotary_table(torch.stack(sides, -1) * FIELD, head)
        return rotary_table(at[:, None], head, base=10_000.0)


class NetworkFeatures:
    """A trained drafter as trees want it: weights, shared by all runs."""

    def __init__(self, network: FeatureDrafter):
        self.network = network.eval()

    def start(self, sequence: TransformerSequence) -> NetworkGrowth:
        """For one run."""
        return NetworkGrowth(self.network, sequence)


class NetworkGrowth:
    """One run of `NetworkFeatures`. The slab keeps the committed tokens; nodes grown since `root` lie behind them until the next `root`.

    states : [branches, 1 + nodes, H], the predicted features of the root and of every node
    trails : of every node the numbers of its ancestors and its own
    """

    def __init__(self, network: FeatureDrafter, sequence: TransformerSequence):
        self.network, self.trunk, self.device = network, sequence.trunk, sequence.device
        self.guidance = sequence.sampling.guidance
        self.cos, self.sin = network.rotary(sequence.layout, sequence.limit)
        settings, self.branches = network.settings, sequence.slab.branches
        head = settings["width"] // settings["heads"]
        self.slab = Slab(1, self.branches, settings["heads"], sequence.limit + ROOM, head, self.device, torch.float32)
        self.committed = 0
        self.states = torch.empty(0)
        self.trails: list[list[int]] = []

    def root(self, hidden: Tensor, tokens: list[int]) -> Tensor:
        """hidden [branches, k, H], k tokens -> guided logits [V] behind the newest token. Forgets all nodes."""
        self.slab.rewind(self.committed)
        mask = causal(len(tokens), self.committed, self.device)
        places = list(range(self.committed, self.committed + len(tokens)))
        states, logits = self._rows(tokens, hidden, places, mask)
        self.committed += len(tokens)
        self.states, self.trails = states[:, -1:], []
        return logits[-1]

    def expand(self, parents: list[int], tokens: list[int]) -> Tensor:
        """Numbers of parents (-1 is the root) and tokens -> guided logits [k, V]."""
        new = [[*(self.trails[parent] if parent >= 0 else []), len(self.trails) + i] for i, parent in enumerate(parents)]
        mask = torch.zeros(len(new), self.slab.kept + len(new), dtype=torch.bool)
        mask[:, : self.committed] = True
        for row, trail in zip(mask, new, strict=True):
            row[[self.committed + node for node in trail]] = True
        places = [self.committed + len(trail) - 1 for trail in new]
        states, logits = self._rows(tokens, self.states[:, [parent + 1 for parent in parents]], places, mask.to(self.device))
        self.states, self.trails = torch.cat([self.states, states], 1), self.trails + new
        return logits

    def _rows(self, tokens: list[int], features: Tensor, places: list[int], mask: Tensor) -> tuple[Tensor, Tensor]:
        """One pass over k rows, whose keys and values stay: features [branches, k, H], places of the tokens -> states, guided logits."""
        embedded = self.trunk.embed(torch.tensor(tokens, device=self.device)).expand(self.branches, -1, -1)
        states = self.network(embedded, features, self.cos[places], self.sin[places], mask, self.slab)
        self.slab.keep(list(range(len(tokens))))
        return states, guide(self.trunk.head(states).float(), self.guidance)


def weights_file(folder: Path, suffix: str = "") -> Path:
    """Where a backbone's folder keeps the drafter that was trained for its weights."""
    return folder / f"{NAME}{suffix}.safetensors"


def read_drafter(path: Path, card: dict[str, Any], device: torch.device, weights_hash: str | None = None) -> NetworkFeatures:
    """The drafter of a weights file, whose shape stands on the backbone's card; raises MissingWeights, also for one that was trained for
    other weights than those of the hash."""
    if NAME not in card:
        raise MissingWeights(f"The card beside {path} does not describe it. Train it again: python launch.py train feature-draft.")
    refuse_stale(path, card[NAME], weights_hash, "feature-draft")
    settings = need(card, f"{NAME}.settings", dict, path.parent)
    return NetworkFeatures(built(FeatureDrafter, settings, read_tensors(path), path).to(device))
