"""`bench gpu`: cost of the static step and of windows on a GPU against transformers, on random weights in the sizes of three models.

The rows of a model: transformers' `generate`, plain decoding without graphs, plain decoding with graphs, and windows with graphs.
Random weights cost as much as trained ones, but their acceptance differs; so a window's row gives the cost of its step relative to a
plain step, not its tokens per pass. There is no guidance.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from engine import memory
from engine.core import ANY_SUIT, Prompt, Sampling
from engine.errors import NotSupported, TooLittleMemory
from engine.layout import Raster
from engine.machine import machine_facts
from engine.methods import METHODS
from engine.networks.hosted import DRAFT_ROWS, Hosted, HostedTrunk, head_width, kv_cache_for
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import causal_mask
from engine.run import generate
from engine.tuning.alternate import time_function
from research.bench.rows import Row, check_csv, publish

MINUTES = 10  # limit after which no further model starts
PROMPT = 32  # tokens
COLUMNS = 32  # of the decoded picture
WARM_UP = 8  # untimed steps, in which graphs are captured


def shape_of(width: int, inner: int, layers: int, heads: int, key_heads: int, vocabulary: int) -> dict[str, int]:
    """Settings of a LlamaConfig."""
    return {
        "hidden_size": width, "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": key_heads, "vocab_size": vocabulary,
    }  # fmt: skip


SIZES: Mapping[str, Mapping[str, int]] = MappingProxyType({  # of Llama-like decoders, with a head over the model's own tokens
    "lowpoly": shape_of(192, 512, 5, 6, 6, 5121),
    "janus": shape_of(2048, 5632, 24, 16, 16, 16384),  # Janus-Pro-1B
    "emu3": shape_of(4096, 14336, 32, 32, 8, 32768),
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GpuBench:
    """Plan of `bench gpu`. tokens : tokens per generation of transformers, and number of our timed steps"""

    tokens: int = 64
    windows: tuple[int, ...] = (8, 16, 32)
    csv: Path | None = None


class RandomBackbone:
    """A backbone with a random decoder."""

    name = "random"
    capabilities, suits = frozenset({"raster"}), ANY_SUIT
    sampling = Sampling()

    def __init__(self, model: PreTrainedModel, static: bool):
        """static : True for passes of fixed shapes. Replaces the model's attention by ours."""
        self.hosted, self.static = Hosted(model.model, model.model.embed_tokens, model.lm_head), static
        self.device, self.vocabulary = model.device, model.config.vocab_size

    @torch.inference_mode()
    def start(self, prompt: Prompt) -> TransformerSequence:
        """A sequence after a fixed prompt."""
        layout = Raster(COLUMNS, COLUMNS)
        limit = layout.rows * layout.columns
        x = self.hosted.embed(torch.arange(PROMPT, device=self.device))[None]
        return TransformerSequence(
            HostedTrunk(self.hosted, (0,)), x, causal_mask(PROMPT - 1, 0, self.device), kv_cache_for(self.hosted, 1, PROMPT + limit),
            vocabulary=self.vocabulary, limit=limit, layout=layout, sampling=self.sampling, static=self.static,
        )  # fmt: skip


def bench(plan: GpuBench) -> list[Row]:
    """Prints the rows and returns them; raises NotSupported without a GPU."""
    if not torch.cuda.is_available():
        raise NotSupported("bench gpu needs an NVIDIA GPU, and PyTorch sees none here. Run it on a machine that has one.")
    check_csv(plan.csv)
    device = torch.device("cuda")
    stamp = machine_facts() | {"gpu": torch.cuda.get_device_name(device), "dtype": "bfloat16", "prompt_tokens": PROMPT}
    return publish(rows(plan, SIZES, device, torch.bfloat16), row_text, stamp, plan.csv)


def rows(plan: GpuBench, sizes: Mapping[str, Mapping[str, int]], device: torch.device, dtype: torch.dtype) -> Iterator[Row]:
    """The rows of all models, in order of size."""
    start = time.monotonic()
    for name, shape in sizes.items():
        if time.monotonic() - start > 60 * MINUTES:
            yield {"model": name, "left_out": f"The models before it took more than {MINUTES} minutes."}
            continue
        try:
            memory.check(name, memory_size(shape), device, str(dtype).removeprefix("torch."))
        except TooLittleMemory as e:
            yield {"model": name, "left_out": str(e)}
            continue
        yield from model_rows(name, random_model(shape, device, dtype), plan)


def model_rows(name: str, model: PreTrainedModel, plan: GpuBench) -> Iterator[Row]:
    """The rows of a model; transformers comes first, before its attention is replaced."""
    about = {"model": name, "parameters": sum(p.numel() for p in model.parameters())}
    theirs = generate_milliseconds(model, plan.tokens)
    yield about | {"what": "transformers generate", "milliseconds": theirs, "over_generate": 1.0, "over_plain": None}
    kinds: list[tuple[str, bool, str, dict[str, Any]]] = [("plain, no graphs", False, "ar", {}), ("plain, graphs", True, "ar", {})]
    kinds += [(f"window of {width}, graphs", True, "sjdpp", {"window": width}) for width in plan.windows]
    times = {what: step(RandomBackbone(model, static), method, knobs, plan.tokens) for what, static, method, knobs in kinds}
    for what, milliseconds in times.items():
        over = {"over_generate": theirs / milliseconds, "over_plain": milliseconds / times["plain, graphs"]}
        yield about | {"what": what, "milliseconds": milliseconds} | over


def random_model(shape: Mapping[str, int], device: torch.device, dtype: torch.dtype) -> PreTrainedModel:
    """A decoder of this shape with transformers' random weights, created on the device."""
    torch.manual_seed(0)
    ids = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = LlamaConfig(**shape, max_position_embeddings=4096, **ids)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    return model.eval().requires_grad_(False)


def memory_size(shape: Mapping[str, int]) -> memory.Size:
    """The numbers that determine the memory of a model of this shape."""
    with torch.device("meta"):
        config = LlamaConfig(**shape)
        numbers = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    slots = PROMPT + COLUMNS * COLUMNS + DRAFT_ROWS
    heads, layers = config.num_key_value_heads, config.num_hidden_layers
    return memory.Size(numbers, layers, heads, head_width(config), slots, config.vocab_size, branches=1)


def generate_milliseconds(model: PreTrainedModel, tokens: int) -> float:
    """Milliseconds per token of transformers' `generate`, the median of three after one warm-up."""
    prompt = torch.arange(PROMPT, device=model.device)[None]
    settings = {"max_new_tokens": tokens, "do_sample": True, "temperature": 1.0, "top_k": 0}

    def make() -> Sequence[int]:
        return model.generate(prompt, attention_mask=torch.ones_like(prompt), **settings)[0, PROMPT:].tolist()

    return float(np.median([1000 * time_function(make).seconds / tokens for _ in range(4)][1:]))


def step(backbone: RandomBackbone, method: str, knobs: Mapping[str, Any], count: int) -> float:
    """Milliseconds per step of a method, the median of `count` steps after warm-up."""
    run = generate(backbone, METHODS[method], Prompt(), knobs)
    seconds = [each.seconds for each in islice(run, WARM_UP + count)]
    run.close()
    return float(1000 * np.median(seconds[WARM_UP:]))


def row_text(row: Row) -> str:
    """One line of the table."""
    if "left_out" in row:
        return f"{row['model']}: left out. {row['left_out']}"
    over = "" if row["over_plain"] is None else f"   {row['over_plain']:5.2f} plain steps"
    return (
        f"{row['model']:8} {row['parameters'] / 1e6:7,.0f} million   {row['what']:24} {row['milliseconds']:8.2f} ms   "
        f"{row['over_generate']:5.2f}x generate{over}"
    )
