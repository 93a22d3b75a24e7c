"""The parts of a step on a CPU: processor time of the model's passes, of the drafter, of growing, verifying and recording.

`python -m research.bench.parts pictogram adt_tree,mulo --size 256` prints milliseconds per pass, a column per method, with one thread. The
time of a part is that of its functions without the parts that they call. Compare columns of one run: other programs slow all of them.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from engine.backbones import load
from engine.backbones.prompts import probe_prompt
from engine.core import Backbone, Prompt
from engine.decoding import scales, trees
from engine.drafters import feature_draft, resampler
from engine.methods import cross_regression, find, mulo
from engine.networks.sequence import TransformerSequence
from engine.run import generate

REST = "rest"  # noise, draws and the loop
PARTS: tuple[tuple[Any, str, str], ...] = (  # owner, name of its function, part
    (TransformerSequence, "forward", "model pass"),
    (TransformerSequence, "commit", "commit"),
    (TransformerSequence, "commit_at", "commit"),
    (feature_draft.NetworkGrowth, "root", "drafter's passes"),
    (feature_draft.NetworkGrowth, "expand", "drafter's passes"),
    (trees, "grow", "growing the tree"),
    (trees, "verify_tree", "verdict"),
    (trees, "step_of", "record"),
    (cross_regression, "judge", "verdict"),
    (cross_regression, "refill", "next drafts"),
    (scales.CoarsePicture, "draft", "draws of the small picture"),
    (resampler.PictureResampler, "down", "small picture from the large one"),
    (resampler.PictureResampler, "up", "large picture from the small one"),
    (resampler.TrainedResampler, "up", "large picture from the small one"),
    (mulo, "_judge", "verdict"),
    (mulo, "_draw", "draws of repairs"),
)


@contextmanager
def timed_parts(clock: Callable[[], float] = time.thread_time) -> Iterator[Counter[str]]:
    """Inside the block, adds up the seconds of each part."""
    seconds: Counter[str] = Counter()
    open_parts: list[tuple[str, list[float]]] = []  # part, and when its own time goes on

    def timed(function: Callable[..., Any], part: str) -> Callable[..., Any]:
        @wraps(function)
        def call(*arguments: Any, **settings: Any) -> Any:
            if open_parts:
                seconds[open_parts[-1][0]] += clock() - open_parts[-1][1][0]
            open_parts.append((part, [clock()]))
            try:
                return function(*arguments, **settings)
            finally:
                seconds[part] += clock() - open_parts.pop()[1][0]
                if open_parts:
                    open_parts[-1][1][0] = clock()

        return call

    before = [(owner, name, getattr(owner, name)) for owner, name, _ in PARTS]
    try:
        for (owner, name, function), (_, _, part) in zip(before, PARTS, strict=True):
            setattr(owner, name, timed(function, part))
        yield seconds
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def parts_of(backbone: Backbone, name: str, prompt: Prompt) -> dict[str, float]:
    """Milliseconds per pass of each part of a run by a method or preset, and of the whole run as "all"."""
    method, preset = find(name)
    generate(backbone, method, prompt, preset).finish()  # builds everything that is built on first use
    with timed_parts() as seconds:
        run = generate(backbone, method, prompt, preset)
        run.clock = time.thread_time
        run.finish()
    passes = run.totals["forwards"]
    rest = {REST: run.seconds - seconds.total(), "all": run.seconds}
    return {part: 1000 * value / passes for part, value in {**seconds, **rest}.items()} | {"tokens": run.totals["step_compression"]}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backbone")
    parser.add_argument("methods")
    parser.add_argument("--size", type=int)
    parser.add_argument("--dtype", default="bfloat16")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load(chosen.backbone, dtype=chosen.dtype)
    prompt = probe_prompt(backbone)
    prompt = Prompt(prompt.text, seed=3, size=chosen.size, points=prompt.points, label=prompt.label)  # without a guide
    columns = {name: parts_of(backbone, name, prompt) for name in ["ar", *chosen.methods.split(",")]}
    print("|".join(["part", *columns]))
    for part in dict.fromkeys(part for column in columns.values() for part in column):
        print("|".join([part, *(f"{column[part]:.2f}" if part in column else "" for column in columns.values())]))


if __name__ == "__main__":
    main()
