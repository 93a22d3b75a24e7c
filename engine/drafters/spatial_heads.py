"""Row and column heads: the distribution of a picture token from the known tokens to its left and above it.

Paper: SSD: Spatially Speculative Decoding Accelerates Autoregressive Image Generation, Xiang et al., arXiv 2606.20543: small networks read
the last hidden state of a token, and its embedding, and predict the states of the tokens to its right and below it. The model's
own output layer turns a state into a distribution.
Deviations: one network reads both directions, with the direction as an input, because a token has a neighbour above and a newest token to
its left. From above it reads two tokens, side by side. It predicts the state after the model's last norm. Where the
output layer is affine, guidance may come before it: then the states of the two branches are mixed first, and the heads run once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.core import Rows, Sequence
from engine.errors import MissingWeights
from engine.layout import Layout
from engine.networks.initial import small_normal
from engine.networks.native_blocks import quick_linear
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import RMSNorm
from engine.networks.weights import build_network, need, read_tensors, refuse_stale
from engine.sampling import guide

NAME = "spatial_heads"  # name of the capability, of the weights file's stem and of the card's entry
REACH = 8  # the greatest distance, in positions, of a prediction along the row


@dataclass(frozen=True)
class SlotInputs:
    """The positions of the inputs of some slots, all with known state and token.

    above    : int64 [N, 2], the position above each slot and the one after that; not read where `has_above` is false
    newest   : the newest position with a state, the input to the left; -1: none
    distance : int64 [N], from there to the slot: 0 = not read, 1..reach in the same row, reach + 1..2 reach from an earlier row
    """

    above: Tensor
    has_above: Tensor
    newest: int
    distance: Tensor

    @staticmethod
    def of(
        slots: range, newest: int, layout: Layout, reach: int, rows: bool = True, columns: bool = True, known: int | None = None
    ) -> SlotInputs:
        """The inputs of consecutive slots, all after `newest`. rows, columns : read the inputs to the left, and above; known : the last
        position above that may be read; None: newest"""
        slot = torch.arange(slots.start, slots.stop)
        wide = layout.reach
        above = slot - wide
        known = newest if known is None else known
        has_above = (above >= 0) & (above + 1 <= known) & (above + 1 < slot) & columns
        far = slot - newest
        crosses = slot // wide != newest // wide
        distance = torch.where((far <= reach) & (newest >= 0) & rows, far + reach * crosses, 0)
        return SlotInputs(torch.stack([above, above + 1], -1).clamp(0, max(0, known)), has_above, newest, distance)


class SpatialGuess(Protocol):
    """One run of row and column heads."""

    def observe(self, start: int, rows: Rows) -> None:
        """Takes a pass whose row i predicted position start+i. Reads its hidden states when they are needed."""
        ...

    def observe_states(self, start: int, hidden: Tensor) -> None:
        """Takes the states [branches, k, H] that predicted the positions from start on; in a tree, the states of the accepted path."""
        ...

    def guess(self, slots: range, drafts: Tensor, rows: bool = True, columns: bool = True) -> Tensor:
        """Guided logits [N, V] of consecutive slots, from the states of passes and from tokens: the committed tokens, then `drafts`,
        int64 [k]. Grammar, temperature and filters are not applied."""
        ...


class SpatialDrafter(Protocol):
    """The result of a backbone's `drafter("spatial_heads")`: weights that all runs share. reach : see REACH"""

    reach: int

    def start(self, sequence: Sequence) -> SpatialGuess:
        """Starts a run. It needs no closing."""
        ...


class SpatialHeads(nn.Module):
    """Maps states and embeddings around a slot to the state that predicts it. The output layer is the backbone's own.

    width : of the backbone's hidden states; inner : of the feed-forward part; reach : see REACH
    guided : True if it reads and predicts mixed states, u + g (c - u), instead of the guidance pair's
    """

    def __init__(self, width: int, inner: int, reach: int = REACH, guided: bool = False):
        super().__init__()
        self.settings = {"width": width, "inner": inner, "reach": reach, "guided": guided}
        self.reach, self.guided = reach, guided
        self.state_norm, self.token_norm, self.feed_norm = RMSNorm(width), RMSNorm(width), RMSNorm(width)
        self.above = nn.Linear(4 * width, width, bias=False)
        self.left = nn.Linear(2 * width, width, bias=False)
        self.places = small_normal(2 * reach + 1, width)  # by distance
        self.no_row = nn.Parameter(torch.zeros(width))  # where nothing is above
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.scale, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        nn.init.zeros_(self.down.weight)

    def forward(
        self, above: Tensor, above_tokens: Tensor, has_above: Tensor, left: Tensor, left_token: Tensor, distance: Tensor
    ) -> Tensor:  # fmt: skip
        """above, above_tokens [B, N, 2, width]: states and embeddings; left, left_token [B, N or 1, width]; has_above bool [..., N];
        distance int64 [..., N] -> states [B, N, width]."""
        from_above = self.above(torch.cat([self.state_norm(above), self.token_norm(above_tokens)], -1).flatten(-2))
        from_left = self.left(torch.cat([self.state_norm(left), self.token_norm(left_token)], -1))
        x = torch.where(has_above[..., None], from_above, self.no_row)
        x = x + from_left * (distance > 0)[..., None] + self.places[distance]
        gate, up = self.gate_up(self.feed_norm(x)).chunk(2, -1)
        return (x + self.down(F.silu(gate) * up)) * self.scale + self.bias


class NetworkHeads:
    """Trained row and column heads: weights that all runs share."""

    def __init__(self, network: SpatialHeads):
        self.network, self.reach = network.eval(), network.reach

    def start(self, sequence: TransformerSequence) -> SpatialRun:
        """Starts a run."""
        return SpatialRun(sequence, self.reach, Reader(self.network, sequence))


class Reader:
    """The heads of one run: states and tokens around slots -> guided logits."""

    def __init__(self, network: SpatialHeads, sequence: TransformerSequence):
        self.network, self.trunk = network, sequence.trunk
        self.branches, self.guidance = sequence.kv_cache.branches, sequence.sampling.guidance

    def __call__(self, around: SlotInputs, above: Tensor, above_tokens: Tensor, left: Tensor, left_token: Tensor) -> Tensor:
        """above [branches, N, 2, H], above_tokens int64 [N, 2], left [branches, H], left_token int64 [1] -> guided logits [N, V]"""
        count, device = len(above_tokens), above.device
        tokens = torch.cat([above_tokens.flatten(), left_token])
        embedded = self.trunk.embed(tokens).expand(self.branches, -1, -1).float()
        if self.network.guided:
            embedded, above, left = (guide(x, self.guidance)[None] for x in (embedded, above, left))
        states = self.network(
            above, embedded[:, :-1].unflatten(1, (count, 2)), around.has_above.to(device), left[:, None], embedded[:, -1:],
            around.distance.to(device),
        )  # fmt: skip
        return guide(self.trunk.head(states).float(), self.guidance)


Heads = Callable[[SlotInputs, Tensor, Tensor, Tensor, Tensor], Tensor]


class SpatialRun:
    """One run: the newest state of every position, from the passes observed.

    states : [branches, positions, H]
    """

    def __init__(self, sequence: Sequence, reach: int, heads: Heads):
        self.sequence, self.reach, self.heads = sequence, reach, heads
        self.states = torch.empty(0)
        self.newest = -1  # the last position with a state of the newest pass
        self._waiting: tuple[int, Rows] | None = None

    def observe(self, start: int, rows: Rows) -> None:
        """Takes a pass and copies its states when they are needed: on a GPU it may still wait for its verdict."""
        self._take()
        self._waiting = start, rows
        self.newest = start + rows.count - 1

    def observe_states(self, start: int, hidden: Tensor) -> None:
        """Takes states [branches, k, H] and copies them at once."""
        self._take()
        self._keep(start, hidden)
        self.newest = start + hidden.shape[1] - 1

    def _take(self) -> None:
        if self._waiting is not None:
            start, rows = self._waiting
            self._keep(start, rows.hidden)
        self._waiting = None

    def _keep(self, start: int, hidden: Tensor) -> None:
        if not len(self.states):
            self.states = hidden.new_zeros(len(hidden), self.sequence.limit + 1, hidden.shape[-1])
            self.states = self.states.float() if hidden.dtype != torch.float64 else self.states
        stop = min(start + hidden.shape[1], self.states.shape[1])
        self.states[:, start:stop] = hidden[:, : stop - start]

    def guess(self, slots: range, drafts: Tensor, rows: bool = True, columns: bool = True) -> Tensor:
        """Guided logits [N, V] of slots after the newest position with a state, or after one with a draft."""
        self._take()
        n = self.sequence.length
        known = min(self.newest, n + len(drafts) - 1)
        newest = min(known, slots.start - 1)
        first = max(0, slots.start - self.sequence.layout.reach)
        committed = torch.tensor(self.sequence.tokens[first:n], dtype=torch.int64, device=self.sequence.device)
        tokens = torch.cat([committed, drafts.to(committed.device)])
        around = SlotInputs.of(slots, newest, self.sequence.layout, self.reach, rows, columns, known)
        where = (around.above - first).clamp(min=0)
        left = max(0, newest)
        above = self.states[:, around.above.flatten().to(self.states.device)].unflatten(1, (len(slots), 2))
        return self.heads(around, above, tokens[where.to(tokens.device)], self.states[:, left], tokens[left - first : left - first + 1])


def weights_file(folder: Path) -> Path:
    """The file in a backbone's folder with the heads that were trained for its weights."""
    return folder / f"{NAME}.safetensors"


def read_heads(folder: Path, card: dict[str, Any], device: torch.device, weights_hash: str | None = None) -> NetworkHeads:
    """The heads in a folder, with their shape from the backbone's card; raises MissingWeights, also for heads that were trained for weights
    with another hash."""
    path = weights_file(folder)
    if NAME not in card:
        raise MissingWeights(f"The card next to {path} does not describe it. Train it again: python launch.py train spatial-heads.")
    refuse_stale(path, card[NAME], weights_hash, "spatial-heads")
    settings = need(card, f"{NAME}.settings", dict, path.parent)
    network = build_network(SpatialHeads, settings, read_tensors(path), path).eval().requires_grad_(False).to(device)
    if device.type == "cpu":
        for name in ("above", "left", "gate_up", "down"):
            setattr(network, name, quick_linear(getattr(network, name)))
    return NetworkHeads(network)
