"""`launch.py bench generate`: our methods inside transformers' `generate`, on random weights in the shape of a real model."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import Parser, add_device, add_json, file_path, whole
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("bench generate", "Times our methods inside transformers' generate, on random weights in the shape of a real model.")
    p.add_argument("--size", default="1b", help="1b: 1.3 billion parameters, in the shape of Janus-Pro-1B; tiny (1b)")
    p.add_argument("--method", default="sjdpp", help="a method that needs no trained drafter (sjdpp)")
    p.add_argument("--window", type=whole(1, 256), default=16, help="its window (16)")
    p.add_argument("--tokens", type=whole(2, 4000), default=32, help="new tokens of a generation (32)")
    p.add_argument("--guidance", type=float, default=1.0, help="scale of the guidance; 1: none (1)")
    p.add_argument("--repeats", type=whole(1, 1_000), default=1, help="how often each row runs, twice each time (1)")
    add_device(p)
    p.add_argument("--dtype", default="auto", choices=["auto", "float32", "bfloat16"], help="auto is bfloat16 where it is fast")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    options = vars(parser().read(arguments))
    from engine.machine import device_of
    from research.bench import generation

    as_json = options.pop("json")
    device_of(options["device"])
    rows = generation.bench(generation.GenerateBench(**options))
    if as_json:
        print_json(rows)
    return 0
