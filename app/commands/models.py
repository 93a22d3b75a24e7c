"""`launch.py models`: lists the models; `models custom-generate DIR` writes our methods as a folder for transformers' custom_generate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json, file_path
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of `models` alone."""
    p = Parser("models", "Lists the models and whether their weights are here. 'models custom-generate DIR' has its own --help.")
    add_json(p)
    return p


def custom_generate_parser() -> Parser:
    """The parser of `models custom-generate`."""
    p = Parser("models custom-generate", "Writes our methods as a folder that transformers loads: model.generate(custom_generate=DIR).")
    p.add_argument("folder", type=file_path, metavar="DIR", help="a new folder; its name is what people will type on the hub")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Runs the action, or lists."""
    actions = {"custom-generate": custom_generate}
    if arguments and arguments[0] in actions:
        return actions[arguments[0]](arguments[1:])
    options = parser().read(arguments)
    from engine.backbones import BACKBONES

    found = {name: row_of(name) for name in BACKBONES}
    for name, row in found.items():
        print(f"{name:12} {row['how']}" + (f", sizes {row['sizes']}" if "sizes" in row else ""))
    if options.json:
        print_json(found)
    return 0


def row_of(name: str) -> dict[str, Any]:
    """The JSON row of a backbone: whether it is ready and how to get it; for damaged weights, the error."""
    from engine.errors import ForetokenError
    from engine.networks.weights import MODELS, read_card

    if name == "toy":
        return {"ready": True, "how": "shipped"}
    if name == "lowpoly_lora":
        is_here = (MODELS / "lowpoly" / "lora_cross" / "adapter_config.json").exists()
        return {"ready": is_here, "how": "shipped with lowpoly" if is_here else "train it: python launch.py train mesh-heads"}
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


# --- custom-generate --------------------------------------------------------------------------------------------------


def custom_generate(arguments: Sequence[str]) -> int:
    """Writes the folder."""
    options = custom_generate_parser().read(arguments)
    from engine.accelerate import hub

    names = hub.write(options.folder)
    print(f"{options.folder}: {len(names)} files. Use it with")
    print(f'  model.generate(**inputs, custom_generate="{options.folder}", trust_remote_code=True, method="sjdpp", window=32)')
    if options.json:
        print_json({"folder": str(options.folder), "files": names})
    return 0
