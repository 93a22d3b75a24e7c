"""`launch.py train NAME`: runs a training recipe with the recipe's own options."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import get_type_hints

from app.commands.options import CommandParser


def parser() -> CommandParser:
    """The parser of the recipe's name."""
    from research.train import RECIPES

    about = f"Runs a training recipe, one of: {', '.join(RECIPES)}. Each has its own --help."
    p = CommandParser("train", about, add_help=False)
    p.add_argument("name", nargs="?", metavar="RECIPE", help="the recipe to run")
    return p


def main(arguments: Sequence[str]) -> int:
    """Runs the recipe with the options after its name."""
    from engine.errors import NotSupported
    from research.train import RECIPES

    own = parser()
    options, rest = own.parse_known_args(list(arguments))
    if options.name is None and {"-h", "--help"} & set(rest):
        own.print_help()
        return 0
    if options.name not in RECIPES:
        raise NotSupported(f"There is no recipe '{options.name or ''}'. Choose one of: {', '.join(RECIPES)}.")
    recipe = importlib.import_module(RECIPES[options.name])
    recipe_options = get_type_hints(recipe.main)["options"]
    recipe_parser = recipe_options.parser(options.name)
    recipe_parser.error = CommandParser(f"train {options.name}", "").error  # its errors are one sentence too
    recipe.main(recipe_options(**vars(recipe_parser.parse_args(rest))))
    return 0
