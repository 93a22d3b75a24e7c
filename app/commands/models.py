"""`launch.py models`: lists the models; `models import PATH` adds a checkpoint, `models remove NAME` deletes it, and
`models custom-generate DIR` writes our methods as a folder for transformers' custom_generate."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.commands.options import CommandParser, add_json, add_weights, file_path
from app.commands.report import print_json

WIDTH = 24  # characters of the progress bar
ABOUT = "Lists the models."
ACTIONS = "import PATH [--out DIR] [--weights FORM] [--look] adds a checkpoint; remove NAME deletes an imported one. Each has a --help."


def parser() -> CommandParser:
    """The parser of `models` without an action."""
    p = CommandParser("models", ABOUT, epilog=ACTIONS)
    p.add_argument("action", nargs="?", metavar="import|remove|custom-generate", help="see below")
    add_json(p)
    return p


def import_parser() -> CommandParser:
    """The parser of `models import`."""
    p = CommandParser(
        "models import", "Adds a checkpoint: identifies it, checks names and shapes, writes safetensors. It downloads nothing."
    )
    p.add_argument("path", type=file_path, metavar="PATH", help="a folder, or a file: .safetensors, .bin, .pt, .pth, .ckpt")
    p.add_argument("--out", type=file_path, metavar="DIR", help="write to this folder (default: a folder with its name in the data folder)")
    add_weights(p, None, ("full", "int8", "nf4"), "its files stay as they are, and each start may choose another form (full)")
    p.add_argument("--look", action="store_true", help="only identify it")
    add_json(p)
    return p


def remove_parser() -> CommandParser:
    """The parser of `models remove`."""
    p = CommandParser("models remove", "Deletes an imported model from the data folder; the original files stay.")
    p.add_argument("name", metavar="NAME")
    add_json(p)
    return p


def custom_generate_parser() -> CommandParser:
    """The parser of `models custom-generate`."""
    p = CommandParser(
        "models custom-generate", "Writes our methods as a folder that transformers loads: model.generate(custom_generate=DIR)."
    )
    p.add_argument("folder", type=file_path, metavar="DIR", help="a new folder, with the name that users will type for the hub")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Runs the action, or lists the models."""
    actions = {"import": add, "remove": remove, "custom-generate": custom_generate}
    if arguments and arguments[0] in actions:
        return actions[arguments[0]](arguments[1:])
    own = parser()
    options = own.read(arguments)
    if options.action is not None:
        own.error(f"there is no action '{options.action}'; choose import, remove or custom-generate")
    models = rows()
    for name, row in models.items():
        print(f"{name:12} {row['how']}" + (f", sizes {row['sizes']}" if row.get("sizes") else ""))
    if options.json:
        print_json(models)
    return 0


# --- the list ---------------------------------------------------------------------------------------------------------


def rows() -> dict[str, dict[str, Any]]:
    """JSON rows of all models: shipped, imported, and families that can be imported."""
    from engine.backbones import BACKBONES, imported_folders, names
    from engine.checkpoints.families import FAMILIES

    families = {family.name: family for family in FAMILIES}
    models = {name: row_of(name) for name in names() if name not in families}
    models |= {folder.name: imported_row(folder) for folder in imported_folders()}
    for name in BACKBONES:
        if name in families:
            how = f"import it: python launch.py models import PATH ({families[name].title}: {families[name].source})"
            models[name] = {"ready": False, "how": how, "licence": families[name].licence}
    return models


def imported_row(folder: Path) -> dict[str, Any]:
    """Row of an imported model; the error if its card is damaged."""
    from engine.errors import ForetokenError
    from engine.networks.weights import read_card

    try:
        card = read_card(folder)
    except ForetokenError as e:
        return {"ready": False, "how": str(e)}
    row = {key: card.get(key) for key in ("title", "makes", "parameters", "bytes", "tokens", "sizes", "licence", "weights")}
    form = "" if row["weights"] in (None, "full") else f", {row['weights']} weights"
    return {"ready": True, "how": f"imported, {card.get('title')}{form}", "family": card.get("name")} | row


def row_of(name: str) -> dict[str, Any]:
    """Row of a shipped model: whether it is ready and how to get it; the error if its weights are damaged."""
    from engine.backbones import BACKBONES
    from engine.errors import ForetokenError
    from engine.networks.weights import MODELS, read_card

    own, _, option = name.partition(":")
    if option:
        is_here = importlib.import_module(BACKBONES[own]).has_option(option)
        return {"ready": is_here, "how": f"shipped with {own}" if is_here else "train it: python launch.py train mesh-heads"}
    if not (MODELS / name / "card.json").exists():
        return {"ready": False, "how": f"give a local folder: --backbone PATH ({name})"}
    try:
        card = read_card(MODELS / name)
    except ForetokenError as e:
        return {"ready": False, "how": str(e)}
    row: dict[str, Any] = {"ready": True, "how": "shipped"}
    if "decoder" in card:
        row |= {"sizes": [8 * s for s in card["sides"]], "held_out": card["decoder"]["held_out"]}
    if "model" in card:
        row |= {"families": card["families"], "held_out": card["model"]["held_out"]}
    return row


# --- import and remove ------------------------------------------------------------------------------------------------


def add(arguments: Sequence[str]) -> int:
    """Identifies a checkpoint, then imports it."""
    options = import_parser().read(arguments)
    from dataclasses import asdict

    from engine.converting import convert, identify
    from engine.memory import free, size_text

    checkpoint = identify(options.path)
    print(checkpoint)
    room = free("cpu")
    if room is not None and 2 * checkpoint.parameters > room:
        print(f"  Only {size_text(room)} of memory are free here, less than its weights need. You can import it for a larger machine.")
    folder = None
    if not options.look:
        for progress in convert(options.path, options.out, options.weights):
            show(progress.done, progress.total)
            folder = progress.folder
        name = str(folder) if options.out else checkpoint.name
        print(f"\nImported. Use it: python launch.py --backbone {name}")
    if options.json:
        print_json(asdict(checkpoint) | {"folder": str(folder) if folder else None})
    return 0


def show(done: int, total: int) -> None:
    """Draws the progress bar, on a terminal."""
    if sys.stderr.isatty():
        full = WIDTH * done // max(1, total)
        print(f"\r[{'#' * full}{'.' * (WIDTH - full)}] {100 * done // max(1, total):3} %", end="", file=sys.stderr, flush=True)


def remove(arguments: Sequence[str]) -> int:
    """Deletes an imported model."""
    options = remove_parser().read(arguments)
    from engine.converting import remove as delete

    delete(options.name)
    print(f"Removed {options.name}.")
    if options.json:
        print_json({"removed": options.name})
    return 0


# --- custom-generate --------------------------------------------------------------------------------------------------


def custom_generate(arguments: Sequence[str]) -> int:
    """Writes the folder for transformers."""
    options = custom_generate_parser().read(arguments)
    from engine.transformers import hub

    names = hub.write(options.folder)
    print(f"{options.folder}: {len(names)} files. Use it with")
    print(f'  model.generate(**inputs, custom_generate="{options.folder}", trust_remote_code=True, method="sjdpp", window=32)')
    if options.json:
        print_json({"folder": str(options.folder), "files": names})
    return 0
