"""Trains a predictive stream: `launch.py train predictive-stream [--backbone pictogram|lowpoly] [--both-ways]`.

Paper: Unifying Autoregressive and Discrete Diffusion Language Modeling via Cross-Regressive Decoding, Abulkhanov et al., algorithm 3. The
labels are sequences that the backbone generated. Control rows read them and give distributions p. Windows of predictive rows, which use the
adapter, read an earlier draft of the same window with noise and give distributions q. A replay buffer keeps the drafts. The loss is the
cross-entropy of q towards p; the weight of a position is one plus the number of consecutive right drafts after it.
Deviations: Both guidance branches are trained together on the guided distributions, because acceptance depends on them. Drafts are drawn
from q, as in decoding, and are not its most probable tokens. Noise follows a front of random length, as in decoding. A window's first row
reads a token that would have been rejected there, drawn from the residual of q against p: a joint pass does not know the replacement yet,
so in decoding that row never reads the true token. "Right" is the probability of acceptance, the sum of min(p, q); it equals the paper's
indicator if both distributions have a single token. Several windows of a sequence share its control rows, which are computed once and
without gradient. Windows for meshes are shorter than the paper's 16, because drafts are never accepted that far. p includes the grammar of
meshes, q learns it. Training is timed in minutes, not epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from numpy.random import PCG64, Generator
from torch import Tensor, nn

from engine.drafters.predictive_stream import folder_of, is_trained, layers_of, read_stream
from engine.networks.weights import read_card, ship
from engine.sampling import draw, guide, residual, warp
from research.train.adapters import new_adapter, write_adapter
from research.train.decision import Measure, prepare, target, train_weights
from research.train.feature_draft import TEACHERS, RecordedSequences, teacher_of
from research.train.head_lessons import heads_training
from research.train.loop import argument
from research.train.teachers import Recorded, Teacher, TeacherOptions, pad_rows

PRESETS = {
    "cpu": {"minutes": 40.0, "sequences": 1536, "batch": 4, "rows": 96},
    "gpu": {"minutes": 8.0, "sequences": 4096, "batch": 32, "rows": 192},
}
DECIDES = Measure("acceptance_refused", higher=True)
WIDTHS = {"pictogram": 16, "lowpoly": 8}  # rows of a window
WIDTH = 16  # of imported models
RANK, ALPHA = 32, 64.0
RATE = 1e-3
UNSEEN = 16  # held-out sequences
UNSEEN_ROWS = 192  # predictive rows of each


@dataclass
class StreamOptions(TeacherOptions):
    """The options of this recipe, with the attention mask."""

    both_ways: bool = field(
        default=False, metadata=argument("let predictive rows also see later ones, as in the paper; stored next to the causal adapter")
    )


class FrozenCache:
    """Replaces a cache: keeps the keys and values of control rows, then puts them before those of predictive rows."""

    def __init__(self) -> None:
        self.kept: list[tuple[Tensor, Tensor]] = []
        self.recording = True

    def write(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Stores or reads keys and values [B, heads, R, d]; returns the keys and values of all visible rows."""
        if self.recording:
            self.kept.append((keys, values))
            return keys, values
        old_keys, old_values = self.kept[layer]
        return torch.cat([old_keys, keys], 2), torch.cat([old_values, values], 2)


class StreamStudent(nn.Module):
    """An adapter on a frozen backbone."""

    def __init__(self, teacher: Teacher, causal: bool):
        super().__init__()
        self.lora = new_adapter(teacher.trunk, teacher.linear, RANK, ALPHA)
        self.causal = causal
        self._teacher = [teacher]  # never trained, not part of the state

    def probs(self, rows: list[Recorded], starts: list[int], guesses: Tensor) -> tuple[Tensor, Tensor]:
        """Returns targets p and log q, both [B, windows * width, V], of the positions after each row of some windows.

        starts : the position of each window's first row; guesses : int64 [B, windows * width], the tokens that the rows read
        """
        teacher, device = self._teacher[0], guesses.device
        prompts = torch.stack([row.condition for row in rows]).to(device)
        tokens = pad_rows([row.tokens for row in rows]).to(device)
        width = len(guesses[0]) // len(starts)
        places = window_places(starts, width).to(device)
        frozen = FrozenCache()
        with torch.no_grad():
            prefix = teacher.prefix(prompts)
            x = torch.cat([prefix, teacher.embed(prompts, tokens[:, :-1].clamp(min=0))], 1)
            count, slots = x.shape[1], prefix.shape[1] + places
            hidden = teacher.run(prompts, x, torch.arange(count, device=device), teacher.mask(count), frozen)
            p = self._targets(hidden[:, slots], rows, places)
        frozen.recording = False
        window = torch.arange(len(places), device=device) // width
        among = window[:, None] == window
        if self.causal:
            among &= places <= places[:, None]
        before = torch.arange(count, device=device) < (slots - torch.arange(len(places), device=device) % width)[:, None]
        with self.lora.on_rows_from(0):
            hidden = teacher.run(prompts, teacher.embed(prompts, guesses), slots, torch.cat([before, among], 1), frozen)
        # top-k and top-p would remove gradients of q where it must gain probability; decoding applies them
        return p, (self._guided_logits(hidden, len(rows)) / (teacher.sampling.temperature or 1.0)).log_softmax(-1)

    def _targets(self, hidden: Tensor, rows: list[Recorded], places: Tensor) -> Tensor:
        """Returns the distributions [B, R, V] that decoding would draw from after the tokens at some places."""
        teacher = self._teacher[0]
        rules = [teacher.allowed_ids(row.tokens.tolist()) for row in rows]
        allowed = None if rules[0] is None else torch.stack([rule[places] for rule in rules])
        return warp(self._guided_logits(hidden, len(rows)), teacher.sampling, allowed).softmax(-1)

    def _guided_logits(self, hidden: Tensor, count: int) -> Tensor:
        """Returns guided logits [count, R, V] of hidden states [branches * count, R, H]."""
        teacher = self._teacher[0]
        logits = teacher.head(hidden).float().unflatten(0, (-1, count)).flatten(1, 2)
        return guide(logits, teacher.sampling.guidance).unflatten(0, (count, -1))


def expected_right(p: Tensor, q: Tensor, width: int) -> Tensor:
    """Returns s of algorithm 3, line 6: the expected number of consecutive right drafts after each position, [B, windows, width].

    p, q : [B, windows * width, V]
    """
    chance = torch.minimum(p, q).sum(-1).unflatten(1, (-1, width))
    expected = torch.zeros_like(chance)
    for t in range(width - 2, -1, -1):
        expected[..., t] = (expected[..., t + 1] + 1) * chance[..., t + 1]
    return expected


def add_noise(guesses: Tensor, width: int, vocabulary: int, rng: Generator) -> Tensor:
    """Returns drafts int64 [B, windows * width] with uniform noise after a front of random length in each window (line 3)."""
    front = torch.from_numpy(rng.integers(0, width + 1, (len(guesses), guesses.shape[1] // width))).repeat_interleave(width, 1)
    noise = torch.from_numpy(rng.integers(0, vocabulary, guesses.shape))
    place = torch.arange(guesses.shape[1]) % width
    return torch.where((place < front).to(guesses.device), guesses, noise.to(guesses.device))


def draw_rejected(p: Tensor, q: Tensor, u: Tensor) -> Tensor:
    """Returns tokens distributed like rejected drafts, int64 [N]: x ~ q is rejected with 1 - p(x)/q(x), so they follow (q - p)+.

    p, q : [..., V] with N rows in all; u : [N], uniform
    """
    return draw(residual(q.flatten(0, -2), p.flatten(0, -2)), u)


class Replay:
    """The replay buffer: for every sequence and position the newest draft (at first the true token, line 2) and the newest draft that would
    be rejected (at first noise)."""

    def __init__(self, recorded: list[Recorded], vocabulary: int, device: str):
        self.guesses = pad_rows([row.tokens for row in recorded]).to(device)
        self.rejected = torch.from_numpy(Generator(PCG64(13)).integers(0, vocabulary, tuple(self.guesses.shape))).to(device)

    def read(self, ids: list[int], places: Tensor, width: int) -> Tensor:
        """Returns the tokens that windows of this width read, int64 [B, R]: a rejected draft, followed by drafts."""
        tokens = self.guesses[ids][:, places]
        tokens[:, ::width] = self.rejected[ids][:, places[::width]]
        return tokens

    def write(self, ids: list[int], places: Tensor, drafts: Tensor, rejected: Tensor) -> None:
        """Stores drafts and rejected drafts, both int64 [B, R] (line 9)."""
        for i, row, wrong in zip(ids, drafts, rejected, strict=True):
            self.guesses[i, places], self.rejected[i, places] = row, wrong


def window_places(starts: list[int], width: int) -> Tensor:
    """Returns the positions that the rows of some windows read, int64 [windows * width]."""
    return torch.cat([torch.arange(s, s + width) for s in starts])


def window_starts(lengths: list[int], count: int, width: int, rng: Generator) -> list[int]:
    """Returns the sorted start positions of random windows of this width that fit in the shortest of some sequences."""
    room = min(lengths) - width
    assert room > 0, f"a sequence of {min(lengths)} tokens has no room for a window of {width}"
    return sorted(rng.integers(0, room, count).tolist())


def main(options: StreamOptions) -> None:
    """Trains, resumes or exports the adapter; writes it in peft's format, with its card."""
    preset = PRESETS[options.preset]
    device = options.device
    teacher = teacher_of(options.backbone, device, options.prompts)
    if teacher.name not in TEACHERS:  # an imported model, whose layers are packed for decoding
        teacher.make_trainable()
    layers, width = layers_of(teacher.trunk), WIDTHS.get(teacher.name, WIDTH)
    target(options, teacher.folder)
    training_data = RecordedSequences(teacher.name, teacher, preset["sequences"], preset["batch"], shortest=width + 2)
    held_out_data = RecordedSequences(teacher.name, teacher, UNSEEN, preset["batch"], held_out=True, shortest=width + 2)
    student = StreamStudent(teacher, not options.both_ways)
    name = f"predictive-stream-{teacher.name}-{teacher.weights_hash}{'-both-ways' if options.both_ways else ''}"
    training = heads_training(name, student, RATE, options.minutes_of(preset), device)
    known = known_card(teacher, options)
    if not training.resume(options.fresh) and not options.fresh and known is not None:
        training.warm_start(state_of(folder_of(teacher.folder, options.both_ways), student, teacher), known)
    replay = Replay(training_data.recorded, teacher.vocabulary, device)

    def loss_of(step: int) -> Tensor:
        rng = Generator(PCG64([11, step]))
        ids = training_data.batch_indices(step)
        starts = window_starts([len(training_data.recorded[i].tokens) for i in ids], preset["rows"] // width, width, rng)
        places = window_places(starts, width)
        guesses = add_noise(replay.read(ids, places, width), width, teacher.vocabulary, rng)
        p, q = student.probs([training_data.recorded[i] for i in ids], starts, guesses)
        with torch.no_grad():
            weight = expected_right(p, q.exp(), width).flatten(1) + 1
            u, v = torch.from_numpy(rng.random((2, q.shape[0] * q.shape[1])))
            drafts, wrong = draw(q.flatten(0, 1).exp(), u), draw_rejected(p, q.exp(), v)
            replay.write(ids, places + 1, drafts.view(len(ids), -1), wrong.view(len(ids), -1))
        return -((p * q).sum(-1) * weight).sum() / weight.sum()

    def held_out() -> dict[str, Any]:
        return acceptance(student, held_out_data.recorded, width, teacher.vocabulary, device)

    if not train_weights(training, options, loss_of, held_out, DECIDES, known):
        return
    student.load_state_dict(training.averaged)
    of_backbone = [f"--backbone {teacher.name}"] if teacher.name != "pictogram" else []
    command = " ".join(["predictive-stream", *(["--both-ways"] if options.both_ways else []), *of_backbone])
    card = {
        "base": {"name": teacher.backbone.name, "weights_hash": teacher.weights_hash},
        "causal": student.causal,
        "window": width,
        "skipped_layers": 0,
        "layers": [0, layers - 1],
        "data": f"{len(training_data.recorded)} sequences that the backbone generated itself, {len(held_out_data.recorded)} held out",
    } | training.summary(options.preset, command)
    folder = folder_of(prepare(options, teacher.folder), options.both_ways)
    ship(folder, {}, card, write_more=lambda new: write_adapter(new, student.lora, teacher.backbone.name, teacher.weights_hash, ALPHA))


def known_card(teacher: Teacher, options: StreamOptions) -> dict[str, Any] | None:
    """Returns the card of the adapter that would be replaced; None if there is none, or if the backbone refuses to load it because it was
    trained for other weights."""
    if not is_trained(teacher.folder, options.both_ways):
        return None
    known = read_card(folder_of(teacher.folder, options.both_ways))
    return known if known.get("base", {}).get("weights_hash") == teacher.weights_hash else None


def state_of(folder: Path, student: StreamStudent, teacher: Teacher) -> dict[str, Tensor]:
    """Returns the adapter in a folder as the student's state."""
    shipped = read_stream(folder, teacher.trunk, teacher.backbone.name, teacher.weights_hash).lora
    places = {path: i for i, path in enumerate(shipped.paths)}
    kinds = {"down": shipped.down, "up": shipped.up}
    return {f"lora.{kind}.{i}": kinds[kind][places[path]] for i, path in enumerate(student.lora.paths) for kind in kinds if path in places}


@torch.no_grad()
def acceptance(student: StreamStudent, recorded: list[Recorded], width: int, vocabulary: int, device: str) -> dict[str, Any]:
    """Returns the probability that a draft is accepted, by position in the window: the mean of sum min(p, q).

    fresh : the rows read noise. refused : the window begins one position later, after a rejection; its rows read the drafts of `fresh`, and
    the first one reads a draft that would be rejected.
    """
    overlaps: dict[str, list[Tensor]] = {"fresh": [], "refused": []}
    for i, row in enumerate(recorded):
        rng = Generator(PCG64([12, i]))
        starts = window_starts([len(row.tokens) - 1], UNSEEN_ROWS // width, width, rng)
        guesses = torch.from_numpy(rng.integers(0, vocabulary, (1, len(starts) * width))).to(device)
        for offset, rows_of_kind in enumerate(overlaps.values()):
            p, q = (probs.view(-1, width, probs.shape[-1]) for probs in student.probs([row], [s + offset for s in starts], guesses))
            rows_of_kind.append(torch.minimum(p, q.exp()).sum(-1))
            drafts = draw(q.exp().flatten(0, 1), torch.from_numpy(rng.random(len(starts) * width))).view(-1, width)
            drafts[:, 0] = draw_rejected(p[:, 0], q[:, 0].exp(), torch.from_numpy(rng.random(len(starts))))
            guesses = drafts.view(1, -1)
    return {f"acceptance_{name}": [round(x, 3) for x in torch.cat(rows).mean(0).tolist()] for name, rows in overlaps.items()}
