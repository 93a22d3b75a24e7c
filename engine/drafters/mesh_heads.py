"""Decoding heads that predict the next tokens of a mesh from one hidden state.

Paper: XSpecMesh, section 3.2: head d attends from the hidden state to the condition by cross-attention and predicts the token d places
after the next one; the multilayer heads of its ablation are those of Medusa, Cai et al., arXiv 2401.10774.
Deviations: all heads are evaluated together, and only on the row that is used, the one that predicted the newest token. The paper
evaluates them on every row and discards all but one. Keys and values of the condition are computed once per run.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.core import Rows
from engine.errors import NotSupported
from engine.kernels.cpu.heads import NativeHeads, Weights, native_heads
from engine.kernels.cpu.library import native
from engine.networks.attention import attend
from engine.networks.initial import small
from engine.networks.mesh_decoder import COSINE_SCALE
from engine.networks.sequence import TransformerSequence

EPSILON = 1e-5  # of the norm of the hidden state
SHORT = {"cross-attention": "cross", "multilayer": "mlp"}  # kinds by their names in the interface, and in the names of files


class MeshHeads(nn.Module):
    """`depth` heads with stacked weights, evaluated in one batched product.

    kind  : "cross" (attention to the condition, then a gated residual layer) or "mlp" (the residual layer alone)
    tied  : the output layer is the backbone's own; else every head has its own
    Layers read the normalised hidden state, and their last matrices start at zero: at first a head passes on a fifth of the hidden
    state. The full state would predict a wrong token with near certainty, and unlearning that takes minutes.
    """

    def __init__(self, depth: int, width: int, heads: int, vocabulary: int, kind: str = "cross", tied: bool = True):
        super().__init__()
        if width % heads or kind not in SHORT.values():
            raise ValueError(f"{heads} heads of kind {kind} on {width} numbers")
        self.settings = {"depth": depth, "width": width, "heads": heads, "vocabulary": vocabulary, "kind": kind, "tied": tied}
        self.depth, self.heads, self.kind, self.tied = depth, heads, kind, tied

        def matrix(*shape: int, zero: bool = False) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape)) if zero else small(*shape)

        self.gain = nn.Parameter(torch.full((depth, 1, 1), 0.2))
        if kind == "cross":
            self.norm_weight = nn.Parameter(torch.ones(depth, 1, width))
            self.query = matrix(depth, width, width)
            self.key_value = matrix(depth, width, 2 * width)
            self.cross_out = matrix(depth, width, width, zero=True)
        self.up = matrix(depth, width, 2 * width)
        self.down = matrix(depth, 2 * width, width, zero=True)
        if not tied:
            self.rows = matrix(depth, vocabulary, width)
            self.bias = nn.Parameter(torch.zeros(depth, vocabulary))

    def look(self, condition: Tensor) -> tuple[Tensor, Tensor] | None:
        """Keys and values [D, B, heads, C, d] of a condition [B, C, width]; None for heads without cross-attention."""
        if self.kind != "cross":
            return None
        mixed = torch.einsum("bcw,dwk->dbck", condition, self.key_value)
        keys, values = (x.unflatten(-1, (self.heads, -1)).transpose(2, 3) for x in mixed.chunk(2, -1))
        return F.normalize(keys, dim=-1), values

    def features(self, hidden: Tensor, looked: tuple[Tensor, Tensor] | None, count: int | None = None) -> Tensor:
        """hidden [B, R, width] -> the input of the output layer, [D, B, R, width], for the first `count` heads (None: all)."""
        b, r, width = hidden.shape
        depth = self.depth if count is None else count
        x = hidden.expand(depth, -1, -1, -1).reshape(depth, b * r, width)
        read = F.layer_norm(x, (width,), eps=EPSILON)
        x = x * self.gain[:depth]
        if looked is not None:
            asked = torch.bmm(read * self.norm_weight[:depth], self.query[:depth])
            q = F.normalize(asked.view(depth, b, r, self.heads, -1).transpose(2, 3), dim=-1)
            seen = attend(q, *(each[:depth] for each in looked), scale=COSINE_SCALE)
            found = torch.bmm(seen.transpose(2, 3).reshape(depth, b * r, width), self.cross_out[:depth])
            x, read = x + found, read + found
        x = x + torch.bmm(F.silu(torch.bmm(read, self.up[:depth])), self.down[:depth])
        return x.view(depth, b, r, width)

    def logits(self, features: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """[D, ..., width] -> [D, ..., V]; head: the backbone's output layer."""
        if self.tied:
            return head(features)
        depth = len(features)
        rows = torch.bmm(features.reshape(depth, -1, features.shape[-1]), self.rows[:depth].transpose(1, 2)) + self.bias[:depth, None]
        return rows.view(*features.shape[:-1], -1)

    def quick(self, output: nn.Module) -> NativeHeads | None:
        """The same in one call on a CPU, with an output layer; None where the compiled function does not know them."""
        if not self.tied:
            return None
        cross = (self.norm_weight, self.query, self.cross_out) if self.kind == "cross" else (None,) * 3
        return native_heads(native(), Weights(self.gain, self.up, self.down, *cross, self.heads, COSINE_SCALE), output, EPSILON)


class BoundHeads:
    """Heads with the backbone's output layer."""

    def __init__(self, heads: MeshHeads, head: Callable[[Tensor], Tensor], layer: nn.Module | None = None):
        """layer : the module that `head` calls, for heads in one call; None: there is no such module"""
        self.heads, self.head = heads.eval(), head
        self.depth = heads.depth
        self.quick = None if layer is None else heads.quick(layer)

    def start(self, sequence: TransformerSequence) -> Callable[[Rows, int, int], Tensor]:
        """For one run: a pass, one of its rows, count -> logits [count, V]; row j is for the token j + 2 places after the row's own input.
        The heads compute in float32, whatever the backbone does. A pass in fixed shapes computes all of them with its verdict, for the row
        after the accepted drafts; then no other row may be asked for."""
        looked, quick = self.heads.look(sequence.condition[None].float()), self.quick
        laid = None if looked is None or quick is None else tuple(each[:, 0].contiguous() for each in looked)

        def logits(hidden: Tensor, count: int | None = None) -> Tensor:
            """hidden [width]"""
            if quick is not None and quick.can_run(hidden):
                return quick(hidden, laid, self.depth if count is None else count)
            return self.heads.logits(self.heads.features(hidden[None, None].float(), looked, count)[:, 0, 0], self.head)

        def guess(rows: Rows, row: int, count: int) -> Tensor:
            if rows.ahead is not None:
                return rows.ahead[:count]
            if quick is not None and quick.can_run(rows.hidden):
                return quick(rows.hidden, laid, count, row)  # of the first branch: an index would cost more than a head
            return logits(rows.hidden[0, row], count)

        sequence.look_ahead(lambda hidden, row: logits(hidden[0].index_select(0, row[None])[0]))
        return guess


class HeadsByKind:
    """The heads that were trained for a backbone, by kind: the drafter that a method gets."""

    def __init__(self, kinds: list[str], read: Callable[[str], BoundHeads], owner: str):
        """kinds : those that exist; read : loads the heads of one kind; owner : the backbone's name, for the error message."""
        self.kinds, self._read, self._owner = kinds, read, owner
        self._loaded: dict[str, BoundHeads] = {}

    def of(self, kind: str) -> BoundHeads:
        """The heads of a kind, loaded once; raises NotSupported if they were not trained."""
        if kind not in self.kinds:
            raise NotSupported(f"{self._owner} has no {kind} heads. Set heads={self.kinds[0]}.")
        if kind not in self._loaded:
            self._loaded[kind] = self._read(kind)
        return self._loaded[kind]
