"""`launch.py bench kernels`: registers and shared memory of the Triton kernels, compiled without a GPU; on a GPU their times."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import Parser, add_json, file_path
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench kernels",
        "Compiles the Triton kernels for compute capabilities 8.0, 9.0, 10.0 and 12.0 and prints what they need. That needs no GPU; "
        "where there is one, times them against their references and against copying as many bytes.",
    )
    p.add_argument("--only", metavar="NAMES", help="kernels by name, separated by commas (all)")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Compiles, and measures where there is a GPU."""
    options = parser().read(arguments)
    from research.bench import kernels
    from research.bench.rows import check_csv

    check_csv(options.csv)
    rows = kernels.bench(kernels.chosen(options.only), options.csv)
    if options.json:
        print_json(rows)
    return 0
