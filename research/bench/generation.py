"""`launch.py bench generate`: our methods inside transformers' `generate`, on random weights in the shape of a real model.

The rows: time per pass by number of rows, with the acceptance from which each window is faster; the parts of a step's time;
plain decoding and a method through `custom_generate`, transformers' own `generate` and its prompt lookup, in alternation; and memory.

Random weights cost as much as trained ones, but their acceptance differs. So the drafting rows' tokens per second say nothing about a
trained model. The cost curve does: it shows the acceptance from which a window pays.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from engine.core import NO_DRAFT, Prompt, Sampling
from engine.errors import BadPrompt
from engine.machine import device_of, has_fast_bfloat16
from engine.methods import find
from engine.networks.sequence import TransformerSequence
from engine.run import generate, speedup
from engine.transformers import foretoken
from engine.transformers.host import Branch, CallerModel
from engine.transformers.processors import CallerDistribution
from engine.tuning.alternate import alternate
from engine.tuning.curve import PAST, cost_curves
from research.bench.gpu import Timing, time_function
from research.bench.random_models import random_model
from research.bench.rows import check_csv, experiment, publish

SHAPES: dict[str, dict[str, int]] = {  # of a LlamaForCausalLM; 1b is the trunk of Janus-Pro-1B with its 16,384 picture tokens
    "tiny": {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512},
    "1b": {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16, "vocab_size": 16384},
}
PROMPT, NEGATIVE = 32, 8  # tokens of the prompt, and of the negative one
STEPS = 4  # at least, to measure the time of a step
PATIENCE = 60.0  # seconds for the curve
LOOKUP_TOKENS = 4  # tokens that transformers' prompt lookup drafts


@dataclass(frozen=True, kw_only=True)
class GenerateBench:
    """Plan of `bench generate`.

    size : a key of SHAPES; dtype : auto, float32 or bfloat16; method, window : of the accelerated row; tokens : new tokens per generation;
    guidance : scale, 1 = off; repeats : each row runs twice per repeat
    """

    size: str = "1b"
    dtype: str = "auto"
    device: str = "auto"
    method: str = "sjdpp"
    window: int = 16
    tokens: int = 32
    guidance: float = 1.0
    repeats: int = 1
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt for an unknown size, and the errors of `foretoken` for a method or a window."""
        if self.size not in SHAPES:
            raise BadPrompt(f"There is no size '{self.size}'. Choose one of: {', '.join(SHAPES)}.")
        foretoken(self.method, window=self.window)

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of every generation."""
        return {"max_new_tokens": self.tokens, "do_sample": True, "temperature": 1.0, "top_k": 0}


def bench(plan: GenerateBench) -> list[dict[str, Any]]:
    """Returns the rows and prints each as soon as it is measured."""
    check_csv(plan.csv)
    model = model_of(plan)
    prompt, negative = (torch.arange(2, 2 + count, device=model.device) for count in (PROMPT, NEGATIVE))
    branches = [Branch(prompt), Branch(negative)][: 1 if plan.guidance == 1 else 2]
    host = CallerModel(model, branches, STEPS * plan.window, CallerDistribution(Sampling(guidance=plan.guidance)))
    stamp = experiment(host, host.sampling, size=plan.size, prompt_tokens=PROMPT, window=plan.window)
    return publish(rows(plan, host, prompt, negative), row_text, stamp, plan.csv)


def rows(plan: GenerateBench, host: CallerModel, prompt: Tensor, negative: Tensor) -> Iterator[dict[str, Any]]:
    """Yields the rows in order."""
    yield curve_row(host)
    yield step_row(host, plan.method, plan.window)
    yield from speed_rows(plan, host.model, prompt, negative)
    yield memory_row(host)


def step_row(host: CallerModel, name: str, window: int) -> dict[str, Any]:
    """Returns the row of a step's time and the model's share of it."""
    forward_seconds, forward = 0.0, TransformerSequence.forward

    def timed_forward(*a: Any, **k: Any) -> Any:
        nonlocal forward_seconds
        start = time.perf_counter()
        rows = forward(*a, **k)
        forward_seconds += time.perf_counter() - start
        return rows

    method, preset = find(name)
    with patch.object(TransformerSequence, "forward", timed_forward):
        run = generate(host, method, Prompt(), {**preset, "window": window})
        next(run)
        forward_seconds, start = 0.0, time.perf_counter()
        run.finish()
        total = time.perf_counter() - start
    milliseconds = 1000 * total / (len(run.steps) - 1)
    return {"method": f"{name}: cost of a step", "milliseconds_per_step": milliseconds, "model_share": forward_seconds / total}


def model_of(plan: GenerateBench) -> PreTrainedModel:
    """Returns a random model of the plan's size; auto is bfloat16 where it is fast."""
    device, dtype, shape = device_of(plan.device), plan.dtype, SHAPES[plan.size]
    if dtype == "auto":
        dtype = "bfloat16" if device != "cpu" or has_fast_bfloat16() else "float32"
    return random_model(shape | {"num_key_value_heads": shape["num_attention_heads"]}, torch.device(device), getattr(torch, dtype))


def speed_rows(plan: GenerateBench, model: PreTrainedModel, prompt: Tensor, negative: Tensor) -> list[dict[str, Any]]:
    """Returns the rows of tokens per second."""
    guided = {} if plan.guidance == 1 else {"guidance_scale": plan.guidance, "negative_prompt_ids": negative[None]}
    passes: dict[str, int] = {}

    def ours(name: str, **knobs: Any) -> Callable[[int], Timing]:
        def run(_: int) -> Timing:
            call = foretoken(name, seed=0, **knobs)
            forwards: list[Any] = []

            def make() -> list[int]:
                out = model.generate(prompt[None], custom_generate=call, return_dict_in_generate=True, **plan.settings, **guided)
                forwards.append(out.totals[0]["forwards"])
                return out.sequences[0, PROMPT:].tolist()

            timing = time_function(make)
            passes[name] = forwards[0]
            return timing

        return run

    def theirs(of: PreTrainedModel, **how: Any) -> Callable[[int], Timing]:
        def run(_: int) -> Timing:
            torch.manual_seed(0)
            return time_function(lambda: of.generate(prompt[None], **plan.settings, **how)[0, PROMPT:].tolist())

        return run

    kinds = {
        "transformers generate": theirs(model, **guided),
        "foretoken ar": ours("ar"),
        f"foretoken {plan.method}": ours(plan.method, window=plan.window),
    }
    if not guided:  # with guidance, its prompt lookup gives wrong tokens
        kinds["transformers prompt lookup"] = theirs(model, prompt_lookup_num_tokens=LOOKUP_TOKENS)
    runs = alternate(kinds, 1, plan.repeats)
    forwards_by_row = {f"foretoken {name}": count for name, count in passes.items()}
    return [
        {
            "method": name,
            "tokens": len(of[0][0].tokens),
            "seconds": float(np.median([run.seconds for run in of[0]])),
            "tokens_per_second": float(np.median([len(run.tokens) / run.seconds for run in of[0]])),
            "forwards": forwards_by_row.get(name),
            "speedup": speedup(runs["transformers generate"][0], of[0]),
        }
        for name, of in runs.items()
    ]


def curve_row(host: CallerModel) -> dict[str, Any]:
    """Returns the row of milliseconds per pass by number of rows, and the acceptance above which a window of that width is faster."""
    longer = CallerModel(host.model, host.branches, PAST * 4, host.reading)  # room for the widest pass after the tokens before it
    milliseconds = dict(cost_curves([longer], rounds=3, seconds=PATIENCE)[0].points)
    pays = {width: round(break_even(width, milliseconds[width] / milliseconds[1]), 3) for width in milliseconds if width > 1}
    return {"method": "cost of a pass", "milliseconds": milliseconds, "pays_from_acceptance": pays}


def break_even(width: int, cost: float) -> float:
    """Returns the acceptance probability a at which a window of `width` gives `cost` tokens per pass: 1 + a + ... + a^(width-1);
    above 1 if no probability is enough."""
    if cost >= width:
        return cost / width
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(middle**i for i in range(width)) < cost else (low, middle)
    return high


@torch.inference_mode()
def memory_row(host: CallerModel) -> dict[str, Any]:
    """Returns the row of bytes: weights, our cache for one sequence, and the peak of this process."""
    weights = sum(p.numel() * p.element_size() for p in host.model.parameters())
    sequence = host.start(Prompt())
    sequence.forward(NO_DRAFT)  # the first pass makes the cache
    cache = sequence.kv_cache.block.nbytes
    sequence.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {"method": "memory", "parameters": host.parameters, "weight_bytes": weights, "cache_bytes": cache, "process_bytes": peak}


def row_text(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    if "milliseconds" in row:
        parts = [
            f"{width} rows {time:.0f} ms" + (f" (pays from {row['pays_from_acceptance'][width]:.2f})" if width > 1 else "")
            for width, time in row["milliseconds"].items()
        ]
        return "cost of a pass: " + ", ".join(parts)
    if "model_share" in row:
        outside = 1 - row["model_share"]
        return f"{row['method']}: {row['milliseconds_per_step']:.0f} ms, {outside:.1%} outside the model's pass"
    if "weight_bytes" in row:
        sizes = [f"{name} {row[name + '_bytes'] / 2**30:.2f} GiB" for name in ("weight", "cache", "process")]
        return f"memory: {row['parameters'] / 1e9:.2f} billion parameters, " + ", ".join(sizes)
    passes = f"{row['forwards']:4} passes   " if row["forwards"] else " " * 14
    return f"{row['method']:28} {row['seconds']:7.2f} s   {row['tokens_per_second']:6.2f} tokens/s   {passes}{row['speedup']:5.2f}x"
