"""`launch.py verify`: claims of exactness, tested on the toy by distribution, each with mutants that must fail.

One statistic: z of the pooled chi-square (cells with at least ten expected) against the enumerated law. For claims about tokens, z is
the number of runs that differ. A "closed form" is a law that a rule follows although it is not the model's. Exact means |z| < 4
(0 for tokens); a mutant must reach z > 10; a method labelled "not exact" must be found so.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch

from engine.backbones.toy import Toy
from engine.core import NO_DRAFT, Case, Method, Prompt
from engine.measure.verify import adversary, chain
from engine.measure.verify.closed_forms import CLOSED_FORMS
from engine.measure.verify.mutants import applied
from engine.methods import METHODS
from engine.methods.ar import METHOD as AR
from engine.run import Run, generate
from engine.sampling import entropy

RUNS, FULL_RUNS = 8_000, 150_000  # of a claim
MUTANT_RUNS = 12_000  # at most
PORTION = 600  # runs of a mutant between two looks: most are found at the first
TOKEN_RUNS = 400
ACCEPTED, FOUND = 4.0, 10.0
BY_LAW = ("same law", "closed form", "not exact")  # claims tested by distribution; the others count runs

# Claims that every method of the table must meet besides its own.
COMMON = (
    Case("KV", "same cache", mutants=("drop the last kept row",)),
    Case("REPRO", "same run", mutants=("global random numbers",)),
    Case("EOS", "same law", toy={"end": True}, mutants=("end inside a span ignored", "never ends")),
    Case("CFG", "same law", toy={"guidance": 4.0}, mutants=("guidance on probabilities",)),
)


@dataclass(frozen=True)
class Task:
    """One measurement: a case as it is (mutant None) or with a mutant in force."""

    method: str
    case: Case
    mutant: str | None
    runs: int
    seeds: int

    @property
    def key(self) -> str:
        """METHOD[CASE]"""
        return f"{self.method}[{self.case.name}]"


def table() -> dict[str, Method]:
    """Every method that is verified: those of the table and the two references."""
    return METHODS | {"chain": chain.METHOD, "adversary": adversary.METHOD}


def cases_of(method: Method) -> tuple[Case, ...]:
    """A method's own cases and the common ones."""
    spans = method.name not in ("ar", "lookup", "mulo")  # no spans, nothing that ever followed an end, no spans where all is redrawn
    skipped = set() if spans else {"end inside a span ignored"}
    common = (Case(c.name, c.claim, method.common, c.toy, tuple(m for m in c.mutants if m not in skipped)) for c in COMMON)
    return (*method.cases, *common)


def tasks(names: Iterable[str], full: bool) -> list[Task]:
    """All measurements of some methods."""
    runs, seeds = (FULL_RUNS, 3) if full else (RUNS, 1)
    found = []
    for name in names:
        for case in cases_of(table()[name]):
            found.append(Task(name, case, None, runs, seeds))
            found += [Task(name, case, m, max(runs, MUTANT_RUNS), 1) for m in case.mutants]
    return found


def measure(task: Task) -> dict[str, float]:
    """z, and for laws the total variation distance and the floor that sampling noise alone gives."""
    torch.set_num_threads(1)
    worst: dict[str, float] = {"z": 0.0}
    for seed in range(task.seeds):
        toy = Toy(seed=seed, **task.case.toy)
        found = _law(task, toy, seed) if task.case.claim in BY_LAW else _tokens(task, toy)
        if abs(found["z"]) >= abs(worst["z"]):
            worst = found
    return worst


def _run(task: Task, toy: Toy, seed: int) -> Run:
    return generate(toy, table()[task.method], Prompt(seed=seed), task.case.knobs).finish()


def _law(task: Task, toy: Toy, seed: int) -> dict[str, float]:
    law = CLOSED_FORMS[task.case.law](toy, task.case.knobs) if task.case.law else toy.enumerate_law()
    counts: Counter[tuple[int, ...]] = Counter()
    done = 0
    portion = PORTION if task.mutant else task.runs
    with applied(task.mutant):
        while done < task.runs:
            counts.update(tuple(_run(task, toy, (seed << 40) + done + i).in_order) for i in range(portion))
            done += portion
            found = statistic(counts, law, done)
            if task.mutant and found["z"] > 2 * FOUND:
                break
    return found


def statistic(counts: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float], runs: int) -> dict[str, float]:
    """Pooled chi-square as z, total variation distance and its expected value under the law."""
    large = {s: p * runs for s, p in law.items() if p * runs >= 10}
    rest = runs - sum(large.values())
    chi = sum((counts[s] - e) ** 2 / e for s, e in large.items())
    seen_rest = runs - sum(counts[s] for s in large)
    cells = len(large)
    if rest >= 10:
        chi += (seen_rest - rest) ** 2 / rest
        cells += 1
    elif seen_rest > 10 * max(rest, 1):  # impossible sequences
        chi += (seen_rest - rest) ** 2 / max(rest, 1)
        cells += 1
    z = (chi - (cells - 1)) / (2 * (cells - 1)) ** 0.5
    outside = sum(c for s, c in counts.items() if s not in law)
    tv = 0.5 * (sum(abs(counts[s] / runs - p) for s, p in law.items()) + outside / runs)
    floor = 0.5 * sum((2 * p * (1 - p) / (torch.pi * runs)) ** 0.5 for p in law.values())
    return {"z": round(z, 2), "tv": round(tv, 4), "floor": round(floor, 4)}


def _tokens(task: Task, toy: Toy) -> dict[str, float]:
    compare = {
        "same tokens": _same_tokens,
        "same as unrelaxed": _same_as_unrelaxed,
        "same cache": _same_cache,
        "same run": _same_run,
        "full spans": _full_spans,
        "same context": _same_context,
    }[task.case.claim]
    return {"z": float(sum(compare(task, toy, seed) for seed in range(TOKEN_RUNS)))}


def _same_tokens(task: Task, toy: Toy, seed: int) -> bool:
    """True if the tokens differ from plain decoding's."""
    expected = generate(toy, AR, Prompt(seed=seed)).finish().tokens
    with applied(task.mutant):
        return _run(task, toy, seed).tokens != expected


def _same_as_unrelaxed(task: Task, toy: Toy, seed: int) -> bool:
    """True if the steps differ from those of the same method without its relaxed rule."""
    exact = generate(toy, table()[task.method], Prompt(seed=seed), {**task.case.knobs, "relax": "off"}).finish()
    with applied(task.mutant):
        return [s.tokens for s in _run(task, toy, seed).steps] != [s.tokens for s in exact.steps]


def _full_spans(task: Task, toy: Toy, seed: int) -> bool:
    """True if a pass behind the first committed fewer tokens than it could: the drafts and one more, cut by the limit."""
    with applied(task.mutant):
        run = _run(task, toy, seed)
    depth = toy.drafter(table()[task.method].drafter).depth
    return len(run.steps) != 1 + -(-(len(run.tokens) - 1) // (depth + 1))


def _same_context(task: Task, toy: Toy, seed: int) -> bool:
    """True if the law of any token that was no draft differs from that behind a fresh sequence fed the same tokens one by one."""
    with applied(task.mutant):
        run = _run(task, toy, seed)
    sequence, expected = toy.start(Prompt(seed=seed)), []
    for token in run.in_order:
        expected.append(entropy(sequence.forward(NO_DRAFT).p[:1]).item())
        sequence.commit([], token)
    notes = (zip(s.positions, s.trace.accepted, s.trace.entropy, strict=True) for s in run.steps)
    return any(abs(expected[position] - nats) > 1e-9 for note in notes for position, stayed, nats in note if not stayed)


def _same_run(task: Task, toy: Toy, seed: int) -> bool:
    """True if a second run, begun while another is half-way, differs from the first."""
    with applied(task.mutant):
        first = _run(task, toy, seed).tokens
        other = generate(toy, table()[task.method], Prompt(seed=seed + 1), task.case.knobs)
        next(other)
        second = _run(task, toy, seed).tokens
        other.close()
    return first != second


def _same_cache(task: Task, toy: Toy, seed: int) -> bool:
    """True if after any step the cache differs from that of a fresh sequence fed the same tokens one by one."""
    with applied(task.mutant):
        run = generate(toy, table()[task.method], Prompt(seed=seed), task.case.knobs)
        kept = []
        for _ in run:
            kept.append((list(run.tokens), run.sequence._cache))
    return any(cache != _fresh_cache(toy, tokens) for tokens, cache in kept)


def _fresh_cache(toy: Toy, tokens: list[int]) -> tuple[int, ...]:
    sequence = toy.start(Prompt())
    for token in tokens:
        sequence.forward(NO_DRAFT)
        sequence.commit([], token)
    return sequence._cache


def judge(task: Task, z: float) -> bool:
    """Whether a measurement is as claimed."""
    if task.mutant or task.case.claim == "not exact":
        return z > FOUND
    return abs(z) < ACCEPTED if task.case.claim in BY_LAW else z == 0


def verify(names: Iterable[str], full: bool = False) -> tuple[dict[str, Any], bool, float]:
    """The table by METHOD[CASE], whether every claim holds, and the seconds it took. One process a core."""
    start = time.monotonic()
    todo = tasks(names, full)
    todo.sort(key=lambda t: t.case.claim not in BY_LAW)  # long ones first
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        results = list(zip(todo, pool.map(measure, todo), strict=True))
    rows: dict[str, Any] = {}
    for task, found in results:
        row = rows.setdefault(
            task.key, {"exact": task.case.claim not in ("not exact", "closed form"), "z": 0.0, "tv": None, "floor": None, "mutants": {}}
        )
        if task.mutant:
            row["mutants"][task.mutant] = found["z"]
        else:
            row |= found
            if task.case.claim == "not exact":
                row["exact"] = not found["z"] > FOUND
    return dict(sorted(rows.items())), all(judge(t, f["z"]) for t, f in results), time.monotonic() - start
