"""Trains the heads of XSpecMesh: `launch.py train mesh-heads [--backbone lowpoly|NAME] --preset cpu|gpu`. This file trains lowpoly's;
imported_mesh_heads.py trains those of imported models.

Paper: XSpecMesh, section 3.5. The labels are sequences that the backbone generated. Stage one trains the heads on the frozen backbone with
the sum of 0.8^d CE_d, at rates from 5e-4 to 5e-5. Stage two trains heads and a low-rank adapter (rank 16, alpha 32, on every linear layer
of the blocks) together with 50 L_backbone + sum of 0.8^d CE_d, at rates from 1e-4 to 1e-5. Both stages run for heads with cross-attention
and for the multilayer heads of the ablation, which gives rows B to E of the paper's table 3.
Deviations: Training is timed in minutes, not epochs. The heads share the backbone's output layer and are trained on a sample of rows in
each step. The few minutes on a CPU need higher rates (at 5e-4, a head predicted 7 % of its tokens after 350 steps). Because generation is
slow on a CPU, the heads also learn from the token sequences of training shapes. `--start FOLDER` trains heads and adapters for other
weights, such as the control of the paper's table 3: weights of `train lowpoly --later 0`, which learned nothing from heads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn

from engine.backbones import lowpoly
from engine.drafters.mesh_heads import MeshHeads
from engine.errors import BadKnob
from engine.networks.weights import hash_of, part_files, read_tensors, ship
from research.train import imported_mesh_heads
from research.train.decision import prepare, target, train_weights
from research.train.head_lessons import (
    ALPHA,
    DECIDES,
    LINEAR,
    RANK,
    CloudSequences,
    HeadOptions,
    HeadStudent,
    Memory,
    head_numbers,
    heads_training,
)
from research.train.later_tokens import (
    DEPTH,
    KINDS,
    PAD,
    weighted_sum,
)
from research.train.loop import Training, half_precision
from research.train.lowpoly import sample_of
from research.worlds.lowpoly_shapes import held_out_shapes, stretch_and_turn, training_shapes

PRESETS = {  # rows (places in a step) and rates: for stage one and stage two
    "cpu": {"minutes": 40.0, "generated": 1024, "drawn": 5120, "batch": 16, "rows": (384, 768), "rates": (2e-3, 1e-3)},
    "gpu": {"minutes": 8.0, "generated": 16_384, "drawn": 16_384, "batch": 128, "rows": (8192, 8192), "rates": (5e-4, 1e-4)},
}
BACKBONE_WEIGHT = 50.0
UNSEEN = 48  # held-out clouds that the curve is measured on
SHARES = {"first": 0.3, "second": 0.2}  # of the minutes, for each kind of heads


def main(options: HeadOptions) -> None:
    """Trains, resumes or exports both stages for both kinds of heads; writes heads, adapters and the card."""
    if options.backbone != "lowpoly":
        return imported_mesh_heads.train(options)
    if options.shapes is not None:
        raise BadKnob("--shapes is for imported models; lowpoly has its own shapes. Leave it out.")
    preset = PRESETS[options.preset]
    device = options.device
    minutes = options.minutes_of(preset)
    folder = target(options, options.base)
    backbone = lowpoly.load(str(options.base), device)
    families = tuple(backbone.card["families"])
    rng = Generator(PCG64(3))
    shapes = (stretch_and_turn(s, rng) for s in training_shapes(2**33, preset["generated"] + preset["drawn"], families))
    library = CloudSequences(backbone, map(sample_of, shapes), preset["generated"], preset["batch"], 0)
    boxes = [s for s in held_out_shapes(8 * UNSEEN) if s.family in families]
    unseen = CloudSequences(backbone, map(sample_of, boxes[:UNSEEN]), UNSEEN, preset["batch"], 1)
    memory = Memory(HeadStudent(backbone.model, None, False), library, device)
    for kind in KINDS:
        first = train_stage(options, preset, kind, None, library, memory, unseen, folder, minutes * SHARES["first"])
        train_stage(options, preset, kind, first, library, None, unseen, folder, minutes * SHARES["second"])


def train_stage(
    options: HeadOptions, preset: dict[str, Any], kind: str, start: MeshHeads | None,
    library: CloudSequences, memory: Memory | None, unseen: CloudSequences, folder: Path, minutes: float,
) -> MeshHeads:  # fmt: skip
    """Runs one stage for one kind of heads and returns the averaged heads. The first stage reads `memory`; the second starts from the heads
    of the first."""
    adapted, device = start is not None, options.device
    rows = preset["rows"][adapted]
    model = lowpoly.load_model(options.base).to(device)
    s = model.settings
    heads = MeshHeads(DEPTH, s.width, s.heads, s.vocabulary, kind)
    if adapted:
        heads.load_state_dict(start.state_dict())
    name = f"heads_{kind}{'_lora' if adapted else ''}"
    student = HeadStudent(model, heads, adapted)
    checkpoint = f"mesh-heads-{name.removeprefix('heads_').replace('_', '-')}{start_suffix(options)}"
    training = heads_training(checkpoint, student, preset["rates"][adapted], minutes, device, "heads.")
    known, resumed = shipped_row(name, options.base), training.resume(options.fresh)
    if not resumed and not options.fresh and not adapted and known and known["settings"] == heads.settings:
        shipped = read_tensors(options.base / f"{name}.safetensors")
        training.warm_start({f"heads.{k}": v for k, v in shipped.items()}, known)

    def loss_of(step: int) -> Tensor:
        rng = Generator(PCG64([6, step]))
        batch = [x.to(device) for x in (library if adapted else memory).batch(step)]
        with half_precision(device):
            if not adapted:
                each, _ = student.head_losses(*batch, rows, rng)
                return weighted_sum(each)
            own, each, _ = student.losses(*batch, rows, rng)
            return weighted_sum(each) + BACKBONE_WEIGHT * own

    def held_out() -> dict[str, Any]:
        own, each, right = zip(*(student.losses(*(x.to(device) for x in unseen.batch(i)), None, None) for i in range(4)), strict=True)
        return {"nats_backbone": round(torch.stack(own).mean().item(), 4)} | head_numbers(each, right)

    ships = train_weights(training, options, loss_of, held_out, DECIDES, known)
    student.load_state_dict(training.averaged)
    if ships:
        prepare(options, options.base)
        ship_stage(folder, name, student, training, options.preset, adapted, unseen, device)
    return heads


def start_suffix(options: HeadOptions) -> str:
    """Returns the suffix that checkpoints have when heads are for other weights than the shipped ones; else ""."""
    return f"-{hash_of(part_files(options.base, 'model'))[:12]}" if options.start else ""


def shipped_row(name: str, folder: Path) -> dict[str, Any] | None:
    """Returns the card's entry for the heads in a model's folder, None if there are none for its weights."""
    base = hash_of(part_files(folder, "model"))
    known = lowpoly.read_card(folder).get("heads", {}).get(name)
    return known if known is not None and known.get("backbone", base) == base else None


def ship_stage(
    folder: Path, name: str, student: HeadStudent, training: Training, preset: str, adapted: bool, unseen: CloudSequences, device: str
) -> None:
    """Writes the heads and, in stage two, the adapter with its divergence from the plain backbone."""
    known = lowpoly.read_card(folder).get("heads", {})
    row = {"settings": student.heads.settings, "backbone": hash_of(part_files(folder, "model"))} | training.summary(preset, "mesh-heads")
    if adapted:
        row["divergence"] = divergence(folder, student, unseen, device)

    def adapter(new: Path) -> None:
        if adapted:
            save_adapter(student.decoder.blocks, new / f"lora_{name.removeprefix('heads_').removesuffix('_lora')}")

    weights = {f"{name}.safetensors": dict(student.heads.state_dict())}
    ship(folder, weights, {"heads": known | {name: row}}, write_more=adapter)


def save_adapter(blocks: nn.Module, folder: Path) -> None:
    """Writes the adapter in peft's format, in half precision."""
    from peft import LoraConfig, get_peft_model_state_dict
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEAR, lora_dropout=0.0, inference_mode=True).save_pretrained(str(folder))
    state = {f"base_model.model.{k}": v.half().contiguous().cpu() for k, v in get_peft_model_state_dict(blocks).items()}
    save_file(state, str(folder / "adapter_model.safetensors"))
    (folder / "adapter_model.safetensors").chmod(0o644)  # a checkout must be readable for all users


@torch.no_grad()
def divergence(base: Path, student: HeadStudent, unseen: CloudSequences, device: str) -> dict[str, float]:
    """Returns KL(plain || merged) in nats per token and total variation, mean over sequences of the plain backbone, before any warp."""
    plain = HeadStudent(lowpoly.load_model(base).to(device), student.heads, False)
    kl, tv = [], []
    for i in range(4):
        points, tokens = (x.to(device) for x in unseen.batch(i))
        real = tokens != PAD
        a, b = (torch.log_softmax(m.decoder.head(m.hidden_states(points, tokens)[0][real]).float(), -1) for m in (plain, student))
        kl.append((a.exp() * (a - b)).sum(-1).mean().item())
        tv.append((0.5 * (a.exp() - b.exp()).abs().sum(-1)).mean().item())
    return {"kl": round(float(np.mean(kl)), 5), "tv": round(float(np.mean(tv)), 5)}
