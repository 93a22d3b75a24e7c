"""`launch.py bench image`: time, passes and step compression of methods against our own plain decoding, in one process.

Plain and accelerated runs alternate (engine/tuning/alternate.py). A prompt's speed-up is the ratio of the medians. The table gives the
median, quartiles and a bootstrap interval of the median over prompts, and the log probability of the pictures, which relaxed methods lower.
Every row records its experiment: machine, commit, weights, sampling, size, seeds and knobs. `--sweep NAME=A,B,C` instead measures the
methods that have this knob once per value; for a setting (temperature, top_k, top_p, guidance, size) it measures all rows at each value,
relative to plain decoding at that value. `--grid` measures each combination of several sweeps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from engine.core import Backbone, Prompt, Step
from engine.diagnostics import accepted_and_examined, per_token
from engine.loading import model_columns
from engine.methods import find
from engine.run import Run, generate
from engine.tuning.alternate import alternate
from engine.words.world import Scene
from research.bench import sheet
from research.bench.judging import judge_of, picture_columns
from research.bench.likelihood import log_probabilities
from research.bench.plan import BenchEntry, ImageBench
from research.bench.plot import check_figure, plot
from research.bench.rows import check_csv, experiment, publish, quartiles, row_text, sampling_columns, timing
from research.bench.sheet import check_sheet, write_sheet
from research.worlds.emoji_scenes import held_out_pairs, held_out_prompts, lessons_of

PLACES = 16  # draft positions whose acceptance is counted separately
BASELINE = "ar in float32"  # a separate row if the other rows run in another dtype


def bench(plan: ImageBench) -> list[dict[str, Any]]:
    """Returns the rows of the table and prints them; writes the plan's sheet and figure. Before it measures anything, raises for files that
    cannot be written and prompts that cannot be decoded."""
    check_csv(plan.csv)
    check_sheet(plan.sheet)
    check_figure(plan.figure)
    backbone = plan.load()
    reader = judge_of(lessons_of(backbone.card)) if plan.judge else None
    parts = {label: part.with_auto_resolved(backbone) for label, part in plan.parts().items()}
    entries = {label: part.entries(backbone.capabilities) for label, part in parts.items()}
    prompts = {label: prompts_of(part, backbone) for label, part in parts.items()}
    for prompt in (each for of in prompts.values() for each in of):
        backbone.start(prompt).close()  # raises for a prompt that the model cannot read
    exact = backbone if backbone.dtype == "float32" else plan.load("float32")
    rows: list[dict[str, Any]] = []
    runs: dict[str, list[list[Run]]] = {}
    for label in parts:
        runs = measure(backbone, exact, entries[label], prompts[label], plan.repeats)
        judged = picture_columns(reader, scenes_of(plan, backbone), pictures_of(runs)) if reader else {}
        rows += [with_label(row | judged.get(row["method"], {}), label) for row in summaries(backbone, prompts[label], runs)]
    sampling, own = plan.sampling_of(backbone), next(iter(prompts.values()))
    stamp = experiment(backbone, sampling, prompts_from=plan.prompts_from, seeds=f"0..{len(own) - 1}", repeats=plan.repeats)
    rows = publish(rows, row_text, stamp, plan.csv)
    if plan.sheet:
        write_sheet(sheet.pictures([*pictures_of(runs).values()][-1], [prompt.text for prompt in own]), plan.sheet)
    if plan.figure:
        plot(rows, plan.figure)
    return rows


def pictures_of(runs: dict[str, list[list[Run]]]) -> dict[str, list[np.ndarray]]:
    """Returns the pictures of the first run of each row and prompt."""
    return {name: [same[0].result() for same in of] for name, of in runs.items()}


def scenes_of(plan: ImageBench, backbone: Backbone) -> list[Scene]:
    """Returns the held-out scenes of a plan's prompts."""
    return [scene for scene, _ in held_out_pairs(plan.count, lessons_of(backbone.card))]


def summaries(backbone: Backbone, prompts: list[Prompt], runs: dict[str, list[list[Run]]]) -> list[dict[str, Any]]:
    """Returns the rows of the table for runs with equal settings, with columns of the settings."""
    settings = sampling_columns(prompts[0].sampling or backbone.sampling) | {"size": prompts[0].size or pixels(runs["ar"][0][0])}
    return [summary(n, runs) | drafting([of[0] for of in runs[n]]) | plausibility(backbone, prompts, runs[n]) | settings for n in runs]


def with_label(row: dict[str, Any], label: str) -> dict[str, Any]:
    """Returns a row with the swept settings' values appended to its method."""
    return row | {"method": f"{row['method']} {label}".strip()}


def prompts_of(plan: ImageBench, backbone: Backbone) -> list[Prompt]:
    """Returns the prompts of a plan with its sampling and size; prompt i has seed i."""
    sampling = plan.sampling_of(backbone)
    return [Prompt(text, seed=i, size=plan.size, sampling=sampling) for i, text in enumerate(texts_of(plan, backbone))]


def texts_of(plan: ImageBench, backbone: Backbone) -> Sequence[str]:
    """Returns a plan's prompts, or held-out prompts of the lessons that the model was trained on."""
    return plan.prompts or held_out_prompts(plan.count, lessons_of(backbone.card))


def pixels(run: Run) -> int:
    """Returns the width of a run's picture."""
    return run.result().shape[1]


def measure(
    backbone: Backbone, exact: Backbone, entries: dict[str, BenchEntry], prompts: list[Prompt], repeats: int
) -> dict[str, list[list[Run]]]:
    """Returns runs by row and prompt, a list per prompt; plain decoding is "ar", and in float32 BASELINE if the dtype differs.

    exact : the same weights in float32; the baseline for every dtype, because it is our fastest plain decoding on a CPU
    """
    plain = ["ar"] if exact is backbone else [BASELINE, "ar"]

    def maker(name: str, entry: BenchEntry) -> Callable[[int], Run]:
        model, method = exact if name == BASELINE else backbone, find(entry.name)[0]
        return lambda i: generate(model, method, prompts[i], entry.knobs).finish()

    kinds = {name: maker(name, entry) for name, entry in (dict.fromkeys(plain, BenchEntry("ar", {})) | entries).items()}
    return alternate(kinds, len(prompts), repeats)


def summary(name: str, runs: dict[str, list[list[Run]]]) -> dict[str, Any]:
    """Returns one row of the table. The speed-up is relative to the baseline, plain decoding in float32."""
    first = runs[name][0][0]
    differences = [first_difference(a[0].in_order, b[0].in_order) for a, b in zip(runs[name], runs["ar"], strict=True)]
    return {
        "method": name,
        "prompts": len(runs[name]),
        "tokens": len(first.tokens),
        "knobs": first.steps[-1].knobs,
        "dtype": model_columns(first.backbone)["dtype"],
        **timing(runs[name], runs.get(BASELINE, runs["ar"])),
        "same_tokens_as_plain": sum(at is None for at in differences),
        "first_differences": {i: at for i, at in enumerate(differences) if at is not None},
    }


def drafting(runs: list[Run]) -> dict[str, float]:
    """Returns statistics of the drafts: accepted drafts per pass (without the bonus token); for trees, nodes and depth; for relaxed rules,
    the mean total variation distance from the model's distribution; if drafts are accepted in order, the share accepted by
    position. Omits numbers that a method does not report."""
    steps = [s for run in runs for s in run.steps if s.drafted]
    levels = [s.trace.tree.levels for s in steps if s.trace.tree]
    accepted = [float(np.nansum(per_token(s, "accepted"))) for s in steps]
    deviations = [last for run in runs for last in [s.trace.deviation.mean for s in run.steps if s.trace.deviation][-1:]]
    columns = {
        "accepted_a_pass": accepted,
        "nodes": [s.drafted for s in steps] if levels else [],
        "depth": levels,
        "mean_deviation": deviations,
    }
    means = {name: round(float(np.nanmean(values)), 4) for name, values in columns.items() if not np.isnan(values).all()}
    places = acceptance_by_place(steps)
    return means | ({"accepted_by_place": places} if places else {})


def acceptance_by_place(steps: list[Step]) -> list[float]:
    """Returns the accepted share of the verified drafts at the first positions after the pending token (for a tree, at its levels).
    Empty if drafts after a rejected one can be accepted too: then there is no order."""
    accepted, verified = np.zeros(PLACES, dtype=int), np.zeros(PLACES, dtype=int)
    for step in steps:
        counts = accepted_and_examined(step)
        if counts is None:
            return []
        accepted[: counts[0]] += 1
        verified[: counts[1]] += 1
    return [round(float(k / n), 3) for k, n in zip(accepted, verified, strict=True) if n]


def plausibility(backbone: Backbone, prompts: list[Prompt], runs: list[list[Run]]) -> dict[str, Any]:
    """Returns the mean log probability of a token under the guided distribution at the sampling temperature without top-k and top-p (one
    impossible token would make it infinite), its deviation over a picture's tokens, and the share of tokens that plain decoding could
    not draw."""
    return plausibility_columns([likelihood(backbone, prompt, of[0]) for prompt, of in zip(prompts, runs, strict=True)])


def likelihood(backbone: Backbone, prompt: Prompt, run: Run) -> tuple[float, float, float]:
    """Returns the numbers of `plausibility` for one finished run: mean, impossible share, deviation. prompt : must have a sampling"""
    unfiltered = replace(prompt, sampling=replace(prompt.sampling.soften(), top_k=0, top_p=1.0))
    result = run.tokens, run.positions
    impossible = (log_probabilities(backbone, prompt, *result) == -torch.inf).float().mean().item()
    log_probs = log_probabilities(backbone, unfiltered, *result)
    return log_probs.mean().item(), impossible, log_probs.std(correction=0).item()


def plausibility_columns(numbers: Sequence[tuple[float, float, float]]) -> dict[str, Any]:
    """Returns the columns of `plausibility` from its runs' numbers."""
    means, impossible, deviations = zip(*numbers, strict=True)
    return {
        "log_probability": quartiles(np.array(means)),
        "log_probability_deviation": quartiles(np.array(deviations)),
        "impossible": round(float(np.mean(impossible)), 5),
    }


def first_difference(a: list[int], b: list[int]) -> int | None:
    """Returns the first position where two runs differ, None if there is none."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
