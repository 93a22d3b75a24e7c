"""`bench gpu`: cost of plain steps and of windows on a GPU, after 4k and 8k keys with guidance and top-k, next to transformers' `generate`.

The models have random weights in the sizes of three models. These cost as much as trained ones, but their acceptance differs; so a
window's row gives the cost of its step relative to a plain step, not its tokens per pass.

A row has two pictures one after another. The first shows what captures, compilation and other first calls cost, the second what is paid
again; the steps of the second are timed. Then a profiler gives the time in which the GPU computes, and its operations. The rest of a step
is the host's: the GPU waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from engine import memory
from engine.core import Prompt
from engine.errors import NotSupported, TooLittleMemory
from engine.kernels.attention_backends import without_cudnn
from engine.machine import machine_facts
from engine.methods import METHODS
from engine.networks.hosted import DRAFT_ROWS, head_width
from engine.run import Run, generate
from research.bench import gpu_first
from research.bench.random_models import COLUMNS, SAMPLING, RandomBackbone, random_model, shape_of
from research.bench.rows import Row, check_csv, publish

MINUTES = 10  # limit after which no further model starts
WARM_UP = 8  # untimed steps of each picture
PROFILED = 8  # steps under the profiler


SIZES: Mapping[str, Mapping[str, int]] = MappingProxyType({  # of Llama-like decoders, with a head over the model's own tokens
    "lowpoly": shape_of(192, 512, 5, 6, 6, 5121),
    "janus": shape_of(2048, 5632, 24, 16, 16, 16384),  # Janus-Pro-1B
    "emu3": shape_of(4096, 14336, 32, 32, 8, 32768),
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class GpuBench:
    """Plan of `bench gpu`.

    tokens : tokens per generation of transformers, and number of our timed steps; keys : tokens of the prompt
    first  : check kernels, graphs and exactness before the table (gpu_first.py)
    """

    tokens: int = 64
    windows: tuple[int, ...] = (16, 32)
    keys: tuple[int, ...] = (4096, 8192)
    first: bool = False
    csv: Path | None = None


@dataclass(frozen=True)
class Timing:
    """The time and the tokens of a run of third-party code."""

    seconds: float
    tokens: Sized


def time_function(make: Callable[[], Sized]) -> Timing:
    """Calls a function that makes tokens and times it; for code that does not time itself."""
    start = time.perf_counter()
    tokens = make()
    return Timing(time.perf_counter() - start, tokens)


def bench(plan: GpuBench) -> list[Row]:
    """Prints the rows and returns them; raises NotSupported without a GPU, and Mismatch at the first failed check of a first run."""
    if not torch.cuda.is_available():
        raise NotSupported("bench gpu needs an NVIDIA GPU, and PyTorch sees none here. Run it on a machine that has one.")
    check_csv(plan.csv)
    device = torch.device("cuda")
    stamp = machine_facts() | {"gpu": torch.cuda.get_device_name(device), "dtype": "bfloat16"}
    stamp |= {"guidance": SAMPLING.guidance, "top_k": SAMPLING.top_k}
    checked = publish(gpu_first.rows(device), gpu_first.row_text, stamp | {"dtype": "float32"}, plan.csv) if plan.first else []
    return checked + publish(rows(plan, SIZES, device, torch.bfloat16), row_text, stamp, plan.csv)


def rows(plan: GpuBench, sizes: Mapping[str, Mapping[str, int]], device: torch.device, dtype: torch.dtype) -> Iterator[Row]:
    """The rows of all models, in order of size."""
    start = time.monotonic()
    for name, shape in sizes.items():
        if time.monotonic() - start > 60 * MINUTES:
            yield {"model": name, "left_out": f"The models before it took more than {MINUTES} minutes."}
            continue
        try:
            memory.check(name, memory_size(shape, max(plan.keys)), device, str(dtype).removeprefix("torch."))
        except TooLittleMemory as e:
            yield {"model": name, "left_out": str(e)}
            continue
        yield from model_rows(name, random_model(shape, device, dtype), plan)


def model_rows(name: str, model: PreTrainedModel, plan: GpuBench) -> Iterator[Row]:
    """The rows of a model; transformers comes first, before its attention is replaced."""
    theirs = {keys: generate_milliseconds(model, keys, plan.tokens) for keys in plan.keys}
    for keys in plan.keys:
        about = {"model": name, "parameters": sum(p.numel() for p in model.parameters()), "keys": keys}
        yield about | {"what": "transformers generate", "milliseconds": theirs[keys], "over_generate": 1.0, "over_plain": None}
        kinds: list[tuple[str, bool, str, dict[str, Any]]] = [("plain, no graphs", False, "ar", {}), ("plain, graphs", True, "ar", {})]
        kinds += [(f"window of {width}, graphs", True, "sjdpp", {"window": width}) for width in plan.windows]
        costs = {what: step_cost(RandomBackbone(model, static, keys), *run, plan.tokens) for what, static, *run in kinds}
        for what, cost in costs.items():
            over = theirs[keys] / cost.milliseconds, cost.milliseconds / costs["plain, graphs"].milliseconds
            yield about | {"what": what, **vars(cost), "over_generate": over[0], "over_plain": over[1]}


def memory_size(shape: Mapping[str, int], keys: int) -> memory.Size:
    """The numbers that determine the memory of a model of this shape."""
    with torch.device("meta"):
        config = LlamaConfig(**shape)
        numbers = sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())
    slots = keys + COLUMNS * COLUMNS + DRAFT_ROWS
    heads, layers = config.num_key_value_heads, config.num_hidden_layers
    return memory.Size(numbers, layers, heads, head_width(config), slots, config.vocab_size)


def generate_milliseconds(model: PreTrainedModel, keys: int, tokens: int) -> float:
    """Milliseconds per token of transformers' `generate` after a prompt, whose own pass is not counted."""
    prompt = torch.arange(keys, device=model.device)[None] % model.config.vocab_size
    settings = {"do_sample": True, "temperature": 1.0, "top_k": SAMPLING.top_k, "guidance_scale": SAMPLING.guidance}
    whole = {"attention_mask": torch.ones_like(prompt), "negative_prompt_ids": prompt}

    def seconds(count: int) -> float:
        def make() -> list[int]:
            return model.generate(prompt, max_new_tokens=count, **whole, **settings)[0, keys:].tolist()

        with without_cudnn(model.device):
            return float(np.median([time_function(make).seconds for _ in range(4)][1:]))

    return 1000 * (seconds(tokens) - seconds(1)) / (tokens - 1)


@dataclass(frozen=True)
class StepCost:
    """Cost of a method's step. Milliseconds are medians.

    milliseconds : of a step; device_milliseconds : in which the device computes; host_milliseconds : the rest, in which it waits
    nodes        : operations of the device
    captures     : graphs that the first picture captured, and the second; first_seconds : what each took beyond its steps
    """

    milliseconds: float
    device_milliseconds: float
    host_milliseconds: float
    nodes: float
    captures: list[int]
    first_seconds: list[float]


def step_cost(backbone: RandomBackbone, method: str, knobs: Mapping[str, Any], count: int) -> StepCost:
    """The cost of a step of a method, over `count` steps of the second of two pictures."""
    extra, captures = [], []
    for picture in range(2):
        run = generate(backbone, METHODS[method], Prompt(), knobs)
        next(run)  # the prompt
        before = graphs_of(run)
        seconds = [each.seconds for each in islice(run, WARM_UP + count)]
        captures.append(graphs_of(run) - before)
        steady = float(np.median(seconds[WARM_UP:]))
        extra.append(sum(seconds) - steady * len(seconds))
        if picture:
            computing, nodes = computing_time(lambda run=run: steps_of(run, PROFILED), backbone.device)
        run.close()
    milliseconds, device = 1000 * steady, 1000 * computing / PROFILED
    return StepCost(milliseconds, device, milliseconds - device, nodes / PROFILED, captures, extra)


def graphs_of(run: Run) -> int:
    """The number of graphs that a run can replay."""
    workspace = run.sequence.workspace
    return 0 if workspace is None else workspace.replays.count


def steps_of(run: Run, count: int) -> int:
    """Advances a run; returns the number of its steps."""
    return sum(1 for _ in islice(run, count))


def computing_time(call: Callable[[], object], device: torch.device) -> tuple[float, int]:
    """Seconds in which the device computes during a call, and the number of its operations, by PyTorch's profiler."""
    on_gpu = device.type == "cuda"
    with profile(activities=[ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU]) as profiler:
        call()
        if on_gpu:
            torch.cuda.synchronize(device)
    if on_gpu:
        times = [event.time_range.elapsed_us() for event in profiler.events() if event.device_type == DeviceType.CUDA]
    else:
        times = [event.self_cpu_time_total for event in profiler.events()]
    return sum(times) / 1e6, len(times)


def row_text(row: Row) -> str:
    """One line of the table."""
    if "left_out" in row:
        return f"{row['model']}: left out. {row['left_out']}"
    text = f"{row['model']:8} {row['parameters'] / 1e6:7,.0f} million {row['keys']:6,} keys   {row['what']:24} "
    text += f"{row['milliseconds']:8.2f} ms   {row['over_generate']:5.2f}x generate"
    if "nodes" not in row:
        return text
    first, second = (f"{count} graphs, {seconds:.2f} s" for count, seconds in zip(row["captures"], row["first_seconds"], strict=True))
    return (
        f"{text}   {row['over_plain']:5.2f} plain steps   GPU {row['device_milliseconds']:.2f} ms, host {row['host_milliseconds']:.2f} ms, "
        f"{row['nodes']:,.0f} operations   first picture: {first}; second: {second}"
    )
