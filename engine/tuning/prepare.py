"""Models as the commands and the studio load them: with the number of threads and the dtype that are fastest here.

What has to be measured is measured once and stored (`store.py`). The library's `engine.load` measures nothing: it leaves PyTorch's threads
to its caller and takes each model's own dtype.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import lru_cache

import torch

from engine import backbones
from engine.core import Backbone
from engine.errors import BadOutput
from engine.machine import device_of
from engine.nvidia import unused_gpu
from engine.tuning import store
from engine.tuning.curve import CostCurve, cost_curves
from engine.tuning.expected import best, of_card
from engine.tuning.load_monitor import BUSY, watch_load
from engine.tuning.store import ModelMeasurements, StepCosts
from engine.tuning.threads import candidates, fastest, thread_costs

EITHER = "bfloat16"  # the capability of a model that can be loaded in float32 and in bfloat16, where a CPU multiplies both
WIDE = 32  # rows of the pass that represents the fast methods where no expected tokens are recorded
GAIN, LOSS = 0.95, 1.05  # bfloat16 must take less than this share of a wide pass's time, and at most this one of a single row's

Say = Callable[[str], None]


def to_stderr(text: str) -> None:
    """Prints a message to stderr."""
    print(text, file=sys.stderr, flush=True)


@lru_cache(maxsize=64)
def to_stderr_once(text: str) -> None:
    """Prints a message to stderr, each text only once per process."""
    to_stderr(text)


def prepare(
    name: str, path: str | None = None, device: str = "auto", dtype: str = "auto", cores: int | None = None, say: Say = to_stderr,
    weights: str = "auto", measures: bool = True,
) -> Backbone:  # fmt: skip
    """A model, loaded with `engine.backbones.load`, and PyTorch set to the number of threads that is fastest for it.

    dtype : "auto" takes bfloat16 where it is faster (see `choose_dtype`); cores : the most threads, None = as many as PyTorch began with;
    weights : see `engine.backbones.load`; measures : False = only what is stored is used, see `tune`
    Raises what `load` raises.
    """
    if device == "auto" and (reason := unused_gpu()):
        to_stderr_once(f"The processor is used. {reason}")
    device = device_of(device)
    backbone = backbones.load(name, path, device, dtype, weights)
    return tune(backbone, lambda other: backbones.load(name, path, device, other), dtype, cores, say, measures)


def tune(
    backbone: Backbone, load: Callable[[str], Backbone], dtype: str = "auto", cores: int | None = None, say: Say = to_stderr,
    measures: bool = True,
) -> Backbone:  # fmt: skip
    """A loaded model, or the same one in its faster dtype, and PyTorch set to its fastest number of threads.

    load : the same model in another dtype; measures : False = where no measurement is stored, the model keeps its dtype and gets all
    threads
    """
    if backbone.device.type != "cpu":
        return backbone
    use_threads(backbone, cores, say, measures)
    if dtype != "auto" or EITHER not in backbone.capabilities or backbone.weights_hash is None:
        return backbone
    known, count = store.read(backbone), torch.get_num_threads()
    if not measures and not {(count, backbone.dtype), (count, EITHER)} <= known.costs.keys():
        return backbone
    chosen = choose_dtype(backbone, lambda: load(EITHER), known, say)
    return backbone if chosen == backbone.dtype else load(chosen)


def use_threads(backbone: Backbone, cores: int | None = None, say: Say = to_stderr, measures: bool = True) -> None:
    """Sets PyTorch's threads to the fastest number for this model, or, if its weights have no hash by which a measurement could be stored,
    to the number that PyTorch started with. cores : the most that are measured. $OMP_NUM_THREADS bounds both. measures : see `tune`"""
    if backbone.device.type == "cpu":
        most = min(all_threads(), cores or all_threads())
        known = store.read(backbone)
        is_stored = set(candidates(most)) <= set(known.threads)
        torch.set_num_threads(
            most if backbone.weights_hash is None or not (measures or is_stored) else thread_count(backbone, known, most, say)
        )


@lru_cache(maxsize=1)
def all_threads() -> int:
    """Number of threads that PyTorch had at the first call: one per core, or $OMP_NUM_THREADS."""
    return min(torch.get_num_threads(), os.cpu_count() or 1)


def thread_count(backbone: Backbone, measured: ModelMeasurements, most: int, say: Say = to_stderr) -> int:
    """The fastest number of threads, at most `most`; measures those that are not stored yet, alternately."""
    counts = candidates(most)
    if len(counts) > 1 and not set(counts) <= set(measured.threads):
        say(f"Measuring how many threads are fastest for {backbone.name} here, once.")
        costs, quiet = watch_load(most, lambda: thread_costs(backbone, counts))
        measured.threads |= costs
        keep(measured, say, quiet)
    return fastest(measured.threads, most) if len(counts) > 1 else counts[0]


def costs_here(
    backbone: Backbone, measured: ModelMeasurements, say: Say = to_stderr, other: Callable[[], Backbone] | None = None
) -> StepCosts:
    """The costs of a model's passes with the threads that PyTorch has now; measured and stored if they are not yet.

    other : loads the same model in another dtype, which is measured alternately with it
    """
    count = torch.get_num_threads()
    if (count, backbone.dtype) not in measured.costs or (other and (count, EITHER) not in measured.costs):
        models = [backbone, other()] if other else [backbone]
        say(f"Measuring passes of {backbone.name} in {' and '.join(each.dtype for each in models)} here, once.")
        curves, quiet = watch_load(count, lambda: cost_curves(models))
        measured.costs |= {(count, each.dtype): StepCosts(curve) for each, curve in zip(models, curves, strict=True)}
        keep(measured, say, quiet)
    return measured.costs[count, backbone.dtype]


def choose_dtype(backbone: Backbone, other: Callable[[], Backbone], measured: ModelMeasurements, say: Say = to_stderr) -> str:
    """The faster of a model's own dtype and bfloat16; measures both alternately if they are not stored yet.

    other : loads it in bfloat16
    """
    own = costs_here(backbone, measured, say, other)
    half, rows = measured.costs[torch.get_num_threads(), EITHER], of_card(backbone)
    return EITHER if bfloat16_pays(own.curve, half.curve, best(rows, own).rows if rows else WIDE) else backbone.dtype


def bfloat16_pays(own: CostCurve, half: CostCurve, rows: float) -> bool:
    """True if bfloat16 is faster for passes of `rows` rows, as fast methods make, and not slower for one row, as in plain decoding. Every
    speed-up is over plain decoding in the same dtype, and a slower baseline would flatter it."""
    return half.at(rows) < GAIN * own.at(rows) and half.at(1) <= LOSS * own.at(1)


def keep(measured: ModelMeasurements, say: Say, quiet: bool = True) -> None:
    """Stores what was measured, and says if other programs disturbed it, or why it is not stored; then it is measured again next time."""
    if not quiet:
        say(BUSY)
    measured.disturbed |= not quiet
    try:
        store.write(measured)
    except BadOutput as e:
        say(f"{e} It is measured again next time.")
