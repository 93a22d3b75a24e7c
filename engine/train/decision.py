"""Whether a training's weights take the place of the shipped ones, and where a recipe writes.

They do if held-out numbers say that they are not worse. `--export` overrules the numbers, and `--out` writes to a folder of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BadKnob
from engine.files import ASIDE, PART
from engine.networks.card import CARD
from engine.networks.shipping import ship
from engine.train.loop import Options, Training


@dataclass(frozen=True)
class Measure:
    """The one held-out number of a recipe that decides; of a list its mean does."""

    name: str
    higher: bool = False  # is better

    def of(self, row: Mapping[str, Any]) -> float | None:
        """The number in a row of held-out numbers; None if it was not taken."""
        found = row.get(self.name)
        numbers = found if isinstance(found, list) else [found]
        known = numbers and all(isinstance(n, int | float) for n in numbers)
        return sum(numbers) / len(numbers) if known else None

    def worse(self, new: float, old: float) -> bool:
        """Whether a new number is worse than an old one."""
        return new < old if self.higher else new > old


def may_ship(training: Training, options: Options, measure: Measure, shipped: Mapping[str, Any] | None, incomparable: str = "") -> bool:
    """Whether to write the weights; prints why not.

    shipped : the row of the card that would be replaced, None if there is none or if it does not fit its base any more
    incomparable : why the row's numbers say nothing about these weights, in words; "" if they do
    """
    why = obstacle(training, options, measure, shipped, incomparable)
    if why:
        print(f"{training.name}: not shipped, because {why}. --export writes the checkpoint all the same.", flush=True)
    return not why


def obstacle(training: Training, options: Options, measure: Measure, shipped: Mapping[str, Any] | None, incomparable: str) -> str:
    """Why the weights are not shipped, in words; "" if they may be. Raises BadKnob for an export of nothing."""
    if options.export and not training.resumed:
        raise BadKnob(f"There is no checkpoint {training.path} to export. Train first: leave --export out.")
    if options.export:
        return ""
    if training.step == training.first and not training.spent:
        return "no step was made"
    if training.stopped:
        return "the training was stopped before its end"
    ours = measure.of(training.curve[-1]) if training.curve else None
    if ours is None or not math.isfinite(ours):
        return f"its held-out {measure.name} is not a finite number"
    if options.out or shipped is None:
        return ""
    if incomparable:
        return incomparable
    theirs = measure.of(shipped.get("held_out", {}))
    if theirs is not None and measure.worse(ours, theirs):
        return f"its held-out {measure.name} is {ours:.4g} and that of the shipped weights {theirs:.4g}"
    return ""


def target(options: Options, folder: Path) -> Path:
    """The model folder that a recipe writes: the shipped one, or --out, which begins as a copy of it. Raises BadKnob for an --out that is
    the shipped one, lies in it, or holds something else."""
    if options.out is None:
        return folder
    out, own = options.out.resolve(), folder.resolve()
    if out == own or own in out.parents:
        raise BadKnob(f"--out {options.out} is in the shipped folder. Choose another one, or leave --out out.")
    if out.exists() and not out.is_dir():
        raise BadKnob(f"--out {options.out} is a file. Choose a folder.")
    here = [path.name for path in out.iterdir() if not path.name.startswith((PART, ASIDE))] if out.exists() else []
    if here and CARD not in here:
        raise BadKnob(f"--out {options.out} holds other files ({here[0]}). Choose a new folder, or one that a training wrote.")
    return out


def prepare(options: Options, folder: Path) -> Path:
    """`target`, which holds everything of the shipped folder afterwards."""
    out = target(options, folder)
    if out != folder and not (out / CARD).exists():
        if out.exists():
            out.rmdir()  # empty
        ship(out, {}, {}, base=folder)
    return out


def needs_out(options: Options, strange: Mapping[str, bool]) -> None:
    """Raises BadKnob if a variant of what is shipped (option: whether it is asked for) would be written over it."""
    asked = [option for option, given in strange.items() if given]
    if asked and options.out is None:
        raise BadKnob(f"{' '.join(asked)} makes a variant of what is shipped. Say where to write it: --out DIR.")
