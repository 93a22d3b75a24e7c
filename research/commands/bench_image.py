"""`launch.py bench image`: times methods on pictures; or counts pictures that show what was asked for, or draws a contact sheet."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json, add_model, add_sampling, add_size, file_path, refuse_unused, whole
from app.commands.report import print_json
from research.commands.bench_options import METHODS, add_choice, add_files, choice_of, model_of

MODEL = ("backbone", "device", "dtype", "temperature", "top_k", "top_p", "guidance", "size", "json")
USED = {  # the options that each mode uses
    "judge": (*MODEL, *METHODS, "judge", "count", "csv"),
    "eye": (*MODEL, "judge", "eye", "csv"),
    "sheet": (*MODEL, "sheet", "prompts", "count"),
}


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("bench image", "Times plain decoding and methods on pictures, in turns.")
    add_choice(p)
    p.add_argument("--prompts", type=file_path, help="a file with one prompt per line (default: held-out prompts)")
    p.add_argument("--count", type=whole(1, 10_000), help="number of prompts (20)")
    p.add_argument("--repeats", type=whole(1, 1_000), help="how often each method decodes each prompt, twice each time (1)")
    p.add_argument(
        "--figure", type=file_path,
        help="write a PNG: mulo on its theory line, adt_tree's controller, cross_regression's speed against fidelity, or with "
        "--sweep allowed_deviation=A,B the speed of all relaxed methods over their deviation",
    )  # fmt: skip
    p.add_argument("--judge", action="store_true", help="instead of timing, count how often pictures show what the prompt asked for")
    p.add_argument("--eye", type=file_path, help="with --judge: compare it with a CSV of human answers about the sheet's pictures")
    add_files(p)
    add_size(p)
    add_sampling(p)
    add_model(p)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures, counts or draws."""
    own = parser()
    options = own.read(arguments)
    kind = "eye" if options.eye else "judge" if options.judge else "sheet" if options.sheet else "speed"
    if options.eye and not options.judge:
        own.error("--eye compares the judge with human answers: add --judge")
    if kind in USED:
        refuse_unused(own, options, USED[kind], f"bench image --{kind}")
    if kind == "sheet":
        return draw(options)
    rows = {"speed": speed, "judge": judged, "eye": by_eye}[kind](options)
    if options.json:
        print_json(rows)
    return 0


def prompts_of(options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a plan for prompts and their number."""
    from research.bench.plan import read_prompts

    count = options.count or 20
    if options.prompts is None:
        return {"count": count}
    prompts, told = read_prompts(options.prompts, count)
    return {"prompts": prompts, "prompts_from": told}


def speed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measures the table of speed and returns its rows."""
    from research.bench import speed
    from research.bench.plan import ImageBench

    own = {"repeats": options.repeats or 1, "size": options.size, "csv": options.csv, "figure": options.figure}
    return speed.bench(ImageBench(**model_of(options), **choice_of(options), **prompts_of(options), **own))


def judged(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Counts with the judge and returns the rows."""
    from research.bench import judged
    from research.bench.plan import JudgeBench

    own = {"count": options.count or 20, "size": options.size, "csv": options.csv}
    return judged.bench(JudgeBench(**model_of(options), **choice_of(options), **own))


def by_eye(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compares the judge with human answers and returns the rows."""
    from research.bench.figures import by_eye
    from research.bench.plan import EyeBench

    return by_eye.bench(EyeBench(**model_of(options), answers=options.eye, size=options.size, csv=options.csv))


def draw(options: argparse.Namespace) -> int:
    """Draws the contact sheet of pictures."""
    from research.bench.figures import sheet
    from research.bench.plan import ImageSheet

    asked = prompts_of(options)
    asked.pop("prompts_from", None)
    sheet.draw(ImageSheet(**model_of(options), **asked, path=options.sheet, size=options.size))
    if options.json:
        print_json({"sheet": str(options.sheet)})
    else:
        print(options.sheet)
    return 0
