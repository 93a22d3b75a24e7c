"""The columns of `--judge`: share of results that match their prompts, by the picture judge and the mesh judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine.errors import NotSupported
from engine.mesh.fit import VERDICTS, verdict_of
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import Judge, SceneVerdict, compare
from engine.run import Run
from engine.words.world import Scene
from research.bench.mesh_inputs import BenchMesh, mesh_distances
from research.mesh_judge import MeshJudge
from research.worlds.emoji_scenes import LESSONS, SceneSettings

ASPECTS = ("objects", "counts", "relation", "colours", "background", "all")


def judge_of(lessons: SceneSettings) -> Judge:
    """Returns the shipped judge; raises MissingWeights if there is none, NotSupported if it does not know all objects of the lessons."""
    reader = judge.load()
    unknown = [name for name in lessons.objects if name not in reader.names]
    if unknown:
        taught = next((name for name, each in LESSONS.items() if each == lessons), "world")
        raise NotSupported(
            f"The judge does not know {len(unknown)} of the objects that these weights were trained on ({', '.join(unknown[:3])}, ...). "
            f"Train it: python launch.py train judge --lessons {taught}."
        )
    return reader


def picture_columns(reader: Judge, scenes: Sequence[Scene], pictures: dict[str, list[np.ndarray]]) -> dict[str, dict[str, float]]:
    """Returns the columns of each row: the share of correct answers by aspect, and the paired difference to plain decoding ("ar") in the
    share of correct objects, with the half width of its 95 % interval."""
    verdicts = {name: [compare(r, s) for r, s in zip(reader.read(of), scenes, strict=True)] for name, of in pictures.items()}
    return {
        name: shares(verdicts_of_row, scenes) | difference(verdicts_of_row, verdicts["ar"]) for name, verdicts_of_row in verdicts.items()
    }


def shares(verdicts: Sequence[SceneVerdict], scenes: Sequence[Scene]) -> dict[str, float]:
    """Returns the share of correct answers by aspect, among the scenes that have it. "single" is the share of correct objects in scenes
    with one object, "pair" the share of correct objects and relations in scenes with two groups."""
    columns = {aspect: share([getattr(verdict, aspect) for verdict in verdicts]) for aspect in ASPECTS}
    columns["single"] = share([v.objects for v, s in zip(verdicts, scenes, strict=True) if len(s.boxes) == 1])
    columns["pair"] = share([v.objects and v.relation is not False for v, s in zip(verdicts, scenes, strict=True) if len(s.groups) == 2])
    return columns


def share(answers: list[bool | None]) -> float:
    """Returns the share of True among the answers that are not None; NaN if there are none."""
    known = [a for a in answers if a is not None]
    return round(sum(known) / len(known), 4) if known else float("nan")


def difference(verdicts: Sequence[SceneVerdict], plain: Sequence[SceneVerdict]) -> dict[str, float]:
    """Returns the paired difference to plain decoding in the share of correct objects, and the half width of its 95 % interval."""
    paired = np.array([a.objects - b.objects for a, b in zip(verdicts, plain, strict=True)], float)
    return {"objects_more": round(float(paired.mean()), 4), "half_width": round(float(1.96 * paired.std() / np.sqrt(len(paired))), 4)}


def mesh_columns(reader: MeshJudge, subjects: Sequence[BenchMesh], runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the columns of a row: the share of meshes in which the judge sees their shape's family (for files: the family that it sees in
    the input), the counts of fit verdicts, and the most frequent names."""
    names = [reader.name(reader.chances_of_mesh(m.vertices, m.faces)) for m in (run.result() for run in runs)]
    wanted = [s.family or reader.name(reader.chances(s.points.numpy())) for s in subjects]
    over = [n.ours["chamfer"] / n.ours["floor"] for run, s in zip(runs, subjects, strict=True) if (n := mesh_distances(run, s)) is not None]
    return {
        "right_kind": round(float(np.mean([a == b for a, b in zip(names, wanted, strict=True)])), 4),
        "fits": {verdict: sum(verdict_of(x) == verdict for x in over) for verdict in VERDICTS},
        "named": dict(Counter(name for name in names if name).most_common(3)),
    }
