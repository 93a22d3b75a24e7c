"""The number of nodes in the graph of a pass, counted on the meta device: shapes and operations of published models, without weights.

Each node is a kernel that the GPU starts. The estimate of a pass's time is bytes over bandwidth, plus a time for each node that is no
product: it is computed, never measured, and leaves out the verdict and the host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import (
    ChameleonConfig,
    ChameleonModel,
    LlamaConfig,
    LlamaModel,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
    Qwen3Model,
)
from transformers.models.emu3.modeling_emu3 import Emu3TextConfig, Emu3TextModel
from transformers.models.glm_image.modeling_glm_image import GlmImageTextConfig, GlmImageTextModel

from engine.networks.hosted import DRAFT_ROWS, Hosted, HostedTrunk, head_width
from engine.networks.static_step import NAMED, fixed_pass, words
from engine.tuning.roofline import BRANCHES, LAUNCH, SHARE
from research.bench.rows import Row

WITHOUT_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty"}  # operations that write nothing
ROWS, KEYS = 32, 4096  # of the pass that is counted


class NodeCount(TorchDispatchMode):
    """Counts the operations that start a kernel, by name. Views start none."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs an operation, and counts it if it writes: its result has a storage of its own, or it changes an input."""
        out = func(*args, **(kwargs or {}))
        inputs = {_storage(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        is_new = any(_storage(each) not in inputs for each in tree_leaves(out) if isinstance(each, Tensor))
        if (is_new or func._schema.is_mutable) and func.overloadpacket.__name__ not in WITHOUT_KERNEL:
            self.counts[func.overloadpacket.__name__] += 1
        return out


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def llama(width: int, inner: int, layers: int, heads: int, head: int = 128) -> tuple[type[PreTrainedModel], PreTrainedConfig]:
    """A Llama of a published size."""
    settings = {"hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "head_dim": head}
    return LlamaModel, LlamaConfig(num_attention_heads=heads, num_key_value_heads=heads, **settings)


GLM_ROTARY = {"rope_type": "default", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}

# Decoders of published models, and the number of picture tokens
DECODERS: dict[str, tuple[Callable[[], tuple[type[PreTrainedModel], PreTrainedConfig]], int]] = {
    "Janus-Pro 1B": (lambda: llama(2048, 5632, 24, 16), 16_384),
    "LlamaGen 3B": (lambda: llama(3200, 8704, 24, 32, 100), 16_384),
    "Janus-Pro 7B": (lambda: llama(4096, 11_008, 30, 32), 16_384),
    "Lumina-mGPT 7B": (lambda: (ChameleonModel, ChameleonConfig(vocabulary_map={"<image>": 0})), 8192),
    "Emu3 8B": (lambda: (Emu3TextModel, Emu3TextConfig()), 32_768),
    "GLM-Image 9B": (lambda: (GlmImageTextModel, GlmImageTextConfig(rope_parameters=GLM_ROTARY)), 16_384),
    "Emu3.5 34B": (
        lambda: (Qwen3Model, Qwen3Config(hidden_size=5120, intermediate_size=25_600, num_hidden_layers=64,
                                         num_attention_heads=64, num_key_value_heads=8, head_dim=128)), 131_072,
    ),
}  # fmt: skip


def trunk_of(name: str) -> HostedTrunk:
    """The trunk of a published model on the meta device, in bfloat16, with row ends and a padded guidance row."""
    make, codes = DECODERS[name]
    kind, config = make()
    with torch.device("meta"):
        decoder = kind(config).eval().requires_grad_(False).to(torch.bfloat16)
        head = nn.Linear(config.hidden_size, codes, bias=False, dtype=torch.bfloat16)
    place = (lambda slots: slots.expand(3, BRANCHES, -1)) if kind is GlmImageTextModel else None
    return HostedTrunk(Hosted(decoder, decoder.embed_tokens, head, decoder.embed_tokens.weight[0], place), (0, 7))


def count_nodes(trunk: HostedTrunk, fused: bool = True) -> Counter[str]:
    """The nodes of a pass in fixed shapes, by operation. fused : with our kernels; False: with the layers of transformers"""
    config = trunk.hosted.decoder.config
    shape = (config.num_hidden_layers, 2, BRANCHES, config.num_key_value_heads, KEYS + DRAFT_ROWS, head_width(config))
    block = torch.empty(shape, dtype=torch.bfloat16, device="meta")
    inputs = torch.empty(ROWS, NAMED + words(ROWS), dtype=torch.int64, device="meta")
    trunk.takes_sets = trunk.takes_sets and fused
    with torch.inference_mode(), NodeCount() as nodes:
        fixed_pass(trunk, block, inputs, None, KEYS)
    return nodes.counts


def estimate(trunk: HostedTrunk, nodes: Counter[str], bandwidth: float) -> float:
    """Estimated milliseconds of a pass on a GPU of some bandwidth in bytes per second: weights, keys and values, small nodes."""
    decoder, config = trunk.hosted.decoder, trunk.hosted.decoder.config
    linear = [layer for part in (decoder.layers, trunk.hosted.head) for layer in part.modules() if isinstance(layer, nn.Linear)]
    weights = sum(layer.weight.numel() for layer in linear) * 2
    kept = 2 * BRANCHES * KEYS * config.num_hidden_layers * config.num_key_value_heads * head_width(config) * 2
    return 1e3 * ((weights + kept) / (SHARE * bandwidth) + LAUNCH * (nodes.total() - nodes["linear"]))


def node_rows(bandwidths: dict[str, float]) -> list[Row]:
    """One row for each model: nodes with the layers of transformers and with ours, and the estimated milliseconds on each GPU."""
    rows = []
    for name in DECODERS:
        trunk = trunk_of(name)
        nodes, before = count_nodes(trunk), count_nodes(trunk, fused=False)
        times = {f"{gpu}_milliseconds": round(estimate(trunk, nodes, bandwidth), 1) for gpu, bandwidth in bandwidths.items()}
        rows.append({"model": name, "transformers_nodes": before.total(), "nodes": nodes.total(), **times})
    return rows


def node_line(row: Row) -> str:
    """The nodes of a model in one line."""
    times = ", ".join(f"{name.removesuffix('_milliseconds')} {value} ms" for name, value in row.items() if name.endswith("_milliseconds"))
    counts = f"{row['nodes']:,} nodes in a pass, {row['transformers_nodes']:,} with the layers of transformers"
    return f"{row['model']}: {counts}; estimate {times}"
