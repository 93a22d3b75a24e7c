"""`launch.py bench many`: results a second of several runs at once, beside the same runs one after another."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from app.commands.options import Parser, add_json, file_path, whole
from app.commands.report import print_json
from app.requests.limits import MOST_FACES

MODELS = ("pictogram", "lowpoly")
MOST = 1000


def model(text: str) -> str:
    """The name of a model that is measured."""
    if text not in MODELS:
        raise argparse.ArgumentTypeError(f"'{text}' is not measured. Choose from: {', '.join(MODELS)}")
    return text


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench many",
        "Times plain and accelerated runs of pictogram and lowpoly one after another and so many at once, in turns, and the passes that "
        "they share beside their own. The tokens of both are compared.",
    )
    p.add_argument("--models", default=",".join(MODELS), help="the models, separated by commas (both)")
    p.add_argument("--at-once", default="1,2,4,8,16", help="how many at once, separated by commas (1,2,4,8,16)")
    p.add_argument("--inputs", type=whole(1, MOST), default=16, help="runs of each measurement (16)")
    p.add_argument("--repeats", type=whole(1, 100), default=1, help="how often all measurements go there and back (1)")
    p.add_argument("--size", type=whole(1, 4096), default=128, help="side of the pictures in pixels (128)")
    p.add_argument("--faces", type=whole(1, MOST_FACES), help="most faces of a mesh (unlimited)")
    p.add_argument(
        "--threads", type=whole(1, MOST), help="threads of a pass (PyTorch's default); with 1, passes are timed in processor time"
    )
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    own = parser()
    options = own.read(arguments)
    try:
        models = [model(name) for name in options.models.split(",")]
        at_once = [whole(1, MOST)(number) for number in options.at_once.split(",")]
    except argparse.ArgumentTypeError as e:
        own.error(str(e))
    import torch

    from research.bench.many import ManyBench, bench

    if options.threads is not None:
        torch.set_num_threads(options.threads)
    rows = bench(ManyBench(models, at_once, options.inputs, options.repeats, options.size, options.faces), options.csv)
    if options.json:
        print_json(rows)
    return 0
