"""Trains the heads of XSpecMesh for lowpoly: `launch.py train mesh-heads --preset cpu|gpu`.

Paper: XSpecMesh, section 3.5. The labels are sequences that the backbone itself generated. Stage one trains the heads on the frozen
backbone, sum of 0.8^d CE_d, rate 5e-4 to 5e-5. Stage two trains heads and a low-rank adapter (rank 16, alpha 32, on every linear layer
of the blocks) together, 50 L_backbone + sum of 0.8^d CE_d, rate 1e-4 to 1e-5. Both stages run for heads with cross-attention and for
the multilayer heads of the ablation, which gives rows B to E of the paper's table 3.
Deviations: minutes instead of epochs; heads share the backbone's output layer; they are trained on a sample of rows a step.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import lowpoly
from engine.backbones.bpt import MeshModel
from engine.backbones.bpt_tokens import BPT
from engine.backbones.folder import ship
from engine.backbones.lowpoly import Lowpoly, MaskedGrammar
from engine.cache import Slab
from engine.data.lowpoly_shapes import held_out_shapes, training_shapes
from engine.drafters.mesh_heads import MeshHeads
from engine.sampling import draw, warp
from engine.train.loop import Options, Training, cosine_to_a_tenth
from engine.train.lowpoly import PAD, collate, sample_of

PRESETS = {
    "cpu": {"minutes": 40.0, "sequences": 1024, "batch": 16, "rows": 384},
    "gpu": {"minutes": 8.0, "sequences": 16_384, "batch": 128, "rows": 8192},
}
DEPTH = 6  # heads; methods use as many of them as they are told
DECAY = 0.8
BACKBONE_WEIGHT = 50.0
RANK, ALPHA = 16, 32
LINEAR = ["query_key_value", "query", "key_value", "out", "value_gate"]  # names of the linear layers of a block
TOGETHER = 64  # sequences that are generated in one batch
UNSEEN = 48  # held-out clouds that the curve is measured on
SHARES = {"first": 0.3, "second": 0.2}  # of the minutes, for each kind of heads


@torch.inference_mode()
def generate_together(backbone: Lowpoly, points: Tensor, rng: Generator) -> list[list[int]]:
    """Sequences for clouds [B, 1024, 6], one token of each a pass, under the backbone's own sampling and grammar; ends included."""
    model, count = backbone.model, len(points)
    s, device = model.settings, backbone.device
    looked = model.decoder.look(model.encoder(points.to(device)))
    slab = Slab(s.layers, count, s.heads, 1 + s.length, s.width // s.heads, device, torch.float32)
    table, positions = backbone._tables
    grammar = MaskedGrammar(None)
    states = [grammar.start] * count
    found: list[list[int]] = [[] for _ in range(count)]
    x = model.decoder.start.expand(count, 1, -1)
    for place in range(s.length):
        hidden = model.decoder(x, None, looked, slab)
        slab.keep([0])
        allowed = torch.stack([grammar.allowed(state) for state in states]).to(device)
        scores = warp(model.decoder.head(hidden[:, 0]).float(), backbone.sampling, allowed)
        tokens = draw(torch.softmax(scores, -1), torch.from_numpy(rng.random(count)))
        for i, token in enumerate(tokens.tolist()):
            if not found[i] or found[i][-1] != BPT.eos:
                found[i].append(token)
                states[i] = grammar.next(states[i], token)
        if all(f[-1] == BPT.eos for f in found):
            break
        x = table[tokens][:, None] + positions[place + 1]
    return found


class Library:
    """Clouds and the sequences that the backbone generated for them; batches as a function of the step."""

    def __init__(self, backbone: Lowpoly, families: tuple[str, ...], count: int, batch: int, first_seed: int = 0, held_out: bool = False):
        self.batch_size = batch
        shapes = [s for s in held_out_shapes(8 * count) if s.family in families][:count] if held_out else None
        samples = [sample_of(s) for s in shapes or training_shapes(2**33 + first_seed, count, families)]
        self.points = collate(samples, Generator(PCG64(first_seed)), 0.0)[0]
        self.tokens: list[list[int]] = []
        for i in range(0, len(samples), TOGETHER):
            self.tokens += generate_together(backbone, self.points[i : i + TOGETHER], Generator(PCG64([first_seed, i])))
            print(f"generated {len(self.tokens)} of {len(samples)} sequences", flush=True)
        self.order = sorted(range(len(samples)), key=lambda i: len(self.tokens[i]))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Points [B, 1024, 6] and tokens int64 [B, L] padded with -1, of nearly equal lengths."""
        rng = Generator(PCG64([5, step]))
        first = int(rng.integers(max(1, len(self.order) - self.batch_size + 1)))
        chosen = self.order[first : first + self.batch_size]
        longest = max(len(self.tokens[i]) for i in chosen)
        tokens = torch.full((len(chosen), longest), PAD)
        for row, i in zip(tokens, chosen, strict=True):
            row[: len(self.tokens[i])] = torch.tensor(self.tokens[i])
        return self.points[chosen], tokens


class Pupil(nn.Module):
    """Heads on a backbone, which is frozen or wears an adapter."""

    def __init__(self, model: MeshModel, heads: MeshHeads, adapted: bool):
        super().__init__()
        self.heads, self.decoder, self.adapted = heads, model.decoder, adapted
        self._encoder = [model.encoder]  # never trained, not part of the state
        for p in model.parameters():
            p.requires_grad_(False)
        if adapted:
            self.decoder.blocks = _with_adapter(self.decoder.blocks)

    def hidden(self, points: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states [B, L, width] (row i predicts token i) and the condition [B, C, width]."""
        d = self.decoder
        with torch.no_grad():
            condition = self._encoder[0](points)
            start = d.start.expand(len(tokens), 1, -1)
            x = torch.cat([start, d.table()[tokens[:, :-1].clamp(min=0)] + d.positions[: tokens.shape[1] - 1]], 1)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril_()
        with torch.set_grad_enabled(self.adapted and torch.is_grad_enabled()):
            return d(x, mask, [block.cross_attention.look(condition) for block in d.blocks]), condition

    def losses(self, points: Tensor, tokens: Tensor, rows: int, rng: Generator | None) -> tuple[Tensor, Tensor, Tensor]:
        """Cross-entropy of the backbone, of every head [D] and each head's top-1 accuracy [D], on a sample of rows (None: all)."""
        hidden, condition = self.hidden(points, tokens)
        b, length = tokens.shape
        real = tokens != PAD
        own = self.decoder.head(hidden[real])
        backbone = F.cross_entropy(own.float(), tokens[real])
        features = self.heads.features(hidden, self.heads.look(condition))  # [D, B, L, width]
        ahead = torch.full((self.heads.depth, b, length), PAD, device=tokens.device)
        for d in range(self.heads.depth):
            ahead[d, :, : max(0, length - d - 1)] = tokens[:, d + 1 :]
        flat, labels = features.flatten(1, 2), ahead.flatten(1)
        usable = torch.nonzero(labels[0] != PAD)[:, 0]
        if rng is not None and len(usable) > rows:
            usable = usable[torch.from_numpy(rng.choice(len(usable), rows, replace=False)).to(usable.device)]
        logits = self.heads.logits(flat[:, usable], self.decoder.head.weight, self.decoder.head.bias)
        labels = labels[:, usable]
        each = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=PAD, reduction="none").view_as(labels)
        seen = (labels != PAD).float()
        right = ((logits.argmax(-1) == labels) * seen).sum(1) / seen.sum(1)
        return backbone, (each * seen).sum(1) / seen.sum(1), right


def _with_adapter(blocks: nn.ModuleList) -> nn.Module:
    from peft import LoraConfig, inject_adapter_in_model

    return inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEAR, lora_dropout=0.0), blocks)


def main(options: Options) -> None:
    """Trains both stages for both kinds of heads, or resumes where it stopped; writes heads, adapters and the card."""
    preset = PRESETS[options.preset]
    device = "cuda" if options.preset == "gpu" else "cpu"
    minutes = options.minutes or preset["minutes"]
    backbone = lowpoly.load(device=device)
    families = tuple(backbone.card["families"])
    library = Library(backbone, families, preset["sequences"], preset["batch"])
    unseen = Library(backbone, families, UNSEEN, preset["batch"], 10_000, held_out=True)
    for kind in ("cross", "mlp"):
        first = train_stage(options, preset, kind, False, None, library, unseen, device, minutes * SHARES["first"])
        train_stage(options, preset, kind, True, first, library, unseen, device, minutes * SHARES["second"])


def train_stage(
    options: Options, preset: dict[str, Any], kind: str, adapted: bool, start: MeshHeads | None,
    library: Library, unseen: Library, device: str, minutes: float,
) -> MeshHeads:  # fmt: skip
    """One stage for one kind of heads; returns the averaged heads."""
    model = lowpoly.load_model().to(device)
    s = model.settings
    heads = MeshHeads(DEPTH, s.width, s.heads, s.vocabulary, kind)
    if start is not None:
        heads.load_state_dict(start.state_dict())
    name = f"heads_{kind}{'_lora' if adapted else ''}"
    pupil = Pupil(model, heads, adapted)
    rate = 1e-4 if adapted else 5e-4
    training = Training(name, pupil, rate, minutes, device, 50, 0.995, 0.0, betas=(0.9, 0.99), schedule=cosine_to_a_tenth)
    training.resume(options.fresh)
    weights = torch.tensor([DECAY ** (d + 1) for d in range(DEPTH)], device=device)

    def loss_of(step: int) -> Tensor:
        points, tokens = (x.to(device) for x in library.batch(step))
        own, each, _ = pupil.losses(points, tokens, preset["rows"], Generator(PCG64([6, step])))
        return (weights * each).sum() + (BACKBONE_WEIGHT * own if adapted else 0.0)

    def held_out() -> dict[str, Any]:
        own, each, right = zip(*(pupil.losses(*(x.to(device) for x in unseen.batch(i)), 0, None) for i in range(4)), strict=True)
        return {
            "nats_backbone": round(torch.stack(own).mean().item(), 4),
            "nats": [round(x, 3) for x in torch.stack(each).mean(0).tolist()],
            "top_1": [round(x, 3) for x in torch.stack(right).mean(0).tolist()],
        }

    if not options.export:
        training.run(loss_of, held_out)
    pupil.load_state_dict(training.averaged)
    ship_stage(name, pupil, training, options.preset, adapted, unseen, device)
    return heads


def ship_stage(name: str, pupil: Pupil, training: Training, preset: str, adapted: bool, unseen: Library, device: str) -> None:
    """Writes heads, and an adapter with its divergence from the plain backbone."""
    known = lowpoly.read_card(lowpoly.FOLDER).get("heads", {})
    row = {"settings": pupil.heads.settings} | training.summary(preset, "mesh-heads")
    if adapted:
        row["divergence"] = divergence(pupil, unseen, device)
        save_adapter(pupil.decoder.blocks, name.removeprefix("heads_").removesuffix("_lora"))
    ship(lowpoly.FOLDER, {f"{name}.safetensors": dict(pupil.heads.state_dict())}, {"heads": known | {name: row}})


def save_adapter(blocks: nn.Module, kind: str) -> None:
    """The adapter in peft's own format, half precision."""
    from peft import LoraConfig, get_peft_model_state_dict
    from safetensors.torch import save_file

    folder = lowpoly.FOLDER / f"lora_{kind}"
    folder.mkdir(parents=True, exist_ok=True)
    LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEAR, lora_dropout=0.0, inference_mode=True).save_pretrained(str(folder))
    state = {f"base_model.model.{k}": v.half().contiguous().cpu() for k, v in get_peft_model_state_dict(blocks).items()}
    save_file(state, str(folder / "adapter_model.safetensors"))


@torch.no_grad()
def divergence(pupil: Pupil, unseen: Library, device: str) -> dict[str, float]:
    """KL(plain || merged) in nats a token and total variation, mean over the plain backbone's own sequences, before any warp."""
    plain = Pupil(lowpoly.load_model().to(device), pupil.heads, False)
    kl, tv = [], []
    for i in range(4):
        points, tokens = (x.to(device) for x in unseen.batch(i))
        real = tokens != PAD
        a, b = (torch.log_softmax(m.decoder.head(m.hidden(points, tokens)[0][real]).float(), -1) for m in (plain, pupil))
        kl.append((a.exp() * (a - b)).sum(-1).mean().item())
        tv.append((0.5 * (a.exp() - b.exp()).abs().sum(-1)).mean().item())
    return {"kl": round(float(np.mean(kl)), 5), "tv": round(float(np.mean(tv)), 5)}
