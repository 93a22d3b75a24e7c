"""Trains row and column heads of pictures: `launch.py train spatial-heads [--backbone pictogram|NAME]`.

Paper: SSD, Xiang et al., arXiv 2606.20543: the backbone is frozen and generates the training pictures; the heads learn its last hidden
states. It shares the recorded tokens and states with `feature-draft`. The states get uniform noise, because in a
run some of them were computed after drafts.
Deviations: the loss is that of our tree drafter, KL(p || q) of the guided distributions at the sampling temperature plus smooth L1,
because acceptance depends on the distributions; the paper's is smooth L1 alone. The distance to the newest token is drawn for every
slot; a tenth of the slots see no row above, and a tenth no newest token. Training is timed in minutes, not epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from engine.drafters.spatial_heads import NAME, SpatialHeads, weights_file
from engine.networks.weights import ship
from engine.sampling import guide, warp
from research.train.decision import Measure, prepare, target, train_weights
from research.train.feature_draft import NOISE, RecordedSequences, loss_of_states, stack_rows, teacher_of
from research.train.loop import Training
from research.train.teachers import Recorded, Teacher, TeacherOptions

PRESETS = {
    "cpu": {"minutes": 20.0, "sequences": 768, "batch": 8, "rows": 512},
    "gpu": {"minutes": 4.0, "sequences": 4096, "batch": 64, "rows": 8192},
}
DECIDES = Measure("acceptance", higher=True)
PICTURES = ("pictogram",)  # of the shipped models
UNSEEN = 16  # held-out sequences that acceptance is measured on
RATE = 2e-3
HIDDEN_SHARE = 0.1  # share of slots that see no row above, and share that see no newest token


@dataclass
class Slots:
    """Slots of sequences: the sequence, the position, the distance to the newest token (0: hidden), and whether the row above is
    visible."""

    sequence: Tensor
    position: Tensor
    far: Tensor
    above: Tensor

    @staticmethod
    def draw(sequences: int, length: int, columns: int, reach: int, count: int, seed: int) -> Slots:
        """Returns `count` random slots."""
        r = torch.Generator().manual_seed(seed)
        sequence = torch.randint(sequences, (count,), generator=r)
        position = torch.randint(1, length, (count,), generator=r)
        far = 1 + torch.randint(reach, (count,), generator=r)
        is_shown = torch.rand(2, count, generator=r) >= HIDDEN_SHARE
        far = torch.where((far <= position) & is_shown[0], far, 0)
        return Slots(sequence, position, far, (position >= columns) & is_shown[1])


def predict_states(heads: SpatialHeads, embedded: Tensor, states: Tensor, columns: int, slots: Slots, seed: int | None = None) -> Tensor:
    """Returns the states [branches, N, H] that the heads predict for slots, from embeddings and states [branches, B, L, H].

    seed : of the noise on the states that they read; None: no noise
    """
    b, at, far = slots.sequence, slots.position, slots.far
    above = torch.stack([at - columns, at - columns + 1], -1).clamp(min=0)
    newest = at - far.clamp(min=1)
    distance = torch.where(far > 0, far + heads.reach * (at // columns != newest // columns), 0)
    both = b[:, None].expand(-1, 2)
    above_states, newest_states = (x if seed is None else add_noise(x, seed) for x in (states[:, both, above], states[:, b, newest]))
    shown, distance = slots.above.to(states.device), distance.to(states.device)
    return heads(above_states, embedded[:, both, above], shown, newest_states, embedded[:, b, newest], distance)


def add_noise(states: Tensor, seed: int) -> Tensor:
    """Returns states with uniform noise."""
    r = torch.Generator(states.device).manual_seed(seed)
    size = states.square().mean().sqrt()
    return states + (torch.rand(states.shape, generator=r, device=states.device) - 0.5) * NOISE * size


def head_inputs(heads: SpatialHeads, teacher: Teacher, rows: list[Recorded]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns tokens int64 [B, L], and embeddings and states [branches, B, L, H], mixed by guidance into one branch if the heads
    are guided."""
    tokens, embedded, states = stack_rows(teacher, rows, heads.bias.device)
    embedded = embedded.view_as(states)
    if heads.guided:
        embedded, states = (guide(x, teacher.sampling.guidance)[None] for x in (embedded, states))
    return tokens, embedded, states


@torch.no_grad()
def is_affine(teacher: Teacher) -> bool:
    """Returns True if the output layer is affine, so that guidance of its inputs is guidance of its outputs."""
    r = torch.Generator().manual_seed(0)
    pair = torch.randn(2, 4, teacher.width, generator=r).to(teacher.final_norm[0].device)
    mixed, separate = teacher.head(guide(pair, 3.0)).float(), guide(teacher.head(pair).float(), 3.0)
    return bool((mixed - separate).abs().max() < 1e-2 * separate.abs().max())


def loss_on_rows(heads: SpatialHeads, teacher: Teacher, rows: list[Recorded], count: int, step: int) -> Tensor:
    """Returns the loss on `count` random slots of some sequences."""
    tokens, embedded, states = head_inputs(heads, teacher, rows)
    columns = teacher.layout(tokens.shape[1]).reach
    slots = Slots.draw(*tokens.shape, columns, heads.reach, count, step)
    states_ahead = predict_states(heads, embedded, states, columns, slots, step)
    return loss_of_states(teacher, states_ahead, states[:, slots.sequence, slots.position], "kl")


@torch.no_grad()
def acceptance(heads: SpatialHeads, teacher: Teacher, rows: list[Recorded], rows_too: bool = True, columns_too: bool = True) -> list[float]:
    """Returns the probability that a sampled draft is accepted, by the distance to the newest token, 1 to `reach`: the mean of
    sum min(p, q), both with the backbone's sampling, over all slots with a row above. rows_too, columns_too : inputs that the heads see"""
    means = []
    for far in range(1, heads.reach + 1):
        overlaps = []
        for row in rows:
            _, embedded, states = head_inputs(heads, teacher, [row])
            columns = teacher.layout(len(row.tokens)).reach
            at = torch.arange(columns, len(row.tokens))
            slots = Slots(torch.zeros_like(at), at, torch.full_like(at, far * rows_too), torch.full_like(at, columns_too, dtype=torch.bool))
            p, q = (
                torch.softmax(warp(guide(teacher.head(x).float(), teacher.sampling.guidance), teacher.sampling), -1)
                for x in (states[:, 0, at], predict_states(heads, embedded, states, columns, slots))
            )
            overlaps.append(torch.minimum(p, q).sum(-1))
        means.append(round(torch.cat(overlaps).mean().item(), 3))
    return means


def begin(heads: SpatialHeads, teacher: Teacher) -> None:
    """Sets the initial weights: the predicted state is a mixture of the states that were read."""
    width = heads.settings["width"]
    weight, bias = teacher.final_norm
    with torch.no_grad():
        for layer in (heads.above, heads.left):
            layer.weight.normal_(std=0.02)
            layer.weight[:, :width] += 0.5 * torch.eye(width, device=layer.weight.device)
        heads.scale.copy_(weight)
        if bias is not None:
            heads.bias.copy_(bias)


def main(options: TeacherOptions) -> None:
    """Trains, resumes or exports the heads of one backbone; writes their weights and their entry in the backbone's card."""
    preset = PRESETS[options.preset]
    device = options.device
    teacher = teacher_of(options.backbone, device, options.prompts)
    target(options, teacher.folder)
    training_data = RecordedSequences(teacher.name, teacher, preset["sequences"], preset["batch"])
    held_out_data = RecordedSequences(teacher.name, teacher, UNSEEN, preset["batch"], held_out=True)
    heads = SpatialHeads(teacher.width, 6 * teacher.width // 5, guided=is_affine(teacher))
    begin(heads, teacher)
    name = f"spatial-heads-{teacher.name}-{teacher.weights_hash}"
    training = Training(name, heads, RATE, options.minutes_of(preset), device, average=0.995)
    training.resume(options.fresh)

    def loss_on(step: int) -> Tensor:
        return loss_on_rows(heads, teacher, training_data.batch(step), preset["rows"], step)

    def held_out() -> dict[str, Any]:
        loss = loss_on_rows(heads, teacher, held_out_data.batch(0), preset["rows"], 0)
        return {
            "held_out_loss": round(loss.item(), 4),
            "acceptance": acceptance(heads, teacher, held_out_data.recorded),
            "acceptance_rows": acceptance(heads, teacher, held_out_data.recorded, columns_too=False),
            "acceptance_columns": acceptance(heads, teacher, held_out_data.recorded, rows_too=False)[:1],
        }

    if not train_weights(training, options, loss_on, held_out, DECIDES, teacher.usable_row(teacher.backbone.card.get(NAME))):
        return
    row = {
        "settings": heads.settings,
        "backbone": teacher.weights_hash,  # with other weights they would stay exact, but their drafts would be worse
        "data": f"{len(training_data.recorded)} sequences that the backbone generated itself, {len(held_out_data.recorded)} held out",
    } | training.summary(options.preset, f"spatial-heads --backbone {teacher.name}")
    ship(prepare(options, teacher.folder), {weights_file(teacher.folder).name: training.averaged}, {NAME: row})
