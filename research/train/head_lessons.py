"""Training data of mesh draft heads: sequences that the backbone generates, its hidden states, and heads on the frozen backbone."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import lowpoly
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.lowpoly_together import decode_read
from engine.core import Prompt
from engine.drafters.mesh_heads import MeshHeads
from engine.errors import BadKnob
from engine.files import write_text
from engine.nearest import SEEDS
from engine.networks.card import has_card
from engine.networks.mesh_decoder import MeshModel
from research.train import loop
from research.train.decision import Measure
from research.train.later_tokens import (
    DEPTH,
    PAD,
    all_places,
    cross_entropies,
    head_logits,
    labels_after,
    some_places,
    top_1,
)
from research.train.loop import Training, cosine_to_a_tenth
from research.train.lowpoly import MeshSample, collate

DECIDES = Measure("top_1", higher=True)
RANK, ALPHA = 16, 32
LINEAR = ["query_key_value", "query", "key_value", "out", "value_gate"]  # names of the linear layers of a block
TOGETHER = 64  # sequences that are generated in one batch


@dataclass
class HeadOptions(loop.RecipeOptions):
    """The options of this recipe, with the backbone and the meshes."""

    backbone: str = field(default="lowpoly", metadata=loop.argument("lowpoly, or an imported model of meshes", metavar="NAME|PATH"))
    shapes: Path | None = field(
        default=None,
        metadata=loop.argument("for an imported model: train on these meshes (procedural shapes)", type=Path, metavar="FOLDER"),
    )
    start: Path | None = field(
        default=None,
        metadata=loop.argument("heads for other weights of lowpoly; without --out, written there", type=Path, metavar="FOLDER"),
    )

    def __post_init__(self) -> None:
        """Raises BadKnob for a start that is no model of lowpoly."""
        super().__post_init__()
        if self.start is None:
            return
        if self.backbone != "lowpoly":
            raise BadKnob("--start names another folder of lowpoly's weights; an imported model has its own. Leave one of them out.")
        if not has_card(self.start):
            raise BadKnob(f"--start {self.start} contains no model. Name a folder that `launch.py train lowpoly --out` wrote.")

    @property
    def base(self) -> Path:
        """The folder of the weights that the heads are for."""
        return self.start or lowpoly.FOLDER


def heads_training(
    name: str, model: nn.Module, rate: float, minutes: float, device: str, muon: str = "", betas: tuple[float, float] = (0.9, 0.99)
) -> Training:
    """Returns the training of heads, or of an adapter: short, and without weight decay."""
    return Training(name, model, rate, minutes, device, 50, 0.995, 0.0, muon, betas=betas, schedule=cosine_to_a_tenth)


def head_numbers(each: Iterable[Tensor], right: Iterable[Tensor]) -> dict[str, list[float]]:
    """Returns the means of the heads' cross-entropies and accuracies, both [D] per batch."""
    numbers = {"nats": each, "top_1": right}
    return {name: [round(x, 3) for x in torch.stack([*rows]).mean(0).tolist()] for name, rows in numbers.items()}


def generate_together(backbone: Lowpoly, points: Tensor, rng: Generator, longest: int | None = None) -> list[list[int]]:
    """Returns sequences for point clouds [B, N, 6], ends included, with the backbone's sampling and grammar; `rng` draws their seeds.

    longest : a sequence stops at this length; None: at the backbone's
    """
    prompts = [Prompt(seed=int(seed)) for seed in rng.integers(0, SEEDS, len(points))]
    return decode_read(backbone, points, prompts, longest)


def generate_once(backbone: Lowpoly, points: Tensor, seed: int, together: int = TOGETHER, longest: int | None = None) -> list[list[int]]:
    """Does the same for any number of point clouds, and stores the sequences with the checkpoints, so that a resumed run does not generate
    them again."""
    cut = f"_{longest}_{hashlib.sha256(points.numpy().tobytes()).hexdigest()[:12]}" if longest else ""  # clouds of any folder
    path = loop.CHECKPOINTS / f"generated_{backbone.weights_hash[:12]}_{len(points)}_{seed}{cut}.json"
    if path.exists():
        return json.loads(path.read_text())
    sequences: list[list[int]] = []
    for i in range(0, len(points), together):
        sequences += generate_together(backbone, points[i : i + together], Generator(PCG64([seed, i])), longest)
        print(f"generated {len(sequences)} of {len(points)} sequences", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(sequences))
    return sequences


class CloudSequences:
    """Point clouds and their sequences; batches are a function of the step. The backbone generates the first `generated` sequences, the
    others are the tokens of the shapes. Sequences in which the last head has no label are left out."""

    def __init__(
        self, backbone: Lowpoly, samples: Iterable[MeshSample], generated: int, batch: int, seed: int,
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

    def batch_indices(self, step: int) -> list[int]:
        """Returns the indices of a batch of sequences of nearly equal length."""
        first = int(Generator(PCG64([5, step])).integers(max(1, len(self.order) - self.batch_size + 1)))
        return self.order[first : first + self.batch_size]

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Returns points [B, N, 6] and tokens int64 [B, L] padded with -1."""
        indices = self.batch_indices(step)
        return self.points[indices], pad_rows([torch.tensor(self.tokens[i]) for i in indices])


def pad_rows(rows: list[Tensor]) -> Tensor:
    """Returns rows of different lengths as one tensor, padded with -1."""
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


class HeadStudent(nn.Module):
    """Heads on a backbone that is frozen or has an adapter."""

    def __init__(self, model: MeshModel, heads: MeshHeads, adapted: bool):
        super().__init__()
        self.heads, self.decoder, self.adapted = heads, model.decoder, adapted
        self._read = [model.read]  # never trained, not part of the state
        for p in model.parameters():
            p.requires_grad_(False)
        if adapted:
            self.decoder.blocks = _with_adapter(self.decoder.blocks)

    def hidden_states(self, points: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Returns hidden states [B, L, width] (row i predicts token i) and the condition [B, C, width]."""
        d = self.decoder
        with torch.no_grad():
            reading = self._read[0](points)
            condition = reading.condition
            start = d.start.expand(len(tokens), 1, -1)
            x = torch.cat([start, reading.embed(d.table(), tokens[:, :-1].clamp(min=0)) + d.positions[: tokens.shape[1] - 1]], 1)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).tril_()
        with torch.set_grad_enabled(self.adapted and torch.is_grad_enabled()):
            return d(x, mask, [block.cross_attention.keys_values(condition) for block in d.blocks]), condition

    def losses(self, points: Tensor, tokens: Tensor, rows: int | None, rng: Generator | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the backbone's cross-entropy, and the results of `head_losses`."""
        hidden, condition = self.hidden_states(points, tokens)
        real = tokens != PAD
        own = F.cross_entropy(self.decoder.head(hidden[real]).float(), tokens[real])
        return own, *self.head_losses(hidden, condition, tokens, rows, rng)

    def head_losses(
        self, hidden: Tensor, condition: Tensor, tokens: Tensor, rows: int | None, rng: Generator | None
    ) -> tuple[Tensor, Tensor | None]:
        """Returns the cross-entropy [D] of every head on `rows` places, equally many in each sequence, and None. With rows = None: on all
        places, and the top-1 accuracy [D]."""
        places = some_places(tokens, rows, rng) if rows else all_places(tokens)
        logits = head_logits(self.heads, hidden, condition, places, self.decoder.head)
        labels = labels_after(tokens, places, self.heads.depth)
        return cross_entropies(logits, labels), None if rows else top_1(logits, labels)


class Memory:
    """Hidden states and conditions of a library, computed once by a frozen backbone, for stage one."""

    @torch.no_grad()
    def __init__(self, student: HeadStudent, library: CloudSequences, device: str, together: int = TOGETHER):
        """together : sequences per pass"""
        self.library, self.device = library, device
        self.hidden: list[Tensor] = [torch.empty(0)] * len(library.tokens)  # half precision, because it takes hundreds of megabytes
        self.conditions: list[Tensor] = list(self.hidden)
        for first in range(0, len(library.order), together):
            indices = library.order[first : first + together]
            tokens = pad_rows([torch.tensor(library.tokens[i]) for i in indices])
            hidden, condition = student.hidden_states(library.points[indices].to(device), tokens.to(device))
            for i, one, behind in zip(indices, hidden, condition, strict=True):
                self.hidden[i], self.conditions[i] = one[: len(library.tokens[i])].half(), behind.half()

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor]:
        """Returns hidden states [B, L, width], conditions [B, C, width] and tokens int64 [B, L] of the library's batch of a step."""
        return self.of(self.library.batch_indices(step))

    def of(self, indices: list[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the same for the sequences with these indices."""
        tokens = pad_rows([torch.tensor(self.library.tokens[i]) for i in indices]).to(self.device)
        hidden = nn.utils.rnn.pad_sequence([self.hidden[i] for i in indices], batch_first=True)
        return hidden.float(), torch.stack([self.conditions[i] for i in indices]).float(), tokens


def _with_adapter(blocks: nn.ModuleList) -> nn.Module:
    from peft import LoraConfig, inject_adapter_in_model

    return inject_adapter_in_model(LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=LINEAR, lora_dropout=0.0), blocks)
