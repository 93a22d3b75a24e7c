"""Measures how far a decoder's meshes are from their inputs, and computes the model that says it in one line: `launch.py train mesh-fit`.

Inputs are held-out shapes of all families and, with --packs, files of asset packs, given as surfaces, clouds and scans in turns; each is
decoded plainly once (research/survey.py). Of clouds and scans a ridge regression then predicts the logarithm of the true distance over the
floor; of a surface a run measures that itself. The limits
between good, fair and foreign are those of the truth, moved where needed so that of the predictions on unseen inputs (five folds) at most
SLIP of the good are called foreign, and at most SLIP of the foreign good. Records are kept beside the checkpoints, so a stopped
measurement goes on.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from engine.backbones import lowpoly
from engine.errors import BadFile, BadKnob
from engine.files import write_text
from engine.machine import processor
from engine.networks.weights import ship
from engine.recognition import fit, kind
from engine.recognition.fit import FEATURES, FOREIGN, GOOD, FitModel, truth
from research.survey import KINDS, Record, Subject, assets, shapes, survey
from research.train import loop
from research.train.decision import prepare, target

FOLDS, RIDGE = 5, 3.0
SLIP = 0.1  # share of good inputs called foreign, and of foreign ones called good, at most
ENDS = math.log(0.8), math.log(20.0)  # of the truth; how much farther than that a mesh is says nothing
FEWEST = 20  # records with a mesh


@dataclass
class Options(loop.Options):
    """The options of the measurement."""

    backbone: Path | None = None  # a folder of lowpoly's weights; None: the shipped ones
    packs: list[Path] = field(default_factory=list)
    each: int = 3  # shapes of every family
    count: int = 150  # files of the packs

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.each, self.count) < 1:
            raise BadKnob("--each and --count are numbers of inputs. Give at least 1.")

    @staticmethod
    def parser(name: str) -> argparse.ArgumentParser:
        """Returns the parser of `launch.py train mesh-fit`."""
        p = loop.Options.parser(name)
        p.add_argument("--backbone", type=Path, metavar="DIR", help="lowpoly's weights (default: the shipped ones)")
        p.add_argument("--packs", type=Path, nargs="+", default=[], metavar="DIR", help="folders of assets to measure too")
        p.add_argument("--each", type=int, default=3, help="held-out shapes of every family (3)")
        p.add_argument("--count", type=int, default=150, help="files of the packs, not selected (150)")
        return p


class Log:
    """The records so far, a line of JSON each, for one decoder and one list of inputs."""

    def __init__(self, head: dict[str, Any], fresh: bool):
        self.path = loop.CHECKPOINTS / f"mesh-fit-{head['weights']}.jsonl"
        self.head, self.done = json.dumps(head), []
        if not fresh and self.path.exists():
            first, *lines = self.path.read_text(encoding="utf-8").splitlines() or [""]
            if first == self.head:
                self.done = [_record(line, self.path) for line in lines]

    def add(self, record: Record) -> None:
        """Appends a record; the file is whole at any moment."""
        self.done.append(record)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, "\n".join([self.head, *(json.dumps(asdict(each)) for each in self.done)]) + "\n")


def _record(line: str, path: Path) -> Record:
    try:
        return Record(**json.loads(line))
    except (ValueError, TypeError) as e:
        raise BadFile(f"{path} is damaged ({type(e).__name__}). Remove it, or start over with --fresh.") from e


def subjects(options: Options, families: Sequence[str]) -> Iterator[Subject]:
    """Yields all inputs in their order."""
    kinds = tuple(KINDS)
    found = [shapes(families, options.each, kinds)]
    if options.packs:
        found.append(assets(options.packs, options.count, kinds=kinds))
    return chain(*found)


def regression(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns the weights [F + 1] of a ridge regression, the constant last. rows : [N, F]; wanted : [N]"""
    middle, spread = rows.mean(0), rows.std(0) + 1e-6
    scaled = (rows - middle) / spread
    weights = np.linalg.solve(scaled.T @ scaled + RIDGE * np.eye(rows.shape[1]), scaled.T @ (wanted - wanted.mean())) / spread
    return np.append(weights, wanted.mean() - weights @ middle)


def unseen_guesses(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns a prediction [N] for each row by a regression on the other folds."""
    fold = np.random.default_rng(0).permutation(len(rows)) % FOLDS
    found = np.empty(len(rows))
    for i in range(FOLDS):
        weights = regression(rows[fold != i], wanted[fold != i])
        found[fold == i] = rows[fold == i] @ weights[:-1] + weights[-1]
    return found


def limits_of(guesses: np.ndarray, truths: Sequence[str]) -> tuple[float, float]:
    """Returns the limits of guesses between good and fair and between fair and foreign."""
    answers = np.array(truths)
    good, foreign = np.sort(guesses[answers == "good"]), np.sort(guesses[answers == "foreign"])
    low, high = math.log(GOOD), math.log(FOREIGN)
    if len(foreign):
        low = min(low, float(foreign[int(SLIP * len(foreign))]) - 1e-6)
    if len(good):
        high = max(high, float(good[len(good) - 1 - int(SLIP * len(good))]))
    return low, max(low, high)


def shares(model: FitModel, guesses: np.ndarray, truths: Sequence[str]) -> dict[str, Any]:
    """Returns how often the answers on unseen inputs are right, and the two mistakes that count."""
    said = np.array([model.verdict(guess) for guess in guesses])
    answers = np.array(truths)

    def share(of: str, called: str) -> float | None:
        return round(float((said[answers == of] == called).mean()), 4) if (answers == of).any() else None

    return {
        "right": round(float((said == answers).mean()), 4),
        "good_called_foreign": share("good", "foreign"),
        "foreign_called_good": share("foreign", "good"),
        "inputs": {name: int((answers == name).sum()) for name in fit.VERDICTS},
    }


def computed(records: Sequence[Record], backbone: str) -> tuple[FitModel, dict[str, Any]]:
    """Returns the model of some records, and its numbers on unseen inputs in all, of clouds and of scans. Raises BadKnob for too few."""
    some = [r for r in records if r.evidence is not None and r.kind != "surface"]
    if len(some) < FEWEST:
        raise BadKnob(f"{len(some)} clouds gave a mesh, too few to compute limits from. Measure more with --each or --packs.")
    rows = np.array([[r.evidence[name] for name in FEATURES] for r in some])
    wanted = np.log([r.over_floor for r in some]).clip(*ENDS)
    truths = [truth(r.over_floor) for r in some]
    guesses = unseen_guesses(rows, wanted)
    model = FitModel(tuple(regression(rows, wanted).tolist()), limits_of(guesses, truths), backbone)
    numbers = shares(model, guesses, truths) | {"without_face": sum(r.evidence is None for r in records)}
    for name in ("cloud", "scan"):
        own = [i for i, r in enumerate(some) if r.kind == name]
        numbers[name] = shares(model, guesses[own], [truths[i] for i in own]) if own else None
    return model, numbers


def command_of(options: Options) -> str:
    """Returns the command that measures the same again."""
    packs = f" --count {options.count} --packs {' '.join(p.name for p in options.packs)}" if options.packs else ""
    return f"python launch.py train mesh-fit --each {options.each}{packs}"


def main(options: Options) -> None:
    """Measures what is not measured yet, and writes the model."""
    device = options.device
    folder = target(options, fit.FOLDER)
    backbone = lowpoly.load(None if options.backbone is None else str(options.backbone), device)
    weights = str(backbone.base_hash)
    judge = kind.load()
    log = Log({"weights": weights, "each": options.each, "packs": [p.name for p in options.packs], "count": options.count}, options.fresh)
    for _, record, _ in survey(backbone, judge, subjects(options, backbone.card["families"]), backbone.sampling, skip=len(log.done)):
        log.add(record)
    model, numbers = computed(log.done, weights)
    print(json.dumps(numbers), flush=True)
    card = {
        "name": "mesh_fit",
        "licence": "Numbers: Apache-2.0. Computed from meshes of this project's decoder; no third-party mesh is contained.",
        "data": f"research/survey.py: {options.each} held-out shapes of every family"
        + (f", and files of {', '.join(p.name for p in options.packs)}" if options.packs else ""),
        "fit": {
            "command": command_of(options),
            "device": processor(),
            "backbone": weights,
            "good": GOOD,
            "foreign": FOREIGN,
            "weights": dict(zip((*FEATURES, "constant"), model.weights, strict=True)),
            "limits": dict(zip(("good", "foreign"), model.limits, strict=True)),
            "held_out": numbers,
        },
    }
    ship(folder if folder == fit.FOLDER else prepare(options, fit.FOLDER), {}, card)
