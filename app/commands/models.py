"""`launch.py models`: lists the models and whether their weights are here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("models", "Lists the models and whether their weights are here.")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints one line per backbone."""
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
