"""`launch.py bench KIND`: measures the speed of methods and kernels; each kind has its own options."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from app.commands.options import Parser

KINDS = {
    "image": "methods on pictures",
    "mesh": "methods on meshes",
    "generate": "methods inside transformers",
    "kernels": "the GPU's kernels",
    "cpu": "passes on a CPU",
    "many": "several runs at once",
    "gpu": "graphs and windows on a GPU",
    "expected": "tokens a pass, for auto",
}  # each is research/commands/bench_NAME.py


def parser() -> Parser:
    """The parser of what to measure."""
    p = Parser("bench", "Measures speed. " + "; ".join(f"{name}: {about}" for name, about in KINDS.items()) + ". Each has its own --help.")
    p.add_argument("what", choices=list(KINDS))
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures. What to measure may come after options too."""
    at = next((i for i, argument in enumerate(arguments) if argument in KINDS), 0)
    what = parser().read(arguments[at : at + 1]).what
    return importlib.import_module(f"research.commands.bench_{what}").main([*arguments[:at], *arguments[at + 1 :]])
