"""The first ten minutes of a GPU that nobody has tried: kernels against references, replay against dynamic steps, exactness.

The checks go from the smallest part to the whole, so that the first failure names the cause. `rows` stops there with one sentence.

Exactness is tested on long sequences of a small random model, because a sequence that could be enumerated would be over before a graph is
replayed. The chain rule replaces enumeration: for a token x after its prefix, with distribution p of plain decoding,
u = (sum of p over tokens more probable than x) + v p(x), with v uniform, is uniform in (0, 1), and independent of the earlier ones, exactly
if the tokens have the model's distribution. Tokens are ordered by p, because a wrong rule favours the probable ones.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from engine.core import Draft, Prompt, Sampling
from engine.errors import ForetokenError
from engine.methods import METHODS
from engine.run import generate
from research.bench.kernel_cases import CASES
from research.bench.likelihood import in_order
from research.bench.random_models import RandomBackbone, random_model, shape_of
from research.bench.rows import Row
from research.exactness.power import statistic

TINY = shape_of(64, 128, 2, 4, 2, 64)
TINY_SAMPLING = Sampling(guidance=1.5, top_k=48)
PROMPT, MISSING = 40, 24  # tokens of the prompt, and how many of them the second branch of guidance lacks
SIDE = 24  # of the picture, in tokens
SHARP = 6.0  # factor of the head's random weights: distributions with a few probable tokens
COMPARED = 40  # steps of a method with graphs and without
PICTURES, CELLS = 4, 24  # of the test of exactness: pictures of a method, and equal parts of (0, 1)
Z_ACCEPTED = 5.0
RELATIVE = 2e-2  # accepted difference of a kernel from its reference, where inputs are in half precision
TIES = 0.02  # accepted share of integers that differ: draws between candidates that are nearly equal
METHODS_TRIED: Mapping[str, Mapping[str, Any]] = {
    "ar": {}, "sjdpp": {"window": 12}, "eagle": {"depth": 3, "width": 3, "nodes": 8}, "lookup": {}, "cross_regression": {"horizon": 6},
}  # fmt: skip


class Mismatch(ForetokenError):
    """A check of the GPU has failed."""


def rows(device: torch.device, cases: Mapping[str, tuple[Callable[..., Any], ...]] = CASES, pictures: int = PICTURES) -> Iterator[Row]:
    """One row per check that holds; raises Mismatch at the first one that does not. cases : of kernels"""
    for check in (kernel_checks(cases, device), replay_checks(tiny_model(device)), exactness_checks(tiny_model(device), pictures)):
        start = time.monotonic()
        for row in check:
            yield row | {"seconds": round(time.monotonic() - start, 2)}
            start = time.monotonic()


def row_text(row: Row) -> str:
    """One line of the table."""
    return f"{row['check']:10} {row['what']:60} {row['result']}   {row['seconds']:.1f} s"


# --- kernels ----------------------------------------------------------------------------------------------------------


def kernel_checks(cases: Mapping[str, tuple[Callable[..., Any], ...]], device: torch.device) -> Iterator[Row]:
    """Every kernel against its reference."""
    for name, makes in cases.items():
        for make in makes:
            case = make(device)
            gap = difference(case.kernel(), case.reference())
            if gap is not None:
                raise Mismatch(f"The kernel {name} differs from its reference on {case.name}: {gap}. {REPORT}")
            yield {"check": "kernel", "what": f"{name}, {case.name}", "result": "equals the reference"}


REPORT = "Report this with the output of python launch.py doctor; FORETOKEN_KERNELS=reference avoids the kernels until then."


def difference(ours: Any, theirs: Any) -> str | None:
    """The first difference between two results, or None: numbers beyond RELATIVE, and integers beyond a share of TIES."""
    for i, (mine, other) in enumerate(zip(tensors_of(ours), tensors_of(theirs), strict=True)):
        if mine.shape != other.shape:
            return f"result {i} has the shape {tuple(mine.shape)} instead of {tuple(other.shape)}"
        if not mine.is_floating_point():
            share = (mine != other).double().mean().item()
            if share > max(TIES, 1.5 / mine.numel()):
                return f"{share:.1%} of the integers of result {i} differ"
            continue
        size = other.double().abs()
        gap = torch.where(mine == other, 0, (mine.double() - other.double()).abs())
        if not (gap <= RELATIVE * (size + size[size.isfinite()].mean().nan_to_num())).all():  # NaN is not
            return f"result {i} differs by {gap.max().item():.3g}"
    return None


def tensors_of(result: Any) -> list[Tensor]:
    """The tensors of a result, which may be a tensor, a tuple or a dataclass."""
    parts = [getattr(result, each.name) for each in fields(result)] if is_dataclass(result) else result
    return [each for each in tree_leaves(parts) if isinstance(each, Tensor)]


# --- graphs and exactness ---------------------------------------------------------------------------------------------


def tiny_model(device: torch.device) -> Any:
    """A small random decoder in float32 whose distributions have a few probable tokens."""
    model = random_model(TINY, device, torch.float32)
    model.lm_head.weight.mul_(SHARP)
    return model


def tiny_backbone(model: Any, static: bool) -> RandomBackbone:
    """The backbone of the checks: guidance, a filter, and a second branch whose prompt is shorter."""
    return RandomBackbone(model, static, PROMPT, TINY_SAMPLING, SIDE, MISSING)


def replay_checks(model: Any) -> Iterator[Row]:
    """The tokens of methods with passes in fixed shapes, which a GPU replays, against the same methods without."""
    for method, knobs in METHODS_TRIED.items():
        ours, theirs = (
            [step.tokens for step in islice(generate(tiny_backbone(model, static), METHODS[method], Prompt(seed=1), knobs), COMPARED)]
            for static in (True, False)
        )
        wrong = next((i for i, pair in enumerate(zip(ours, theirs, strict=True)) if pair[0] != pair[1]), None)
        if wrong is not None:
            raise Mismatch(f"{method}: step {wrong} gives the tokens {ours[wrong]} with graphs and {theirs[wrong]} without. {REPORT}")
        yield {"check": "replay", "what": f"{method}, {COMPARED} steps", "result": "the tokens of the dynamic step"}


def exactness_checks(model: Any, pictures: int) -> Iterator[Row]:
    """The distribution of the tokens of methods in their usual form against plain decoding's, computed on the CPU."""
    pair = tiny_backbone(model, True), tiny_backbone(deepcopy(model).cpu(), False)
    for method, knobs in METHODS_TRIED.items():
        places = np.concatenate([places_of(*pair, method, knobs, seed) for seed in range(pictures)])
        counts = Counter((int(cell),) for cell in (places * CELLS).clip(max=CELLS - 1))
        z = statistic(counts, {(cell,): 1 / CELLS for cell in range(CELLS)}, len(places))["z"]
        if not abs(z) < Z_ACCEPTED:
            raise Mismatch(f"{method}: {len(places):,} tokens do not have the distribution of plain decoding (z = {z}). {REPORT}")
        yield {"check": "exactness", "what": f"{method}, {len(places):,} tokens", "result": f"plain decoding's, z = {z:.1f}", "z": z}


@torch.inference_mode()
def places_of(backbone: RandomBackbone, plain: RandomBackbone, method: str, knobs: Mapping[str, Any], seed: int) -> np.ndarray:
    """The place of every token of a picture in its distribution under the plain backbone, [N] float64; see the module."""
    run = generate(backbone, METHODS[method], Prompt(seed=seed), knobs).finish()
    tokens = torch.tensor(in_order(run.tokens, run.positions))[:, None]
    p = plain.start(Prompt()).forward(Draft(tokens[:-1, 0])).p.double()
    own = p.gather(1, tokens)
    more, equal = (torch.where(mask, p, 0).sum(1).numpy() for mask in (p > own, p == own))
    return more + np.random.default_rng(seed).random(len(tokens)) * equal
