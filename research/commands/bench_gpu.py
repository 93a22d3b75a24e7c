"""`launch.py bench gpu`: a step with graphs beside transformers' generate, and windows over plain steps, on random weights."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import Parser, add_json, file_path, whole
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench gpu",
        "Times plain decoding with CUDA graphs against transformers' generate, and a window's step over a plain step, on random weights in "
        "the sizes of lowpoly, Janus and Emu3. Needs an NVIDIA GPU and at most ten minutes.",
    )
    p.add_argument("--tokens", type=whole(8, 900), default=64, help="tokens of a generation, and timed steps (64)")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    options = vars(parser().read(arguments))
    from research.bench import gpu

    as_json = options.pop("json")
    rows = gpu.bench(gpu.GpuBench(**options))
    if as_json:
        print_json(rows)
    return 0
