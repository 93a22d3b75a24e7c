"""`launch.py bench expected`: records the tokens a pass of the methods that `auto` chooses among."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import Parser, add_json, add_model, whole
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("bench expected", "Records the tokens a pass of the exact methods on held-out inputs: what auto expects of a model.")
    p.add_argument("--count", type=whole(1, 10_000), default=8, help="number of inputs (8)")
    p.add_argument("--write", action="store_true", help="store them in the model's card")
    add_model(p)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    options = parser().read(arguments)
    from research.bench import expected

    plan = expected.ExpectedBench(
        backbone=options.backbone, device=options.device, dtype=options.dtype, count=options.count, write=options.write
    )
    rows = expected.bench(plan)
    if options.json:
        print_json(rows)
    return 0
