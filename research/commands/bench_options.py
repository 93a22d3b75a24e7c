"""Options that both kinds of `bench` share, and the plan fields made from them."""

from __future__ import annotations

import argparse
from typing import Any

from app.commands.options import Parser, add_knobs, file_path, pairs_of, sampling_of

METHODS = ("methods", "sweep", "grid", "set", "verify")  # the options of add_choice


def add_choice(parser: Parser) -> None:
    """--methods, --sweep, --grid and the knobs."""
    parser.add_argument("--methods", default="all", help="methods and presets, separated by commas (all that the backbone supports)")
    parser.add_argument(
        "--sweep",
        action="append",
        default=[],
        metavar="NAME=A,B",
        help="a row for each value of this knob; of temperature, top_k, top_p, guidance or size: all rows at each value",
    )
    parser.add_argument("--grid", action="store_true", help="a row for each combination of the swept values")
    add_knobs(parser)


def add_files(parser: Parser) -> None:
    """--csv and --sheet."""
    parser.add_argument("--csv", type=file_path, help="append the rows to this file")
    parser.add_argument("--sheet", type=file_path, help="instead of timing, draw results to this picture file")


def model_of(options: argparse.Namespace) -> dict[str, Any]:
    """The plan fields for weights and sampling."""
    return {"backbone": options.backbone, "device": options.device, "dtype": options.dtype, "sampling": sampling_of(options)}


def choice_of(options: argparse.Namespace) -> dict[str, Any]:
    """The plan fields for methods and knobs; raises BadKnob for text that is not NAME=VALUE."""
    from engine.errors import BadKnob

    methods = () if options.methods == "all" else tuple(name.strip() for name in options.methods.split(","))
    sweep = []
    for text in options.sweep:
        name, equals, values = text.partition("=")
        if not equals or not name.strip():
            raise BadKnob(f"--sweep needs NAME=A,B, not '{text}'.")
        sweep.append((name.strip(), tuple(value for value in values.split(",") if value)))
    verify = options.verify and options.verify.replace("-", " ")
    return {"methods": methods, "knobs": pairs_of(options), "verify": verify, "sweep": tuple(sweep), "grid": options.grid}
