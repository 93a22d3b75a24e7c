"""Prints the state of all trained weights: `launch.py train status`.

For each thing: its state (whether it fits the weights that it was trained for), its minutes, and its held-out numbers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.errors import MissingWeights
from research.train.dependencies import THINGS, Thing, row_of, state_of
from research.train.loop import Parser

COMMON = ("step", "minutes", "loss")  # in every row of held-out numbers


@dataclass
class Options:
    """The options of this command."""

    json: bool = False

    @staticmethod
    def parser(name: str) -> Parser:
        """Returns the parser of `launch.py train status`."""
        p = Parser(f"launch.py train {name}")
        p.add_argument("--json", action="store_true", help="print one JSON object")
        return p


def describe(thing: Thing) -> dict[str, Any]:
    """Returns a thing's state, minutes, steps and held-out numbers."""
    try:
        row = row_of(thing) or {}
    except MissingWeights:
        row = {}
    held_out = row.get("held_out") if isinstance(row.get("held_out"), dict) else {}
    numbers = {k: v for k, v in held_out.items() if k not in COMMON}
    return {"state": state_of(thing), "minutes": row.get("minutes"), "steps": row.get("steps"), "held_out": numbers}


def lines() -> Iterator[str]:
    """Yields the lines of the table, and the command to run for each thing that is missing or stale."""
    for thing in THINGS:
        found = describe(thing)
        numbers = "  ".join(f"{name} {json.dumps(value)}" for name, value in found["held_out"].items())
        minutes = "-" if found["minutes"] is None else f"{found['minutes']} min"
        yield f"{thing.name:36} {found['state']:8} {minutes:>10}  {numbers}"
        if found["state"] in ("missing", "stale"):
            yield f"{'':36} python launch.py train {thing.command}"


def main(options: Options) -> None:
    """Prints the table."""
    if options.json:
        print(json.dumps({thing.name: describe(thing) for thing in THINGS}))
        return
    for line in lines():
        print(line)
