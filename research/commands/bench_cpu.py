"""`launch.py bench cpu`: passes of our own models by PyTorch's operations and by native functions, beside the bound of a pass."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import Parser, add_json, file_path
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench cpu",
        "Times passes and whole generations of pictogram and lowpoly on a CPU, by PyTorch's operations and by native functions in turns. "
        "Prints the least time that this machine needs for a pass.",
    )
    p.add_argument("--threads", type=int, help="threads of a pass (PyTorch's default); with 1 it counts processor time")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    options = parser().read(arguments)
    import torch

    from research.bench import passes

    if options.threads is not None:
        torch.set_num_threads(max(1, options.threads))
    rows = passes.bench(options.csv)
    if options.json:
        print_json(rows)
    return 0
