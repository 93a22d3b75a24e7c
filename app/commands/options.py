"""Shared parts of the commands: a parser with one-sentence errors, options of models and runs, and their checks."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from app.requests.limits import LARGEST_SEED_HERE, LARGEST_SIDE, MOST_FACES, SAMPLING
from engine.decimals import decimal, whole_number

ROOT = Path(__file__).resolve().parents[2]


class CommandParser(argparse.ArgumentParser):
    """Argument parser with one-sentence errors."""

    def __init__(self, command: str, description: str, **settings: Any):
        super().__init__(f"launch.py {command}", description=description, **settings)

    def error(self, message: str) -> NoReturn:
        """Raises ForetokenError with argparse's message and a pointer to --help."""
        from engine.errors import ForetokenError

        sentence = message.removeprefix("argument ").replace("unrecognized arguments", "unknown option").rstrip(".")
        raise ForetokenError(f"{sentence[:1].upper()}{sentence[1:]}. See: python {self.prog} --help")

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse the options; raises ForetokenError for unknown options and wrong values."""
        return self.parse_args(list(arguments))


# --- kinds of values --------------------------------------------------------------------------------------------------


def whole(low: int, high: int, named: str = "") -> Callable[[str], int]:
    """Option type for a whole number from low to high. named: text for `high` in messages"""

    def convert(text: str) -> int:
        value = whole_number(text)
        if value is None:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{value} is out of range; choose {low} to {named or f'{high:,}'}")
        return value

    return convert


def number(text: str) -> float:
    """Option type for a number."""
    value = decimal(text)
    if value is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return float(value)


def file_path(text: str) -> Path:
    """Option type for a path of a file or folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file or folder")
    return Path(text)


def check_seed(text: str) -> int:
    """Option type for --seed."""
    return whole(0, LARGEST_SEED_HERE, "2^63 - 1")(text)


# --- options ----------------------------------------------------------------------------------------------------------


def add_device(parser: CommandParser) -> None:
    """Adds --device."""
    parser.add_argument(
        "--device", default="auto", choices=["auto", "cpu", "cuda", "mps"], help="auto is cuda where PyTorch sees a GPU, else cpu"
    )


def add_model(parser: CommandParser, backbone: str = "pictogram") -> None:
    """Adds --backbone, --device, --dtype and --weights."""
    parser.add_argument("--backbone", default=backbone, metavar="NAME|PATH", help=f"a model, or a folder of weights ({backbone})")
    add_device(parser)
    parser.add_argument(
        "--dtype",
        default="auto",
        choices=["auto", "float32", "bfloat16"],
        help="auto takes the faster one, measured once per model and machine",
    )
    add_weights(parser, "auto", ("auto", "full", "int8", "nf4"), "auto: as it was imported, else full")


def add_weights(parser: CommandParser, default: str | None, choices: Sequence[str], more: str) -> None:
    """Adds --weights. more : the end of its help"""
    about = f"hold the linear layers of an imported checkpoint in 8 or 4 bits per number; {more}"
    parser.add_argument("--weights", default=default, choices=choices, help=about)


def add_sampling(parser: CommandParser, guidance: bool = True, guide: bool = False) -> None:
    """Adds --temperature, --top-k, --top-p, --guidance (pictures) and --guide (meshes)."""
    parser.add_argument("--temperature", type=number, help="randomness of the draws; 0: always the most probable token")
    parser.add_argument("--top-k", type=whole(0, 2**31 - 1), help="draw from the K most probable tokens; 0: all")
    parser.add_argument("--top-p", type=number, help="draw from the most probable tokens whose probabilities add up to P")
    if guidance:
        parser.add_argument("--guidance", type=number, help="how strongly the picture follows the prompt")
    if guide:
        about = "how strongly a mesh follows a surface laid through the input without the model, 0 to 50; 0: the model alone (lowpoly: 16)"
        parser.add_argument("--guide", type=number, help=about)


def add_knobs(parser: CommandParser) -> None:
    """Adds --set and --verify."""
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="set a knob of the method; may be repeated")
    parser.add_argument("--verify", choices=["residual", "match-seed", "block"], help="the method's verification mode")


def add_run(parser: CommandParser, method: str) -> None:
    """Adds the options of a single run: --method, the knobs, --seed, --compare and --out."""
    parser.add_argument("--method", default=method, help=f"a method or preset, or auto: the fastest exact one here ({method})")
    add_knobs(parser)
    parser.add_argument("--seed", type=check_seed, default=0)
    parser.add_argument("--compare", action="store_true", help="also time plain decoding")
    parser.add_argument("--out", type=file_path, help="copy the run's files into this folder")


def add_json(parser: CommandParser) -> None:
    """Adds --json."""
    parser.add_argument("--json", action="store_true", help="print one JSON value as the last line")


def add_size(parser: CommandParser) -> None:
    """Adds --size of a picture."""
    parser.add_argument("--size", type=whole(1, LARGEST_SIDE), metavar="PIXELS", help="side length of the picture (128)")


def add_faces(parser: CommandParser) -> None:
    """Adds --faces and --about of a mesh."""
    parser.add_argument("--faces", type=whole(1, MOST_FACES), metavar="N", help="the most faces of a mesh (unlimited)")
    parser.add_argument("--about", type=whole(1, MOST_FACES), metavar="N", help="number of faces that a mesh should have (any)")


def add_source(parser: CommandParser) -> None:
    """Adds --from, --at and --token, which continue a saved run."""
    parser.add_argument("--from", dest="source", type=file_path, metavar="RUN", help="continue a saved run, whose folder this is")
    parser.add_argument("--at", type=whole(1, LARGEST_SIDE**2), metavar="TOKENS", help="with --from: number of its tokens to keep")
    parser.add_argument("--token", type=whole(0, 2**31 - 1), metavar="ID", help="with --from: a token to add after them")


# --- from options to values -------------------------------------------------------------------------------------------


def load_backbone(options: argparse.Namespace) -> Any:
    """Loads the model of --backbone on --device, with the fastest threads and, for --dtype auto, the fastest dtype."""
    from engine.backbones import resolve
    from engine.tuning.prepare import prepare

    return prepare(*resolve(options.backbone), options.device, options.dtype, weights=options.weights)


def check_source(parser: CommandParser, options: argparse.Namespace, kept: Mapping[str, str]) -> None:
    """Ends the command if --from, --at and --token do not belong together. kept : of each option that keeps the run's value, its name in
    words"""
    if options.source is None and (options.at or options.token is not None):
        parser.error("--at and --token need --from with the folder of a saved run")
    if options.source and not options.at:
        parser.error("--from needs --at with the number of tokens to keep")
    for name in changed_options(parser, options) & kept.keys() if options.source else ():
        parser.error(f"--from keeps the {kept[name]} of the run; leave --{name.replace('_', '-')} out")


def check_method(options: argparse.Namespace) -> None:
    """Raises NotSupported or BadKnob for a wrong --method, --set or --verify, before a model is loaded."""
    from engine.errors import BadKnob
    from engine.methods import AUTO, find

    if options.method != AUTO:
        knobs_of(options, *find(options.method))
    elif options.set:
        raise BadKnob(f"{AUTO} chooses the knobs itself. To set them, name a method, such as --method sjdpp.")


def method_of(options: argparse.Namespace, backbone: Any) -> tuple[Any, dict[str, Any]]:
    """The method of --method and its knobs. Replaces `auto` in the options with its choice on this machine."""
    from engine.methods import AUTO, find
    from engine.tuning.auto import resolve

    if options.method == AUTO:
        options.method = resolve(backbone)
    method, preset = find(options.method)
    return method, knobs_of(options, method, preset)


def sampling_of(options: argparse.Namespace) -> dict[str, float]:
    """Sampling values that the user set; raises BadPrompt for values out of range."""
    from engine.core import Sampling
    from engine.sampling import with_values

    values = {name: getattr(options, name) for name in SAMPLING if getattr(options, name, None) is not None}
    with_values(Sampling(), values)
    return values


def pairs_of(options: argparse.Namespace) -> dict[str, str]:
    """The knobs of --set; raises BadKnob for text that is not NAME=VALUE."""
    from engine.errors import BadKnob

    pairs = {}
    for pair in options.set:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise BadKnob(f"--set needs NAME=VALUE, not '{pair}'.")
        pairs[name.strip()] = value.strip()
    return pairs


def knobs_of(options: argparse.Namespace, method: Any, preset: Mapping[str, Any]) -> dict[str, Any]:
    """Knob values of a preset, overridden by --set and --verify; raises BadKnob for an unknown name or value."""
    from engine.core import PLAIN, KnobArray
    from engine.errors import BadKnob

    knobs = dict(preset) | pairs_of(options)
    if options.verify and any(k.name == "verify" for k in method.knobs):
        knobs["verify"] = options.verify
    elif options.verify and method.name != PLAIN:
        raise BadKnob(f"{method.name} has no verification mode; leave --verify out.")
    KnobArray(method.knobs, knobs)
    return knobs


def changed_options(parser: CommandParser, options: argparse.Namespace) -> set[str]:
    """Names of the options that differ from their defaults."""
    return {name for name, value in vars(options).items() if value != parser.get_default(name)}


def refuse_unused(parser: CommandParser, options: argparse.Namespace, used: Sequence[str], why: str) -> None:
    """Raises ForetokenError for an option that a mode of the command does not use. why : the mode, in messages"""
    if unused := sorted(changed_options(parser, options) - set(used)):
        parser.error(f"{why} does not use --{unused[0].replace('_', '-')}")
