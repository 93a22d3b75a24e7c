"""Trains the heads of XSpecMesh for an imported BPT: `launch.py train mesh-heads --backbone NAME [--shapes FOLDER]`.

Paper: XSpecMesh, section 3.5, stage one: the backbone is frozen, and the loss is the sum of 0.8^d CE_d. Half of the minutes go to the heads
with cross-attention, half to the multilayer heads. They are written into the folder `drafters` next to the imported weights.
The backbone generates the sequences of the first point clouds; the others are the tokens of their own shapes, by BPT's tokenizer.
Shapes are procedural, or the meshes of a folder, every tenth of them held out.
Deviations: stage two, which also adapts the backbone, is left out: an imported model stays the published one. Sequences are cut at a length
of the preset, because the hidden states of all places are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import PCG64, Generator
from torch import Tensor

from engine.backbones import DRAFTERS, load, resolve
from engine.backbones.bpt import Bpt
from engine.drafters.mesh_heads import MeshHeads
from engine.errors import BadFile, NotSupported
from engine.mesh.bpt_tokens import BPT, tokenize
from engine.mesh.formats.text import SUFFIXES
from engine.mesh.read import READERS, read
from engine.networks.card import has_card, read_card
from engine.networks.shipping import ship
from research.train.adapters import restore_linear
from research.train.decision import prepare, target, train_weights
from research.train.head_lessons import DECIDES, CloudSequences, HeadOptions, HeadStudent, Memory, head_numbers, heads_training
from research.train.later_tokens import DEPTH, KINDS, weighted_sum
from research.train.loop import Training, half_precision
from research.train.lowpoly import MeshSample, sample_of
from research.worlds.lowpoly_shapes import held_out_shapes, stretch, training_shapes

PRESETS = {  # longest: tokens of a sequence; together: sequences that the backbone runs on at once
    "cpu": {"minutes": 120.0, "generated": 16, "drawn": 240, "batch": 4, "rows": 192, "rate": 5e-4, "longest": 1024, "together": 4},
    "gpu": {"minutes": 30.0, "generated": 512, "drawn": 1536, "batch": 16, "rows": 4096, "rate": 5e-4, "longest": 4096, "together": 8},
}
UNSEEN = 16  # held-out sequences
HELD_OUT = 10  # every tenth mesh of a folder is held out
FEWEST = 2 * HELD_OUT  # meshes in a folder
CLOUDS = (*SUFFIXES, ".npy", ".npz", ".pcd")  # formats without faces


@dataclass(frozen=True)
class HeadLessons:
    """Training data of both kinds of heads: hidden states of training sequences and of held-out ones."""

    name: str  # of the imported model
    backbone: Bpt
    seen: Memory
    unseen: Memory

    @property
    def folder(self) -> Path:
        """The folder that heads are written to."""
        assert self.backbone.folder is not None
        return self.backbone.folder


def train(options: HeadOptions) -> None:
    """Trains, resumes or exports the heads of both kinds; writes each when it is trained."""
    preset = PRESETS[options.preset]
    name, backbone = load_imported(options.backbone, options.device)
    target(options, backbone.folder)
    files = mesh_files(options.shapes) if options.shapes else None
    count = preset["generated"] + preset["drawn"]
    own = {"together": preset["together"], "longest": preset["longest"]}
    library = CloudSequences(backbone, samples_of(files, count, False), preset["generated"], preset["batch"], 0, **own)
    unseen = CloudSequences(backbone, samples_of(files, UNSEEN, True), UNSEEN, 1, 1, **own)
    for kind, sequences in (("training", library), ("held-out", unseen)):
        if not sequences.order:
            raise NotSupported(f"{name} generates meshes of at most {DEPTH} tokens for all {kind} shapes, too short to train heads.")
    student = HeadStudent(backbone.model, None, False)
    memories = (Memory(student, each, options.device, preset["together"]) for each in (library, unseen))
    course = HeadLessons(name, backbone, *memories)
    for kind in KINDS:
        train_kind(options, preset, kind, course)


def load_imported(name: str, device: str) -> tuple[str, Bpt]:
    """Returns the name of an imported model of meshes, and the model with plain layers; raises NotSupported."""
    kind, path = resolve(name)
    backbone = load(kind, path, device, "float32")
    if not isinstance(backbone, Bpt):
        raise NotSupported(f"There is no recipe for heads of {name} ({backbone.name}). Give lowpoly, or an imported bpt.")
    if backbone.folder is None:
        raise NotSupported(f"{name} is not imported, so its heads have no folder. Import it first: python launch.py models import {name}")
    assert backbone.folder.name == DRAFTERS, backbone.folder
    restore_linear(backbone.model.decoder)  # packed layers have no gradient
    return backbone.folder.parent.name, backbone


# --- shapes -----------------------------------------------------------------------------------------------------------


def mesh_files(folder: Path) -> list[Path]:
    """Returns the files of meshes below a folder, sorted; raises BadFile if there are too few."""
    known = [suffix for suffix in READERS if suffix not in CLOUDS]
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in known) if folder.is_dir() else []
    if len(paths) < FEWEST:
        kinds = ", ".join(suffix[1:].upper() for suffix in known)
        raise BadFile(f"{folder} has {len(paths)} meshes ({kinds}); training needs at least {FEWEST}.")
    return paths


def samples_of(files: list[Path] | None, count: int, held_out: bool) -> Iterator[MeshSample]:
    """Yields `count` shapes with their tokens: of files, again and again, or procedural ones."""
    if files is None:
        rng = Generator(PCG64(3))
        shapes = held_out_shapes(count) if held_out else (stretch(s, rng) for s in training_shapes(2**33, count))
        yield from map(sample_of, shapes)
        return
    paths = [path for i, path in enumerate(files) if (i % HELD_OUT == 0) == held_out]
    samples = [sample_in(path) for path in paths[:count]]
    yield from (samples[i % len(samples)] for i in range(count))


def sample_in(path: Path) -> MeshSample:
    """Returns the mesh of a file, upright in the model's frame; raises BadFile for a point cloud, or a file that cannot be read."""
    mesh = read(path)
    if mesh.surface is None:
        raise BadFile(f"{path} is a point cloud. Leave only meshes in the folder of --shapes.")
    vertices, faces = mesh.frame.to_model(mesh.surface[0]), mesh.surface[1]
    tokens, frame = tokenize(vertices, faces)
    return MeshSample(np.append(tokens, BPT.eos), frame.to_model(vertices), faces)


# --- training ---------------------------------------------------------------------------------------------------------


def train_kind(options: HeadOptions, preset: dict[str, Any], kind: str, course: HeadLessons) -> None:
    """Trains one kind of heads, and writes them if they are not worse than the ones in the folder."""
    backbone, device = course.backbone, options.device
    s = backbone.model.settings
    heads = MeshHeads(DEPTH, s.width, s.heads, s.vocabulary, kind)
    student = HeadStudent(backbone.model, heads, False)
    checkpoint = f"mesh-heads-{course.name}-{str(backbone.weights_hash)[:12]}-{kind}"
    # not the student: a checkpoint with the backbone would be gigabytes
    training = heads_training(checkpoint, heads, preset["rate"], options.minutes_of(preset) / len(KINDS), device)
    training.resume(options.fresh)

    def loss_of(step: int) -> Tensor:
        batch = course.seen.batch(step)
        with half_precision(device):
            return weighted_sum(student.head_losses(*batch, preset["rows"], Generator(PCG64([6, step])))[0])

    def held_out() -> dict[str, Any]:
        alone = [course.unseen.of([i]) for i in course.unseen.library.order]
        each, right = zip(*(student.head_losses(*one, None, None) for one in alone), strict=True)
        return head_numbers(each, right)

    name = f"heads_{kind}"
    known = known_heads(course.folder).get(name)
    if known is not None and known.get("backbone") != backbone.weights_hash:
        known = None  # the backbone refuses to load them
    if train_weights(training, options, loss_of, held_out, DECIDES, known):
        write_heads(prepare(options, course.folder), name, heads.settings, training, options, course)


def known_heads(folder: Path) -> dict[str, Any]:
    """Returns the heads that a folder's card names."""
    return dict(read_card(folder).get("heads", {})) if has_card(folder) else {}


def write_heads(folder: Path, name: str, settings: dict[str, Any], training: Training, options: HeadOptions, course: HeadLessons) -> None:
    """Writes the averaged heads and their entry in the card."""
    sequences, held_out = len(course.seen.library.order), len(course.unseen.library.order)
    row = {
        "settings": settings,
        "backbone": course.backbone.weights_hash,  # with other weights they would stay exact, but their drafts would be worse
        "data": f"{sequences} sequences of {'meshes of a folder' if options.shapes else 'procedural shapes'}, {held_out} held out",
    } | training.summary(options.preset, f"mesh-heads --backbone {course.name}")
    ship(folder, {f"{name}.safetensors": training.averaged}, {"heads": known_heads(folder) | {name: row}})
