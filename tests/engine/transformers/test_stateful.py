"""Classes that carry a state from token to token are refused before anything runs: for what their forward takes, or for their cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from engine.errors import NotSupported
from tests.engine.transformers.models import PROMPT, SHAPE, ours

BARE = {name: SHAPE[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "pad_token_id", "bos_token_id", "eos_token_id")}
HEADS = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 1, "mamba_d_state": 4}
LINEAR = {
    "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_experts": 2,
    "num_experts_per_tok": 1, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "head_dim": 8,
}  # fmt: skip
CLASSES: dict[str, dict[str, Any]] = {
    "Mamba": BARE | {"state_size": 4},
    "Mamba2": BARE | {"state_size": 4, "num_heads": 4, "head_dim": 16, "n_groups": 1},
    "FalconMamba": BARE | {"state_size": 4},
    "Rwkv": BARE | {"attention_hidden_size": 32, "intermediate_size": 64},
    "xLSTM": BARE | {"num_blocks": 2, "num_heads": 4},
    "RecurrentGemma": SHAPE | {"lru_width": 32, "attention_window_size": 16, "head_dim": 8, "block_types": ["recurrent", "attention"]},
    "Jamba": SHAPE | {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2, "mamba_d_state": 4, "use_mamba_kernels": False},
    "Bamba": SHAPE | HEADS | {"attn_layer_indices": [1], "mamba_expand": 2},
    "Zamba2": SHAPE | {
        "mamba_d_state": 4, "mamba_ngroups": 1, "n_mamba_heads": 4, "mamba_headdim": 16, "layers_block_type": ["mamba", "hybrid"],
        "num_mem_blocks": 1, "use_mamba_kernels": False,
    },
    "FalconH1": SHAPE | HEADS | {"mamba_d_ssm": 64},
    "GraniteMoeHybrid": SHAPE | HEADS | {
        "layer_types": ["mamba", "attention"], "num_local_experts": 2, "num_experts_per_tok": 1, "shared_intermediate_size": 32,
    },
    "Lfm2": SHAPE | {"layer_types": ["conv", "full_attention"]},
    "Qwen3Next": SHAPE | LINEAR | {"layer_types": ["linear_attention", "full_attention"]},
    "MiniMax": SHAPE | {"layer_types": ["linear_attention", "full_attention"], "num_local_experts": 2, "head_dim": 8},
}  # fmt: skip

SENTENCE = (
    "({0} takes no .*, so drafts cannot have their own places|cache of {0} is no plain list of keys and values .*). Use plain generate"
)


@pytest.mark.parametrize("method", ["auto", "sjdpp"])
@pytest.mark.parametrize("name", CLASSES)
def test_a_state_cannot_go_back(name: str, method: str) -> None:
    torch.manual_seed(1)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**CLASSES[name])).eval()
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    with pytest.raises(NotSupported, match=SENTENCE.format(f"{name}ForCausalLM")):
        ours(model, method, PROMPT)
    assert passes == []
