"""`verify --dispatch`: every method through every implementation of its passes and verdicts, on a network that can be enumerated.

A run must commit the tokens that it commits by the reference with the same seed, and the sequences of all runs must have the enumerated
distribution. `verify` without `--dispatch` shows the same of the reference, in float64 and with mutants.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache, partial
from multiprocessing import get_context
from typing import Any

import torch

from engine import sampling
from engine.core import VERIFY_BLOCK, Prompt
from engine.decoding import trees, verdict
from engine.decoding.policy import BLOCK
from engine.dispatch.choice import NATIVE, REFERENCE, TRITON, VARIABLE
from engine.dispatch.language import version
from engine.kernels.cpu.library import native_choice
from engine.many import generate_many
from engine.methods import METHODS, cross_regression, xspecmesh
from engine.networks import sequence, workspace
from engine.noise.kernel import gumbel_elsewhere
from engine.run import generate
from engine.verify import reference
from research.exactness.comparison import Z_ACCEPTED
from research.exactness.mutation import Patch
from research.exactness.power import Distribution, detectable, statistic
from research.exactness.small_network import SmallNetwork
from research.exactness.tape import Tape
from research.exactness.toy import enumerate_distribution

AT_ONCE = 4  # simultaneous runs where passes are joined
Sequences = list[tuple[int, ...]]


@dataclass(frozen=True)
class Dispatch:
    """One way to compute passes and verdicts.

    about : one line; kernels : the value of FORETOKEN_KERNELS, "" = unset; compiled : layers in C; joined : runs share their passes
    fixed : passes in fixed shapes, replayed from a tape; most : runs, at most
    """

    about: str
    kernels: str
    compiled: bool = False
    joined: bool = False
    fixed: bool = False
    most: int = 10**9

    @property
    def environment(self) -> dict[str, str]:
        """Variables of its processes. Triton reads its own when it is imported."""
        return {VARIABLE: self.kernels, "TRITON_INTERPRET": "1"}

    def missing(self) -> str:
        """Why it cannot run on this machine; "" if it can."""
        if self.kernels == TRITON and version() is None:
            return "Triton is not installed."
        return native_choice().reason if self.compiled and native_choice().name != NATIVE else ""


DISPATCHES: dict[str, Dispatch] = {
    "reference": Dispatch("PyTorch", REFERENCE),
    "host": Dispatch("verdicts by numpy", ""),
    "native": Dispatch("verdicts by numpy, layers in C", NATIVE, compiled=True),
    "triton": Dispatch("verdicts and attention by Triton's interpreter", TRITON, most=10),  # a run takes seconds
    "joined": Dispatch(f"passes of {AT_ONCE} runs in one, layers in C", NATIVE, compiled=True, joined=True),
    "static": Dispatch("passes and verdicts in fixed shapes, replayed from a tape", REFERENCE, fixed=True),
}


@dataclass(frozen=True)
class DispatchRow:
    """The runs of a method through a dispatch. differing : runs with other tokens than by the reference; skipped : why there are none"""

    method: str
    dispatch: str
    runs: int = 0
    differing: int = 0
    numbers: Mapping[str, float] = field(default_factory=dict)
    skipped: str = ""

    @property
    def holds(self) -> bool:
        """False if the dispatch changes tokens or the distribution."""
        return bool(self.skipped) or (self.differing == 0 and abs(self.numbers["z"]) < Z_ACCEPTED)

    def text(self) -> str:
        """One line of the table."""
        if self.skipped:
            return f"{self.method:18} {self.dispatch:10} skipped: {self.skipped}"
        numbers = f"z = {self.numbers['z']:6.2f}   finds {self.numbers['detects']:.3f} in {self.runs:,} runs"
        return f"{self.method:18} {self.dispatch:10} {'holds' if self.holds else 'FALSE'}   {self.differing} runs differ   {numbers}"


@lru_cache(maxsize=2)
def network(compiled: bool) -> SmallNetwork:
    """The network, made once in a process."""
    return SmallNetwork(compiled=compiled)


@dataclass(frozen=True)
class MethodSetting:
    """A method with knobs."""

    method: str
    knobs: Mapping[str, float | str]

    @property
    def label(self) -> str:
        """Its name in the table."""
        return self.method + (" block" if self.knobs.get("verify") == BLOCK else "")


def settings_of(name: str) -> list[MethodSetting]:
    """A method's exact knobs, and with blocks if it can verify them."""
    method = METHODS[name]
    chain = {"width": 1} if "width" in method.common else {}
    blocks = [MethodSetting(name, {**method.common, **chain, "verify": BLOCK})] if VERIFY_BLOCK in method.knobs else []
    return [MethodSetting(name, method.common), *blocks]


def sequences(dispatch: Dispatch, setting: MethodSetting, runs: int, tapes: list[Tape] | None = None) -> Sequences:
    """The sequences of runs 0, 1, ... of a method, by their seeds. The environment is set. tapes : gets those that were made"""
    torch.set_num_threads(1)
    method, backbone = METHODS[setting.method], network(dispatch.compiled)
    prompts = (Prompt(seed=seed) for seed in range(min(runs, dispatch.most)))
    if dispatch.joined:
        done = dict(_checked(generate_many(backbone, method, prompts, setting.knobs, AT_ONCE)))
        return [done[seed] for seed in range(len(done))]
    with _fixed_shapes([] if tapes is None else tapes) if dispatch.fixed else nullcontext():
        return [tuple(generate(backbone, method, prompt, setting.knobs).finish().in_order) for prompt in prompts]


def _checked(ended: Iterable[Any]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for each in ended:
        if each.error is not None:
            raise each.error
        yield each.index, tuple(each.run.in_order)


@contextmanager
def _fixed_shapes(tapes: list[Tape]) -> Iterator[None]:
    """Replaces a GPU's graphs by tapes, and the kernels' verdicts by their references, in operations that a tape records."""

    def capture(function: Callable[[], tuple[torch.Tensor, ...]]) -> Tape:
        tapes.append(Tape(function))
        return tapes[-1]

    def draw_one(p: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        return sampling.draw(p.expand(1 + len(u), -1), torch.cat([u, u[:1]]))[: len(u)]

    patches: list[Patch] = [
        *((module, "is_fused", lambda rows: rows.settings is not None) for module in (verdict, trees, cross_regression, xspecmesh)),
        (sequence, "is_static", lambda device: True),
        (workspace, "capture_on", lambda device: capture),
        (workspace, "USES", 1),
        (reference, "gumbel_reference", gumbel_elsewhere),
        (sampling, "_draw_from_one", draw_one),
    ]
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def measure_all(names: Iterable[str], dispatches: Iterable[str], runs: int) -> Iterator[DispatchRow]:
    """The rows of methods through dispatches, in processes of each dispatch's environment. The reference always runs first."""
    able = []
    for name in names:
        if missing := ", ".join(sorted(METHODS[name].needs - SmallNetwork.capabilities)):
            yield DispatchRow(name, "all", skipped=f"the network has no {missing}.")
        else:
            able += settings_of(name)
    distribution = enumerate_distribution(network(False))
    expected = _in_processes(DISPATCHES["reference"], able, runs)
    for each in dispatches:
        dispatch = DISPATCHES[each]
        if reason := dispatch.missing():
            yield DispatchRow("all", each, skipped=reason)
            continue
        results = expected if each == "reference" else _in_processes(dispatch, able, runs)
        for setting, committed, by_reference in zip(able, results, expected, strict=True):
            yield row_of(setting.label, each, committed, by_reference, distribution)


def row_of(name: str, dispatch: str, committed: Sequences, expected: Sequences, distribution: Distribution) -> DispatchRow:
    """Compares the sequences of a dispatch with the first ones of the reference, and with the distribution."""
    runs = len(committed)
    differing = sum(ours != theirs for ours, theirs in zip(committed, expected, strict=False))
    numbers = statistic(Counter(committed), distribution, runs) | {"detects": detectable(distribution, runs, Z_ACCEPTED)}
    return DispatchRow(name, dispatch, runs, differing, numbers)


def _in_processes(dispatch: Dispatch, settings: list[MethodSetting], runs: int) -> list[Sequences]:
    with environment(dispatch.environment), ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(partial(sequences, dispatch, runs=runs), settings))


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets environment variables inside the block, for new processes."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
