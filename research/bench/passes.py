"""Times of runs on a CPU by PyTorch's operations and by compiled functions: the cost of having no compiler.

Runs of both kinds alternate, and the fastest of several tries counts. With one thread the clock is the thread's processor time, so other
programs hardly matter; with several it is the wall clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from engine.backbones import load
from engine.backbones.prompts import probe_prompt
from engine.core import Backbone
from engine.dispatch.choice import NATIVE, REFERENCE, VARIABLE
from engine.errors import NotSupported
from engine.kernels.cpu.library import native_choice
from engine.loading import model_columns
from engine.machine import machine_facts
from engine.methods import find
from engine.run import generate
from engine.tuning.load_monitor import clock_of
from research.bench.rows import Row, check_csv, publish

KINDS = (REFERENCE, NATIVE)
TYPES = ("float32", "bfloat16")
PICTURES = {128: ("ar", "sjdpp", "spatial", "adt_tree"), 256: ("ar", "sjdpp")}
MODELS = (  # backbone, dtype, pixels and methods
    *(("pictogram", dtype, size, methods) for dtype in TYPES for size, methods in PICTURES.items()),
    *(("lowpoly", dtype, None, ("ar", "sjdpp", "xspecmesh_exact", "surface")) for dtype in TYPES),
)
SEED = 3


@contextmanager
def kernel_kind(kind: str) -> Iterator[None]:
    """Sets FORETOKEN_KERNELS to a kind inside the block."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = kind
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def bench(path: Path | None, tries: int = 3) -> list[Row]:
    """Prints the rows and returns them. Raises NotSupported where compiled functions do not run."""
    check_csv(path)
    choice = native_choice()
    if choice.name != NATIVE:
        raise NotSupported(f"There is nothing to compare: the passes already run by PyTorch's operations. {choice.reason}")
    rows = (row for model in MODELS for row in model_rows(*model, tries))
    return publish(rows, row_text, machine_facts() | {"clock": "processor" if torch.get_num_threads() == 1 else "wall"}, path)


@torch.inference_mode()
def load_with(name: str, dtype: str, kind: str) -> Backbone | None:
    """A model whose passes use one kind of kernels; None if the kind lacks the dtype."""
    with kernel_kind(kind):
        try:
            backbone = load(name, dtype=dtype)
        except NotSupported:  # lowpoly computes in bfloat16 by compiled functions only
            return None
        backbone.start(probe_prompt(backbone)).close()  # creates, by this kind, everything that is created on first use
    return backbone


def model_rows(name: str, dtype: str, size: int | None, methods: tuple[str, ...], tries: int) -> Iterator[Row]:
    """The rows of a model in a dtype, one per method; in float32 for a kind that lacks the dtype."""
    if load_with(name, dtype, NATIVE) is None:
        return
    models = {kind: load_with(name, dtype, kind) or load_with(name, "float32", kind) for kind in KINDS}
    for method in methods:
        yield model_columns(models[NATIVE]) | {"size": size, "method": method} | method_row(models, method, size, tries)


def method_row(models: dict[str, Backbone], method: str, size: int | None, tries: int) -> Row:
    """Seconds and passes of a run by kind."""
    (implementation, preset), seconds, passes = find(method), dict.fromkeys(models, float("inf")), dict.fromkeys(models, 0)
    clock = clock_of(torch.device("cpu"))
    for attempt in range(tries + 1):  # the first is not counted
        for kind, model in models.items():
            with kernel_kind(kind):
                run = generate(model, implementation, replace(probe_prompt(model), seed=SEED, size=size), preset)
                start = clock()
                run.finish()
                spent = clock() - start
            seconds[kind], passes[kind] = min(seconds[kind], spent) if attempt else seconds[kind], int(run.totals["forwards"])
    times = seconds[REFERENCE] / passes[REFERENCE] / (seconds[NATIVE] / passes[NATIVE])
    numbers = {f"{kind}_seconds": round(seconds[kind], 3) for kind in models} | {f"{kind}_passes": passes[kind] for kind in models}
    return numbers | {"times": round(times, 2)}  # per pass, because the kinds may draw different tokens


def row_text(row: Row) -> str:
    """One line of a row."""
    before, after = row[f"{REFERENCE}_seconds"], row[f"{NATIVE}_seconds"]
    what = f"{row['backbone']:10} {row['dtype']:9} {row['size'] or '':>4} {row['method']:16}"
    return f"{what} {before:6.3f} -> {after:6.3f} s, {row['times']:.2f} times per pass ({row[f'{NATIVE}_passes']} passes)"
