"""`launch.py verify`: tests claims of exactness on the toy by distribution, each with mutants that must fail.

The statistic is z of the pooled chi-square (cells with at least ten expected) against the enumerated distribution. For claims about tokens,
z is the number of runs that differ. A "closed form" is a known distribution of a rule that does not follow the model's. Exact means |z| < 4
(0 for tokens); a mutant must reach z > 10, and so must a method labelled "not exact".

Each claim reports the difference that its runs can detect (`detects`), and gets enough runs to detect TARGET. A mutant runs until it is
detected, up to MUTANT_RUNS.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from multiprocessing import get_context
from typing import Any, NamedTuple

import torch

from engine.core import NO_DRAFT, Case, Method, Prompt
from engine.methods import METHODS
from engine.methods.ar import METHOD as AR
from engine.run import Run, generate
from engine.sampling import entropy
from research.exactness import adversary, chain
from research.exactness.closed_forms import CLOSED_FORMS
from research.exactness.comparison import Z_ACCEPTED, Z_DETECTED
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Mutant
from research.exactness.power import Distribution, detectable, detectable_share, runs_for, statistic
from research.exactness.toy import Toy

TARGET = 0.08  # total variation distance that a claim by distribution must detect with probability 99 %
FULL_RUNS, FULL_SEEDS = 150_000, 3  # for a claim, with --full
MUTANT_RUNS = 20_000  # at most
PORTION = 200  # runs of a mutant between two checks: the first checks detect most mutants
TOKEN_RUNS = 400
BY_DISTRIBUTION = ("same distribution", "closed form", "not exact")  # claims tested by distribution; the others count runs

# Claims that every method must meet in addition to its own. In FILTERS, grammar, top-k and top-p rule out two or more of five tokens:
# there a rule can divide by zero, and distributions before and after the filters differ.
COMMON = (
    Case("KV", "same cache", mutants=("drop the last kept row",)),
    Case("REPRO", "same run", mutants=("global random numbers",)),
    Case(
        "EOS CFG", "same distribution", toy={"end": True, "guidance": 1.8},
        mutants=("end inside a span ignored", "never ends", "guidance on probabilities"),
    ),
    Case(
        "FILTERS", "same distribution",
        toy={"rows": 2, "columns": 2, "vocabulary": 5, "grammar": True, "top_k": 3, "top_p": 0.9},
        mutants=("filters of the prompt alone", "filters of the first row alone", "grammar of the prefix for every row"),
    ),
)  # fmt: skip
IN_A_SPAN = {"end inside a span ignored", "filters of the first row alone", "grammar of the prefix for every row"}
# More mutants of FILTERS, for methods that verify drafts against the distributions they were drawn from.
DRAWN = {
    "sjd": ("impossible draft accepted", "draft distribution before the filters", "numbers of 8 bits from 0 to 1"),
    "sjdpp": ("impossible draft accepted", "draft distribution before the filters"),
    "spatial": ("impossible draft accepted",),
    "xspecmesh": ("impossible draft accepted",),
    "zipar": ("impossible draft accepted",),
}


@dataclass(frozen=True)
class Task:
    """One measurement: a case without (mutant None) or with a mutant."""

    method: str
    case: Case
    mutant: str | None
    full: bool
    target: float = TARGET

    @property
    def key(self) -> str:
        """METHOD[CASE]"""
        return f"{self.method}[{self.case.name}]"

    @property
    def must_differ(self) -> bool:
        """True if the measurement must differ from the claim; then it can end as soon as it does."""
        return self.mutant is not None or self.case.claim == "not exact"


class SequenceStates(NamedTuple):
    """States of a sequence that is fed tokens one by one: its cache after 0, 1, ... tokens, and the entropy before each token."""

    caches: list[tuple[int, ...]]
    entropies: list[float]


class Ground:
    """A toy with the results that several measurements share: its distribution, plain decoding's tokens, and the states of sequences that
    are fed tokens one by one."""

    def __init__(self, seed: int, settings: Mapping[str, Any]):
        self.seed, self.toy = seed, Toy(seed=seed, **settings)
        self._plain: dict[int, list[int]] = {}
        self._states: dict[tuple[int, ...], SequenceStates] = {}

    @cached_property
    def distribution(self) -> Distribution:
        """The model's own distribution."""
        return self.toy.enumerate_distribution()

    def plain(self, seed: int) -> list[int]:
        """Returns the tokens of plain decoding for a seed."""
        if seed not in self._plain:
            self._plain[seed] = generate(self.toy, AR, Prompt(seed=seed)).finish().tokens
        return self._plain[seed]

    def fresh_states(self, tokens: list[int]) -> SequenceStates:
        """Returns the states of a new sequence that is fed these tokens one by one."""
        key = tuple(tokens)
        if key not in self._states:
            sequence, caches, entropies = self.toy.start(Prompt()), [()], []
            for token in tokens:
                entropies.append(entropy(sequence.forward(NO_DRAFT).p[:1]).item())
                sequence.commit([], token)
                caches.append(sequence._cache)
            self._states[key] = SequenceStates(caches, entropies)
        return self._states[key]


@lru_cache(maxsize=2)
def ground(seed: int, settings: tuple[tuple[str, Any], ...]) -> Ground:
    """Returns the Ground for a toy's settings. Each process caches the newest two, because tasks are ordered by settings."""
    return Ground(seed, dict(settings))


def table() -> dict[str, Method]:
    """Returns every method to verify: METHODS and the two references."""
    return METHODS | {"chain": chain.METHOD, "adversary": adversary.METHOD}


def cases_of(method: Method) -> tuple[Case, ...]:
    """Returns a method's own cases and the common ones."""
    skipped = set() if method.drafts_past_end else IN_A_SPAN
    common = []
    for case in COMMON:
        mutants = (*case.mutants, *(DRAWN.get(method.name, ()) if case.name == "FILTERS" else ()))
        common.append(replace(case, knobs=method.common, mutants=tuple(m for m in mutants if m not in skipped)))
    return (*method.cases, *common)


def tasks(names: Iterable[str], full: bool, target: float = TARGET, mutants: bool = True) -> list[Task]:
    """Returns all measurements of some methods, long ones first, grouped by toy."""
    todo = []
    for name in names:
        for case in cases_of(table()[name]):
            todo += [Task(name, case, mutant, full, target) for mutant in (None, *(case.mutants if mutants else ()))]
    return sorted(todo, key=lambda t: (t.case.claim not in BY_DISTRIBUTION, sorted(t.case.toy.items())))


def measure(task: Task) -> dict[str, Any]:
    """Returns z, the number of runs, and the difference that they can detect (`detects`); for claims by distribution also the total
    variation distance and the floor that sampling noise alone gives."""
    torch.set_num_threads(1)
    seeds = range(FULL_SEEDS if task.full and task.mutant is None else 1)
    settings = tuple(sorted(task.case.toy.items()))
    by = _by_distribution if task.case.claim in BY_DISTRIBUTION else _by_tokens
    results = []
    for seed in seeds:
        mutant = Mutant(task.mutant, MUTANTS[task.mutant]()) if task.mutant else Mutant("none", [])
        results.append(by(task, ground(seed, settings), mutant))
        mutant.check()
    return max(results, key=lambda each: abs(each["z"]))


def _run(task: Task, toy: Toy, seed: int) -> Run:
    return generate(toy, table()[task.method], Prompt(seed=seed), task.case.knobs).finish()


def _by_distribution(task: Task, on: Ground, mutant: Mutant) -> dict[str, Any]:
    """Compares the sequences of runs with the expected distribution. Stops early once a required difference is detected."""
    distribution = CLOSED_FORMS[task.case.closed_form](on.toy, task.case.knobs) if task.case.closed_form else on.distribution
    most = (
        MUTANT_RUNS if task.must_differ and not task.full else FULL_RUNS if task.full else runs_for(distribution, task.target, Z_ACCEPTED)
    )
    counts: Counter[tuple[int, ...]] = Counter()
    done = 0
    result = {"z": 0.0}
    while done < most and not (task.must_differ and result["z"] > Z_DETECTED):
        portion = min(PORTION, most - done) if task.must_differ else most
        with mutant.in_force():
            counts.update(tuple(_run(task, on.toy, (on.seed << 40) + done + i).in_order) for i in range(portion))
        done += portion
        result = statistic(counts, distribution, done)
    return result | {"runs": done, "detects": round(detectable(distribution, done, Z_ACCEPTED), 4)}


def _by_tokens(task: Task, on: Ground, mutant: Mutant) -> dict[str, Any]:
    """Counts the runs that differ, out of TOKEN_RUNS. Stops early once enough runs of a task that must differ do."""
    differs = DIFFERS[task.case.claim]
    done = differing = 0
    while done < TOKEN_RUNS and not (task.must_differ and differing > Z_DETECTED):
        differing += differs(task, on, done, mutant)
        done += 1
    return {"z": float(differing), "runs": done, "detects": round(detectable_share(done), 4)}


def _differs_from_plain(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if the tokens differ from plain decoding's."""
    expected = on.plain(seed)
    with mutant.in_force():
        return _run(task, on.toy, seed).tokens != expected


def _differs_from_unrelaxed(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if the steps differ from those of the same method without its relaxed rule."""
    exact = generate(on.toy, table()[task.method], Prompt(seed=seed), {**task.case.knobs, "relax": "off"}).finish()
    with mutant.in_force():
        return [s.tokens for s in _run(task, on.toy, seed).steps] != [s.tokens for s in exact.steps]


def _has_short_span(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if a pass after the first committed fewer tokens than possible: all drafts and one more, cut at the limit."""
    with mutant.in_force():
        run = _run(task, on.toy, seed)
    (name,) = table()[task.method].drafters
    depth = on.toy.drafter(name).depth
    return len(run.steps) != 1 + -(-(len(run.tokens) - 1) // (depth + 1))


def _context_differs(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if any token that was not a draft has another distribution than in a fresh sequence that is fed the same tokens one by
    one."""
    with mutant.in_force():
        run = _run(task, on.toy, seed)
    expected = on.fresh_states(run.in_order).entropies
    notes = (zip(s.positions, s.trace.accepted, s.trace.entropy, strict=True) for s in run.steps)
    return any(abs(expected[position] - nats) > 1e-9 for note in notes for position, stayed, nats in note if not stayed)


def _rerun_differs(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if a second run, started while another run is unfinished, differs from the first."""
    with mutant.in_force():
        first = _run(task, on.toy, seed).tokens
        other = generate(on.toy, table()[task.method], Prompt(seed=seed + 1), task.case.knobs)
        next(other)
        second = _run(task, on.toy, seed).tokens
        other.close()
    return first != second


def _cache_differs(task: Task, on: Ground, seed: int, mutant: Mutant) -> bool:
    """Returns True if the cache after any step differs from the cache of a fresh sequence fed the same tokens one by one."""
    with mutant.in_force():
        run = generate(on.toy, table()[task.method], Prompt(seed=seed), task.case.knobs)
        snapshots = [(len(run.tokens), run.sequence._cache) for _ in run]
    expected = on.fresh_states(run.tokens).caches
    return any(cache != expected[count] for count, cache in snapshots)


DIFFERS: dict[str, Callable[[Task, Ground, int, Mutant], bool]] = {
    "same tokens": _differs_from_plain,
    "same as unrelaxed": _differs_from_unrelaxed,
    "same cache": _cache_differs,
    "same run": _rerun_differs,
    "full spans": _has_short_span,
    "same context": _context_differs,
}


def agrees(task: Task, z: float) -> bool:
    """Returns True if a measurement agrees with the claim."""
    if task.must_differ:
        return z > Z_DETECTED
    return abs(z) < Z_ACCEPTED if task.case.claim in BY_DISTRIBUTION else z == 0


def verify(names: Iterable[str], full: bool = False, target: float = TARGET, mutants: bool = True) -> tuple[dict[str, Any], bool, float]:
    """Returns the table by METHOD[CASE], whether every claim holds, and the seconds it took. Runs one process per core. target: the total
    variation distance that a claim by distribution must detect.

    Each row has exact, z, tv and floor (None for claims about tokens), chi_square and freedom, runs; detects, the smallest total variation
    distance, or share of differing runs, that these runs detect with probability 99 %; and mutants, z by name.
    """
    start = time.monotonic()
    todo = tasks(names, full, target, mutants)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        results = list(zip(todo, pool.map(measure, todo), strict=True))
    rows: dict[str, Any] = {}
    for task, result in results:
        row = rows.setdefault(
            task.key, {"exact": task.case.claim not in ("not exact", "closed form"), "z": 0.0, "tv": None, "floor": None, "mutants": {}}
        )
        if task.mutant:
            row["mutants"][task.mutant] = result["z"]
        else:
            row |= result
            if task.case.claim == "not exact":
                row["exact"] = not result["z"] > Z_DETECTED
    return dict(sorted(rows.items())), all(agrees(t, f["z"]) for t, f in results), time.monotonic() - start
