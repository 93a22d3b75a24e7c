"""Decoding heads that predict the next tokens of a mesh from one hidden state.

Paper: XSpecMesh, section 3.2: head d attends from the hidden state to the condition by cross-attention and predicts the token d places
after the next one; the multilayer heads of its ablation come from Medusa, Cai et al., arXiv 2401.10774.
Deviations: all heads are evaluated together, and only on the row that predicted the newest token, because only that row is used. The paper
evaluates them on every row and discards all but one. Keys and values of the condition are computed once per run.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.core import Rows
from engine.errors import NotSupported
from engine.networks.attention import attend
from engine.networks.initial import small_normal
from engine.networks.mesh_decoder import COSINE_SCALE
from engine.networks.sequence import TransformerSequence

EPSILON = 1e-5  # epsilon of the hidden state's norm
NO_LENGTH = 1e-12  # the least length that a query is divided by
SHORT = {"cross-attention": "cross", "multilayer": "mlp"}  # the kinds: names in the interface, and in file names


class MeshHeads(nn.Module):
    """`depth` heads with stacked weights, evaluated in one batched product.

    kind  : "cross" (attention to the condition, then a gated residual layer) or "mlp" (the residual layer alone)
    tied  : the output layer is the backbone's own; else every head has its own
    Layers read the normalised hidden state, and their last matrices start at zero: at first a head outputs a fifth of the hidden
    state. The full state would predict a wrong token with near certainty, which takes minutes to unlearn.
    """

    def __init__(self, depth: int, width: int, heads: int, vocabulary: int, kind: str = "cross", tied: bool = True):
        super().__init__()
        if width % heads or kind not in SHORT.values():
            raise ValueError(f"{heads} heads of kind {kind} on {width} numbers")
        self.settings = {"depth": depth, "width": width, "heads": heads, "vocabulary": vocabulary, "kind": kind, "tied": tied}
        self.depth, self.heads, self.kind, self.tied = depth, heads, kind, tied

        def matrix(*shape: int, zero: bool = False) -> nn.Parameter:
            return nn.Parameter(torch.zeros(*shape)) if zero else small_normal(*shape)

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

    def keys_values(self, condition: Tensor) -> tuple[Tensor, Tensor] | None:
        """Keys and values [D, B, heads, C, d] of a condition [B, C, width]; None for heads without cross-attention."""
        if self.kind != "cross":
            return None
        mixed = torch.einsum("bcw,dwk->dbck", condition, self.key_value)
        keys, values = (x.unflatten(-1, (self.heads, -1)).transpose(2, 3) for x in mixed.chunk(2, -1))
        return F.normalize(keys, dim=-1), values

    def features(self, hidden: Tensor, condition_kv: tuple[Tensor, Tensor] | None, count: int | None = None) -> Tensor:
        """hidden [B, R, width] -> the input of the output layer, [D, B, R, width], for the first `count` heads (None: all)."""
        b, r, width = hidden.shape
        depth = self.depth if count is None else count
        x = hidden.expand(depth, -1, -1, -1).reshape(depth, b * r, width)
        read = F.layer_norm(x, (width,), eps=EPSILON)
        x = x * self.gain[:depth]
        if condition_kv is not None:
            queries = torch.bmm(read * self.norm_weight[:depth], self.query[:depth])
            q = F.normalize(queries.view(depth, b, r, self.heads, -1).transpose(2, 3), dim=-1)
            by_head = attend(q, *(each[:depth] for each in condition_kv), scale=COSINE_SCALE)
            attended = torch.bmm(by_head.transpose(2, 3).reshape(depth, b * r, width), self.cross_out[:depth])
            x, read = x + attended, read + attended
        x = x + torch.bmm(F.silu(torch.bmm(read, self.up[:depth])), self.down[:depth])
        return x.view(depth, b, r, width)

    def logits(self, features: Tensor, head: Callable[[Tensor], Tensor]) -> Tensor:
        """[D, ..., width] -> [D, ..., V]; head: the backbone's output layer."""
        if self.tied:
            return head(features)
        depth = len(features)
        rows = torch.bmm(features.reshape(depth, -1, features.shape[-1]), self.rows[:depth].transpose(1, 2)) + self.bias[:depth, None]
        return rows.view(*features.shape[:-1], -1)


class HostHeads:
    """The features of heads for one row on a CPU, in numpy: a numpy call costs a quarter of a PyTorch call. `MeshHeads.features` is the
    reference."""

    def __init__(self, heads: MeshHeads):
        """heads : on the host, float32; later changes of a weight have no effect"""
        self.heads = heads.heads
        self.gain, self.up, self.down = (_array(each) for each in (heads.gain[:, 0], heads.up, heads.down))
        if heads.kind == "cross":
            self.query, self.cross_out = _array(heads.query * heads.norm_weight.transpose(1, 2)), _array(heads.cross_out)

    def __call__(self, hidden: np.ndarray, condition_kv: tuple[np.ndarray, np.ndarray] | None, count: int) -> np.ndarray:
        """hidden [width] -> [count, width]. condition_kv : keys and values [D, heads, C, d] of heads with cross-attention"""
        centred = hidden - hidden.mean()
        read = centred / np.sqrt(centred @ centred / len(hidden) + EPSILON)
        x = hidden * self.gain[:count]
        if condition_kv is not None:
            attended = self._attend(read, condition_kv, count)
            x, read = x + attended, (read + attended)[:, None]
        wide = np.matmul(read, self.up[:count]).reshape(count, 1, -1)
        wide /= 1 + np.exp(-wide)  # silu
        return x + np.matmul(wide, self.down[:count])[:, 0]

    def _attend(self, read: np.ndarray, condition_kv: tuple[np.ndarray, np.ndarray], count: int) -> np.ndarray:
        """Attention of a normalised row [width] to the condition: [count, width]."""
        keys, values = (each[:count] for each in condition_kv)
        query = np.matmul(read, self.query[:count]).reshape(count, self.heads, -1, 1)
        query *= COSINE_SCALE / np.maximum(np.sqrt(np.square(query).sum(2, keepdims=True)), NO_LENGTH)
        scores = np.matmul(keys, query)
        shares = np.exp(scores - scores.max(2, keepdims=True))
        shares /= shares.sum(2, keepdims=True)
        return np.matmul(np.matmul(shares.swapaxes(2, 3), values).reshape(count, 1, -1), self.cross_out[:count])[:, 0]


def _array(x: Tensor) -> np.ndarray:
    return x.detach().contiguous().numpy()


class BoundHeads:
    """Heads with the backbone's output layer."""

    def __init__(self, heads: MeshHeads, head: Callable[[Tensor], Tensor]):
        self.heads, self.head = heads.eval(), head
        self.depth = heads.depth
        on_host = heads.up.device.type == "cpu" and heads.up.dtype == torch.float32
        self.host = HostHeads(heads) if on_host else None

    def start(self, sequence: TransformerSequence) -> Callable[[Rows, int, int], Tensor]:
        """Starts a run. Returns a function: a pass, one of its rows, count -> logits [count, V]; row j predicts the token j + 2 places
        after the row's input. The heads compute in float32, whatever the backbone's type. A pass in fixed shapes computes all heads with
        its verdict, for the row after the accepted drafts; then no other row may be requested."""
        condition_kv, host = self.heads.keys_values(sequence.condition[None].float()), self.host
        laid = None if condition_kv is None or host is None else tuple(_array(each[:, 0]) for each in condition_kv)

        def guess(rows: Rows, row: int, count: int) -> Tensor:
            if rows.ahead:
                return rows.ahead[0][:count]
            hidden = rows.hidden[0, row]
            if host is None:
                return self.logits(hidden, condition_kv, count)
            return self.heads.logits(torch.from_numpy(host(_array(hidden.float()), laid, count)), self.head)

        sequence.look_ahead(self.look_ahead, *(condition_kv or ()), *([] if sequence.masks is None else [sequence.masks]))
        return guess

    def look_ahead(self, hidden: Tensor, row: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Logits [D, V] of all heads for a row int64 [] of the hidden states [branches, R, width] of a pass; then, with masks, the most
        probable token under each, int64 [D, M]. tensors : keys and values of heads that have them, and the masks bool [M, V], if any"""
        condition_kv, masks = (tensors[:2], tensors[2:]) if len(tensors) > 1 else (None, tensors)
        logits = self.logits(hidden[0].index_select(0, row[None])[0], condition_kv)
        return logits, *(best_under(logits, each) for each in masks)

    def logits(self, hidden: Tensor, condition_kv: tuple[Tensor, Tensor] | None, count: int | None = None) -> Tensor:
        """Logits [count, V] of the first heads (None: all) for a hidden state [width]."""
        return self.heads.logits(self.heads.features(hidden[None, None].float(), condition_kv, count)[:, 0, 0], self.head)


def best_under(logits: Tensor, masks: Tensor) -> Tensor:
    """The most probable tokens int64 [D, M] of logits [D, V] under masks bool [M, V]."""
    return logits[:, None].masked_fill(~masks, -torch.inf).argmax(-1)


class HeadsByKind:
    """The heads that were trained for a backbone, by kind: the drafter that a method gets."""

    def __init__(self, kinds: list[str], read: Callable[[str], BoundHeads], owner: str):
        """kinds : the existing kinds; read : loads the heads of one kind; owner : the backbone's name, for the error message."""
        self.kinds, self._read, self._owner = kinds, read, owner
        self._loaded: dict[str, BoundHeads] = {}

    def of(self, kind: str) -> BoundHeads:
        """The heads of a kind, loaded once; raises NotSupported if they were not trained."""
        if kind not in self.kinds:
            raise NotSupported(f"{self._owner} has no {kind} heads. Set heads={self.kinds[0]}.")
        if kind not in self._loaded:
            self._loaded[kind] = self._read(kind)
        return self._loaded[kind]
