"""Says what is trained: `launch.py train status`.

Of each thing its minutes, its held-out numbers, and whether it fits the weights that it was made for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engine.errors import MissingWeights
from engine.train.dependencies import THINGS, Thing, row_of, state_of
from engine.train.loop import Parser

COMMON = ("step", "minutes", "loss")  # of every row of held-out numbers


@dataclass
class Options:
    """What a person asks of this command."""

    json: bool = False

    @staticmethod
    def parser(name: str) -> Parser:
        """The options as arguments of `launch.py train status`."""
        p = Parser(f"launch.py train {name}")
        p.add_argument("--json", action="store_true", help="print one JSON object")
        return p


def describe(thing: Thing) -> dict[str, Any]:
    """A thing's state, minutes, steps and held-out numbers."""
    try:
        row = row_of(thing) or {}
    except MissingWeights:
        row = {}
    held_out = row.get("held_out") if isinstance(row.get("held_out"), dict) else {}
    numbers = {k: v for k, v in held_out.items() if k not in COMMON}
    return {"state": state_of(thing), "minutes": row.get("minutes"), "steps": row.get("steps"), "held_out": numbers}


def lines() -> Iterator[str]:
    """The table for a person, and what to run where something is missing or stale."""
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
