"""The layers of a hosted decoder on a GPU, where a pass is a graph of small operations: of 44 in a Llama layer 14 remain.

A layer is run with its own modules, so its weights, its adapters and whatever replaces its linear layers act as in transformers. What
transformers does between its linear layers is done by `residual_norm`, `rotary_write`, `tree_attention` and `gated`. These round where
transformers rounds, so a layer differs from that of transformers only by the order of sums.
"""

from __future__ import annotations

from torch import Tensor, nn

from engine.cache import FixedView, KVCache
from engine.kernels.gate import gated
from engine.kernels.residual_norm import residual_norm
from engine.kernels.rotary_write import HeadNorms, rotary_write
from engine.kernels.tree_attention import VisibleRows, tree_attention

LAYER_NORM_EPS = 1e-5  # of Chameleon's heads: a number in its code


LAYERS: dict[str, tuple[str, str]] = {  # by the class in transformers: its norms of the results of attention and of feed-forward, or ""
    "LlamaDecoderLayer": ("", ""),
    "Emu3DecoderLayer": ("", ""),
    "Qwen3DecoderLayer": ("", ""),
    "ChameleonDecoderLayer": ("", ""),
    "GlmImageTextDecoderLayer": ("post_self_attn_layernorm", "post_mlp_layernorm"),
}


def can_run(decoder: nn.Module) -> bool:
    """True for a decoder of layers in the table, all on one device."""
    known = all(type(layer).__name__ in LAYERS for layer in decoder.layers)
    return known and decoder.config.hidden_act == "silu" and len({p.device for p in decoder.parameters()}) == 1


def run_layers(decoder: nn.Module, x: Tensor, positions: Tensor, seen: VisibleRows, kv_cache: KVCache | FixedView) -> Tensor:
    """Hidden states [branches, R, H] after the last norm; writes the rows' keys and values into the cache.

    x : [branches, R, H]; positions : int64 [1 or branches, R], or as the decoder's rotary positions need them
    """
    cos, sin = decoder.rotary_emb(x, position_ids=positions)
    at, more = kv_cache.places(x.shape[1]), None
    for layer, keys_values in zip(decoder.layers, kv_cache.block, strict=True):
        of_attention, of_feed = LAYERS[type(layer).__name__]
        x, normed = _norm(x, more, layer.input_layernorm)
        more = _norm_of_result(_attend(layer.self_attn, normed, cos, sin, seen, keys_values, at), layer, of_attention)
        x, normed = _norm(x, more, layer.post_attention_layernorm)
        more = _norm_of_result(_feed(layer.mlp, normed), layer, of_feed)
    return _norm(x, more, decoder.norm)[1]


def _norm(x: Tensor, more: Tensor | None, norm: nn.Module) -> tuple[Tensor, Tensor]:
    """The sum of the residual stream and a result, and its norm."""
    return residual_norm(x, more, norm.weight, norm.variance_epsilon)


def _norm_of_result(result: Tensor, layer: nn.Module, name: str) -> Tensor:
    return _norm(result, None, getattr(layer, name))[1] if name else result


def _attend(attention: nn.Module, x: Tensor, cos: Tensor, sin: Tensor, seen: VisibleRows, keys_values: Tensor, at: Tensor) -> Tensor:
    """The result of an attention for x [branches, R, H], without the residual. keys_values : [2, branches, key heads, capacity, width]"""
    branches, count, _ = x.shape
    q, k, v = (layer(x).view(branches, count, -1, attention.head_dim) for layer in (attention.q_proj, attention.k_proj, attention.v_proj))
    keys, values = keys_values
    q = rotary_write(q, k, v, cos, sin, keys, values, at, _head_norms(attention)).transpose(1, 2)
    end = seen.kept + count
    attended = tree_attention(q, keys[:, :, :end], values[:, :, :end], seen, attention.scaling)
    return attention.o_proj(attended.transpose(1, 2).reshape(branches, count, -1))


def _head_norms(attention: nn.Module) -> HeadNorms | None:
    """The norms of an attention's heads: one weight for all of them, or, with a bias, one for each."""
    if not hasattr(attention, "q_norm"):
        return None
    query, key, width = attention.q_norm, attention.k_norm, attention.head_dim
    weights = query.weight.view(-1, width), key.weight.view(-1, width)
    if getattr(query, "bias", None) is None:
        return HeadNorms(*weights, query.variance_epsilon)
    return HeadNorms(*weights, LAYER_NORM_EPS, query.bias.view(-1, width), key.bias.view(-1, width))


def _feed(mlp: nn.Module, x: Tensor) -> Tensor:
    """The result of a feed-forward part."""
    gate, up = mlp.gate_up_proj(x).chunk(2, -1) if hasattr(mlp, "gate_up_proj") else (mlp.gate_proj(x), mlp.up_proj(x))
    return mlp.down_proj(gated(gate, up))
