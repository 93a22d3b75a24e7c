"""The assisted decoding of transformers as a whole: `generate` with tiny models of random weights, against enumerated distributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.core import Sampling
from engine.sampling import warp
from research.exactness.comparison import Comparison, compare
from research.exactness.power import Distribution

PROMPT, NEW, DRAWS = (0, 1), 3, 2_000
NO_FILTERS = Sampling()
SHAPE: dict[str, Any] = {
    "vocab_size": 4, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 32, "initializer_range": 0.6, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
GEMMA = {"num_key_value_heads": 1, "head_dim": 8, "global_head_dim": 8, "sliding_window": 16, "initializer_range": 0.5}


@dataclass(frozen=True)
class AssistedPath:
    """One way of assisted decoding. models : the target, and what `generate` needs beside it; filters : of the caller"""

    path: str
    drafts: str
    models: Callable[[], tuple[Any, dict[str, Any]]]
    filters: Sampling = NO_FILTERS
    claim: str = "exact"


def draw_sequences(path: AssistedPath, draws: int) -> Comparison:
    """Draws continuations of a prompt by `generate`, and compares them with the target's own distribution."""
    state = torch.get_rng_state()
    target, more = path.models()
    torch.manual_seed(0)
    ids, counts = torch.tensor([PROMPT]), Counter()
    filters = {"top_k": path.filters.top_k, "top_p": path.filters.top_p}
    for _ in range(draws):
        tokens = target.generate(ids, do_sample=True, max_new_tokens=NEW, eos_token_id=None, **filters, **more)
        counts[tuple(tokens[0, len(PROMPT) :].tolist())] += 1
    torch.set_rng_state(state)
    return compare(counts, _distribution(target, path.filters))


@torch.no_grad()
def _distribution(target: Any, filters: Sampling) -> Distribution:
    chances: Distribution = {(): 1.0}
    for _ in range(NEW):
        logits = target(torch.tensor([[*PROMPT, *sequence] for sequence in chances])).logits[:, -1].double()
        rows = torch.softmax(warp(logits, filters), -1).tolist()
        chances = {(*s, t): chance * p for (s, chance), row in zip(chances.items(), rows, strict=True) for t, p in enumerate(row) if p > 0}
    return chances


def _llama(seed: int, **more: Any) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(num_hidden_layers=2, **SHAPE, **more)).eval()


def _assistant() -> tuple[Any, dict[str, Any]]:
    return _llama(1), {"assistant_model": _llama(2)}


def _mtp() -> tuple[Any, dict[str, Any]]:
    from transformers import modeling_layers

    target = _llama(1, num_mtp_layers=2)
    heads = modeling_layers.MtpModel(target, 2).eval()
    with torch.no_grad():
        for weight in heads.layers.parameters():
            weight.normal_(std=0.5)

    class MtpModel(modeling_layers.MtpModel):
        """The same, with random weights instead of a checkpoint's."""

        @classmethod
        def from_pretrained(cls, *arguments: Any, **named: Any) -> Any:
            return heads

    return _Patched(target, modeling_layers, "MtpModel", MtpModel), {"use_mtp": True}


class _Patched:
    """A model that generates while one name of a module has another value."""

    def __init__(self, model: Any, module: Any, name: str, value: Any):
        self.model, self.module, self.name, self.value = model, module, name, value

    def __call__(self, ids: Tensor) -> Any:
        return self.model(ids)

    def generate(self, *arguments: Any, **named: Any) -> Tensor:
        """`generate` of the model."""
        before = getattr(self.module, self.name)
        setattr(self.module, self.name, self.value)
        try:
            return self.model.generate(*arguments, **named)
        finally:
            setattr(self.module, self.name, before)


def _dflash() -> tuple[Any, dict[str, Any]]:
    from transformers import MuseGlimmerAssistantConfig, MuseGlimmerAssistantModel

    torch.manual_seed(5)
    own = {"num_hidden_layers": 1, "head_dim": 8, "sliding_window": 16, "block_size": 3, "mask_token_id": 3, "target_layer_ids": [0, 1]}
    drafter = MuseGlimmerAssistantModel(MuseGlimmerAssistantConfig(**SHAPE, **own)).eval()
    return _llama(1), {"assistant_model": drafter, "speculation_type": "dflash"}


def _gemma() -> tuple[Any, dict[str, Any]]:
    from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM, Gemma4ForCausalLM, Gemma4TextConfig

    kinds, shape = ["sliding_attention", "full_attention"], SHAPE | GEMMA
    torch.manual_seed(1)
    per_layer = {"hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 4}
    text = Gemma4TextConfig(**shape, **per_layer, num_hidden_layers=4, num_kv_shared_layers=2, layer_types=kinds * 2)
    target = Gemma4ForCausalLM(text).eval()
    none = {"hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0, "enable_moe_block": False, "use_double_wide_mlp": False}
    text = Gemma4TextConfig(**shape, **none, num_hidden_layers=2, layer_types=kinds)
    configuration = Gemma4AssistantConfig(text_config=text, backbone_hidden_size=SHAPE["hidden_size"])
    configuration.text_config.num_kv_shared_layers = 0  # with all layers shared, 5.23 cannot build the assistant
    torch.manual_seed(2)
    drafter = Gemma4AssistantForCausalLM(configuration).eval()
    drafter.generation_config.num_assistant_tokens = 2
    return target, {"assistant_model": drafter}


PATHS = (
    AssistedPath("generate(assistant_model)", "drawn", _assistant),
    AssistedPath("generate(assistant_model), top_k=3, top_p=0.9", "drawn", _assistant, Sampling(top_k=3, top_p=0.9)),
    AssistedPath("generate(prompt_lookup_num_tokens)", "copied from the prompt", lambda: (_llama(1), {"prompt_lookup_num_tokens": 2})),
    AssistedPath("generate(assistant_early_exit)", "drawn from the first layer", lambda: (_llama(1), {"assistant_early_exit": 1})),
    AssistedPath("generate(use_mtp)", "drawn", _mtp),
    AssistedPath("generate(speculation_type='dflash')", "drawn", _dflash),
    AssistedPath("generate(assistant_model), Gemma 4", "best guess, shown as drawn", _gemma),
)
