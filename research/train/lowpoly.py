"""Trains lowpoly on tokens of procedural shapes: `launch.py train lowpoly --preset cpu|gpu`, and on meshes of artists with --meshes.

Each step draws new shapes and new point clouds of their surfaces; half of the samples include the number of faces. The CPU preset trains
all families upright, rotated by quarter turns, and degrades half of the clouds; the GPU preset trains them in every pose. Shapes in
held-out boxes and families are never trained on; the curve gives the loss on both.

With `--meshes FOLDER|FILE` a share of the shapes are meshes of packs, as `research/worlds/mesh_packs.py` reads them: mirrored, stretched
and turned, their clouds degraded and disturbed as uploads are. Packs named by `--held-out` are only measured.

Heads that predict the tokens after the next one (as in XSpecMesh) are trained together with the model, and their loss also trains the
model, with a small weight: otherwise the hidden states of such a small model would contain nothing about later tokens (the idea is Gloeckle
et al. 2024, arXiv 2404.19737). `train mesh-heads` continues to train them.

During training, ids share input and output embeddings for their coordinates (a block is three digits of base 8, an offset three of base
16), so that what is learned about one coordinate helps its neighbours. For shipping, these sums are folded into plain tables: the shape of
BPT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import lowpoly
from engine.drafters.mesh_heads import MeshHeads
from engine.errors import BadKnob
from engine.mesh.bpt_tokens import BPT, tokenize
from engine.networks.cloud_blocks import CONTENTS
from engine.networks.mesh_decoder import BLOCKS, OFFSETS, MeshDecoder, MeshModel, MeshSettings, describe, face_level
from engine.networks.transformer import causal_mask
from engine.networks.weights import hash_of, part_files, read_card, read_tensors, ship, split
from research.train import loop
from research.train.decision import Measure, prepare, target, train_weights
from research.train.later_tokens import DEPTH, KINDS, PAD, cross_entropies, head_logits, labels_after, some_places, top_1, weighted_sum
from research.train.loop import LossOf, Training, argument, half_precision, straight_down, trapezoid
from research.worlds.lowpoly_shapes import (
    HELD_OUT_FAMILIES,
    TRAINED_FAMILIES,
    MeshShape,
    augment,
    degrade,
    disturb,
    held_out_shapes,
    sample_points,
    stretch_and_turn,
    training_shapes,
)
from research.worlds.mesh_packs import MeshPacks, load_packs

PRESETS = {
    "cpu": {
        "batch": 16, "minutes": 100.0, "rate": 1e-3, "settings": MeshSettings(layers=5, contents=CONTENTS),
        "families": TRAINED_FAMILIES, "vary": stretch_and_turn, "degraded": 0.5,
    },
    "gpu": {
        "batch": 256, "minutes": 9.0, "rate": 2e-3, "settings": MeshSettings(contents=CONTENTS),
        "families": TRAINED_FAMILIES, "vary": augment, "degraded": 0.7,
    },
}  # fmt: skip
DECIDES, DECIDES_ON_PACKS = Measure("nats_boxes"), Measure("nats_packs")
GROUP = 16  # batches whose shapes are sorted by length together: padding is 14 % of the tokens, and 34 % with 4 batches
PACK_SHARE = 0.5  # of the shapes, where there are meshes of packs
DISTURBED = 0.15  # share of the clouds of packs that get a floor, clutter, or normals of random sign
MISTAKEN, MISPLACED = 0.5, 0.1  # share of the samples that are read with mistakes, and the largest share of their offsets
TARGET_SHARE = 0.5  # share of shapes that come with their number of faces
BUCKET = 32  # lengths are rounded up to a multiple of it
LATER = 0.03  # weight of the heads' loss, for each kind of heads
LATER_ROWS = 128  # places in a step that the heads are trained on; `train mesh-heads` teaches them more
CHECKED_ROWS = 512  # the same, for the accuracy of the heads in the curve


@dataclass
class MeshSample:
    """A shape for training: tokens with the end int64 [n], vertices float [V, 3] in the model's frame, faces int [F, 3].

    disturbed : probability that its cloud gets a floor, clutter, or normals of random sign
    """

    tokens: np.ndarray
    vertices: np.ndarray
    faces: np.ndarray
    disturbed: float = 0.0


def sample_of(shape: MeshShape) -> MeshSample:
    """Returns a shape's tokens and the surface that point clouds are sampled from."""
    tokens, frame = tokenize(shape.vertices, shape.faces)
    return MeshSample(np.append(tokens, BPT.eos), frame.to_model(shape.vertices), shape.faces)


class World:
    """Batches as a function of the step; `vary` makes a variant of every drawn shape."""

    def __init__(
        self, families: tuple[str, ...], batch: int, vary: Callable[[MeshShape, Generator], MeshShape], degraded: float, longest: int,
        points: int = lowpoly.POINTS, packs: MeshPacks | None = None,
    ):  # fmt: skip
        self.families, self.vary, self.degraded, self.longest, self.points = families, vary, degraded, longest, points
        self.size, self.packs = batch, packs
        self._group: tuple[int, list[MeshSample]] = (-1, [])

    def batch(self, step: int) -> MeshBatch:
        """Returns the batch of a step."""
        rng = Generator(PCG64([7, step]))
        samples = self._samples(step // GROUP)
        order = Generator(PCG64([8, step // GROUP])).permutation(GROUP)
        first = int(order[step % GROUP]) * self.size
        return collate(samples[first : first + self.size], rng, self.degraded, self.points, MISTAKEN)

    def _samples(self, group: int) -> list[MeshSample]:
        """Returns the shapes of a group of batches, shortest first."""
        if self._group[0] != group:
            rng = Generator(PCG64([9, group]))
            shapes = training_shapes(group * GROUP * self.size, GROUP * self.size, self.families)
            samples = [self._pack_sample(rng) if self.packs and rng.random() < PACK_SHARE else sample_of(self.vary(s, rng)) for s in shapes]
            samples = [s if len(s.tokens) <= self.longest else samples[0] for s in samples]
            self._group = (group, sorted(samples, key=lambda s: len(s.tokens)))
        return self._group[1]

    def _pack_sample(self, rng: Generator) -> MeshSample:
        """A variant of a random mesh of the packs, short enough for the model."""
        while True:
            sample = sample_of(augment(self.packs.trained[rng.integers(len(self.packs.trained))], rng))
            if len(sample.tokens) <= self.longest:
                return replace(sample, disturbed=DISTURBED)


class MeshBatch(NamedTuple):
    """points [B, N, 6], numbers of faces float [B] (`face_level`), tokens int64 [B, L] padded with -1, and the tokens that the model reads
    [B, L]: the same, or with mistakes (`misplace`)."""

    points: Tensor
    targets: Tensor
    tokens: Tensor
    read: Tensor

    def to(self, device: str) -> MeshBatch:
        """The same on a device."""
        return MeshBatch(*(x.to(device) for x in self))


def collate(samples: list[MeshSample], rng: Generator, degraded: float, points: int = lowpoly.POINTS, mistaken: float = 0.0) -> MeshBatch:
    """Returns clouds of `points` points, numbers of faces and padded tokens of some samples; `rng` draws the clouds.

    mistaken : share of the samples that are read with mistakes
    """
    length = -(-max(len(s.tokens) for s in samples) // BUCKET) * BUCKET
    tokens = np.full((len(samples), length), PAD, np.int64)
    clouds, targets = [], []
    for row, s in zip(tokens, samples, strict=True):
        row[: len(s.tokens)] = s.tokens
        cloud = sample_points(s.vertices, s.faces, points, rng)
        if s.disturbed and rng.random() < s.disturbed:
            cloud = disturb(cloud, rng)
        clouds.append(degrade(cloud, rng) if rng.random() < degraded else cloud)
        targets.append(face_level(len(s.faces)) if rng.random() < TARGET_SHARE else 0.0)
    read = np.stack([misplace(row, rng) if rng.random() < mistaken else row for row in tokens])
    return MeshBatch(torch.from_numpy(np.stack(clouds)), torch.tensor(targets), torch.from_numpy(tokens), torch.from_numpy(read))


def misplace(tokens: np.ndarray, rng: Generator) -> np.ndarray:
    """Tokens int64 [L] with mistakes as the model makes them: up to MISPLACED of the offsets are replaced, most by one of a cell up to two
    cells away, the others by an earlier offset, as in a loop.

    A model that has read true prefixes alone takes its own first mistake for a strange shape, and may repeat it until the end.
    """
    out, first = tokens.copy(), BLOCKS
    places = np.flatnonzero((tokens >= first) & (tokens < first + OFFSETS))
    chosen = places[rng.random(len(places)) < rng.uniform(0, MISPLACED)]
    digits = np.stack(np.unravel_index(tokens[chosen] - first, (16, 16, 16)), 1)
    moved = np.clip(digits + rng.integers(-2, 3, digits.shape), 0, 15) @ [256, 16, 1] + first
    earlier = tokens[places[np.maximum(np.searchsorted(places, chosen) - rng.integers(1, 5, len(chosen)), 0)]]
    out[chosen] = np.where(rng.random(len(chosen)) < 0.7, moved, earlier)
    return out


def hidden_states(decoder: MeshDecoder, condition: Tensor, embedded: Tensor) -> Tensor:
    """Hidden states [B, L+1, width] of sequences after a condition; embedded : tokens [B, L, width], without positions."""
    start = decoder.start.expand(len(embedded), 1, -1)
    x = torch.cat([start, embedded + decoder.positions[: embedded.shape[1]]], 1)
    return decoder(x, causal_mask(x.shape[1], 0, x.device), decoder.keys_values(condition))


class Trainee(nn.Module):
    """The model, shared embeddings of coordinates in addition to its tables, and heads that predict later tokens.

    detached : the heads learn from the model's states, and the model learns nothing from them
    """

    def __init__(self, settings: MeshSettings, detached: bool = False):
        super().__init__()
        self.detached = detached
        self.model = MeshModel(settings)
        self.digits_in = nn.Parameter(torch.randn(96, settings.width) * 0.02)
        self.digits_out = nn.Parameter(torch.randn(96, settings.width) * 0.02)
        self.heads = nn.ModuleDict({k: MeshHeads(DEPTH, settings.width, settings.heads, settings.vocabulary, k) for k in KINDS})
        self.register_buffer("digits", digit_matrix(settings.vocabulary), persistent=False)

    def forward(self, batch: MeshBatch, known: Tensor, places: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the mean cross-entropy of the batch's tokens at the known places (see `known_places`), and logits [D, B, R, V] of each
        kind of heads at places [B, R]."""
        points, targets, tokens, read = batch
        d = self.model.decoder
        table = d.table() + self.digits @ self.digits_in
        reading = self.model.read(points, targets)
        condition = reading.condition
        hidden = hidden_states(d, condition, reading.embed(table, read[:, :-1].clamp(min=0)))
        out = d.head.weight + self.digits @ self.digits_out

        head_inputs = [x.detach() for x in (hidden, condition, out)] if self.detached else [hidden, condition, out]

        def later_head(states: Tensor) -> Tensor:
            return F.linear(states, head_inputs[2], d.head.bias.detach() if self.detached else d.head.bias)

        later = [head_logits(heads, head_inputs[0], head_inputs[1], places, later_head) for heads in self.heads.values()]
        labels = tokens.flatten().index_select(0, known)
        logits = F.linear(hidden.flatten(0, 1).index_select(0, known), out, d.head.bias)
        return F.cross_entropy(logits.float(), labels), later


def digit_matrix(vocabulary: int) -> Tensor:
    """Returns [V, 96], 1 for each coordinate digit that an id has (24 of plain blocks, 48 of offsets, 24 of patch starts), else 0."""
    rows = torch.zeros(vocabulary, 96)
    first = 0
    for start, count, base in ((0, BLOCKS, 8), (BLOCKS, OFFSETS, 16), (BLOCKS + OFFSETS, BLOCKS, 8)):
        ids = torch.arange(count)
        for axis in range(3):
            rows[start + ids, first + axis * base + ids // base ** (2 - axis) % base] = 1.0
        first += 3 * base
    return rows


def fold(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the weights of a plain MeshModel, with the shared embeddings added to its tables."""
    plain = {k.removeprefix("model."): v for k, v in state.items() if k.startswith("model.")}
    digits = digit_matrix(len(plain["decoder.tokens"])).to(plain["decoder.tokens"].device)
    plain["decoder.tokens"] = plain["decoder.tokens"] + digits @ state["digits_in"]
    plain["decoder.head.weight"] = plain["decoder.head.weight"] + digits @ state["digits_out"]
    return plain


def unfold(shipped: MeshModel) -> dict[str, Tensor]:
    """Returns shipped weights as a Trainee's: everything is in the tables, and the shared embeddings are 0."""
    width = shipped.settings.width
    return {f"model.{k}": v for k, v in shipped.state_dict().items()} | {n: torch.zeros(96, width) for n in ("digits_in", "digits_out")}


def shipped_heads(trainee: Trainee) -> dict[str, Tensor]:
    """Returns the shipped heads that fit a Trainee, under its names; the other heads start from random weights."""
    known = read_card(lowpoly.FOLDER).get("heads", {})
    fitting = [kind for kind in KINDS if known.get(f"heads_{kind}", {}).get("settings") == trainee.heads[kind].settings]
    states = {kind: read_tensors(lowpoly.FOLDER / f"heads_{kind}.safetensors") for kind in fitting}
    return {f"heads.{kind}.{name}": tensor for kind, state in states.items() for name, tensor in state.items()}


@dataclass
class LowpolyOptions(loop.RecipeOptions):
    """The options of this recipe: the weight of the heads' loss, and the meshes to learn from.

    later    : 0: the model learns nothing from its heads, which learn from its states: a control for XSpecMesh's table 3. None: LATER
    meshes   : a folder or an archive of mesh packs (`load_packs`); held_out : names of its packs that are measured and not trained on
    """

    later: float | None = field(
        default=None,
        metadata=argument(f"weight of the heads' loss; 0: the model learns nothing from it ({LATER})", type=float, metavar="WEIGHT"),
    )
    meshes: Path | None = field(
        default=None,
        metadata=argument("also learn from these meshes: a folder of files, or an .npz archive", type=Path, metavar="FOLDER|FILE"),
    )
    held_out: tuple[str, ...] = field(
        default=(), metadata=argument("packs (folders) of --meshes to measure and not to train on", nargs="+", metavar="PACK")
    )
    licence: str = field(default="", metadata=argument("the licence of --meshes, for the card", metavar="TEXT"))

    def __post_init__(self) -> None:
        """Raises BadKnob for a weight below 0, or a control that would replace the shipped weights."""
        super().__post_init__()
        if self.later is not None and not 0 <= self.later <= 1:
            raise BadKnob(f"--later {self.later:g} is out of range. Choose 0 to 1.")
        if self.later is not None and self.out is None:
            raise BadKnob("--later trains other weights than the shipped ones. Name a folder for them with --out.")
        if self.held_out and self.meshes is None:
            raise BadKnob("--held-out names packs of --meshes. Give both, or neither.")
        if self.meshes is not None and not self.meshes.exists():
            raise BadKnob(f"--meshes {self.meshes} does not exist. Give a folder of mesh files or an .npz archive.")

    @property
    def weight(self) -> float:
        """The weight of the heads' loss. With --later 0 it is LATER, because then only the heads learn from that loss."""
        return self.later or LATER


def main(options: LowpolyOptions) -> None:
    """Trains, resumes or exports."""
    preset = PRESETS[options.preset]
    device = options.device
    settings: MeshSettings = preset["settings"]
    name = "lowpoly" if options.preset == "cpu" else f"lowpoly-{options.preset}"
    trainee = Trainee(settings, detached=options.later == 0)
    minutes = options.minutes_of(preset)
    target(options, lowpoly.FOLDER)
    packs = load_packs(options.meshes, options.held_out) if options.meshes else None
    training = Training(
        name if options.later is None else f"{name}-later-{options.later:g}",
        trainee,
        preset["rate"],
        minutes,
        device,
        weight_decay=0.05,
        muon=("model.decoder.blocks.", "heads."),
        average=0.997 if device == "cuda" else 0.99,
        schedule=straight_down if device == "cpu" else trapezoid,
        warm_steps=200 if device == "cuda" else 40,  # a CPU makes few steps before it is stopped and resumed
    )
    control = options.later is not None  # starts from random weights: the shipped ones have learned from their heads
    if not training.resume(options.fresh) and not options.fresh and not control and part_files(lowpoly.FOLDER, "model"):
        shipped = lowpoly.load_model()
        if replace(shipped.settings, contents=settings.contents) == settings:  # new readers start from their initial weights
            training.warm_start(unfold(shipped) | shipped_heads(trainee), read_card(lowpoly.FOLDER)["model"])
    points = lowpoly.points_of(settings)
    checks = {kind: check_batches(held_out_samples(kind, preset["families"]), points) for kind in ("boxes", "families")}
    if packs and packs.held_out:
        checks["packs"] = check_batches(pack_samples(packs, settings.length), points)

    def held_out() -> dict[str, Any]:
        numbers: dict[str, Any] = {}
        for kind, batches in checks.items():
            own, right = [], []
            for batch in batches:
                places = some_places(batch.tokens, CHECKED_ROWS, Generator(PCG64(13)))
                known = known_places(batch.tokens).to(device)
                with half_precision(device):
                    nats, later = trainee(batch.to(device), known, places.to(device))
                labels = labels_after(batch.tokens, places, DEPTH).to(device)
                own.append(nats)
                right.append(torch.stack([top_1(each, labels) for each in later]))
            numbers[f"nats_{kind}"] = round(torch.stack(own).mean().item(), 4)
            if kind == "boxes":
                guessed = torch.stack(right).mean(0).tolist()
                numbers |= {f"top_1_{k}": [round(x, 3) for x in row] for k, row in zip(KINDS, guessed, strict=True)}
        return numbers

    every = 1500 if packs else 300  # seconds: meshes of packs are longer, and so is their measurement
    decides, known = DECIDES_ON_PACKS if "packs" in checks else DECIDES, shipped_row(preset["families"])
    if train_weights(training, options, step_loss(trainee, options, packs), held_out, decides, *known, every):
        write_weights(prepare(options, lowpoly.FOLDER), training, trainee, options.preset, packs, options.licence)


def step_loss(trainee: Trainee, options: LowpolyOptions, packs: MeshPacks | None) -> LossOf:
    """Returns the loss of a step as a function of its number."""
    device, own, weight = trainee.digits.device.type, PRESETS[options.preset], options.weight
    settings = trainee.model.settings
    points = lowpoly.points_of(settings)
    world = World(own["families"], own["batch"], own["vary"], own["degraded"], settings.length, points, packs)

    def loss(batch: MeshBatch, known: Tensor, places: Tensor, labels: Tensor) -> Tensor:
        with half_precision(device):
            own, later = trainee(batch, known, places)
        return own + weight * sum(weighted_sum(cross_entropies(each, labels)) for each in later)

    fast = torch.compile(loss, dynamic=True) if options.compiled else loss

    def loss_of(step: int) -> Tensor:
        batch = world.batch(step)
        places = some_places(batch.tokens, LATER_ROWS, Generator(PCG64([12, step])))
        labels = labels_after(batch.tokens, places, DEPTH)
        return fast(batch.to(device), known_places(batch.tokens).to(device), places.to(device), labels.to(device))

    return loss_of


def shipped_row(families: tuple[str, ...]) -> tuple[dict[str, Any] | None, str]:
    """Returns the card's entry for the shipped model, None if there is none; and why it cannot be compared, "" if it can."""
    card = read_card(lowpoly.FOLDER) if (lowpoly.FOLDER / "card.json").exists() else {}
    other = "model" in card and card["families"] != list(families)
    return card.get("model"), "the shipped one was trained on other families" if other else ""


def write_weights(folder: Path, training: Training, trainee: Trainee, preset: str, packs: MeshPacks | None, licence: str) -> None:
    """Writes the averaged weights of the model and of its heads, and the card."""
    card = {"name": "lowpoly", "families": list(PRESETS[preset]["families"])} | data_of(packs, licence)
    files = split(fold(training.averaged), "model")
    card["model"] = {"settings": describe(trainee.model.settings), "files": len(files)} | training.summary(preset, "lowpoly")
    heads = {f"heads_{kind}": dict(averaged_heads(training.averaged, kind)) for kind in KINDS}
    taught = {k: v for k, v in training.summary(preset, "lowpoly").items() if k != "curve"}  # the curve belongs to the model

    def entries(new: Path) -> dict[str, Any]:
        fits = {"backbone": hash_of(part_files(new, "model"))}
        return card | {"heads": {name: {"settings": trainee.heads[name[6:]].settings} | fits | taught for name in heads}}

    adapted = [name for kind in KINDS for name in (f"heads_{kind}_lora.safetensors", f"lora_{kind}")]  # trained on the previous weights
    ship(folder, files | {f"{name}.safetensors": state for name, state in heads.items()}, entries, stale=adapted)


def data_of(packs: MeshPacks | None, licence: str) -> dict[str, Any]:
    """The card's entries about the training data. licence : of the packs, "" = not stated"""
    shapes = (
        "research/worlds/lowpoly_shapes.py; two boxes of parameters per family and the families "
        f"{' and '.join(HELD_OUT_FAMILIES)} are held out."
    )
    if packs is None:
        return {
            "licence": "Weights: Apache-2.0. Trained on shapes that this project draws from seeds; no third-party mesh was used.",
            "data": shapes,
        }
    return {
        "licence": "Weights: Apache-2.0. Trained on shapes that this project draws from seeds, and on the packs of meshes below "
        f"({licence or 'their licences were not stated'}).",
        "data": shapes,
        "packs": {"trained": list(packs.trained_packs), "held_out": list(packs.held_out_packs)},
    }


def known_places(tokens: Tensor) -> Tensor:
    """Returns the places of the tokens [B, L] that are not padding, in the flattened batch: int64 [N]."""
    return (tokens != PAD).flatten().nonzero().squeeze(1)


def averaged_heads(state: dict[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Returns the heads of one kind from a Trainee's weights."""
    prefix = f"heads.{kind}."
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}


def held_out_samples(kind: str, families: tuple[str, ...]) -> list[MeshSample]:
    """Held-out shapes of the trained families ("boxes"), or of unseen "families"."""
    return [sample_of(s) for s in [s for s in held_out_shapes(320, kind) if kind == "families" or s.family in families][:64]]


def pack_samples(packs: MeshPacks, longest: int) -> list[MeshSample]:
    """At most 64 whole meshes of the held-out packs, in a fixed order, without those that are too long."""
    order = Generator(PCG64(17)).permutation(len(packs.held_out))
    samples = [sample_of(packs.held_out[i]) for i in order]
    return [s for s in samples if len(s.tokens) <= longest][:64]


def check_batches(samples: list[MeshSample], points: int) -> list[MeshBatch]:
    """Returns fixed batches of held-out shapes."""
    samples = sorted(samples, key=lambda s: len(s.tokens))
    rng = Generator(PCG64(11))
    return [collate(samples[i : i + 16], rng, 0.0, points) for i in range(0, len(samples), 16)]
