"""Decides if trained weights replace the shipped ones, and where a recipe writes.

They do if their held-out number is not worse. `--export` skips this check, and `--out` writes to another folder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BadKnob
from engine.files import ASIDE, PART
from engine.networks.card import CARD
from engine.networks.shipping import ship
from research.train.loop import LossOf, RecipeOptions, Training


@dataclass(frozen=True)
class Measure:
    """The held-out number that decides whether a recipe's weights ship; for a list, its mean."""

    name: str
    higher: bool = False  # is better

    def of(self, row: Mapping[str, Any]) -> float | None:
        """Returns the number from a row of held-out numbers; None if the row does not have it."""
        value = row.get(self.name)
        numbers = value if isinstance(value, list) else [value]
        known = numbers and all(isinstance(n, int | float) for n in numbers)
        return sum(numbers) / len(numbers) if known else None

    def is_worse(self, new: float, old: float) -> bool:
        """Returns True if a new number is worse than an old one."""
        return new < old if self.higher else new > old


def train_weights(
    training: Training,
    options: RecipeOptions,
    loss_of: LossOf,
    held_out: Callable[[], dict],
    measure: Measure,
    shipped: Mapping[str, Any] | None,
    incomparable: str = "",
    every: float = 300,
) -> bool:
    """Trains, or only exports a checkpoint; returns True if the weights should be written. Arguments: see `Training.run`, `may_ship`."""
    if not options.export:
        training.run(loss_of, held_out, every)
    return may_ship(training, options, measure, shipped, incomparable)


def may_ship(
    training: Training, options: RecipeOptions, measure: Measure, shipped: Mapping[str, Any] | None, incomparable: str = ""
) -> bool:
    """Returns True if the weights should be written; prints the reason if not.

    shipped : the card entry that would be replaced; None if there is none, or if it no longer fits its base
    incomparable : why its numbers cannot be compared with those of these weights; "" if they can
    """
    why = obstacle(training, options, measure, shipped, incomparable)
    if why:
        print(f"{training.name}: not shipped, because {why}. To write the checkpoint anyway, use --export.", flush=True)
    return not why


def obstacle(training: Training, options: RecipeOptions, measure: Measure, shipped: Mapping[str, Any] | None, incomparable: str) -> str:
    """Returns why the weights are not shipped, "" if they may be. Raises BadKnob for an export without a checkpoint."""
    if options.export and not training.resumed:
        raise BadKnob(f"There is no checkpoint {training.path} to export. Train first, without --export.")
    if options.export:
        return ""
    if training.step == training.first:
        return "it made no step"
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
    if theirs is not None and measure.is_worse(ours, theirs):
        return f"its held-out {measure.name} is {ours:.4g}, which is worse than {theirs:.4g} of the shipped weights"
    return ""


def target(options: RecipeOptions, folder: Path) -> Path:
    """Returns the model folder that a recipe writes: the shipped one, or --out, which starts as a copy of it. Raises BadKnob if --out is
    the shipped folder, lies inside it, or contains other files."""
    if options.out is None:
        return folder
    out, own = options.out.resolve(), folder.resolve()
    if out == own or own in out.parents:
        raise BadKnob(f"--out {options.out} is in the shipped folder. Choose another folder, or train without --out.")
    if out.exists() and not out.is_dir():
        raise BadKnob(f"--out {options.out} is a file. Choose a folder.")
    here = [path.name for path in out.iterdir() if not path.name.startswith((PART, ASIDE))] if out.exists() else []
    if here and CARD not in here:
        raise BadKnob(f"--out {options.out} contains other files ({here[0]}). Choose a new folder, or one that a training wrote.")
    return out


def prepare(options: RecipeOptions, folder: Path) -> Path:
    """Returns `target`, after copying the shipped folder to --out if needed."""
    out = target(options, folder)
    if out != folder and not (out / CARD).exists():
        if out.exists():
            out.rmdir()  # empty
        ship(out, {}, {}, base=folder)
    return out


def require_out(options: RecipeOptions, strange: Mapping[str, bool]) -> None:
    """Raises BadKnob if a variant (by option: True if it is set) would overwrite the shipped weights."""
    options_set = [option for option, is_set in strange.items() if is_set]
    if options_set and options.out is None:
        raise BadKnob(f"{' '.join(options_set)} makes a variant of the shipped weights. Write it to another folder with --out DIR.")
