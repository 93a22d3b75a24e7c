"""`launch.py bench image|mesh`: tables of speed, each with options of its own."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from app.commands.options import Parser

KINDS = {"image": "methods on pictures", "mesh": "methods on meshes"}  # each is app/commands/bench_NAME.py


def parser() -> Parser:
    """What is measured."""
    p = Parser("bench", "Tables of speed: " + "; ".join(f"{name}: {about}" for name, about in KINDS.items()) + ". Each knows --help.")
    p.add_argument("what", choices=list(KINDS))
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures. What is measured may stand behind options too."""
    at = next((i for i, argument in enumerate(arguments) if argument in KINDS), 0)
    what = parser().read(arguments[at : at + 1]).what
    return importlib.import_module(f"app.commands.bench_{what}").main([*arguments[:at], *arguments[at + 1 :]])
