"""Passes of our own models on a CPU by PyTorch's operations and by native functions, in turns, beside the bound of a pass.

With one thread the times are those that the processor gave to it, so other programs hardly matter; with several they are of the wall clock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine.backbones import load
from engine.core import Backbone
from engine.errors import NotSupported
from engine.kernels.choice import NATIVE, REFERENCE, VARIABLE
from engine.kernels.cpu.library import native_choice
from engine.loading import model_columns
from engine.machine import facts
from engine.methods import find
from engine.run import generate
from engine.tuning.bound import DTYPES, KEPT, ROWS, Rates, begun, measured_rates, pass_of, prompt_of, timed, work_of
from research.bench.rows import Row, check_csv, publish
from research.bench.step_split import split

KINDS = (REFERENCE, NATIVE)
METHOD_ROWS = {"pictogram": ("ar", "sjdpp"), "lowpoly": ("ar", "sjdpp", "xspecmesh_exact")}  # whole generations
SHARES = ("model", "drafter", "rest")
SPLITS = 9  # generations whose shares are measured; the median of each counts


@contextmanager
def wished(kind: str) -> Iterator[None]:
    """In this context, FORETOKEN_KERNELS asks for a kind."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = kind
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def bench(path: Path | None, seeds: int = 2, tries: int = 40) -> list[Row]:
    """Returns the rows and prints them. Raises NotSupported where native functions do not run."""
    check_csv(path)
    choice = native_choice()
    if choice.name != NATIVE:
        raise NotSupported(f"There is nothing to compare: the passes run by PyTorch's operations. {choice.reason}")
    rates = measured_rates(tuple({dtype for _, dtype in DTYPES}))
    rows = (row for name, dtype in DTYPES for row in of_model(name, dtype, rates, seeds, tries))
    return publish(rows, readable, facts() | {"clock": "processor" if torch.get_num_threads() == 1 else "wall", "kept": KEPT}, path)


@torch.inference_mode()
def loaded(name: str, dtype: str, kind: str) -> Backbone:
    """A model whose passes run by a kind."""
    with wished(kind):
        found = load(name, dtype=dtype)
        found.start(prompt_of(found)).close()  # what is made on first use is made by this kind
    return found


def of_model(name: str, dtype: str, rates: Rates, seeds: int, tries: int) -> Iterator[Row]:
    """The rows of a model in a type: a pass of 1 row and of 32, a plain generation and one with sjdpp."""
    models = {kind: loaded(name, dtype, kind) for kind in KINDS}
    stamp = model_columns(models[NATIVE])
    for rows in ROWS:
        yield stamp | of_passes(models, rows, rates, tries)
    for method in METHOD_ROWS[name]:
        yield stamp | of_generation(models, method, seeds)


@torch.inference_mode()
def of_passes(models: dict[str, Backbone], rows: int, rates: Rates, tries: int) -> Row:
    """Milliseconds of a pass, the best of several, by kind; its bound; and how many times the bound it takes."""
    sequences = {kind: begun(model) for kind, model in models.items()}
    passes = {kind: pass_of(sequence, rows) for kind, sequence in sequences.items()}
    best = dict.fromkeys(passes, float("inf"))
    for _ in range(tries):
        for kind, call in passes.items():
            best[kind] = min(best[kind], timed(call))
    bound = rates.seconds(work_of(models[NATIVE], sequences[NATIVE], rows))
    return {
        "what": f"pass of {rows} row{'s' * (rows > 1)}",
        **{f"{kind}_ms": round(1000 * seconds, 3) for kind, seconds in best.items()},
        "bound_ms": round(1000 * bound, 3),
        **{f"{kind}_over_bound": round(seconds / bound, 2) for kind, seconds in best.items()},
    }


def of_generation(models: dict[str, Backbone], method: str, seeds: int) -> Row:
    """Milliseconds a pass and seconds of a whole generation by kind, and the shares of a step's time."""
    (found, preset), seconds = find(method), {kind: [] for kind in models}
    passes: dict[str, int] = dict.fromkeys(models, 0)
    for seed in range(-1, seeds):  # the first is not counted
        for kind, model in models.items():
            run = generate(model, found, replace(prompt_of(model), seed=max(seed, 0)), preset)
            spent = timed(run.finish)
            if seed >= 0:
                seconds[kind].append(spent)
                passes[kind] += int(run.totals["forwards"])
    row: dict[str, Any] = {"what": f"{method}, whole"}
    for kind in models:
        row |= {f"{kind}_ms": round(1000 * sum(seconds[kind]) / passes[kind], 3), f"{kind}_seconds": round(sum(seconds[kind]) / seeds, 3)}
    for kind, model in models.items():
        found = [split(model, method, {}, prompt_of(model)) for _ in range(SPLITS)]
        row |= {f"{kind}_{name}_share": round(median(each[f"{name}_share"] for each in found), 3) for name in SHARES}
    return row


def readable(row: Row) -> str:
    """One line of a row."""
    before, after = row[f"{REFERENCE}_ms"], row[f"{NATIVE}_ms"]
    line = f"{row['backbone']:10} {row['dtype']:9} {row['what']:16} {before:7.2f} -> {after:6.2f} ms ({before / after:.2f}x)"
    if "bound_ms" in row:
        return f"{line}, bound {row['bound_ms']:.2f} ms, {row[f'{NATIVE}_over_bound']:.2f} times"
    shares = " ".join(f"{name} {row[f'{NATIVE}_{name}_share']:.0%}" for name in SHARES)
    return f"{line}, {row[f'{REFERENCE}_seconds']:.2f} -> {row[f'{NATIVE}_seconds']:.2f} s; {shares}"
