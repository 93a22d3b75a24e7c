"""Plain decoding of many inputs with a measurement of each: held-out shapes of all families, and the files of asset packs.

An input is given to the decoder as points drawn from a surface, on which the mesh is then measured.
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
from engine.mesh.shrinkwrap import shrinkwrapped
from engine.nearest import nearest, tried
from engine.recognition.up import read_standing
from research.mesh_judge import MeshJudge
from research.worlds.lowpoly_shapes import HELD_OUT_FAMILIES, Shape, held_out_shape, sample_points

POINTS = 16_384  # of an input
SUFFIXES = (".glb", ".obj", ".ply", ".stl")
TOGETHER = 32  # inputs that are decoded at once
BOXES, FAMILIES = "held-out boxes", "held-out families"
Surface = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Subject:
    """An input in the model's frame.

    source : BOXES, FAMILIES, or the name of a folder of files; family : "" for a file
    surface : vertices and faces; points : [N, 6] float32, what the decoder gets
    """

    name: str
    source: str
    family: str
    surface: Surface
    points: np.ndarray


@dataclass(frozen=True)
class Record:
    """What became of a subject: how far the mesh is from the surface, over the floor (None: no face), and the judge's names for the
    input and the mesh."""

    name: str
    source: str
    family: str
    faces: int
    chamfer: float | None
    floor: float | None
    over_floor: float | None
    input_kind: str
    mesh_kind: str

    @property
    def right(self) -> bool:
        """Whether the judge names the family of the shape; for a file, what it names in the input."""
        return self.mesh_kind == (self.family or self.input_kind)

    def row(self) -> dict[str, Any]:
        """The record as a flat row."""
        return asdict(self) | {"right": self.right}


def subject_of(shape: Shape, source: str, number: int) -> Subject:
    """The input for a shape; the number draws its points."""
    rows = np.concatenate([shape.vertices, np.zeros_like(shape.vertices)], 1)
    vertices = centred(rows)[:, :3]
    return Subject(shape.family, source, shape.family, (vertices, shape.faces), given((vertices, shape.faces), number))


def given(surface: Surface, number: int) -> np.ndarray:
    """POINTS points [N, 6] of a surface; the number draws them."""
    return sample_points(*surface, POINTS, np.random.default_rng([number, 77]))


def shapes(families: Sequence[str], each: int) -> Iterator[Subject]:
    """`each` held-out shapes of every taught family, and of every family that was never taught."""
    for number, family in enumerate((*families, *HELD_OUT_FAMILIES) * each):
        source = FAMILIES if family in HELD_OUT_FAMILIES else BOXES
        yield subject_of(held_out_shape(family, number), source, number)


def files(folders: Iterable[Path], count: int) -> list[tuple[str, Path]]:
    """`count` files of asset packs, not selected: all files in a random order that never changes. Raises BadPrompt if there are none."""
    found = [(folder.name, path) for folder in folders for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES]
    if not found:
        raise BadPrompt(f"The folders of assets hold no file that ends in {', '.join(SUFFIXES)}. Give other folders with --packs.")
    order = np.random.default_rng(0).permutation(len(found))
    return [found[i] for i in order[:count]]


def assets(folders: Iterable[Path], count: int, up: str = "auto") -> Iterator[Subject]:
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
        yield Subject(path.stem, source, "", surface, given(surface, number))


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
    apart = distance(result, subject.surface)
    whole = made is not None and apart["chamfer"] is not None
    return Record(
        subject.name, subject.source, subject.family, len(mesh.faces),
        apart["chamfer"] if whole else None, apart["floor"] if whole else None, apart["chamfer"] / apart["floor"] if whole else None,
        judge.name(looks), judge.name(made),
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
            print(f"{seed}: {subject.source}, {subject.name}: {over}, {record.mesh_kind}", file=sys.stderr, flush=True)
            yield subject, record, mesh
