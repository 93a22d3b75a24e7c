"""Tensor names of the public checkpoint of BPT: one function from our names to theirs.

The checkpoint is `bpt-8-16-500m.pt` of Weng et al., arXiv 2411.07025; a decoder block is three of its sublayers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

ENCODER = "conditioner.point_encoder.model.shape_model.encoder."
MEMORY = ".cross_attention.memory"

# Our names, in full or as a prefix, and the checkpoint's; where there are several, our tensor is theirs stacked along the first axis.
WHOLE: Mapping[str, tuple[str, ...]] = MappingProxyType({
    "decoder.tokens": ("token_embed.weight",),
    "decoder.kinds": ("block_embed", "offset_embed", "sp_block_embed"),
    "decoder.positions": ("abs_pos_emb.weight",),
    "decoder.start": ("sos_token",),
    "encoder.queries": (f"{ENCODER}query",),
})  # fmt: skip
IN_A_BLOCK: Mapping[str, tuple[int, tuple[str, ...]]] = MappingProxyType({  # with the index 0..2 of the sublayer in its block
    "self_norm": (0, ("0.0",)),
    "self_attention.query_key_value": (0, ("1.to_q", "1.to_k", "1.to_v")),
    "self_attention.out": (0, ("1.to_out",)),
    "cross_norm": (1, ("0.0",)),
    "cross_attention.query": (1, ("1.to_q",)),
    "cross_attention.key_value": (1, ("1.to_k", "1.to_v")),
    "cross_attention.out": (1, ("1.to_out",)),
    "feed_norm": (2, ("0.0",)),
    "feed.value_gate": (2, ("1.ff.0.proj",)),
    "feed.out": (2, ("1.ff.2",)),
})  # fmt: skip
IN_THE_ENCODER: Mapping[str, str] = MappingProxyType({
    "attention_norm": "ln_1", "attention.query": "attn.c_q", "attention.out": "attn.c_proj",
    "feed_in": "mlp.c_fc", "feed_out": "mlp.c_proj",
})  # fmt: skip
AT_THE_ENDS: Mapping[str, str] = MappingProxyType({
    "decoder.norm": "decoder.final_norm", "decoder.head": "to_logits",
    "encoder.points": f"{ENCODER}input_proj", "encoder.norm": f"{ENCODER}ln_post",
    "encoder.first": "conditioner.cond_head_proj", "encoder.others": "conditioner.cond_proj",
})  # fmt: skip


def sources(name: str) -> tuple[str, ...]:
    """The checkpoint's names of the tensors that make one of ours."""
    if name in WHOLE:
        return WHOLE[name]
    part, _, kind = name.rpartition(".")
    if part in AT_THE_ENDS:
        return (f"{AT_THE_ENDS[part]}.{kind}",)
    if part.startswith("decoder.blocks."):
        layer, _, inner = part.removeprefix("decoder.blocks.").partition(".")
        if name.endswith(MEMORY):
            return tuple(f"decoder.layers.{3 * int(layer) + 1}.1.mem_{which}" for which in "kv")
        sublayer, theirs = IN_A_BLOCK[inner]
        return tuple(f"decoder.layers.{3 * int(layer) + sublayer}.{each}.{kind}" for each in theirs)
    if part.startswith("encoder.cross."):
        inner = part.removeprefix("encoder.cross.")
        known = {**IN_THE_ENCODER, "data_norm": "ln_2", "feed_norm": "ln_3", "attention.mixed": "attn.c_kv"}
        return (f"{ENCODER}cross_attn.{known[inner]}.{kind}",)
    layer, _, inner = part.removeprefix("encoder.blocks.").partition(".")
    known = {**IN_THE_ENCODER, "feed_norm": "ln_2", "attention.mixed": "attn.c_qkv"}
    return (f"{ENCODER}self_attn.resblocks.{layer}.{known[inner]}.{kind}",)
