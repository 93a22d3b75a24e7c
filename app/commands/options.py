"""What several commands share: the parser whose complaints are one sentence, options of a model and of a run, and the checks of them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
MOST_FACES, LARGEST_SIDE = 10_000, 4096
SAMPLING = ("temperature", "top_k", "top_p", "guidance")


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one sentence, and to whom an option that the command does not use is unknown."""

    def __init__(self, command: str, description: str, **settings: Any):
        super().__init__(f"launch.py {command}", description=description, **settings)

    def error(self, message: str) -> NoReturn:
        """Raises ForetokenError with what argparse says, and where to read more."""
        from engine.errors import ForetokenError

        said = message.removeprefix("argument ").replace("unrecognized arguments", "unknown option").rstrip(".")
        raise ForetokenError(f"{said[:1].upper()}{said[1:]}. See: python {self.prog} --help")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values of the options; raises ForetokenError for one that is unknown or wrong."""
        return self.parse_args(list(arguments))


# --- kinds of values --------------------------------------------------------------------------------------------------


def whole(low: int, high: int, named: str = "") -> Callable[[str], int]:
    """The type of an option that is a whole number from low to high. named: how a person says the highest."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is out of range; choose {low} to {named or f'{high:,}'}")
        return value

    return convert


def file_path(text: str) -> Path:
    """The type of an option that names a file or folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file or folder")
    return Path(text)


def check_seed(text: str) -> int:
    """The type of --seed."""
    return whole(0, 2**63 - 1, "2^63 - 1")(text)


# --- options ----------------------------------------------------------------------------------------------------------


def add_model(parser: Parser, backbone: str = "pictogram") -> None:
    """--backbone, --device and --dtype."""
    parser.add_argument("--backbone", default=backbone, metavar="NAME|PATH", help=f"a backbone, or a folder of weights ({backbone})")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "float32", "bfloat16"],
        help="auto is float32 on a CPU; bfloat16 makes wide passes cheaper on CPUs that multiply it in hardware",
    )


def add_sampling(parser: Parser, guidance: bool = True) -> None:
    """--temperature, --top-k, --top-p and --guidance."""
    parser.add_argument("--temperature", type=float, help="0: always the most probable token")
    parser.add_argument("--top-k", type=int, help="how many of the most probable tokens may be drawn; 0: all")
    parser.add_argument("--top-p", type=float, help="draw among the most probable tokens that reach this probability together")
    if guidance:
        parser.add_argument("--guidance", type=float, help="how strictly the picture follows the prompt")


def add_knobs(parser: Parser) -> None:
    """--set and --verify."""
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a knob of the method")
    parser.add_argument("--verify", choices=["residual", "match-seed"], help="the method's verification mode")


def add_run(parser: Parser, method: str) -> None:
    """What a single run is told: method, knobs, seed, and what becomes of the result."""
    parser.add_argument("--method", default=method, help=f"a method or preset ({method})")
    add_knobs(parser)
    parser.add_argument("--seed", type=check_seed, default=0)
    parser.add_argument("--compare", action="store_true", help="time plain decoding beside it")
    parser.add_argument("--out", type=file_path, help="folder that receives a copy of the run")


def add_json(parser: Parser) -> None:
    """--json."""
    parser.add_argument("--json", action="store_true", help="the last line of the output is one JSON object")


def add_size(parser: Parser) -> None:
    """--size of a picture."""
    parser.add_argument("--size", type=whole(1, LARGEST_SIDE), metavar="PIXELS", help="of a side of the picture (128)")


# --- what the options say ---------------------------------------------------------------------------------------------


def load_backbone(options: argparse.Namespace) -> Any:
    """The backbone that --backbone, --device and --dtype name."""
    from engine.backbones import load, resolve

    return load(*resolve(options.backbone), options.device, options.dtype)


def sampling_of(options: argparse.Namespace) -> dict[str, float]:
    """What a person changed of the backbone's sampling; raises BadPrompt for values out of range."""
    from engine.core import Sampling
    from engine.sampling import changed

    given = {name: getattr(options, name) for name in SAMPLING if getattr(options, name, None) is not None}
    changed(Sampling(), given)
    return given


def pairs_of(options: argparse.Namespace) -> dict[str, str]:
    """The knobs of --set; raises BadKnob for what is not NAME=VALUE."""
    from engine.errors import BadKnob

    found = {}
    for pair in options.set:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadKnob(f"--set needs NAME=VALUE, not '{pair}'.")
        found[name.strip()] = value.strip()
    return found


def knobs_of(options: argparse.Namespace, method: Any, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Knob values from --set and --verify on top of a preset's; raises BadKnob for a name or value that the method does not have."""
    from engine.core import KnobArray
    from engine.errors import BadKnob

    knobs = dict(preset) | pairs_of(options)
    if options.verify and any(k.name == "verify" for k in method.knobs):
        knobs["verify"] = options.verify
    elif options.verify and method.name != "ar":
        raise BadKnob(f"{method.name} has no verification mode; leave --verify out.")
    KnobArray(method.knobs, knobs)
    return knobs


def given(parser: Parser, options: argparse.Namespace) -> set[str]:
    """The names of the options that were given a value other than their default."""
    return {name for name, value in vars(options).items() if value != parser.get_default(name)}


def refuse_unused(parser: Parser, options: argparse.Namespace, used: Sequence[str], why: str) -> None:
    """Raises ForetokenError if an option was given that this use of the command does not read."""
    if unused := sorted(given(parser, options) - set(used)):
        parser.error(f"{why} does not use --{unused[0].replace('_', '-')}")
