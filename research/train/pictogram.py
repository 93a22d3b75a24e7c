"""Trains pictogram's decoder on tokens of emoji scenes: `launch.py train pictogram --preset cpu|gpu`.

Each step takes new scenes; with a GPU, where drawing scenes takes longer than training, it takes some new ones and some from a large pool
in memory. Each scene gets a fresh caption, and one caption in ten is dropped for guidance. A third of the captions omit the background, as
users do, and half of these scenes get a plain background of any colour; otherwise the model would memorise pairs of object and background.
All pictures of a step have one scale, and all steps have about as many tokens. The card offers a scale (`--offer`) if its pictures are good
enough. Combinations marked by `Scene.held_out` are never trained on. The curve gives the loss on them and on unseen scenes of trained
combinations, over all tokens and over the tokens of objects, which are what a viewer notices.

Most of a picture is background, which is learned long before the objects. So most steps at 128 and 256 pixels leave out most of the
background's rows, both inputs and losses, and have twice as many pictures (patch dropout as in image classifiers, guided by the scene).
Captions and coordinates do not change, and in the other steps the model sees all rows.

Where the lessons are even, the decoder reads the looks of what a caption names (engine/words/looks.py), captions always name the
background, and all scenes of a step have looks of the same sizes. A decoder that cannot copy yet is drilled first: every object is noise.

Half of the pictures are read with some wrong tokens, while the labels stay right. A model that only ever reads right tokens learns to
follow them instead of the caption: one bad draw then turns a cat into a fox. A third are read with the first rows of one of their objects
at another place, too: otherwise an object that a bad draw begins is completed, and the picture has one too many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.backbones import pictogram
from engine.backbones.looks import Looks
from engine.backbones.pictogram import TEXT_SLOTS, PictogramModel, text_mask
from engine.errors import BadKnob
from engine.networks.vq import FACTOR, PictureTokenizer
from engine.networks.weights import part_files, read_card, read_parts, split
from engine.networks.weights import ship as ship_files
from engine.words.emoji_objects import OBJECTS
from engine.words.looks import MOST, anonymize
from engine.words.reading import split as split_words
from engine.words.world import ANY, CANVAS, Scene
from research.train import lessons as lessons_options
from research.train.decision import Measure, prepare, target, train_weights
from research.train.loop import Training, argument, half_precision, straight_down, trapezoid
from research.train.pictogram_tokenizer import to_tensor
from research.worlds.emoji_scenes import (
    FIRST,
    FONT_NAME,
    LESSONS,
    SceneSettings,
    caption,
    held_out_scenes,
    looks_of_scene,
    object_picture,
    render,
    trained_scenes,
    vocabulary,
)

PRESETS = {
    "cpu": {"tokens": 4096, "minutes": 100.0, "rate": 3.5e-3, "fresh": 1.0, "scales": {8: 0.1, 16: 0.4, 32: 0.5}, "lessons": "first"},
    "gpu": {"tokens": 131_072, "minutes": 9.0, "rate": 3e-3, "fresh": 0.1, "scales": {8: 0.2, 16: 0.5, 32: 0.3}, "lessons": "world"},
}  # tokens: in a step; fresh: share of new scenes; scales: tokens along a side, with their share of steps; lessons: what is trained
DECIDES = Measure("nats_objects_held_out_16")  # what a viewer notices, at the page's default size
POOL = 40_000
CHECKED = 48  # scenes that the curve is measured on, for each scale
ROWS = {16: 128, 32: 448}  # rows of 256 or 1,024 that a thinned step keeps of a picture, the objects' first
THINNED = 0.7  # share of thinned steps at these scales
DISTURBED = 0.5  # share of pictures that are read with wrong tokens
WRONG = 0.05  # share of tokens in such a picture that are replaced by tokens of other places in the step
MISPLACED = 0.33  # share of pictures that are read with a part of an object at a place where there is none
DISGUISED = 0.2  # share of steps whose objects are noise without a name, so that they can be copied but not known
DRILLED, DRILL = 240, 16  # number and scale of the first steps, which are all disguised until the decoder copies
DROPPED = 0.1
UNPLACED = 0.35  # share of captions that omit the background
ANYWHERE = 0.5  # share of their scenes with a plain background of any colour, so that no object is recognised by its rim
# Single objects on 24 backgrounds are few enough to be memorised; pairs are not.
KINDS = {"single": 0.25, "several": 0.2, "pair": 0.45, "triple": 0.1}


@dataclass
class PictogramOptions(lessons_options.LessonOptions):
    """The options of this recipe, with the lessons and the sizes that a backbone offers."""

    offer: str = field(
        default="",
        metadata=argument(
            "picture sizes to offer, in pixels, such as 128,256 (default: the sizes offered so far, or all)", metavar="SIZES"
        ),
    )


def offered_sides(requested: str, taught: Sequence[int]) -> list[int]:
    """Returns the sizes that the card offers, in tokens along a side: the requested ones, else those offered before, else all trained ones.
    Raises BadKnob for a size that is not trained."""
    known = {str(side * FACTOR): side for side in taught}
    if requested:
        wrong = [size for size in requested.split(",") if size not in known]
        if wrong:
            raise BadKnob(f"--offer {','.join(wrong)} is not among the trained sizes. Choose from: {', '.join(known)}.")
        return [known[size] for size in requested.split(",")]
    before = read_card(pictogram.FOLDER).get("sides", []) if (pictogram.FOLDER / "card.json").exists() else []
    return [side for side in taught if side in before] or list(taught)


class Scenes:
    """Tokenised scenes, new ones and old ones from a pool of tokens int16 [side*side] for each scene and scale."""

    def __init__(self, tokenizer: PictureTokenizer, words: dict[str, int], device: str, lessons: SceneSettings = FIRST):
        self.tokenizer, self.words, self.device, self.lessons = tokenizer, words, device, lessons
        self.pool: dict[tuple[int, tuple[int, ...]], list[tuple[Scene, Tensor]]] = {}  # by scale and the sizes of looks
        self.sheet = sheet() if lessons.even else None

    def encode(self, scenes: list[Scene], side: int) -> Tensor:
        """Returns tokens int64 [B, side*side]."""
        return self._encode_pictures(np.stack([render(s, side * FACTOR) for s in scenes])).flatten(1).to(self.device)

    def looks(self, scenes: Sequence[Scene], placed: Sequence[bool], side: int) -> list[Tensor]:
        """Returns the tokens int64 [B, 3, n*n] of the first look of each scene, the second, and so on; all scenes have looks of the same
        sizes. placed : which captions name the background"""
        if self.sheet is None:
            return []
        places = [scene.background if is_placed else "" for scene, is_placed in zip(scenes, placed, strict=True)]
        groups = zip(*map(looks_of_scene, scenes), strict=True)
        groups_tokens = [self.sheet.tokens(list(zip(group, places, strict=True)), side, self._encode_pictures) for group in groups]
        return [tokens.to(self.device) for tokens in groups_tokens]

    def _encode_pictures(self, pictures: np.ndarray) -> Tensor:
        with torch.no_grad(), half_precision(self.device):
            return self.tokenizer.encode(to_tensor(list(pictures), self.device)).cpu()

    def caption_ids(self, scene: Scene, seed: int, placed: bool = True, unnamed: bool = False) -> list[int]:
        """Returns the word ids of one caption, padded with 0. unnamed : call every object a thing"""
        words = split_words(caption(scene, seed, placed))
        ids = [self.words[w] for w in (anonymize(words) if unnamed else words)][:TEXT_SLOTS]
        return ids + [0] * (TEXT_SLOTS - len(ids))

    def _names_background(self, scene: Scene, r: random.Random) -> bool:
        """Returns True if a caption of this scene names the background: a share UNPLACED of all captions does not, but captions with looks
        always do."""
        if self.sheet is not None:
            return True
        return scene.background != ANY and r.random() >= UNPLACED * (1 - ANYWHERE) / (1 - UNPLACED * ANYWHERE)

    def sizes(self, step: int) -> tuple[int, ...]:
        """Returns the sizes of the looks of a step's scenes."""
        return sizes_of(trained_scenes(step * 4096, 1, KINDS, self.lessons)[0], self.lessons)

    def batch(
        self, step: int, size: int, side: int, fresh: float, disguise: bool = False
    ) -> tuple[list[Scene], Tensor, Tensor, list[Tensor]]:
        """Returns the scenes of a step, their captions int64 [B, 32], tokens int64 [B, side*side] and looks.

        disguise : replace all objects by noise without a name
        """
        r = random.Random(step)
        sizes = self.sizes(step)
        pool = self.pool.setdefault((side, sizes), [])
        count = size if len(pool) < 100 * size else max(1, int(size * fresh))  # a small pool would be memorised
        new = scenes_of_sizes(step * 4096, count, sizes, self.lessons)
        if self.sheet is None:
            new = [replace(s, background=ANY) if r.random() < UNPLACED * ANYWHERE else s for s in new]
        tokens = self.encode(new, side)
        old = [pool[r.randrange(len(pool))] for _ in range(size - count)]
        for i, pair in enumerate(zip(new, tokens.short().cpu(), strict=True)):
            if len(pool) < POOL:
                pool.append(pair)
            else:
                pool[(step * count + i) % POOL] = pair
        scenes = [*new, *(s for s, _ in old)]
        seeds, placed = zip(*((r.getrandbits(40), self._names_background(s, r)) for s in scenes), strict=True)
        ids = [self.caption_ids(s, seed, is_placed, disguise) for s, seed, is_placed in zip(scenes, seeds, placed, strict=True)]
        ids = [[0] * TEXT_SLOTS if r.random() < DROPPED else row for row in ids]
        stacked = torch.cat([tokens, *(t[None].long().to(self.device) for _, t in old)])
        looks = self.looks(scenes, placed, side)
        if disguise:
            stacked, looks = disguise_objects(scenes, stacked, looks, self.tokenizer.quantizer.size, step)
        return scenes, torch.tensor(ids, device=self.device), stacked, looks


def sizes_of(scene: Scene, lessons: SceneSettings) -> tuple[int, ...]:
    """Returns the sizes of the looks that are read with a scene; () unless the lessons are even."""
    return tuple(look.side for look in looks_of_scene(scene)) if lessons.even else ()


def scenes_of_sizes(seed: int, count: int, sizes: tuple[int, ...], lessons: SceneSettings) -> list[Scene]:
    """Returns scenes, from a seed on, whose looks have these sizes, so that all sequences have the same length."""
    matches: list[Scene] = []
    many = 32 * count if sizes else count
    while len(matches) < count:
        matches += [scene for scene in trained_scenes(seed, many, KINDS, lessons) if sizes_of(scene, lessons) == sizes]
        seed += 2 * many + 2**32
    return matches[:count]


def object_mask(scene: Scene, side: int, around: int = 0) -> Tensor:
    """Returns a mask of the tokens inside a scene's objects or at most `around` tokens away from one, bool [side, side]."""
    mask = torch.zeros(side, side, dtype=torch.bool)
    for _, _, left, top, size in scene.boxes:
        x, y, width = (v * side // CANVAS for v in (left, top, size))
        mask[max(0, y - around) : y + width + around, max(0, x - around) : x + width + around] = True
    return mask


def chosen_rows(scenes: Sequence[Scene], misplaced: Sequence[Patch | None], side: int, count: int, seed: int) -> Tensor:
    """Returns the places that a thinned step keeps, int64 [B, count], ascending: in and around objects and their misplaced parts, then
    random others."""
    wanted = torch.rand(len(scenes), side, side, generator=torch.Generator().manual_seed(seed))
    for scene, patch, own in zip(scenes, misplaced, wanted, strict=True):
        own += object_mask(scene, side, around=1)
        if patch:
            rows, columns = patch.target
            own[max(0, rows.start - 1) : rows.stop + 1, max(0, columns.start - 1) : columns.stop + 1] += 1
    return wanted.flatten(1).topk(count).indices.sort().values


@dataclass(frozen=True)
class Patch:
    """The first rows of an object in a picture, and where they are repeated; slices of rows and of columns of tokens."""

    source: tuple[slice, slice]
    target: tuple[slice, slice]


def misplaced_parts(scenes: Sequence[Scene], side: int, seed: int) -> list[Patch | None]:
    """Returns for a share MISPLACED of the scenes a part of an object and a place outside of all objects; None for the others, and where no
    place of a few tries is free."""
    r = random.Random(seed)
    return [_misplaced_part(scene, side, r) if r.random() < MISPLACED else None for scene in scenes]


def _misplaced_part(scene: Scene, side: int, r: random.Random) -> Patch | None:
    left, top, width = (v * side // CANVAS for v in r.choice(scene.boxes)[2:])
    height, mask = r.randint(1, width), object_mask(scene, side)
    for _ in range(8):
        x, y = r.randrange(side - width + 1), r.randrange(side - height + 1)
        target = slice(y, y + height), slice(x, x + width)
        if not mask[target].any():
            return Patch((slice(top, top + height), slice(left, left + width)), target)
    return None


def misplace(tokens: Tensor, parts: Sequence[Patch | None], side: int) -> Tensor:
    """Returns the tokens int64 [B, side*side] with the parts repeated at their places."""
    pictures = tokens.clone().view(-1, side, side)
    for picture, part in zip(pictures, parts, strict=True):
        if part:
            picture[part.target] = picture[part.source]
    return pictures.flatten(1)


def disguise_objects(
    scenes: Sequence[Scene], tokens: Tensor, looks: Sequence[Tensor], vocabulary: int, seed: int
) -> tuple[Tensor, list[Tensor]]:
    """Returns tokens [B, N] and looks in which all objects are noise, the same noise in a look and its picture."""
    numbers = torch.Generator().manual_seed(seed)
    shapes = [(len(look), 1, look.shape[2]) for look in looks]
    blocks = [torch.randint(vocabulary, shape, generator=numbers).to(tokens.device) for shape in shapes]
    side = isqrt(tokens.shape[1])
    changed = tokens.clone()
    for b, (scene, own) in enumerate(zip(scenes, changed.view(len(tokens), side, side), strict=True)):
        at = {(look.name, look.colour): block[b] for look, block in zip(looks_of_scene(scene), blocks, strict=True)}
        for name, colour, left, top, size in scene.boxes:
            x, y, width = (v * side // CANVAS for v in (left, top, size))
            own[y : y + width, x : x + width] = at[name, colour].view(width, width)
    return changed, [block.expand(-1, 3, -1) for block in blocks]


def disturb_tokens(tokens: Tensor, seed: int) -> Tensor:
    """Returns the tokens int64 [B, N] of a step as inputs: in half of the pictures, some are replaced by tokens of random other places."""
    numbers = torch.Generator().manual_seed(seed)
    wrong = torch.rand(tokens.shape, generator=numbers) < WRONG
    wrong &= torch.rand(len(tokens), 1, generator=numbers) < DISTURBED
    others = torch.randint(tokens.numel(), tokens.shape, generator=numbers)
    return torch.where(wrong.to(tokens.device), tokens.flatten()[others.to(tokens.device)], tokens)


def main(options: PictogramOptions) -> None:
    """Trains, resumes or exports."""
    preset = PRESETS[options.preset]
    sides = list(preset["scales"])
    offer = offered_sides(options.offer, sides)
    target(options, pictogram.FOLDER)
    device = options.device
    tokenizer = pictogram.load_tokenizer().to(device)
    taught = options.lessons or preset["lessons"]
    lessons = LESSONS[taught]
    names = list(vocabulary(lessons))
    words = {w: i + 1 for i, w in enumerate(names)}
    model = PictogramModel(tokenizer.quantizer.levels, len(names), looks=MOST if lessons.even else 0)
    minutes = options.minutes_of(preset)
    schedule = straight_down if device == "cpu" else trapezoid
    training = Training(
        f"pictogram{lessons_options.suffix(taught)}", model, preset["rate"], minutes, device,
        warm_steps=50, weight_decay=0.05, muon="decoder.", average=0.997,
        schedule=schedule,
    )  # fmt: skip
    if not training.resume(options.fresh) and not options.fresh and part_files(pictogram.FOLDER, "decoder"):
        training.warm_start(matching_words(names), read_card(pictogram.FOLDER)["decoder"])
    drills_end = end_of_drills(training.step, shipped_decoder()) if lessons.even else 0
    scenes = Scenes(tokenizer, words, device, lessons)
    trained_group, held_out_group = trained_scenes(2**41, CHECKED, lessons=lessons), held_out_scenes(CHECKED, lessons)
    checks = {
        (n, side): check_batches(scenes, group, side)
        for n, group in (("seen", trained_group), ("held_out", held_out_group))
        for side in sides
    }

    def likelihood(ids: Tensor, read: Tensor, tokens: Tensor, side: int, chosen: Tensor | None, looks: list[Tensor]) -> Tensor:
        logits = logits_of(model, ids, read, side, chosen, looks)
        targets = tokens if chosen is None else tokens.gather(1, chosen)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    loss = torch.compile(likelihood) if options.compiled else likelihood

    def loss_of(step: int) -> Tensor:
        r = random.Random(step)
        side = DRILL if step < drills_end else r.choices(sides, list(preset["scales"].values()))[0]
        rows = ROWS[side] if side in ROWS and r.random() < THINNED else side**2
        slots = rows + sum((size * side // CANVAS) ** 2 for size in scenes.sizes(step))
        disguise = step < drills_end or (lessons.even and r.random() < DISGUISED)
        group, ids, tokens, looks = scenes.batch(step, max(1, preset["tokens"] // slots), side, preset["fresh"], disguise)
        misplaced = misplaced_parts(group, side, step)
        chosen = chosen_rows(group, misplaced, side, rows, step).to(device) if rows < side**2 else None
        with half_precision(device):
            return loss(ids, disturb_tokens(misplace(tokens, misplaced, side), step), tokens, side, chosen, looks)

    def held_out() -> dict:
        numbers = {}
        for (name, side), batches in checks.items():
            with half_precision(device):
                each = [surprise(model, batch, side) for batch in batches]
            objects = torch.cat([rows[batch.in_objects] for rows, batch in zip(each, batches, strict=True)])
            numbers[f"nats_{name}_{side}"] = round(torch.cat(each).mean().item(), 4)
            numbers[f"nats_objects_{name}_{side}"] = round(objects.mean().item(), 4)
        return numbers

    if train_weights(training, options, loss_of, held_out, DECIDES, *shipped_row(taught, names)):
        ship(prepare(options, pictogram.FOLDER), training, model, scenes, offer, options.preset, taught)


def shipped_decoder() -> dict[str, Any]:
    """Returns the card's entry for the shipped decoder, empty if there is none."""
    return read_card(pictogram.FOLDER).get("decoder", {}) if part_files(pictogram.FOLDER, "decoder") else {}


def end_of_drills(step: int, shipped: dict[str, Any]) -> int:
    """Returns the step at which drills end: DRILLED steps after a training at `step` left the shipped decoder or started from random
    weights; 0 if the shipped decoder reads looks. A training that is stopped during its drills thus resumes them."""
    if "looks" in shipped.get("settings", {}):
        return 0
    first_step = shipped.get("steps", 0)
    return DRILLED + (first_step if step >= first_step else 0)


def shipped_row(taught: str, names: list[str]) -> tuple[dict[str, Any] | None, str]:
    """Returns the card's entry for the shipped decoder, None if it was trained on tokens of another tokenizer and is useless; and why it
    cannot be compared, "" if it can."""
    card = read_card(pictogram.FOLDER)
    known = card.get("decoder")
    if known is None or known.get("tokens") != card["tokenizer"].get("tokens"):
        return None, ""
    other = (card.get("lessons", "first"), card.get("words")) != (taught, names)
    return known, f"the shipped one has other lessons ({card.get('lessons', 'first')}, {len(card['words'])} words)" if other else ""


@dataclass(frozen=True)
class Check:
    """Captions [B, 32], looks and tokens [B, side*side] of fixed scenes, and a mask of the objects' tokens, bool [B, side*side]."""

    ids: Tensor
    looks: list[Tensor]
    tokens: Tensor
    in_objects: Tensor


def logits_of(
    model: PictogramModel, words: Tensor, tokens: Tensor, side: int, chosen: Tensor | None = None, looks: Sequence[Tensor] = ()
) -> Tensor:
    """Returns logits [B, side*side, V] of all tokens [B, side*side] after captions [B, 32] and looks, in one pass.

    chosen : int64 [B, K], ascending: return only the logits [B, K, V] of these tokens, which then see no other picture rows
    """
    prefix = model.prefix(words, side, looks)
    before = prefix.shape[1] - 1
    rows = torch.cat([prefix[:, before:], model.token_table()[tokens[:, :-1]] + model.gist(words, side)], 1)
    cos, sin = (t.to(rows.device)[: before + side * side] for t in model.rotary(side, [isqrt(t.shape[2]) for t in looks]))
    if chosen is not None:
        rows = rows.gather(1, chosen[:, :, None].expand(-1, -1, model.width))
        slots = torch.cat([torch.arange(before, device=rows.device).expand(len(chosen), -1), chosen + before], 1)
        cos, sin = cos[slots], sin[slots]
    x = torch.cat([prefix[:, :before], rows], 1)
    hidden = model.decoder(x, cos, sin, text_mask(x.shape[1], x.device, before))
    return hidden[:, before:] @ model.head_table().T


def surprise(model: PictogramModel, batch: Check, side: int) -> Tensor:
    """Returns nats of each token, float32 [B, N]."""
    logits = logits_of(model, batch.ids, batch.tokens, side, looks=batch.looks).float()
    return F.cross_entropy(logits.flatten(0, 1), batch.tokens.flatten(), reduction="none").view_as(batch.tokens)


def check_batches(scenes: Scenes, group: list[Scene], side: int) -> list[Check]:
    """Returns batches of at most eight fixed scenes whose looks have the same sizes."""
    batches = []
    for sizes in dict.fromkeys(sizes_of(scene, scenes.lessons) for scene in group):
        same = [(i, scene) for i, scene in enumerate(group) if sizes_of(scene, scenes.lessons) == sizes]
        for part in (same[i : i + 8] for i in range(0, len(same), 8)):
            own = [scene for _, scene in part]
            ids = torch.tensor([scenes.caption_ids(scene, i) for i, scene in part], device=scenes.device)
            in_objects = torch.stack([object_mask(scene, side) for scene in own]).flatten(1).to(scenes.device)
            batches.append(Check(ids, scenes.looks(own, [True] * len(own), side), scenes.encode(own, side), in_objects))
    return batches


def matching_words(names: list[str]) -> dict[str, Tensor]:
    """Returns shipped weights as a state dict for a vocabulary that may have changed: rows of words move with the words."""
    card = read_card(pictogram.FOLDER)
    state, _ = read_parts(pictogram.FOLDER, "decoder", card["decoder"]["files"])
    old = card["words"]
    rows = torch.randn(len(names) + 1, state["words.weight"].shape[1]) * 0.02
    rows[0] = state["words.weight"][0]
    for i, word in enumerate(names):
        if word in old:
            rows[i + 1] = state["words.weight"][old.index(word) + 1]
    return state | {"words.weight": rows}


def sheet() -> Looks:
    """Returns the looks of all objects of the world, trained or not."""
    return Looks({name: object_picture(name) for name in OBJECTS})


def ship(folder: Path, training: Training, model: PictogramModel, scenes: Scenes, sides: list[int], preset: str, taught: str) -> None:
    """Writes the averaged weights in files below 10 MB, the looks, and the card."""
    names = list(scenes.words)
    files = split(training.averaged, "decoder")
    card = {
        "words": names,
        "looks": list(scenes.sheet.pictures) if scenes.sheet else [],
        "sides": sides,
        "font": FONT_NAME,
        "licence": "Weights: Apache-2.0. Trained on pictures drawn with Noto Color Emoji (SIL Open Font License 1.1).",
        "data": "research/worlds/emoji_scenes.py: scenes of seeds, captions from a grammar; a tenth of all combinations is held out.",
        "lessons": taught,
        "objects": f"{len(LESSONS[taught].objects)} of {len(OBJECTS)}: {', '.join(LESSONS[taught].objects)}",
    }
    row = {"settings": model.settings, "files": len(files), "tokens": read_card(folder)["tokenizer"].get("tokens")}
    row |= training.summary(preset, f"pictogram --lessons {taught}")
    ship_files(folder, files, card | {"decoder": row}, write_more=scenes.sheet.write if scenes.sheet else None)
