"""`launch.py bench image`: time, passes and step compression of methods against our own plain decoding, in one process.

Plain and accelerated runs alternate: a prompt is decoded plainly, then by every method, then by every method in reverse order, then plainly
again, after one unmeasured run of each. A prompt's speed-up is the ratio of the medians; the table gives median, quartiles and
a bootstrap interval of the median over prompts, and how probable the model finds the pictures, which is what relaxed methods pay with.
Rows carry machine, commit, seed and knobs. `--sweep NAME=A,B,C` measures the methods that have this knob once with each value instead,
and with `--grid` several sweeps become a row for each combination.
"""

from __future__ import annotations

import csv
import itertools
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.backbones import load
from engine.core import Backbone, Draft, Prompt, Rows, Sampling, Step
from engine.data.emoji_scenes import held_out_prompts, lessons_of
from engine.decoding import verdict, windows
from engine.diagnostics import per_token
from engine.errors import BadKnob, BadOutput, BadPrompt
from engine.machine import facts
from engine.measure.bench import peer
from engine.measure.bench.likelihood import log_probabilities
from engine.measure.figures import style as figures
from engine.methods import METHODS, PRESETS, find
from engine.networks.sequence import TransformerSequence
from engine.noise import Noise
from engine.run import Run, generate


@dataclass(frozen=True)
class Entry:
    """What a row measures: a method or preset, and the knobs that it runs with."""

    name: str
    knobs: dict[str, Any]


DRAFTING = ("accepted_a_pass", "nodes", "depth", "mean_deviation")  # the numbers that `drafting` may find
PLACES = 16  # of drafts whose acceptance is counted apart
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
BASELINE = "ar in float32"  # a row of its own where the rest runs in another dtype


def bench(backbone: Backbone, options: Namespace, sampling: Sampling) -> list[dict[str, Any]]:
    """The rows of the table; prints it as it goes."""
    entries = entries_of(backbone, options)
    figure = figures.drawn([find(entry.name)[0].name for entry in entries.values()], options.figure) if options.figure else None
    prompts = [
        Prompt(text, seed=i, size=options.size, sampling=sampling)
        for i, text in enumerate(read_prompts(options.prompts, options.count, backbone))
    ]
    exact = in_float32(backbone, options)
    runs = measure(backbone, exact, entries, prompts, options.repeats)
    rows = [summary(n, runs) | drafting([of[0] for of in runs[n]]) | plausibility(backbone, prompts, runs[n]) for n in runs]
    if figure:
        figures.draw(figure, runs, options.figure)
    if backbone.name == "pictogram" and sampling == backbone.sampling:
        rows.append(peer_row(exact, prompts[:5]))
    rows += [split(backbone, n, entry.knobs, prompts[0]) for n, entry in entries.items() if n in ("sjd", "sjdpp")]
    stamp = facts() | {"seeds": f"0..{len(prompts) - 1}", "backbone": backbone.name, "dtype": backbone.dtype}
    return publish(rows, readable, stamp, options.csv)


def names_of(backbone: Backbone, options: Namespace) -> list[str]:
    """The methods and presets asked for, without plain decoding; "all" are those that the backbone can serve."""
    usable = [n for n in (*METHODS, *PRESETS) if find(n)[0].needs <= backbone.capabilities]
    names = usable if options.methods == "all" else options.methods.split(",")
    return [n for n in dict.fromkeys(names) if n != "ar"]


def entries_of(backbone: Backbone, options: Namespace) -> dict[str, Entry]:
    """The rows asked for, by what they are called: each method once, or with --sweep once a value for those that have the knob; with --grid
    once a combination of values for those that have all the knobs. Raises BadKnob for a sweep that says nothing."""
    plain = {name: Entry(name, knobs_of(name, options)) for name in names_of(backbone, options)}
    swept = [[(knob, value) for value in values.split(",") if value] for knob, _, values in (s.partition("=") for s in options.sweep)]
    groups = itertools.product(*swept) if options.grid else ([setting] for settings in swept for setting in settings)
    found = {
        " ".join([name, *(f"{knob}={value}" for knob, value in group)]): Entry(name, entry.knobs | dict(group))
        for group in groups
        for name, entry in plain.items()
        if {knob for knob, _ in group} <= {k.name for k in find(name)[0].knobs}
    }
    for text, settings in zip(options.sweep, swept, strict=True):
        if not any(setting in entry.knobs.items() for entry in found.values() for setting in settings):
            raise BadKnob(f"--sweep {text} sweeps nothing: none of {', '.join(plain)} has this knob, or no value is given.")
    return found if swept else plain


def publish(
    rows: Iterable[dict[str, Any]], readable: Callable[[dict[str, Any]], str], stamp: dict[str, Any], path: Path | None
) -> list[dict[str, Any]]:
    """Prints each row as soon as it is there, adds the stamp to it, and appends all to a CSV file if there is a path; returns them."""
    found = []
    for row in rows:
        print(readable(row), flush=True)
        found.append(row | stamp)
    if path:
        append_csv(path, found)
    return found


def knobs_of(name: str, options: Namespace) -> dict[str, Any]:
    """A preset's knobs and those given with --set that the method has."""
    method, preset = find(name)
    given = dict(pair.split("=", 1) for pair in options.set)
    own = {k.name for k in method.knobs}
    known = {k: v for k, v in given.items() if k in own}
    if options.verify and "verify" in own:
        known["verify"] = options.verify
    return dict(preset) | known


def read_prompts(path: Path | None, count: int, backbone: Backbone) -> list[str]:
    """The first `count` prompts of a file, a line each (None: held-out prompts of what the model was taught); raises BadPrompt."""
    if path is None:
        return held_out_prompts(count, lessons_of(backbone.card))
    try:
        lines = [x.strip() for x in path.read_text(encoding="utf-8").splitlines() if x.strip()]
    except (OSError, UnicodeDecodeError) as e:
        raise BadPrompt(f"The prompts file {path} cannot be read ({e}). Give another with --prompts.") from e
    if not lines:
        raise BadPrompt(f"The prompts file {path} holds no prompt. Write one a line.")
    return lines[:count]


def in_float32(backbone: Backbone, options: Namespace) -> Backbone:
    """The same weights in float32: our fastest plain decoding on a CPU, and so the baseline whatever the dtype of the rest."""
    if backbone.dtype != "bfloat16":
        return backbone
    return load(backbone.name, options.backbone if Path(options.backbone).is_dir() else None, options.device, "float32")


def measure(
    backbone: Backbone, exact: Backbone, entries: dict[str, Entry], prompts: list[Prompt], repeats: int
) -> dict[str, list[list[Run]]]:
    """Runs by row and prompt, each prompt's runs in a list; plain decoding under "ar", and under BASELINE if that is another."""
    plain = ["ar"] if exact is backbone else [BASELINE, "ar"]
    all_entries = dict.fromkeys(plain, Entry("ar", {})) | entries
    found: dict[str, list[list[Run]]] = {n: [[] for _ in prompts] for n in all_entries}

    def go(name: str, i: int) -> Run:
        entry = all_entries[name]
        return generate(exact if name == BASELINE else backbone, find(entry.name)[0], prompts[i], entry.knobs).finish()

    for name in found:  # not measured: allocations, noise tables, first-touch of weights
        go(name, 0)
    for i in range(len(prompts)):
        for _ in range(repeats):
            for name in [*found, *reversed(found)]:
                found[name][i].append(go(name, i))
    return found


def summary(name: str, runs: dict[str, list[list[Run]]]) -> dict[str, Any]:
    """One row of the table. The speed-up is over the baseline: plain decoding in float32."""
    seconds = np.array([np.median([r.seconds for r in of]) for of in runs[name]])
    plain = np.array([np.median([r.seconds for r in of]) for of in runs.get(BASELINE, runs["ar"])])
    compression = np.array([of[0].totals["step_compression"] for of in runs[name]])
    forwards = np.array([of[0].totals["forwards"] for of in runs[name]])
    first = runs[name][0][0]
    differences = [first_difference(a[0].in_order, b[0].in_order) for a, b in zip(runs[name], runs["ar"], strict=True)]
    return {
        "method": name,
        "exact": first.exact,
        "prompts": len(runs[name]),
        "tokens": len(first.tokens),
        "knobs": first.steps[-1].knobs,
        "seconds": quartiles(seconds),
        "forwards": quartiles(forwards),
        "milliseconds_per_pass": round(float(np.median(seconds / forwards)) * 1000, 3),
        "step_compression": quartiles(compression),
        "speedup": quartiles(plain / seconds),
        "speedup_interval": bootstrap(plain / seconds),
        "same_tokens_as_plain": sum(at is None for at in differences),
        "first_differences": {i: at for i, at in enumerate(differences) if at is not None},
    }


def drafting(runs: list[Run]) -> dict[str, float]:
    """What became of the drafts: how many a pass were accepted (acceptance length without the bonus token), of trees their nodes and depth,
    of relaxed rules the mean total variation distance from the model's law, and where drafts are accepted in order, the share of accepted
    ones by place. What a method does not say is left out."""
    steps = [s for run in runs for s in run.steps if s.drafted]
    levels = [s.trace.tree.levels for s in steps if s.trace.tree]
    kept = [float(np.nansum(per_token(s, "accepted"))) for s in steps]
    apart = [last for run in runs for last in [s.trace.deviation.mean for s in run.steps if s.trace.deviation][-1:]]
    found = {"accepted_a_pass": kept, "nodes": [s.drafted for s in steps] if levels else [], "depth": levels, "mean_deviation": apart}
    means = {name: round(float(np.nanmean(values)), 4) for name, values in found.items() if not np.isnan(values).all()}
    places = by_place(steps)
    return means | ({"accepted_by_place": places} if places else {})


def by_place(steps: list[Step]) -> list[float]:
    """Of the drafts that were reached, the share that was accepted, for the first places behind the pending token (of a tree, its levels).
    Empty where drafts behind a refused one are accepted too: such a method knows no order."""
    kept, asked = np.zeros(PLACES, dtype=int), np.zeros(PLACES, dtype=int)
    for step in steps:
        verdicts = per_token(step, "accepted") == 1
        a = int(verdicts.cumprod().sum())
        if step.trace.accepted is None or verdicts.sum() > a:
            return []
        refused = a < min(len(verdicts), step.trace.tree.levels if step.trace.tree else step.drafted)  # else all were accepted
        kept[:a] += 1
        asked[: a + refused] += 1
    return [round(float(k / n), 3) for k, n in zip(kept, asked, strict=True) if n]


def plausibility(backbone: Backbone, prompts: list[Prompt], runs: list[list[Run]]) -> dict[str, Any]:
    """What the model thinks of the pictures: the mean log probability of a token under its guided law at the temperature of sampling, top-k
    and top-p left out (else one impossible token would make it infinite), and the share of tokens that plain decoding could not draw."""
    means, impossible = [], []
    for prompt, of in zip(prompts, runs, strict=True):
        open_law = replace(prompt, sampling=replace(prompt.sampling.softened(), top_k=0, top_p=1.0))
        asked = of[0].tokens, of[0].positions
        means.append(log_probabilities(backbone, open_law, *asked).mean().item())
        impossible.append((log_probabilities(backbone, prompt, *asked) == -torch.inf).float().mean().item())
    return {"log_probability": quartiles(np.array(means)), "impossible": round(float(np.mean(impossible)), 5)}


def first_difference(a: list[int], b: list[int]) -> int | None:
    """The first position where two runs differ, None if there is none."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)


def quartiles(values: np.ndarray) -> list[float]:
    """Median, first and third quartile."""
    return [round(float(np.quantile(values, q)), 4) for q in (0.5, 0.25, 0.75)]


def bootstrap(values: np.ndarray, draws: int = 2000) -> list[float]:
    """95 % interval of the median over prompts."""
    r = np.random.default_rng(0)
    medians = np.median(r.choice(values, (draws, len(values))), axis=1)
    return [round(float(np.quantile(medians, q)), 3) for q in (0.025, 0.975)]


def peer_row(exact: Backbone, prompts: list[Prompt]) -> dict[str, Any]:
    """transformers' generate on the same weights in float32, alternating with our plain decoding."""
    models = [peer.GuidedModel(exact, prompt) for prompt in prompts]
    peer.generate(models[0], 0)
    theirs, plain = np.array([_peer_pair(exact, model, prompt) for model, prompt in zip(models, prompts, strict=True)]).T
    return {
        "method": "transformers generate",
        "exact": True,
        "prompts": len(prompts),
        "seconds": quartiles(theirs),
        "plain_seconds": quartiles(plain),
        "slower_than_plain": quartiles(theirs / plain),
    }


def _peer_pair(ours: Backbone, model: peer.GuidedModel, prompt: Prompt) -> tuple[float, float]:
    """Seconds of transformers' generate, and the mean of our plain decoding before and after it."""
    before = generate(ours, METHODS["ar"], prompt).finish().seconds
    start = time.perf_counter()
    peer.generate(model, prompt.seed)
    theirs = time.perf_counter() - start
    after = generate(ours, METHODS["ar"], prompt).finish().seconds
    return theirs, (before + after) / 2


def readable(row: dict[str, Any]) -> str:
    """A row for a person."""
    if "slower_than_plain" in row:
        theirs, ours, ratio = row["seconds"][0], row["plain_seconds"][0], row["slower_than_plain"][0]
        return f"{row['method']}: {theirs:.2f} s against {ours:.2f} s, so our plain decoding is {ratio:.2f}x as fast"
    if "model_share" in row:
        return (
            f"{row['method']:24} model {row['model_share']:.1%}, sampling {row['sampling_share']:.1%}, "
            f"bookkeeping {row['bookkeeping_share']:.1%} of a step of {row['milliseconds_per_step']:.2f} ms"
        )
    s, c, t = row["speedup"], row["step_compression"], row["seconds"]
    return (
        f"{row['method']:24} {'exact' if row['exact'] else 'NOT EXACT':9} {t[0]:6.2f} s   {row['forwards'][0]:5.0f} passes   "
        f"{c[0]:5.2f} ({c[1]:.2f}-{c[2]:.2f}) tokens a pass   {s[0]:5.2f}x ({s[1]:.2f}-{s[2]:.2f}) in time   "
        f"log p {row['log_probability'][0]:.3f}   " + drafted(row) + f"same tokens {row['same_tokens_as_plain']}/{row['prompts']}"
    )


def drafted(row: dict[str, Any]) -> str:
    """What `drafting` found, for a person."""
    said = [f"{name.replace('_', ' ')} {row[name]:.3g}   " for name in DRAFTING if name in row]
    if "accepted_by_place" in row:
        said.append(f"by place {' '.join(f'{share:.0%}'[:-1] for share in row['accepted_by_place'])} %   ")
    return "".join(said)


def append_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """Adds the rows to a CSV file; raises BadOutput if it cannot be written."""
    names = list(dict.fromkeys(k for row in rows for k in row))
    try:
        with path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            if file.tell() == 0:
                writer.writeheader()
            writer.writerows(rows)
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another file with --csv.") from e


# --- where the time of a step goes ------------------------------------------------------------------------------------


class _Clock:
    """Seconds spent in functions, nested calls counted once, by the outermost."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*a: Any, **k: Any) -> Any:
            self.depth += 1
            start = time.perf_counter()
            try:
                return function(*a, **k)
            finally:
                self.depth -= 1
                if self.depth == 0:
                    self.seconds += time.perf_counter() - start

        return call


@contextmanager
def _timed(clock: _Clock, targets: list[tuple[Any, str]]) -> Iterator[None]:
    """The clock runs inside these functions while the block lasts."""
    kept = [(owner, name, getattr(owner, name)) for owner, name in targets]
    for owner, name, function in kept:
        setattr(owner, name, clock.timed(function))
    try:
        yield
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def split(backbone: Backbone, name: str, knobs: dict[str, Any], prompt: Prompt) -> dict[str, Any]:
    """Shares of a step: the model's pass, sampling (warp, noise, draws, acceptance), and all else."""
    model, sampling = _Clock(), _Clock()
    targets = [(verdict, n) for n in ("draw", "draw_gumbel", "ratio", "residual", "entropy", "probability_of")]
    targets += [(windows, n) for n in ("draw", "draw_gumbel")]
    targets += [(Noise, "gumbel"), (Noise, "uniform"), (Rows, "law"), (TransformerSequence, "_warp")]
    with _timed(sampling, targets), _timed(model, [(TransformerSequence, "forward")]):
        run = generate(backbone, find(name)[0], prompt, knobs)
        next(run)
        model.seconds = sampling.seconds = 0.0
        before = run.seconds
        run.finish()
    total = run.seconds - before
    return {
        "method": f"{name}: cost of a step",
        "model_share": model.seconds / total,
        "sampling_share": sampling.seconds / total,
        "bookkeeping_share": 1 - (model.seconds + sampling.seconds) / total,
        "overhead_of_a_pass": (total - model.seconds) / model.seconds,
        "milliseconds_per_step": 1000 * total / (len(run.steps) - 1),
    }


@torch.inference_mode()
def cost_curve(backbone: Backbone, prompt: str = "a cat", repeats: int = 9) -> dict[int, float]:
    """Milliseconds of a pass by the number of rows in it (the pending token and W-1 drafts), median of some repeats."""
    sequence = backbone.start(Prompt(prompt))
    found = {}
    for width in WIDTHS:
        draft = Draft(torch.zeros(width - 1, dtype=torch.int64))
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            sequence.forward(draft)
            times.append(time.perf_counter() - start)
        found[width] = round(1000 * float(np.median(times)), 3)
    return found
