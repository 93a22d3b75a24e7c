"""Trains the heads of XSpecMesh: `launch.py train mesh-heads [--backbone lowpoly|NAME] --preset cpu|gpu`. Here for lowpoly; an imported
model goes to imported_mesh_heads.py.

Paper: XSpecMesh, section 3.5. The labels are sequences that the backbone generated. Stage one trains the heads on the frozen backbone with
the sum of 0.8^d CE_d, at rates from 5e-4 to 5e-5. Stage two trains heads and a low-rank adapter (rank 16, alpha 32, on every linear layer
of the blocks) together with 50 L_backbone + sum of 0.8^d CE_d, at rates from 1e-4 to 1e-5. Both stages run for heads with cross-attention
and for the multilayer heads of the ablation, which gives rows B to E of the paper's table 3.
Deviations: Training is timed in minutes, not epochs. The heads share the backbone's output layer and are trained on a sample of rows in
each step. The few minutes on a CPU need higher rates (at 5e-4, a head predicted 7 % of its tokens after 350 steps). Because generation is
slow on a CPU, the heads also learn from the token sequences of training shapes. `--start FOLDER` trains heads and adapters for other
weights, such as those of `train lowpoly --later 0`, which learned nothing from heads: the control that the paper's table 3 asks for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn

from engine.backbones import lowpoly
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.lowpoly_together import decode_read
from engine.core import Prompt
from engine.drafters.mesh_heads import MeshHeads
from engine.errors import BadKnob
from engine.files import write_text
from engine.kernels.cpu.learned import mean_loss
from engine.machine import has_fast_bfloat16
from engine.nearest import SEEDS
from engine.networks.card import has_card
from engine.networks.mesh_decoder import MeshModel
from engine.networks.weights import hash_of, parts, read_tensors, ship
from research.train import loop
from research.train.decision import Measure, may_ship, prepare, target
from research.train.later_tokens import (
    DEPTH,
    KINDS,
    PAD,
    all_places,
    cross_entropies,
    head_logits,
    labels_behind,
    some_places,
    top_1,
    weighted,
)
from research.train.loop import Training, cosine_to_a_tenth
from research.train.lowpoly import Sample, collate, sample_of
from research.worlds.lowpoly_shapes import held_out_shapes, training_shapes, turned

PRESETS = {  # rows (places in a step) and rates: for stage one and stage two
    "cpu": {"minutes": 40.0, "generated": 1024, "drawn": 5120, "batch": 16, "rows": (384, 768), "rates": (2e-3, 1e-3)},
    "gpu": {"minutes": 8.0, "generated": 16_384, "drawn": 16_384, "batch": 128, "rows": (8192, 8192), "rates": (5e-4, 1e-4)},
}
DECIDES = Measure("top_1", higher=True)
BACKBONE_WEIGHT = 50.0
RANK, ALPHA = 16, 32
LINEAR = ["query_key_value", "query", "key_value", "out", "value_gate"]  # names of the linear layers of a block
TOGETHER = 64  # sequences that are generated in one batch
UNSEEN = 48  # held-out clouds that the curve is measured on
SHARES = {"first": 0.3, "second": 0.2}  # of the minutes, for each kind of heads


@dataclass
class Options(loop.Options):
    """The options of this recipe, with the backbone and the meshes."""

    backbone: str = "lowpoly"
    shapes: Path | None = None
    untied: bool = False
    start: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadKnob for heads of another shape that would replace the shipped ones, and for a start that is no model of lowpoly."""
        super().__post_init__()
        if self.untied and (self.out is None or self.backbone != "lowpoly"):
            raise BadKnob("--untied trains other heads of lowpoly than the shipped ones. Name a folder for them with --out.")
        if self.start is None:
            return
        if self.backbone != "lowpoly":
            raise BadKnob("--start names another folder of lowpoly's weights; an imported model has its own. Leave one of the two out.")
        if not has_card(self.start):
            raise BadKnob(f"--start {self.start} holds no model. Name a folder that `launch.py train lowpoly --out` wrote.")

    @property
    def base(self) -> Path:
        """The folder of the weights that the heads are for."""
        return self.start or lowpoly.FOLDER

    @staticmethod
    def parser(name: str) -> argparse.ArgumentParser:
        """Returns the parser of `launch.py train NAME`."""
        p = loop.Options.parser(name)
        p.add_argument("--backbone", metavar="NAME|PATH", default="lowpoly", help="lowpoly, or an imported model of meshes")
        p.add_argument("--shapes", type=Path, metavar="FOLDER", help="for an imported model: train on these meshes (procedural shapes)")
        p.add_argument("--start", type=Path, metavar="FOLDER", help="heads for other weights of lowpoly; without --out, written there")
        p.add_argument("--untied", action="store_true", help="give every head an output layer of its own, as in the paper; needs --out")
        return p


def generate_together(backbone: Lowpoly, points: Tensor, rng: Generator, longest: int | None = None) -> list[list[int]]:
    """Returns sequences for point clouds [B, N, 6], ends included, with the backbone's sampling and grammar; `rng` draws their seeds.

    longest : a sequence stops at this length; None: at the backbone's
    """
    prompts = [Prompt(seed=int(seed)) for seed in rng.integers(0, SEEDS, len(points))]
    return decode_read(backbone, points, prompts, longest)


def generate_once(backbone: Lowpoly, points: Tensor, seed: int, together: int = TOGETHER, longest: int | None = None) -> list[list[int]]:
    """Returns the same for any number of point clouds; stores them with the checkpoints, so that a resumed run does not generate them
    again."""
    cut = f"_{longest}_{hashlib.sha256(points.numpy().tobytes()).hexdigest()[:12]}" if longest else ""  # clouds of any folder
    path = loop.CHECKPOINTS / f"generated_{backbone.weights_hash[:12]}_{len(points)}_{seed}{cut}.json"
    if path.exists():
        return json.loads(path.read_text())
    found: list[list[int]] = []
    for i in range(0, len(points), together):
        found += generate_together(backbone, points[i : i + together], Generator(PCG64([seed, i])), longest)
        print(f"generated {len(found)} of {len(points)} sequences", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(found))
    return found


class Library:
    """Point clouds and their sequences; batches are a function of the step. The backbone generates the first `generated` sequences, the
    others are the tokens of the shapes. Sequences in which the last head has no label are left out."""

    def __init__(
        self, backbone: Lowpoly, samples: Iterable[Sample], generated: int, batch: int, seed: int,
        together: int = TOGETHER, longest: int | None = None,
    ):  # fmt: skip
        """together : sequences that the backbone generates in one batch; longest : longer sequences are left out; None: the backbone's"""
        self.batch_size = batch
        samples = [s for s in samples if len(s.tokens) <= min(backbone.model.settings.length, longest or math.inf)]
        if not samples:
            raise BadKnob(f"No shape fits {backbone.name}: each has more tokens than it is trained on. Give simpler meshes with --shapes.")
        self.points = collate(samples, Generator(PCG64(seed)), 0.0, backbone.points)[0]
        self.tokens = generate_once(backbone, self.points[:generated], seed, together, longest)
        self.tokens += [s.tokens.tolist() for s in samples[len(self.tokens) :]]
        self.order = sorted((i for i, row in enumerate(self.tokens) if len(row) > DEPTH), key=lambda i: len(self.tokens[i]))

    def chosen(self, step: int) -> list[int]:
        """Returns the indices of a batch of sequences of nearly equal length."""
        first = int(Generator(PCG64([5, step])).integers(max(1, len(self.order) - self.batch_size + 1)))
        return self.order[first : first + self.batch_size]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Returns points [B, N, 6] and tokens int64 [B, L] padded with -1."""
        chosen = self.chosen(step)
        return self.points[chosen], padded([torch.tensor(self.tokens[i]) for i in chosen])


def padded(rows: list[Tensor]) -> Tensor:
    """Returns rows of different lengths as one tensor, padded with -1."""
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class Pupil(nn.Module):
    """Heads on a backbone that is frozen or has an adapter."""

    def __init__(self, model: MeshModel, heads: MeshHeads, adapted: bool):
        super().__init__()
        self.heads, self.decoder, self.adapted = heads, model.decoder, adapted
        self._read = [model.read]  # never trained, not part of the state
        for p in model.parameters():
            p.requires_grad_(False)
        if adapted:
            self.decoder.blocks = _with_adapter(self.decoder.blocks)

    def hidden(self, points: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states [B, L, width] (row i predicts token i) and the condition [B, C, width]."""
        d = self.decoder
        with torch.no_grad():
            reading = self._read[0](points)
            condition = reading.condition
            start = d.start.expand(len(tokens), 1, -1)
            x = torch.cat([start, reading.embedded(d.table(), tokens[:, :-1].clamp(min=0)) + d.positions[: tokens.shape[1] - 1]], 1)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril_()
        with torch.set_grad_enabled(self.adapted and torch.is_grad_enabled()):
            return d(x, mask, [block.cross_attention.look(condition) for block in d.blocks]), condition

    def losses(self, points: Tensor, tokens: Tensor, rows: int | None, rng: Generator | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the backbone's cross-entropy, and the results of `head_losses`."""
        hidden, condition = self.hidden(points, tokens)
        real = tokens != PAD
        own = mean_loss(hidden[real], self.decoder.head.weight, self.decoder.head.bias, tokens[real])
        return own, *self.head_losses(hidden, condition, tokens, rows, rng)

    def head_losses(
        self, hidden: Tensor, condition: Tensor, tokens: Tensor, rows: int | None, rng: Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the cross-entropy [D] of every head on `rows` places, equally many in each sequence, and None. With rows = None: on all
        places, and the top-1 accuracy [D]."""
        places = some_places(tokens, rows, rng) if rows else all_places(tokens)
        logits = head_logits(self.heads, hidden, condition, places, self.decoder.head)
        labels = labels_behind(tokens, places, self.heads.depth)
        return cross_entropies(logits, labels), None if rows else top_1(logits, labels)


class Memory:
    """A library's hidden states and conditions from a frozen backbone, so that stage one runs the backbone only once."""

    @torch.no_grad()
    def __init__(self, pupil: Pupil, library: Library, device: str, together: int = TOGETHER):
        """together : sequences of a pass"""
        self.library, self.device = library, device
        self.hidden: list[Tensor] = [torch.empty(0)] * len(library.tokens)  # half precision, because it takes hundreds of megabytes
        self.conditions: list[Tensor] = list(self.hidden)
        for first in range(0, len(library.order), together):
            chosen = library.order[first : first + together]
            tokens = padded([torch.tensor(library.tokens[i]) for i in chosen])
            hidden, condition = pupil.hidden(library.points[chosen].to(device), tokens.to(device))
            for i, one, behind in zip(chosen, hidden, condition, strict=True):
                self.hidden[i], self.conditions[i] = one[: len(library.tokens[i])].half(), behind.half()

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns hidden states [B, L, width], conditions [B, C, width] and tokens int64 [B, L] of the library's batch of a step."""
        return self.of(self.library.chosen(step))

    def of(self, chosen: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the same for the sequences with these indices."""
        tokens = padded([torch.tensor(self.library.tokens[i]) for i in chosen]).to(self.device)
        hidden = nn.utils.rnn.pad_sequence([self.hidden[i] for i in chosen], batch_first=True)
        return hidden.float(), torch.stack([self.conditions[i] for i in chosen]).float(), tokens


def _with_adapter(blocks: nn.ModuleList) -> nn.Module:
    from peft import LoraConfig, inject_adapter_in_model

    return inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEAR, lora_dropout=0.0), blocks)


def main(options: Options) -> None:
    """Trains, resumes or exports both stages for both kinds of heads; writes heads, adapters and the card."""
    if options.backbone != "lowpoly":
        from research.train import imported_mesh_heads  # which imports this file

        return imported_mesh_heads.train(options)
    if options.shapes is not None:
        raise BadKnob("--shapes is for imported models; lowpoly has shapes of its own. Leave it out.")
    preset = PRESETS[options.preset]
    device = options.device
    minutes = options.minutes_of(preset)
    folder = target(options, options.base)
    backbone = lowpoly.load(str(options.base), device)
    families = tuple(backbone.card["families"])
    rng = Generator(PCG64(3))
    shapes = (turned(s, rng) for s in training_shapes(2**33, preset["generated"] + preset["drawn"], families))
    library = Library(backbone, map(sample_of, shapes), preset["generated"], preset["batch"], 0)
    boxes = [s for s in held_out_shapes(8 * UNSEEN) if s.family in families]
    unseen = Library(backbone, map(sample_of, boxes[:UNSEEN]), UNSEEN, preset["batch"], 1)
    memory = Memory(Pupil(backbone.model, None, False), library, device)
    for kind in KINDS:
        first = train_stage(options, preset, kind, None, library, memory, unseen, folder, minutes * SHARES["first"])
        train_stage(options, preset, kind, first, library, None, unseen, folder, minutes * SHARES["second"])


def train_stage(
    options: Options, preset: dict[str, Any], kind: str, start: MeshHeads | None,
    library: Library, memory: Memory | None, unseen: Library, folder: Path, minutes: float,
) -> MeshHeads:  # fmt: skip
    """Runs one stage for one kind of heads and returns the averaged heads. The first stage reads `memory`; the second starts from the heads
    of the first."""
    adapted, device = start is not None, options.device
    rows = preset["rows"][adapted]
    model = lowpoly.load_model(options.base).to(device)
    s = model.settings
    heads = MeshHeads(DEPTH, s.width, s.heads, s.vocabulary, kind, tied=not options.untied)
    if adapted:
        heads.load_state_dict(start.state_dict())
    name = f"heads_{kind}{'_lora' if adapted else ''}"
    pupil = Pupil(model, heads, adapted)
    training = Training(
        f"mesh-heads-{name.removeprefix('heads_').replace('_', '-')}{'-untied' if options.untied else ''}{of_start(options)}",
        pupil,
        preset["rates"][adapted],
        minutes,
        device,
        50,
        0.995,
        0.0,
        "heads.",
        betas=(0.9, 0.99),
        schedule=cosine_to_a_tenth,
    )
    known, resumed = None if options.untied else shipped_row(name, options.base), training.resume(options.fresh, options.slice)
    if not resumed and not options.fresh and not adapted and known and known["settings"] == heads.settings:
        shipped = read_tensors(options.base / f"{name}.safetensors")
        training.warm_start({f"heads.{k}": v for k, v in shipped.items()}, known)
    half = device == "cuda" or has_fast_bfloat16()

    def loss_of(step: int) -> Tensor:
        rng = Generator(PCG64([6, step]))
        batch = [x.to(device) for x in (library if adapted else memory).batch(step)]
        with torch.autocast(device, torch.bfloat16, enabled=half):
            if not adapted:
                each, _ = pupil.head_losses(*batch, rows, rng)
                return weighted(each)
            own, each, _ = pupil.losses(*batch, rows, rng)
            return weighted(each) + BACKBONE_WEIGHT * own

    def held_out() -> dict[str, Any]:
        own, each, right = zip(*(pupil.losses(*(x.to(device) for x in unseen.batch(i)), None, None) for i in range(4)), strict=True)
        return {
            "nats_backbone": round(torch.stack(own).mean().item(), 4),
            "nats": [round(x, 3) for x in torch.stack(each).mean(0).tolist()],
            "top_1": [round(x, 3) for x in torch.stack(right).mean(0).tolist()],
        }

    if not options.export:
        training.run(loss_of, held_out, profile=options.profile)
    pupil.load_state_dict(training.averaged)
    if may_ship(training, options, DECIDES, known):
        prepare(options, options.base)
        ship_stage(folder, name, pupil, training, options.preset, adapted, unseen, device)
    return heads


def of_start(options: Options) -> str:
    """Returns what names the checkpoints of heads for other weights than the shipped ones, "" for those."""
    return f"-{hash_of(parts(options.base, 'model'))[:12]}" if options.start else ""


def shipped_row(name: str, folder: Path) -> dict[str, Any] | None:
    """Returns the card's entry for the heads in a model's folder, None if there are none for its weights."""
    base = hash_of(parts(folder, "model"))
    known = lowpoly.read_card(folder).get("heads", {}).get(name)
    return known if known is not None and known.get("backbone", base) == base else None


def ship_stage(folder: Path, name: str, pupil: Pupil, training: Training, preset: str, adapted: bool, unseen: Library, device: str) -> None:
    """Writes the heads and, in stage two, the adapter with its divergence from the plain backbone."""
    known = lowpoly.read_card(folder).get("heads", {})
    row = {"settings": pupil.heads.settings, "backbone": hash_of(parts(folder, "model"))} | training.summary(preset, "mesh-heads")
    if adapted:
        row["divergence"] = divergence(folder, pupil, unseen, device)

    def adapter(new: Path) -> None:
        if adapted:
            save_adapter(pupil.decoder.blocks, new / f"lora_{name.removeprefix('heads_').removesuffix('_lora')}")

    weights = {f"{name}.safetensors": dict(pupil.heads.state_dict())}
    ship(folder, weights, {"heads": known | {name: row}}, beside=adapter)


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
def divergence(base: Path, pupil: Pupil, unseen: Library, device: str) -> dict[str, float]:
    """Returns KL(plain || merged) in nats a token and total variation, mean over sequences of the plain backbone, before any warp."""
    plain = Pupil(lowpoly.load_model(base).to(device), pupil.heads, False)
    kl, tv = [], []
    for i in range(4):
        points, tokens = (x.to(device) for x in unseen.batch(i))
        real = tokens != PAD
        a, b = (torch.log_softmax(m.decoder.head(m.hidden(points, tokens)[0][real]).float(), -1) for m in (plain, pupil))
        kl.append((a.exp() * (a - b)).sum(-1).mean().item())
        tv.append((0.5 * (a.exp() - b.exp()).abs().sum(-1)).mean().item())
    return {"kl": round(float(np.mean(kl)), 5), "tv": round(float(np.mean(tv)), 5)}
