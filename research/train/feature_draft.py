"""Trains the drafter of tree methods: `launch.py train feature-draft [--backbone pictogram|lowpoly] [--loss kl|paper|adt]`.

Paper: EAGLE, Li et al., arXiv 2401.15077, with guidance as in the trainer of LANTERN, Jang et al., arXiv 2410.03355. The backbone generates
the training sequences. Their tokens and the last hidden states of both guidance branches are kept in `.training/`. From token t and the
state that predicted it, the drafter learns the state that predicts token t+1. The states get uniform noise, because after the first level
the drafter reads its own. `paper` is the paper's loss: smooth L1 on the states and a tenth of the cross-entropy towards the model's
distribution, for each branch; `adt` is ADT-Tree's, cross-entropy plus a tenth of L1.
Deviations: The default loss is KL(p || q) of the guided distributions at the sampling temperature, because acceptance depends on them
(1 - TV), plus smooth L1, because the next level reads the state. It is computed at three levels, each on the drafter's states of the level
before, as a chain of drafts reads them (after HASS, Zhang et al., arXiv 2408.15766, and EAGLE-3, Li et al., arXiv 2503.01840). Training is
timed in minutes, not epochs. The output layer runs on a sample of rows in each step, and training ignores the grammar. Pictures are
recorded at the backbone's default size.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.random import PCG64, Generator
from torch import Tensor
from torch.nn import functional as F

from engine.drafters.feature_draft import NAME, FeatureDrafter, weights_file
from engine.errors import BadKnob
from engine.files import whole_file
from engine.networks.weights import ship
from engine.sampling import guide, warp
from research.train import loop
from research.train.decision import Measure, prepare, require_out, target, train_weights
from research.train.loop import Training
from research.train.lowpoly import PAD
from research.train.teachers import MeshTeacher, PictureTeacher, Recorded, Teacher, TeacherOptions, pad_rows

PRESETS = {
    "cpu": {"minutes": 30.0, "sequences": 1536, "batch": 8, "rows": 768},
    "gpu": {"minutes": 6.0, "sequences": 4096, "batch": 64, "rows": 8192},
}
DECIDES = Measure("acceptance", higher=True)
TOGETHER = 32  # sequences that are generated in one batch and kept in one file
UNSEEN = 16  # held-out sequences that acceptance is measured on
DEPTH = 5  # levels that acceptance is measured on
LEVELS = 3  # levels that our loss trains; the paper's trains one
RATE = 1e-3
FEATURE_WEIGHT = 0.5  # of smooth L1, relative to KL
PAPER_WEIGHT = 0.1  # of the cross-entropy, relative to smooth L1
ADT_WEIGHT = 0.1  # of L1, relative to the cross-entropy (ADT-Tree)
LOSSES = "kl: guided distributions; paper: smooth L1 and a tenth of cross-entropy; adt: cross-entropy and a tenth of L1"
NOISE = 0.2  # width of the uniform noise on the states, relative to their root mean square


@dataclass
class FeatureDraftOptions(TeacherOptions):
    """The options of this recipe, with the loss."""

    loss: str = field(default="kl", metadata=loop.argument(LOSSES, choices=["kl", "paper", "adt"]))


TEACHERS = {"pictogram": PictureTeacher, "lowpoly": MeshTeacher}


def teacher_of(name_or_folder: str, device: str, prompts: Path | None = None) -> Teacher:
    """Returns the teacher of a backbone: one of TEACHERS, or an imported model. prompts : a file of prompts, for an imported model"""
    if name_or_folder not in TEACHERS:
        from research.train.checkpoint_teacher import CheckpointTeacher  # needs transformers, which takes seconds

        return CheckpointTeacher(name_or_folder, device, prompts)
    if prompts is not None:
        raise BadKnob(f"--prompts is for imported models; {name_or_folder} has its own data. Leave it out.")
    return TEACHERS[name_or_folder](device)


# --- recordings -------------------------------------------------------------------------------------------------------


class RecordedSequences:
    """Recorded sequences. Each portion has its own file, so that an interrupted recording resumes after the last portion."""

    def __init__(self, name: str, teacher: Teacher, count: int, batch: int, held_out: bool = False, shortest: int = 0):
        """Loads or generates the sequences. shortest : shorter sequences are left out"""
        self.batch_size = batch
        self.recorded: list[Recorded] = []
        folder = loop.CHECKPOINTS / f"{NAME}_{name}" / str(teacher.weights_hash)
        for stale in folder.parent.glob("*"):
            if stale != folder:
                shutil.rmtree(stale)  # states of earlier weights are useless
        folder.mkdir(parents=True, exist_ok=True)
        conditions = teacher.conditions(count, held_out)
        for i in range(0, len(conditions), TOGETHER):
            path = folder / f"{'unseen' if held_out else 'seen'}_{i}_{min(TOGETHER, len(conditions) - i)}.pt"
            if not path.exists():
                self._record(teacher, conditions[i : i + TOGETHER], Generator(PCG64([9, i, held_out])), path)
                print(f"generated {min(i + TOGETHER, len(conditions))} of {len(conditions)} sequences", flush=True)
            self.recorded += [Recorded(**row) for row in torch.load(path, weights_only=True) if len(row["tokens"]) >= shortest]
        self.order = sorted(range(len(self.recorded)), key=lambda i: len(self.recorded[i].tokens))

    def _record(self, teacher: Teacher, prompts: Tensor, rng: Generator, path: Path) -> None:
        """Writes a portion, completely or not at all."""
        generated = teacher.generate(prompts, rng)
        rows = [{name: own.clone() for name, own in vars(row).items()} for row in generated]  # a view would store its whole tensor
        with whole_file(path) as part:
            torch.save(rows, part)

    def batch_indices(self, step: int) -> list[int]:
        """Returns the indices of a batch of sequences of nearly equal length."""
        first = int(Generator(PCG64([7, step])).integers(max(1, len(self.order) - self.batch_size + 1)))
        return self.order[first : first + self.batch_size]

    def batch(self, step: int) -> list[Recorded]:
        """Returns a batch of sequences of nearly equal length."""
        return [self.recorded[i] for i in self.batch_indices(step)]


def stack_rows(teacher: Teacher, rows: list[Recorded], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns tokens int64 [B, L] padded with -1, their embeddings [branches * B, L, H], and states [branches, B, L, H]."""
    tokens = pad_rows([row.tokens for row in rows]).to(device)
    hidden = torch.zeros(len(rows[0].hidden), *tokens.shape, rows[0].hidden.shape[-1], device=device)
    for i, row in enumerate(rows):
        hidden[:, i, : len(row.tokens)] = row.hidden.to(device).float()
    return tokens, teacher.embed(torch.stack([row.condition for row in rows]), tokens.clamp(min=0)), hidden


# --- losses -----------------------------------------------------------------------------------------------------------


def loss_of_rows(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded], count: int, kind: str, step: int) -> Tensor:
    """Returns the loss of one pass over some sequences; the output layer runs on `count` rows."""
    device = network.bias.device
    tokens, embedded, hidden = stack_rows(teacher, rows, device)
    features, wanted = hidden[:, :, :-1], hidden[:, :, 1:]
    r = torch.Generator(device).manual_seed(step)
    size = features.square().mean().sqrt()
    noisy = features + (torch.rand(features.shape, generator=r, device=device) - 0.5) * NOISE * size
    length = features.shape[2]
    cos, sin = network.rotary(teacher.layout(tokens.shape[1]), length)
    levels = LEVELS if kind == "kl" else 1
    real = torch.nonzero(F.pad(tokens[:, levels:], (levels - 1, 0), value=PAD) != PAD)  # rows where a chain of every level can end
    total = torch.zeros((), device=device)
    for predicted in unroll(network, embedded[:, :-1], noisy.flatten(0, 1), cos, sin, levels):
        sample = real[torch.randperm(len(real), generator=r, device=device)[: count // levels]]
        states, right = (x[:, sample[:, 0], sample[:, 1]] for x in (predicted.view_as(wanted), wanted))
        total = total + loss_of_states(teacher, states, right, kind)
    return total / levels


def loss_of_states(teacher: Teacher, predicted: Tensor, wanted: Tensor, kind: str) -> Tensor:
    """Returns the loss of predicted states [branches, rows, H] against the model's states."""
    regression = F.smooth_l1_loss(predicted, wanted)
    logits = teacher.head(predicted)
    with torch.no_grad():
        right = teacher.head(wanted)
    if kind == "paper":
        return regression + PAPER_WEIGHT * F.cross_entropy(logits.flatten(0, 1), right.softmax(-1).flatten(0, 1))
    if kind == "adt":
        return F.cross_entropy(logits.flatten(0, 1), right.softmax(-1).flatten(0, 1)) + ADT_WEIGHT * F.l1_loss(predicted, wanted)
    p = torch.softmax(warp(guide(right, teacher.sampling.guidance), teacher.sampling), -1)
    q = torch.log_softmax(guide(logits, teacher.sampling.guidance) / (teacher.sampling.temperature or 1.0), -1)
    return (torch.xlogy(p, p) - p * q).sum(-1).mean() + FEATURE_WEIGHT * regression


class LevelCache:
    """Replaces a cache of one layer: keeps the keys and values of all levels so far, with their gradients."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, Tensor]] = []

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Adds keys and values [B, heads, R, d]; returns the keys and values of all visible rows."""
        self.kept.append((keys, values))
        return torch.cat([k for k, _ in self.kept], 2), torch.cat([v for _, v in self.kept], 2)


def unroll(network: FeatureDrafter, embedded: Tensor, features: Tensor, cos: Tensor, sin: Tensor, depth: int) -> Iterator[Tensor]:
    """Yields, for 1 .. depth levels, the states [B, R, H] that chains of that length predict; one chain ends at every row.

    embedded, features : [B, R, H], token embeddings and the model's states. At level j, row i reads token i and the drafter's own state of
    row i-1 from the level before. It sees the same as a chain that began j-1 tokens earlier: true rows up to the root, one ancestor per
    level, and itself.
    """
    device, count, kv_cache = embedded.device, embedded.shape[1], LevelCache()
    at = torch.arange(count, device=device)
    for level in range(1, depth + 1):
        mask = torch.zeros(count, level, count, dtype=torch.bool, device=device)
        mask[:, 0] = at <= at[:, None] - level + 1
        for j in range(1, level):
            mask[:, j] = at == at[:, None] - level + 1 + j
        mask[at, level - 1, at] = True  # even if there is no chain, because it would begin before the first token
        states = network(embedded, features, cos, sin, mask.flatten(1), kv_cache)
        yield states
        features = F.pad(states[:, :-1], (0, 0, 1, 0))


def chains(network: FeatureDrafter, teacher: Teacher, row: Recorded, depth: int) -> Iterator[Tensor]:
    """Yields, for 1 .. depth levels, guided logits [L-1, V] of the next token after each token, from a chain of that length."""
    tokens, embedded, hidden = stack_rows(teacher, [row], network.bias.device)
    cos, sin = network.rotary(teacher.layout(tokens.shape[1]), tokens.shape[1] - 1)
    for states in unroll(network, embedded[:, :-1], hidden[:, 0, :-1], cos, sin, depth):
        yield guide(teacher.head(states).float(), teacher.sampling.guidance)


@torch.no_grad()
def acceptance(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded], depth: int = DEPTH) -> list[float]:
    """Returns the probability that a sampled draft is accepted, by depth: the mean of sum min(p, q), both with the backbone's sampling."""
    overlaps: list[list[Tensor]] = [[] for _ in range(depth)]
    for row in rows:
        if len(row.tokens) <= depth:
            continue
        allowed = teacher.allowed_ids(row.tokens[:-1].tolist())
        guided = guide(teacher.head(row.hidden[:, 1:].to(network.bias.device).float()), teacher.sampling.guidance)
        p = torch.softmax(warp(guided, teacher.sampling, allowed), -1)
        for level, logits in enumerate(chains(network, teacher, row, depth)):
            q = torch.softmax(warp(logits, teacher.sampling, allowed), -1)
            overlaps[level].append(torch.minimum(p, q).sum(-1)[level:])
    return [round(torch.cat(level).mean().item(), 3) for level in overlaps]


@torch.no_grad()
def accuracy(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded]) -> dict[str, float]:
    """Returns how often the drafter's first token (top_1), or one of its first three (top_3), is the model's most probable one."""
    matches = []
    for row in rows:
        right = guide(teacher.head(row.hidden[:, 1:].to(network.bias.device).float()), teacher.sampling.guidance).argmax(-1)
        matches.append(next(chains(network, teacher, row, 1)).topk(3).indices == right[:, None])
    ranked = torch.cat(matches)
    return {f"top_{k}": round(ranked[:, :k].any(1).float().mean().item(), 3) for k in (1, 3)}


# --- the recipe -------------------------------------------------------------------------------------------------------


def begin(network: FeatureDrafter, teacher: Teacher) -> None:
    """Sets the initial weights: the predicted state equals the state that was read."""
    width = network.settings["width"]
    weight, bias = teacher.final_norm
    with torch.no_grad():
        network.mix.weight[:, :width].normal_(std=0.02)
        network.mix.weight[:, width:] = torch.eye(width)
        network.decoder.norm.weight.copy_(weight)
        if bias is not None:
            network.bias.copy_(bias)


def main(options: FeatureDraftOptions) -> None:
    """Trains, resumes or exports the drafter of one backbone; writes its weights and its entry in the backbone's card."""
    preset = PRESETS[options.preset]
    device = options.device
    require_out(options, {f"--loss {options.loss}": options.loss != "kl"})
    teacher = teacher_of(options.backbone, device, options.prompts)
    target(options, teacher.folder)
    training_data = RecordedSequences(teacher.name, teacher, preset["sequences"], preset["batch"])
    held_out_data = RecordedSequences(teacher.name, teacher, UNSEEN, preset["batch"], held_out=True)
    network = FeatureDrafter(teacher.width, teacher.heads, teacher.inner)
    begin(network, teacher)
    name = f"feature-draft-{teacher.name}-{teacher.weights_hash}{'' if options.loss == 'kl' else f'-{options.loss}'}"
    training = Training(name, network, RATE, options.minutes_of(preset), device, average=0.995)
    training.resume(options.fresh)

    def loss_on(step: int) -> Tensor:
        return loss_of_rows(network, teacher, training_data.batch(step), preset["rows"], options.loss, step)

    def held_out() -> dict[str, Any]:
        loss = loss_of_rows(network, teacher, held_out_data.batch(0), preset["rows"], options.loss, 0)
        named = {"held_out": held_out_data.recorded, "seen": training_data.recorded[: len(held_out_data.recorded)]}
        right = {f"accuracy_{name}": accuracy(network, teacher, rows) for name, rows in named.items()}
        return {"held_out_loss": round(loss.item(), 4), "acceptance": acceptance(network, teacher, held_out_data.recorded)} | right

    if not train_weights(training, options, loss_on, held_out, DECIDES, teacher.usable_row(teacher.backbone.card.get(NAME))):
        return
    row = {
        "settings": network.settings,
        "backbone": teacher.weights_hash,  # with other weights it would stay exact, but its drafts would be worse
        "loss": options.loss,
        "data": f"{len(training_data.recorded)} sequences that the backbone generated itself, {len(held_out_data.recorded)} held out",
    } | training.summary(options.preset, f"feature-draft --backbone {teacher.name} --loss {options.loss}")
    ship(prepare(options, teacher.folder), {weights_file(teacher.folder).name: training.averaged}, {NAME: row})
