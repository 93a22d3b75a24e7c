"""`launch.py verify`: tests the claims of exactness on the toy model."""

from __future__ import annotations

from collections.abc import Sequence

from app.commands.options import CommandParser, add_json
from app.commands.report import print_json


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("verify", "Tests the claims of exactness on the toy model: exact methods must pass, their mutants must fail.")
    p.add_argument("methods", nargs="*", metavar="METHOD", help="methods to verify (all)")
    p.add_argument("--full", action="store_true", help="150,000 runs for each of three seeds")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints the table; exit code 1 if any claim is false."""
    options = parser().read(arguments)
    from engine.errors import NotSupported
    from research.exactness import exactness

    table = exactness.table()
    for name in options.methods:
        if name not in table:
            raise NotSupported(f"There is no method '{name}' to verify. Choose from: {', '.join(table)}.")
    rows, holds, seconds = exactness.verify(options.methods or list(table), options.full)
    for key, row in rows.items():
        mutants = ", ".join(f"{m} {z:.0f}" for m, z in row["mutants"].items())
        kind, power = "exact" if row["exact"] else "NOT EXACT", f"finds {row['detects']:.3f} in {row['runs']:,} runs"
        print(f"{key:42} {kind:9} z = {row['z']:8.2f}   {power:27} mutants: {mutants or '-'}")
    print(f"{'Every claim holds' if holds else 'A CLAIM IS FALSE'} ({len(rows)} rows, {seconds:.0f} s)")
    if options.json:
        print_json(rows)
    return 0 if holds else 1
