"""`auto`: the exact method, window and tree with the most expected tokens per second of a model on this machine.

It is a step before a run. It divides the expected tokens of a pass (`expected.py`) by what a pass costs here (`curve.py`) and what each
method does outside its passes, and names a method with its knobs, such as "auto:sjdpp,window=16", which `methods.find` knows. Runs and
their files carry that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

import torch

from engine.backbones.prompts import probe_prompt
from engine.core import Backbone, Candidate, Knobs, Prompt
from engine.errors import NotSupported
from engine.methods import AUTO, METHODS, PLAIN, find
from engine.run import Run, generate
from engine.tuning import store
from engine.tuning.curve import CostCurve
from engine.tuning.expected import Expected, best, of_card, of_rows
from engine.tuning.load_monitor import clock_of, watch_load
from engine.tuning.prepare import Say, costs_here, keep, to_stderr
from engine.tuning.store import ModelMeasurements, StepCosts

STEPS = 16  # of a run whose time outside its passes is measured; the first WARM are left out
WARM = 3
CLOSE, TURNS = 0.8, 2  # rows above this share of the best speed are measured this many times more
PROMPTS = 2  # number of prompts by which doctor records the expected tokens of a model whose card has none


def candidates(backbone: Backbone) -> list[Candidate]:
    """Candidates of auto: the methods that fit the model, with the knobs that each method names."""
    fitting = [method for method in METHODS.values() if method.needs <= backbone.capabilities]
    return [each for method in fitting for each in method.candidates(backbone) if find(each[0])[0].needs <= backbone.capabilities]


def prompts(backbone: Backbone) -> list[Prompt]:
    """A few prompts that any model of its kind reads, for doctor's records."""
    return [replace(probe_prompt(backbone), seed=seed) for seed in range(PROMPTS)]


def begin(backbone: Backbone, name: str, knobs: dict[str, float | str], prompt: Prompt) -> Run:
    """A run of a candidate; raises NotSupported if it is not exact."""
    method, preset = find(name)
    run = generate(backbone, method, prompt, preset | knobs, name=name)
    if not method.exact(Knobs(run.live.read())):
        raise NotSupported(f"{name} is not exact with {knobs}, so {AUTO} cannot take it.")
    return run


def record(backbone: Backbone, prompts: Sequence[Prompt], chosen: Iterable[Candidate] | None = None) -> list[Expected]:
    """Expected tokens of each candidate: the means over all passes of these prompts."""
    rows = []
    for name, knobs in candidates(backbone) if chosen is None else chosen:
        if name == PLAIN:
            rows.append(Expected(name, knobs, 1.0, 1.0))  # by definition
        else:
            rows.append(expected_run(name, knobs, [begin(backbone, name, knobs, prompt).finish() for prompt in prompts]))
    return rows


def expected_run(name: str, knobs: dict[str, float | str], runs: Sequence[Run]) -> Expected:
    """The means of some finished runs over all their passes."""
    totals = [run.totals for run in runs]
    passes = sum(each["forwards"] for each in totals)
    return Expected(
        name,
        knobs,
        tokens=sum(each["tokens"] for each in totals) / passes,
        rows=1 + sum(each["drafted"] for each in totals) / passes,
        draft_passes=sum(each["draft_forwards"] for each in totals) / passes,
    )


def extra_milliseconds(backbone: Backbone, name: str, knobs: dict[str, float | str], curve: CostCurve) -> float:
    """Milliseconds that a method takes here in addition to its passes: for each pass of its drafter, or of a step if it has none; the
    median of some steps. Negative for a method whose passes cost less than those of the curve, which store all distributions."""
    run, clock, extra = begin(backbone, name, knobs, probe_prompt(backbone)), clock_of(backbone.device), []
    for _ in range(STEPS):
        start = clock()
        step = next(run, None)
        milliseconds = 1000 * (clock() - start)
        if step is None:
            break
        passes = step.forwards * curve.at(1 + step.drafted / max(1, step.forwards))
        extra.append((milliseconds - passes) / max(1, step.draft_forwards))
    run.close()
    return round(median(extra[WARM:] or extra), 3)


def table_of(backbone: Backbone, measured: ModelMeasurements) -> list[Expected]:
    """The expected tokens of a model: those of its card, else those that doctor recorded here; without methods that do not fit it."""
    try:
        rows = of_card(backbone) or of_rows(measured.tokens)
    except (KeyError, TypeError, ValueError):  # of the stored file; a damaged card is an error
        return []
    return [each for each in rows if find(each.name)[0].needs <= backbone.capabilities]


@torch.inference_mode()
def find_out(backbone: Backbone, rows: Sequence[Expected], costs: StepCosts) -> bool:
    """Measures the time of plain decoding outside its passes, then the row that seems fastest, until that one has been measured. So the
    choice is among steps that were timed, and most rows need not be. Then one row of each method with a drafter, for the menu. Returns
    whether anything was measured.

    Rows that are about as fast as the best one are then measured again, in turns; the least counts, because other programs only add time.
    Otherwise the row that was measured at the quietest moment would win."""
    before = len(costs.extra)
    time_the_best(backbone, rows, costs)
    for each in drafted_rows(rows, costs):
        if each.key not in costs.extra:
            costs.extra[each.key] = extra_milliseconds(backbone, each.name, dict(each.knobs), costs.curve)
    if is_new := len(costs.extra) > before:
        least = CLOSE * best(rows, costs).speed(costs)
        for each in [each for each in rows if each.key in costs.extra and each.speed(costs) >= least] * TURNS:
            costs.extra[each.key] = min(costs.extra[each.key], extra_milliseconds(backbone, each.name, dict(each.knobs), costs.curve))
        time_the_best(backbone, rows, costs)
    return is_new


def drafted_rows(rows: Sequence[Expected], costs: StepCosts) -> list[Expected]:
    """The row that seems fastest of each method with a drafter, which the menu describes before a run."""
    fastest: dict[str, Expected] = {}
    for row in sorted(rows, key=lambda each: each.speed(costs)):
        if find(row.name)[0].drafters:
            fastest[row.name] = row
    return list(fastest.values())


@dataclass(frozen=True)
class StepHere:
    """A method's step on this machine. speedup : expected, over plain decoding; outside : milliseconds that it takes outside the model's
    pass, for its drafter; milliseconds : of the whole step"""

    speedup: float
    outside: float
    milliseconds: float


def steps_here(backbone: Backbone) -> dict[str, StepHere]:
    """What is stored here about the steps of methods with a drafter, by method; {} if nothing was measured."""
    measured = store.read(backbone)
    costs, rows = measured.costs.get((torch.get_num_threads(), backbone.dtype)), table_of(backbone, measured)
    plain = next((each for each in rows if each.name == PLAIN), None)
    if costs is None or plain is None or plain.key not in costs.extra:
        return {}
    known = drafted_rows([each for each in rows if each.key in costs.extra], costs)
    return {
        each.name: StepHere(
            each.speed(costs) / plain.speed(costs), each.milliseconds(costs) - costs.curve.at(each.rows), each.milliseconds(costs)
        )
        for each in known
    }


def time_the_best(backbone: Backbone, rows: Sequence[Expected], costs: StepCosts) -> None:
    """Measures plain decoding and the best row, until the best one has been measured."""
    plain = [each for each in rows if each.name == PLAIN]
    while (row := next((each for each in (*plain, best(rows, costs)) if each.key not in costs.extra), None)) is not None:
        costs.extra[row.key] = extra_milliseconds(backbone, row.name, dict(row.knobs), costs.curve)


def unmeasured_method(backbone: Backbone) -> str:
    """The method or preset for a model without recorded tokens: of those that methods name, the one that needs most capabilities."""
    fitting = [method for method in METHODS.values() if method.unmeasured and method.needs <= backbone.capabilities]
    return max(fitting, key=lambda method: len(method.needs)).unmeasured if fitting else PLAIN


def resolve(backbone: Backbone, say: Say = to_stderr, measured: ModelMeasurements | None = None) -> str:
    """The name of the fastest exact method of a model here, such as "auto:sjdpp,window=16". Measures the machine if that was not done yet.

    A model without recorded tokens gets the method of `unmeasured_method`, with the knobs that suit it.
    measured : what is known of the model here, and is added to (default: what is stored)
    """
    measured = store.read(backbone) if measured is None else measured
    rows = table_of(backbone, measured)
    if not rows:
        name = unmeasured_method(backbone)
        record = "python launch.py doctor --model NAME"
        say(f"No tokens per pass are recorded for {backbone.name}, so {AUTO} takes {name}. Record them: {record}")
        return f"{AUTO}:{name}"
    costs = costs_here(backbone, measured, say)
    is_new, quiet = watch_load(torch.get_num_threads(), lambda: find_out(backbone, rows, costs))
    if is_new and backbone.weights_hash is not None:
        keep(measured, say, quiet)
    return best(rows, costs).full_name


def resolve_stored(backbone: Backbone, say: Say = to_stderr) -> str | None:
    """The name that `resolve` returns without measuring anything; None if it would measure."""
    measured = store.read(backbone)
    rows = table_of(backbone, measured)
    if not rows:
        return resolve(backbone, say, measured)
    costs = measured.costs.get((torch.get_num_threads(), backbone.dtype))
    if costs is None or best(rows, costs).key not in costs.extra:
        return None
    return best(rows, costs).full_name
