"""`launch.py image`: generates one picture from a prompt; --compare also times plain decoding."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from app.commands.options import (
    CommandParser,
    add_json,
    add_model,
    add_run,
    add_sampling,
    add_size,
    add_source,
    check_method,
    check_source,
    load_backbone,
    method_of,
    sampling_of,
)
from app.commands.report import decode, print_json, readable, report


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("image", "Generates one picture from a prompt.")
    p.add_argument("prompt", nargs="?", help="what to draw; with --from, the prompt of that run unless another is given")
    add_source(p)
    add_run(p, "auto")
    add_size(p)
    add_sampling(p)
    add_model(p)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Generates the picture, saves the run, and prints its summary."""
    options = parser().read(arguments)
    from dataclasses import replace

    from app.runs.finished import fork
    from app.runs.history import check_writable, deliver, home
    from engine.core import Prompt
    from engine.sampling import with_values

    check_method(options)
    if options.source is None and options.prompt is None:
        parser().error("a prompt is missing")
    check_source(parser(), options, {"size": "size"})
    sampling = sampling_of(options)
    prompt = Prompt(options.prompt, seed=options.seed, size=options.size)
    check_writable(options.out or home() / "runs")
    backbone = load_backbone(options)
    if options.source:
        origin = fork(options.source, backbone, options.at, options.token)
        prompt = replace(origin, text=options.prompt or backbone.words_read(origin), seed=options.seed)
    prompt = replace(prompt, sampling=with_values(prompt.sampling or backbone.sampling, sampling))
    backbone.start(prompt).close()  # an unreadable prompt is rejected before auto measures anything
    method, knobs = method_of(options, backbone)
    check(backbone, method, prompt, knobs)
    unknown = comment(backbone, prompt.text)
    if words := backbone.added_words(prompt):
        print(f"No background in the prompt, so seed {prompt.seed} chose “{words}”.", file=sys.stderr)
    run, comparison = decode(options, backbone, method, prompt, knobs)
    start = time.perf_counter()
    folder, complaint = deliver(run, options.out)
    rendering = time.perf_counter() - start
    if complaint:
        print(complaint, file=sys.stderr)
    line = report(run, folder) | {"rendering_seconds": round(rendering, 4), "unknown_words": unknown} | comparison
    if options.json:
        print_json(line)
    else:
        print(readable(line))
    return 0


def check(backbone: Any, method: Any, prompt: Any, knobs: Mapping[str, Any]) -> None:
    """Raises the errors of a run's first step before anything about the prompt is printed."""
    from engine.run import generate

    run = generate(backbone, method, prompt, knobs)
    next(run, None)
    run.close()


def comment(backbone: Any, text: str) -> dict[str, list[str]]:
    """Prints what the model cannot draw; returns the unknown words with the nearest known ones."""
    unknown = backbone.unknown_words(text)
    if warning := backbone.warning(text):
        print(warning, file=sys.stderr)
    for word, near in unknown.items():
        print(f"{backbone.name} does not know '{word}'" + (f"; nearest: {', '.join(near)}." if near else "."), file=sys.stderr)
    return unknown
