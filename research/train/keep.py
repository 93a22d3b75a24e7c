"""Keeps the weights of trainings that are not good enough to ship: `launch.py train keep NAME`.

Checkpoints stay on the machine that made them. `keep` writes the averaged weights of one to assets/unfinished/NAME, in the eight bits of
shipped weights, with steps, minutes and curve, so that they can be committed. A training without a checkpoint goes on from there instead of
from the shipped weights, with new optimisers. Remove the folder when the weights are shipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch

from engine.errors import BadFile, BadKnob
from engine.networks.shipping import ship
from engine.networks.weights import split
from research.train import loop, unfinished
from research.train.unfinished import WEIGHTS


@dataclass
class Options:
    """The options of this command."""

    name: str = ""

    @staticmethod
    def parser(name: str) -> loop.Parser:
        """Returns the parser of `launch.py train keep`."""
        p = loop.Parser(f"launch.py train {name}")
        p.add_argument("name", nargs="?", default="", metavar="NAME", help="of a checkpoint: .training/NAME.pt")
        return p


def main(options: Options) -> None:
    """Writes the folder; raises BadKnob if there is no such checkpoint."""
    names = sorted(path.stem for path in loop.CHECKPOINTS.glob("*.pt"))
    if options.name not in names:
        raise BadKnob(f"There is no checkpoint '{options.name}'. There are: {', '.join(names) or 'none'}.")
    state = checkpoint(loop.CHECKPOINTS / f"{options.name}.pt")
    row = {"name": options.name, "steps": state["step"], "minutes": round(state["seconds"] / 60, 1), "curve": state["curve"]}
    files = split(state["averaged"], WEIGHTS)
    folder = unfinished.FOLDER / options.name
    ship(folder, files, row | {"files": len(files)})
    print(f"{folder}: step {row['steps']}, {row['minutes']} minutes", flush=True)


def checkpoint(path: Path) -> dict[str, Any]:
    """Returns what `Training.save` wrote; raises BadFile for anything else."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {key: state[key] for key in ("averaged", "step", "seconds", "curve")}
    except (OSError, RuntimeError, LookupError, TypeError, EOFError, UnpicklingError) as e:
        raise BadFile(f"The checkpoint {path} cannot be read ({type(e).__name__}). Train again, or restore it.") from e
