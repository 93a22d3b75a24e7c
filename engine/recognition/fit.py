"""How well a mesh fits its input, in one line: good, fair, or foreign ("outside what lowpoly knows").

The truth is the distance of the mesh over the sampling floor (engine/mesh/distance.py) on the surface that the input was taken from,
sampled densely: good is at most GOOD times the floor, foreign more than FOREIGN times. Where the input is a mesh a run measures just that.
Of a cloud, a scan above all, it sees only the points, whose own floor is high. There a linear model guesses the logarithm of the true ratio
from what a run sees: distances both ways, normals, and whether the judge of meshes names the same thing in the input and in the mesh.
`launch.py train mesh-fit` measures a decoder and computes the model and the two limits between the answers; none of it is set by hand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import MissingWeights
from engine.networks.weights import MODELS, need, read_card
from engine.recognition.kind import MeshJudge

FOLDER = MODELS / "mesh_fit"
GOOD, FOREIGN = 2.5, 5.0  # times the floor, of the truth
VERDICTS = ("good", "fair", "foreign")
FEATURES = ("over_floor", "chamfer", "added", "missed", "farthest", "normals", "alike", "doubt")
NAMED = 6  # families that the sentence names
TINY = 1e-6


@dataclass(frozen=True)
class Fit:
    """verdict : one of VERDICTS; over_floor : the expected distance over the floor; text : the line; the others : what the judge names."""

    verdict: str
    over_floor: float
    text: str
    input_kind: str
    mesh_kind: str

    def row(self) -> dict[str, Any]:
        """The entry of a run's JSON."""
        return {"verdict": self.verdict, "over_floor": round(self.over_floor, 2), "text": self.text} | {
            "input_kind": self.input_kind, "mesh_kind": self.mesh_kind,
        }  # fmt: skip


def truth(over_floor: float) -> str:
    """The true answer for a distance over the floor, measured densely."""
    return VERDICTS[int(over_floor > GOOD) + int(over_floor > FOREIGN)]


def evidence(apart: Mapping[str, Any], seen: np.ndarray, made: np.ndarray) -> dict[str, float]:
    """The FEATURES of a result.

    apart : its `distance` to the input as the run has it; seen, made : the judge's chances [K] for the input and for the mesh
    """
    half = max(apart["floor"] / 2, TINY)
    known = apart["normal_consistency"] is not None and apart["floor_normal_consistency"] is not None
    return {
        "over_floor": math.log(max(apart["chamfer"], TINY) / (2 * half)),
        "chamfer": math.log(max(apart["chamfer"], TINY)),
        "added": math.log(max(apart["added"], TINY) / half),
        "missed": math.log(max(apart["missed"], TINY) / half),
        "farthest": math.log(max(apart["hausdorff"], TINY) / max(apart["floor_hausdorff"], TINY)),
        "normals": apart["floor_normal_consistency"] - apart["normal_consistency"] if known else 0.0,
        "alike": float(np.sqrt(seen * made).sum()),
        "doubt": float(-(seen * np.log(seen + TINY)).sum()),
    }


@dataclass(frozen=True)
class FitModel:
    """The linear model of a decoder, for clouds.

    weights : of FEATURES and of 1; limits : of the guess, between good and fair and between fair and foreign, as logarithms
    backbone : the hash of the weights that it was measured with
    """

    weights: tuple[float, ...]
    limits: tuple[float, float]
    backbone: str

    def guess(self, features: Mapping[str, float]) -> float:
        """The logarithm of the distance over the floor that is expected."""
        return float(np.dot(self.weights, [*(features[name] for name in FEATURES), 1.0]))

    def verdict(self, guess: float) -> str:
        """The answer for a guess."""
        return VERDICTS[int(guess > self.limits[0]) + int(guess > self.limits[1])]


def judged(
    model: FitModel, judge: MeshJudge, backbone: Any, points: np.ndarray, mesh: tuple[np.ndarray, np.ndarray], apart: Mapping[str, Any]
) -> Fit | None:
    """The line about a finished mesh; None if it has no area.

    points : [N, 6], the input in the model's frame; mesh : vertices and faces in the same frame; apart : the distance of the two
    Raises MissingWeights if the model was measured with other weights than the backbone's.
    """
    made = judge.chances_of_mesh(*mesh)
    if made is None or apart["chamfer"] is None:
        return None
    if model.backbone != backbone.base_hash:
        raise MissingWeights(
            f"How well meshes fit was measured with the weights {model.backbone}, and these are {backbone.base_hash}. "
            "Measure again: python launch.py train mesh-fit."
        )
    seen = judge.chances(points)
    if apart["sampled"] == "surface":
        ratio = apart["chamfer"] / apart["floor"]
        verdict = truth(ratio)
    else:
        guess = model.guess(evidence(apart, seen, made))
        verdict, ratio = model.verdict(guess), math.exp(guess)
    text = sentence(verdict, ratio, backbone.name, backbone.card.get("families", ()))
    return Fit(verdict, ratio, text, judge.name(seen), judge.name(made))


def sentence(verdict: str, ratio: float, name: str, families: Sequence[str]) -> str:
    """The line for an answer. ratio : the expected distance over the floor; families : what the backbone was taught"""
    far = f"about {ratio:.1f} times the sampling floor" if ratio < 10 else "more than 10 times the sampling floor"
    if verdict == "good":
        return f"Fit: good. The mesh lies at {far} from its input."
    if verdict == "fair":
        return f"Fit: fair. The mesh lies at {far} from its input: expect missing or bent parts. Another seed may do better."
    return f"Fit: foreign. The mesh lies at {far} from its input: outside what {name} knows: {known(families)}."


def known(families: Sequence[str]) -> str:
    """The names of families in the plural, the first few and how many more."""
    said = [plural(name) for name in families if name != "assembly"]
    more = len(said) - NAMED
    return ", ".join(said[:NAMED]) + (f" and {more} more kinds of things" if more > 0 else "")


def plural(name: str) -> str:
    """The plural of a family's name."""
    word = name.replace("_", " ")
    if word in ("fish", "stairs"):
        return word
    if word.endswith("shelf"):
        return word[:-1] + "ves"
    return word + ("es" if word.endswith(("s", "x", "ch", "sh")) else "s")


def load(folder: Path = FOLDER) -> FitModel:
    """The model of a folder; raises MissingWeights."""
    row = need(read_card(folder), "fit", dict, folder)
    weights = need(row, "weights", dict, folder, of=float)
    limits = need(row, "limits", dict, folder, of=float)
    ordered = tuple(float(need(weights, name, float, folder)) for name in (*FEATURES, "constant"))
    between = float(need(limits, "good", float, folder)), float(need(limits, "foreign", float, folder))
    return FitModel(ordered, between, need(row, "backbone", str, folder))


@cache
def shipped() -> FitModel:
    """The shipped model, loaded once."""
    return load()
