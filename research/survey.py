"""Plain decoding of many inputs with a measurement of each: held-out shapes of all families, and the files of asset packs.

Benchmarks and the recipe of the fit's model read the same records. An input is given to the decoder as a surface (16,384 points), as a
cloud (2,048) or as a scan (2,048, degraded, without the normals that it lost); the truth is always measured on the surface.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine.backbones.lowpoly import Lowpoly, Mesh
from engine.core import Prompt, Sampling
from engine.errors import BadFile, BadPrompt
from engine.mesh.distance import distance
from engine.mesh.frame import centred
from engine.mesh.normals import complete
from engine.mesh.shrinkwrap import shrinkwrapped
from engine.nearest import nearest, tried
from engine.recognition.fit import evidence
from engine.recognition.kind import MeshJudge
from engine.recognition.up import read_standing
from research.worlds.lowpoly_shapes import HELD_OUT_FAMILIES, Shape, degrade, held_out_shape, sample_points

KINDS = {"surface": 16_384, "cloud": 2_048, "scan": 2_048}  # points
SUFFIXES = (".glb", ".obj", ".ply", ".stl")
TOGETHER = 32  # inputs that are decoded at once
BOXES, FAMILIES = "held-out boxes", "held-out families"
Surface = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """An input in the model's frame.

    source : BOXES, FAMILIES, or the name of a folder of files; family : "" for a file
    surface : vertices and faces of the truth; points : [N, 6] float32, what the decoder gets; kind : one of KINDS
    """

    name: str
    source: str
    family: str
    surface: Surface
    points: np.ndarray
    kind: str = "surface"

    @property
    def seen(self) -> Surface | np.ndarray:
        """What a run can compare its mesh with."""
        return self.surface if self.kind == "surface" else self.points


@dataclass(frozen=True)
class Record:
    """What became of a subject: how far the mesh is from the truth, over the floor (None: no face); the judge's names for the input and the
    mesh; and what a run sees of it (`evidence`)."""

    name: str
    source: str
    family: str
    kind: str
    faces: int
    chamfer: float | None
    floor: float | None
    over_floor: float | None
    input_kind: str
    mesh_kind: str
    evidence: dict[str, float] | None

    @property
    def right(self) -> bool:
        """Whether the judge names the family of the shape; for a file, what it names in the input."""
        return self.mesh_kind == (self.family or self.input_kind)

    def row(self) -> dict[str, Any]:
        """The record as a flat row."""
        flat = asdict(self)
        seen = flat.pop("evidence") or {}
        return flat | {"right": self.right} | {f"seen_{name}": round(value, 4) for name, value in seen.items()}


def subject_of(shape: Shape, source: str, number: int, kind: str = "surface") -> Subject:
    """The input for a shape; the number draws its points."""
    rows = np.concatenate([shape.vertices, np.zeros_like(shape.vertices)], 1)
    vertices = centred(rows)[:, :3]
    return Subject(shape.family, source, shape.family, (vertices, shape.faces), given((vertices, shape.faces), kind, number), kind)


def given(surface: Surface, kind: str, number: int) -> np.ndarray:
    """The points [N, 6] of a surface in one of KINDS, cleaned as those of a file are."""
    rng = np.random.default_rng([number, 77])
    points = sample_points(*surface, KINDS[kind], rng)
    if kind != "scan":
        return points
    rows = np.unique(degrade(points, rng), axis=0)
    lost = not np.any(rows[:, 3:])
    normals = complete(rows[:, :3].astype(np.float64), None if lost else rows[:, 3:])[0]
    return np.concatenate([rows[:, :3], normals], 1).astype(np.float32)


def shapes(families: Sequence[str], each: int, kinds: Sequence[str] = ("surface",)) -> Iterator[Subject]:
    """`each` held-out shapes of every taught family, and of every family that was never taught; their kinds take turns."""
    number = 0
    for round_ in range(each):
        for place, family in enumerate((*families, *HELD_OUT_FAMILIES)):
            source = FAMILIES if family in HELD_OUT_FAMILIES else BOXES
            yield subject_of(held_out_shape(family, number), source, number, kinds[(round_ + place) % len(kinds)])
            number += 1


def files(folders: Iterable[Path], count: int) -> list[tuple[str, Path]]:
    """`count` files of asset packs, not selected: all files in a random order that never changes. Raises BadPrompt if there are none."""
    found = [(folder.name, path) for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]
    if not found:
        raise BadPrompt(f"The folders of assets hold no file that ends in {', '.join(SUFFIXES)}. Give other folders with --packs.")
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order[:count]]


def assets(folders: Iterable[Path], count: int, up: str = "auto", kinds: Sequence[str] = ("surface",)) -> Iterator[Subject]:
    """Inputs of `count` files; one that cannot be read, or has no faces, is named on the terminal and left out."""
    for number, (source, path) in enumerate(files(folders, count)):
        try:
            read = read_standing(path, up)
        except BadFile as e:
            print(e, file=sys.stderr)
            continue
        if read.surface is None:
            print(f"{path.name} has no faces and is left out.", file=sys.stderr)
            continue
        surface = read.frame.to_model(read.surface[0]), read.surface[1]
        kind = kinds[number % len(kinds)]
        yield Subject(path.stem, source, "", surface, given(surface, kind, number), kind)


def measured(
    backbone: Lowpoly,
    judge: MeshJudge,
    subjects: Sequence[Subject],
    first: int,
    sampling: Sampling,
    faces: int | None = None,
    best_of: int = 1,
    shrinkwrap: bool = False,
) -> list[tuple[Record, Mesh]]:
    """The records of subjects that are decoded plainly together, and their meshes: each the nearest to its points of `best_of` seeds. The
    seeds are `best_of` times the number of the subject (first, first + 1, ...), and those that follow.

    shrinkwrap : the vertices are then moved to the points
    """
    clouds = [Prompt(points=torch.from_numpy(s.points), size=faces, sampling=sampling) for s in subjects]
    rounds = [tried([replace(p, seed=(first + i) * best_of + each) for i, p in enumerate(clouds)], backbone) for each in range(best_of)]
    meshes = [nearest(of).mesh for of in zip(*rounds, strict=True)]
    if shrinkwrap:
        meshes = [replace(m, vertices=shrinkwrapped(m.vertices, m.faces, s.points)) for m, s in zip(meshes, subjects, strict=True)]
    return [(record_of(judge, subject, mesh), mesh) for subject, mesh in zip(subjects, meshes, strict=True)]


def record_of(judge: MeshJudge, subject: Subject, mesh: Mesh) -> Record:
    """The record of a subject and the mesh that was made of it."""
    result = mesh.vertices, mesh.faces
    looks, made = judge.chances(subject.points), judge.chances_of_mesh(*result)
    true = distance(result, subject.surface)
    seen = true if subject.kind == "surface" else distance(result, subject.seen)
    whole = made is not None and true["chamfer"] is not None and seen["chamfer"] is not None
    return Record(
        subject.name, subject.source, subject.family, subject.kind, len(mesh.faces),
        true["chamfer"] if whole else None, true["floor"] if whole else None, true["chamfer"] / true["floor"] if whole else None,
        judge.name(looks), judge.name(made), evidence(seen, looks, made) if whole else None,
    )  # fmt: skip


def survey(
    backbone: Lowpoly,
    judge: MeshJudge,
    subjects: Iterable[Subject],
    sampling: Sampling,
    faces: int | None = None,
    skip: int = 0,
    best_of: int = 1,
    shrinkwrap: bool = False,
) -> Iterator[tuple[Subject, Record, Mesh]]:
    """Each subject with its record and mesh (see `measured`). skip : the first subjects, which are left out"""
    waiting, seed = islice(subjects, skip, None), skip
    while batch := list(islice(waiting, TOGETHER)):
        found = measured(backbone, judge, batch, seed, sampling, faces, best_of, shrinkwrap)
        for subject, (record, mesh) in zip(batch, found, strict=True):
            over = "no face" if record.over_floor is None else f"{record.over_floor:.1f} times the floor"
            seed += 1
            print(f"{seed}: {subject.source}, {subject.name} ({subject.kind}): {over}, {record.mesh_kind}", file=sys.stderr, flush=True)
            yield subject, record, mesh
