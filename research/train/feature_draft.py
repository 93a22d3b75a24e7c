"""Trains the drafter of tree methods: `launch.py train feature-draft [--backbone pictogram|lowpoly] [--loss kl|paper|adt]`.

Paper: EAGLE, Li et al., arXiv 2401.15077, with guidance as in the trainer of LANTERN, Jang et al., arXiv 2410.03355. The backbone generates
the training sequences. Their tokens and the last hidden states of both guidance branches are kept in `.training/`. From token t and the
state that predicted it, the drafter learns the state that predicts token t+1. The states get uniform noise, because after the first level
the drafter reads its own. `paper` is the paper's loss: smooth L1 on the states and a tenth of the cross-entropy towards the model's
distribution, for each branch; `adt` is ADT-Tree's, cross-entropy plus a tenth of L1.
Deviations: The default loss is KL(p || q) of the guided distributions at the sampling temperature, because acceptance depends on them
(1 - TV), plus smooth L1, because the next level reads the state. It is taken at three levels, each on the drafter's own states of the level
before, as a chain of drafts reads them (after HASS, Zhang et al., arXiv 2408.15766, and EAGLE-3, Li et al., arXiv 2503.01840). Training is
timed in minutes, not epochs. The output layer runs on a sample of rows in each step, and training ignores the grammar. Pictures are
recorded at the backbone's default size.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn
from torch.nn import functional as F

from engine.backbones import lowpoly, pictogram
from engine.backbones.pictogram import TEXT_SLOTS, split_words, text_mask
from engine.cache import Slab
from engine.core import Sampling
from engine.drafters.feature_draft import NAME, FeatureDrafter, weights_file
from engine.errors import BadKnob
from engine.files import whole_file
from engine.layout import Layout, Line, Raster
from engine.networks.mesh_decoder import Reading
from engine.networks.transformer import causal
from engine.networks.vq import FACTOR
from engine.networks.weights import ship
from engine.sampling import draw, guide, warp
from engine.words.emoji_scenes import caption, held_out_scenes, lessons_of, trained_scenes
from engine.words.looks import Look, looks_of_scene
from research.train import loop
from research.train.decision import Measure, may_ship, needs_out, prepare, target
from research.train.head_lessons import generate_together
from research.train.loop import Training
from research.train.lowpoly import PAD, collate, sample_of
from research.train.recorded import Recorded
from research.worlds.lowpoly_shapes import held_out_shapes, training_shapes, turned

PRESETS = {
    "cpu": {"minutes": 30.0, "sequences": 1536, "batch": 8, "rows": 768},
    "gpu": {"minutes": 6.0, "sequences": 4096, "batch": 64, "rows": 8192},
}
DECIDES = Measure("acceptance", higher=True)
TOGETHER = 32  # sequences that are generated in one batch and kept in one file
LOOKED = (48, 48)  # sizes of what the captions name, if pictogram reads looks: prefixes of a batch have one length
UNSEEN = 16  # held-out sequences that acceptance is measured on
DEPTH = 5  # levels that acceptance is measured on
LEVELS = 3  # levels that our loss trains; the paper's trains one
RATE = 1e-3
FEATURE_WEIGHT = 0.5  # of smooth L1, relative to KL
PAPER_WEIGHT = 0.1  # of the cross-entropy, relative to smooth L1
ADT_WEIGHT = 0.1  # of L1, relative to the cross-entropy (ADT-Tree)
LOSSES = "kl: guided distributions; paper: smooth L1 and a tenth of cross-entropy; adt: cross-entropy and a tenth of L1"
DROPPED = 10  # one caption in so many is empty, so that the drafter also learns pictures without a condition (ADT-Tree)
NOISE = 0.2  # width of the uniform noise on the states, relative to their root mean square


@dataclass
class Options(loop.Options):
    """The options of this recipe, with the backbone and the loss."""

    backbone: str = "pictogram"
    prompts: Path | None = None
    loss: str = "kl"

    @staticmethod
    def parser(name: str) -> argparse.ArgumentParser:
        """Returns the parser of `launch.py train NAME`."""
        p = loop.Options.parser(name)
        p.add_argument("--backbone", metavar="NAME|PATH", default="pictogram", help=f"{', '.join(TEACHERS)}, or an imported model")
        p.add_argument("--prompts", type=Path, metavar="FILE", help="for an imported model: a prompt in each line (emoji captions)")
        p.add_argument("--loss", choices=["kl", "paper", "adt"], default="kl", help=LOSSES)
        return p


class Teacher(Protocol):
    """A backbone that generates sequences and returns its hidden states."""

    name: str  # of the backbone, for files and messages
    folder: Path  # that the drafter is written to
    weights_hash: str
    sampling: Sampling
    width: int
    heads: int
    inner: int  # width of the drafter's feed-forward part, chosen so that its file stays near 2 MB
    final_norm: tuple[Tensor, Tensor | None]  # weight and bias, each [H]
    vocabulary: int
    trunk: nn.Module  # with the `blocks` that `run` applies
    linear: tuple[str, ...]  # names of the blocks' linear layers that process the rows of a sequence

    def questions(self, count: int, held_out: bool) -> Tensor:
        """Returns conditions to generate from, [count, ...]."""
        ...

    def generate(self, said: Tensor, rng: Generator) -> list[Recorded]:
        """Returns sequences for conditions [B, ...], one token of each a pass, with the backbone's default sampling."""
        ...

    def embed(self, said: Tensor, tokens: Tensor) -> Tensor:
        """Returns embeddings [branches * B, L, H] of tokens int64 [B, L], branch by branch."""
        ...

    def prefix(self, said: Tensor) -> Tensor:
        """Returns the rows before the tokens, [branches * B, P, H]; the last one predicts the first token."""
        ...

    def mask(self, count: int) -> Tensor:
        """Returns the attention mask of the first `count` rows, prefix included: bool [count, count]."""
        ...

    def run(self, said: Tensor, x: Tensor, slots: Tensor, mask: Tensor, slab: Any) -> Tensor:
        """Returns last hidden states of rows [branches * B, R, H] at slots int64 [R] (0 = the first of the prefix); the slab holds their
        keys and values."""
        ...

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits [..., V] of hidden states [..., H]."""
        ...

    def layout(self, length: int) -> Layout:
        """Returns the layout of a sequence of this length."""
        ...

    def allowed(self, tokens: list[int]) -> Tensor | None:
        """Returns the ids that may follow each token, bool [L, V]; None without a grammar."""
        ...


class PictureTeacher:
    """pictogram, with captions of the lessons that it was trained on."""

    def __init__(self, device: str):
        self.backbone, self.name = pictogram.load(device=device), "pictogram"
        self.model = self.backbone.model.requires_grad_(False)
        self.folder, self.weights_hash, self.sampling = self.backbone.folder, self.backbone.weights_hash, self.backbone.sampling
        self.side = self.backbone._side(None)
        self.width, self.heads, self.inner = self.model.width, self.model.decoder.heads, 6 * self.model.width // 5
        self.final_norm = (self.model.decoder.norm.weight, None)
        self.table, self.rows = self.model.token_table(), self.model.head_table()
        self.vocabulary, self.trunk = len(self.rows), self.model.decoder
        self.linear = ("query_key_value", "attention_out", "gate_up", "feed_out")
        widths = [Look("", "", size).tokens(self.side) for size in LOOKED] if self.backbone.looks else []
        self.rotary = tuple(t.to(self.table.device) for t in self.model.rotary(self.side, widths))
        self.spelt = ["", *self.backbone.card["words"]]
        self.before = TEXT_SLOTS + sum(n * n for n in widths)

    def questions(self, count: int, held_out: bool) -> Tensor:
        """Returns word ids int64 [count, 32]."""
        lessons = lessons_of(self.backbone.card)
        many = 8 * count if self.backbone.looks else count
        scenes = held_out_scenes(many, lessons) if held_out else trained_scenes(2**42, many, lessons=lessons)
        if self.backbone.looks:
            scenes = [scene for scene in scenes if [look.side for look in looks_of_scene(scene)] == list(LOOKED)][:count]
        found = torch.zeros(count, TEXT_SLOTS, dtype=torch.int64)
        for i, scene in enumerate(scenes):
            if not held_out and i % DROPPED == DROPPED - 1:
                continue
            found[i] = torch.tensor(self.backbone.ids_of(split_words(caption(scene, i))))
        return found

    def _pair(self, said: Tensor) -> Tensor:
        """Returns captions [B, 32] followed by as many empty ones, [branches * B, 32]."""
        said = said.to(self.table.device)
        return said if self.sampling.guidance == 1 else torch.cat([said, torch.zeros_like(said)])

    @torch.inference_mode()
    def generate(self, said: Tensor, rng: Generator) -> list[Recorded]:
        """Returns pictures for captions [B, 32]."""
        pair, model, device = self._pair(said), self.model, self.table.device
        decoder, length = model.decoder, self.side**2
        slab = Slab(
            len(decoder.blocks), len(pair), decoder.heads, self.before + length, decoder.width // decoder.heads, device, torch.float32
        )
        cos, sin = self.rotary
        prefix, gist, before = self.prefix(said), model.gist(pair, self.side), self.before
        decoder(prefix[:, :before], cos[:before], sin[:before], self.mask(before), slab)
        slab.keep(list(range(before)))
        x, states, tokens = prefix[:, before:], [], []
        for slot in range(before, before + length):
            states.append(decoder(x, cos[slot : slot + 1], sin[slot : slot + 1], None, slab))
            slab.keep([0])
            logits = self.head(states[-1]).view(-1, len(said), len(self.rows))
            p = torch.softmax(warp(guide(logits.float(), self.sampling.guidance), self.sampling), -1)
            tokens.append(draw(p, torch.from_numpy(rng.random(len(said)))))
            x = self.table[tokens[-1]].repeat(len(pair) // len(said), 1)[:, None] + gist
        hidden = torch.cat(states, 1).unflatten(0, (-1, len(said))).half().cpu()
        return [Recorded(*row) for row in zip(said.cpu(), torch.stack(tokens, 1).cpu(), hidden.transpose(0, 1).contiguous(), strict=True)]

    def embed(self, said: Tensor, tokens: Tensor) -> Tensor:
        """Returns the token's row of the table plus the gist of the caption, which is empty in the second branch."""
        pair = self._pair(said)
        return self.table[tokens].repeat(len(pair) // len(said), 1, 1) + self.model.gist(pair, self.side)

    def prefix(self, said: Tensor) -> Tensor:
        """Returns the rows of the caption, the looks and the gist."""
        pair = self._pair(said)
        return self.model.prefix(pair, self.side, self._looks(pair))

    def _looks(self, said: Tensor) -> list[Tensor]:
        """Returns the tokens of the looks of captions [B, 32], each [B, 3, n*n]; anything for an empty caption, which has none."""
        if not self.backbone.looks:
            return []
        some = [torch.zeros(3, Look("", "", size).tokens(self.side) ** 2, dtype=torch.int64) for size in LOOKED]
        rows = [self.backbone.looks_of([self.spelt[i] for i in ids if i], self.side) or some for ids in said.tolist()]
        return [torch.stack(each).to(self.table.device) for each in zip(*rows, strict=True)]

    def mask(self, count: int) -> Tensor:
        """Returns a mask in which words and looks see each other."""
        return text_mask(count, self.table.device, self.before)

    def run(self, said: Tensor, x: Tensor, slots: Tensor, mask: Tensor, slab: Any) -> Tensor:
        """Runs the decoder."""
        cos, sin = self.rotary
        return self.trunk(x, cos[slots], sin[slots], mask, slab)

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits of picture tokens."""
        return F.linear(hidden, self.rows)

    def layout(self, length: int) -> Layout:
        """Returns a square."""
        return Raster(self.side, self.side, FACTOR)

    def allowed(self, tokens: list[int]) -> None:
        """Returns None: any token may follow any other."""


class MeshTeacher:
    """lowpoly, with point clouds of the families that it was trained on."""

    def __init__(self, device: str):
        self.backbone, self.name = lowpoly.load(device=device), "lowpoly"
        self.model = self.backbone.model.requires_grad_(False)
        self.folder, self.weights_hash, self.sampling = self.backbone.folder, self.backbone.weights_hash, self.backbone.sampling
        s = self.model.settings
        self.width, self.heads, self.inner = s.width, s.heads, s.inner
        self.final_norm = (self.model.decoder.norm.weight, self.model.decoder.norm.bias)
        self.table = self.model.decoder.table()
        self.vocabulary, self.trunk = s.vocabulary, self.model.decoder
        self.linear = ("query_key_value", "query", "out", "value_gate")
        self._newest: tuple[Tensor, Reading] | None = None

    def questions(self, count: int, held_out: bool) -> Tensor:
        """Returns points [count, N, 6], as many as lowpoly reads, of shapes that face any side, as those that lowpoly learned from."""
        families, rng = tuple(self.backbone.card["families"]), Generator(PCG64(8))
        if held_out:
            shapes = iter([s for s in held_out_shapes(8 * count) if s.family in families][:count])
        else:
            shapes = training_shapes(2**34, count, families)
        return collate([sample_of(turned(s, rng)) for s in shapes], rng, 0.0, self.backbone.points)[0]

    @torch.no_grad()
    def _read(self, said: Tensor) -> Reading:
        """What the model reads of point clouds; the newest is kept, because a step of the stream asks four times for the same."""
        if self._newest is None or self._newest[0] is not said:
            self._newest = said, self.model.read(said.to(self.table.device))
        return self._newest[1]

    @torch.inference_mode()
    def generate(self, said: Tensor, rng: Generator) -> list[Recorded]:
        """Returns meshes for point clouds [B, N, 6]; their states come from one pass over the generated tokens."""
        found = generate_together(self.backbone, said, rng)
        tokens = padded([torch.tensor(row) for row in found]).to(self.table.device)
        reading = self._read(said)
        embedded = reading.embedded(self.table, tokens.clamp(min=0)[:, :-1])
        hidden = self.model.training_hidden(reading.condition, embedded).half().cpu()
        rows = zip(said.cpu(), found, hidden, strict=True)
        return [Recorded(cloud, torch.tensor(row), states[None, : len(row)].clone()) for cloud, row, states in rows]

    def embed(self, said: Tensor, tokens: Tensor) -> Tensor:
        """Returns the tokens' rows of the table, with what the clouds add to them, without their positions."""
        return self._read(said).embedded(self.table, tokens)

    def prefix(self, said: Tensor) -> Tensor:
        """Returns the start vector."""
        return self.trunk.start.expand(len(said), 1, -1)

    def mask(self, count: int) -> Tensor:
        """Returns a causal mask."""
        return causal(count, 0, self.table.device)

    def run(self, said: Tensor, x: Tensor, slots: Tensor, mask: Tensor, slab: Any) -> Tensor:
        """Runs the decoder on the point clouds."""
        looked = self.trunk.look(self._read(said).condition)
        positions = F.pad(self.trunk.positions, (0, 0, 1, 0))  # the start vector has no position
        return self.trunk(x + positions[slots], mask, looked, slab)

    def head(self, hidden: Tensor) -> Tensor:
        """Returns logits of all ids."""
        return self.model.decoder.head(hidden)

    def layout(self, length: int) -> Layout:
        """Returns a line."""
        return Line()

    def allowed(self, tokens: list[int]) -> Tensor:
        """Returns the ids that BPT's grammar allows after each token."""
        grammar = lowpoly.MaskedGrammar(None)
        state, found = grammar.start, []
        for token in tokens:
            state = grammar.next(state, token)
            found.append(grammar.allowed(state))
        return torch.stack(found).to(self.table.device)


TEACHERS: dict[str, type[Teacher]] = {"pictogram": PictureTeacher, "lowpoly": MeshTeacher}


def teacher_of(name_or_folder: str, device: str, prompts: Path | None = None) -> Teacher:
    """Returns the teacher of a backbone: one of TEACHERS, or an imported model. prompts : a file of them, for the latter"""
    if name_or_folder not in TEACHERS:
        from research.train.checkpoint_teacher import CheckpointTeacher  # needs transformers, which takes seconds

        return CheckpointTeacher(name_or_folder, device, prompts)
    if prompts is not None:
        raise BadKnob(f"--prompts is for imported models; {name_or_folder} has data of its own. Leave it out.")
    return TEACHERS[name_or_folder](device)


def padded(rows: list[Tensor]) -> Tensor:
    """Returns int64 [B, L], short rows padded with -1."""
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


# --- recordings -------------------------------------------------------------------------------------------------------


class Library:
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
        questions = teacher.questions(count, held_out)
        for i in range(0, len(questions), TOGETHER):
            path = folder / f"{'unseen' if held_out else 'seen'}_{i}_{min(TOGETHER, len(questions) - i)}.pt"
            if not path.exists():
                self._record(teacher, questions[i : i + TOGETHER], Generator(PCG64([9, i, held_out])), path)
                print(f"generated {min(i + TOGETHER, len(questions))} of {len(questions)} sequences", flush=True)
            self.recorded += [Recorded(**row) for row in torch.load(path, weights_only=True) if len(row["tokens"]) >= shortest]
        self.order = sorted(range(len(self.recorded)), key=lambda i: len(self.recorded[i].tokens))

    def _record(self, teacher: Teacher, said: Tensor, rng: Generator, path: Path) -> None:
        """Writes a portion, completely or not at all."""
        generated = teacher.generate(said, rng)
        found = [{name: own.clone() for name, own in vars(row).items()} for row in generated]  # of a view, a file would hold everything
        with whole_file(path) as part:
            torch.save(found, part)

    def near(self, step: int) -> list[int]:
        """Returns the indices of a batch of sequences of nearly equal length."""
        first = int(Generator(PCG64([7, step])).integers(max(1, len(self.order) - self.batch_size + 1)))
        return self.order[first : first + self.batch_size]

    def batch(self, step: int) -> list[Recorded]:
        """Returns a batch of sequences of nearly equal length."""
        return [self.recorded[i] for i in self.near(step)]


def together(teacher: Teacher, rows: list[Recorded], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Returns tokens int64 [B, L] padded with -1, their embeddings [branches * B, L, H], and states [branches, B, L, H]."""
    tokens = padded([row.tokens for row in rows]).to(device)
    hidden = torch.zeros(len(rows[0].hidden), *tokens.shape, rows[0].hidden.shape[-1], device=device)
    for i, row in enumerate(rows):
        hidden[:, i, : len(row.tokens)] = row.hidden.to(device).float()
    return tokens, teacher.embed(torch.stack([row.said for row in rows]), tokens.clamp(min=0)), hidden


# --- losses -----------------------------------------------------------------------------------------------------------


def loss_of_rows(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded], count: int, kind: str, step: int) -> Tensor:
    """Returns the loss of one pass over some sequences; the output layer runs on `count` rows."""
    device = network.bias.device
    tokens, embedded, hidden = together(teacher, rows, device)
    features, wanted = hidden[:, :, :-1], hidden[:, :, 1:]
    r = torch.Generator(device).manual_seed(step)
    size = features.square().mean().sqrt()
    noisy = features + (torch.rand(features.shape, generator=r, device=device) - 0.5) * NOISE * size
    length = features.shape[2]
    cos, sin = network.rotary(teacher.layout(tokens.shape[1]), length)
    levels = LEVELS if kind == "kl" else 1
    real = torch.nonzero(F.pad(tokens[:, levels:], (levels - 1, 0), value=PAD) != PAD)  # rows where a chain of every level can end
    total = torch.zeros((), device=device)
    for found in unrolled(network, embedded[:, :-1], noisy.flatten(0, 1), cos, sin, levels):
        chosen = real[torch.randperm(len(real), generator=r, device=device)[: count // levels]]
        states, right = (x[:, chosen[:, 0], chosen[:, 1]] for x in (found.view_as(wanted), wanted))
        total = total + loss_of_states(teacher, states, right, kind)
    return total / levels


def loss_of_states(teacher: Teacher, found: Tensor, wanted: Tensor, kind: str) -> Tensor:
    """Returns the loss of predicted states [branches, rows, H] against the model's states."""
    regression = F.smooth_l1_loss(found, wanted)
    logits = teacher.head(found)
    with torch.no_grad():
        right = teacher.head(wanted)
    if kind == "paper":
        return regression + PAPER_WEIGHT * F.cross_entropy(logits.flatten(0, 1), right.softmax(-1).flatten(0, 1))
    if kind == "adt":
        return F.cross_entropy(logits.flatten(0, 1), right.softmax(-1).flatten(0, 1)) + ADT_WEIGHT * F.l1_loss(found, wanted)
    p = torch.softmax(warp(guide(right, teacher.sampling.guidance), teacher.sampling), -1)
    q = torch.log_softmax(guide(logits, teacher.sampling.guidance) / (teacher.sampling.temperature or 1.0), -1)
    return (torch.xlogy(p, p) - p * q).sum(-1).mean() + FEATURE_WEIGHT * regression


class Levels:
    """Replaces a slab of one layer: keeps the keys and values of all levels so far, with their gradients."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, Tensor]] = []

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Takes keys and values [B, heads, R, d]; returns those of all visible rows."""
        self.kept.append((keys, values))
        return torch.cat([k for k, _ in self.kept], 2), torch.cat([v for _, v in self.kept], 2)


def unrolled(network: FeatureDrafter, embedded: Tensor, features: Tensor, cos: Tensor, sin: Tensor, depth: int) -> Iterator[Tensor]:
    """Yields, for 1 .. depth levels, the states [B, R, H] that chains of that length predict; one chain ends at every row.

    embedded, features : [B, R, H], token embeddings and the model's states. At level j, row i reads token i and the drafter's own state of
    row i-1 from the level before. It sees what a chain that began j-1 tokens earlier sees: true rows up to its root, then one ancestor from
    every level, and itself.
    """
    device, count, slab = embedded.device, embedded.shape[1], Levels()
    at = torch.arange(count, device=device)
    for level in range(1, depth + 1):
        mask = torch.zeros(count, level, count, dtype=torch.bool, device=device)
        mask[:, 0] = at <= at[:, None] - level + 1
        for j in range(1, level):
            mask[:, j] = at == at[:, None] - level + 1 + j
        mask[at, level - 1, at] = True  # even if there is no chain, because it would begin before the first token
        states = network(embedded, features, cos, sin, mask.flatten(1), slab)
        yield states
        features = F.pad(states[:, :-1], (0, 0, 1, 0))


def chains(network: FeatureDrafter, teacher: Teacher, row: Recorded, depth: int) -> Iterator[Tensor]:
    """Yields, for 1 .. depth levels, guided logits [L-1, V] of the next token after each token, from a chain of that length."""
    tokens, embedded, hidden = together(teacher, [row], network.bias.device)
    cos, sin = network.rotary(teacher.layout(tokens.shape[1]), tokens.shape[1] - 1)
    for states in unrolled(network, embedded[:, :-1], hidden[:, 0, :-1], cos, sin, depth):
        yield guide(teacher.head(states).float(), teacher.sampling.guidance)


@torch.no_grad()
def acceptance(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded], depth: int = DEPTH) -> list[float]:
    """Returns the probability that a sampled draft is accepted, by depth: the mean of sum min(p, q), both with the backbone's sampling."""
    found: list[list[Tensor]] = [[] for _ in range(depth)]
    for row in rows:
        if len(row.tokens) <= depth:
            continue
        allowed = teacher.allowed(row.tokens[:-1].tolist())
        guided = guide(teacher.head(row.hidden[:, 1:].to(network.bias.device).float()), teacher.sampling.guidance)
        p = torch.softmax(warp(guided, teacher.sampling, allowed), -1)
        for level, logits in enumerate(chains(network, teacher, row, depth)):
            q = torch.softmax(warp(logits, teacher.sampling, allowed), -1)
            found[level].append(torch.minimum(p, q).sum(-1)[level:])
    return [round(torch.cat(level).mean().item(), 3) for level in found]


@torch.no_grad()
def accuracy(network: FeatureDrafter, teacher: Teacher, rows: list[Recorded]) -> dict[str, float]:
    """Returns how often the drafter's first token (top_1), or one of its first three (top_3), is the model's most probable one."""
    found = []
    for row in rows:
        right = guide(teacher.head(row.hidden[:, 1:].to(network.bias.device).float()), teacher.sampling.guidance).argmax(-1)
        found.append(next(chains(network, teacher, row, 1)).topk(3).indices == right[:, None])
    ranked = torch.cat(found)
    return {f"top_{k}": round(ranked[:, :k].any(1).float().mean().item(), 3) for k in (1, 3)}


# --- the recipe -------------------------------------------------------------------------------------------------------


def begin(network: FeatureDrafter, teacher: Teacher) -> None:
    """Sets the initial weights, with which the predicted state is the state that was read."""
    width = network.settings["width"]
    weight, bias = teacher.final_norm
    with torch.no_grad():
        network.mix.weight[:, :width].normal_(std=0.02)
        network.mix.weight[:, width:] = torch.eye(width)
        network.decoder.norm.weight.copy_(weight)
        if bias is not None:
            network.bias.copy_(bias)


def main(options: Options) -> None:
    """Trains, resumes or exports the drafter of one backbone; writes its weights and its entry in the backbone's card."""
    preset = PRESETS[options.preset]
    device = options.device
    needs_out(options, {f"--loss {options.loss}": options.loss != "kl"})
    teacher = teacher_of(options.backbone, device, options.prompts)
    target(options, teacher.folder)
    seen = Library(teacher.name, teacher, preset["sequences"], preset["batch"])
    unseen = Library(teacher.name, teacher, UNSEEN, preset["batch"], held_out=True)
    network = FeatureDrafter(teacher.width, teacher.heads, teacher.inner)
    begin(network, teacher)
    name = f"feature-draft-{teacher.name}-{teacher.weights_hash}{'' if options.loss == 'kl' else f'-{options.loss}'}"
    training = Training(name, network, RATE, options.minutes_of(preset), device, average=0.995)
    training.resume(options.fresh)

    def loss_on(step: int) -> Tensor:
        return loss_of_rows(network, teacher, seen.batch(step), preset["rows"], options.loss, step)

    def held_out() -> dict[str, Any]:
        loss = loss_of_rows(network, teacher, unseen.batch(0), preset["rows"], options.loss, 0)
        named = {"held_out": unseen.recorded, "seen": seen.recorded[: len(unseen.recorded)]}
        right = {f"accuracy_{name}": accuracy(network, teacher, rows) for name, rows in named.items()}
        return {"held_out_loss": round(loss.item(), 4), "acceptance": acceptance(network, teacher, unseen.recorded)} | right

    if not options.export:
        training.run(loss_on, held_out)
    known = teacher.backbone.card.get(NAME)
    if known is not None and known.get("backbone") != teacher.weights_hash:
        known = None  # the backbone refuses to load it
    if not may_ship(training, options, DECIDES, known):
        return
    row = {
        "settings": network.settings,
        "backbone": teacher.weights_hash,  # with other weights it would stay exact, but its drafts would be worse
        "loss": options.loss,
        "data": f"{len(seen.recorded)} sequences that the backbone generated itself, {len(unseen.recorded)} held out",
    } | training.summary(options.preset, f"feature-draft --backbone {teacher.name} --loss {options.loss}")
    ship(prepare(options, teacher.folder), {weights_file(teacher.folder).name: training.averaged}, {NAME: row})
