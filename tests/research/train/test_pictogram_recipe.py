"""The recipe of pictogram: three scales in one decoder, stopped and resumed, on a tiny model."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.backbones import pictogram
from engine.backbones.pictogram import SCALES, PictogramModel
from engine.core import Prompt
from engine.errors import BadKnob, MissingWeights
from engine.methods import METHODS
from engine.networks.vq import FACTOR, PictureTokenizer
from engine.networks.weights import ship
from engine.recognition.picture_judge import Judge
from engine.run import generate
from engine.words.world import Scene
from research.bench.plan import ImageBench
from research.bench.speed import texts_of
from research.train import loop
from research.train import pictogram as recipe
from research.train.judge import move_weights
from research.train.pictogram import PictogramOptions, logits_of
from research.worlds import emoji_scenes
from tests.engine.font import NEEDS_FONT

pytestmark = NEEDS_FONT


@pytest.fixture
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny random tokenizer, where the recipe reads and writes; its decoders are tiny too."""
    torch.manual_seed(0)
    settings = {"levels": [4, 4], "encoder": 8, "decoder": 8, "blocks": 1}
    files = {"tokenizer.safetensors": PictureTokenizer(**settings).state_dict()}
    ship(tmp_path / "pictogram", files, {"name": "pictogram", "tokenizer": {"settings": settings}})
    monkeypatch.setattr(pictogram, "FOLDER", tmp_path / "pictogram")
    for read in (pictogram.load_tokenizer, pictogram.load_model):
        monkeypatch.setattr(read, "__defaults__", (tmp_path / "pictogram",))
    monkeypatch.setattr(recipe, "PictogramModel", partial(PictogramModel, layers=1, width=32, heads=2, inner=32))
    monkeypatch.setattr(recipe, "CHECKED", 2)
    small = {"tokens": 1024, "minutes": 0.05, "rate": 1e-3, "fresh": 1.0, "scales": dict.fromkeys(SCALES, 1.0), "lessons": "first"}
    monkeypatch.setitem(recipe.PRESETS, "cpu", small)
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    return tmp_path / "pictogram"


def test_three_scales_are_taught_shipped_and_taught_on(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    batch = recipe.Scenes.batch

    def record_size(self: recipe.Scenes, step: int, size: int, side: int, *rest: Any) -> tuple[list[Scene], Tensor, Tensor, list[Tensor]]:
        sizes.append((side, size))
        return batch(self, step, size, side, *rest)

    monkeypatch.setattr(recipe.Scenes, "batch", record_size)
    recipe.main(PictogramOptions(fresh=True))
    first = pictogram.read_card(shipped_folder)["decoder"]
    assert first["steps"] == len(sizes) and set(sizes) <= {(8, 16), (16, 4), (16, 8), (32, 1), (32, 2)}
    groups = ("seen", "held_out", "objects_seen", "objects_held_out")
    assert {f"nats_{group}_{side}" for group in groups for side in SCALES} <= first["held_out"].keys()
    backbone = pictogram.load(str(shipped_folder))
    assert "at_scale" in backbone.capabilities and backbone.sizes == [64, 128, 256]
    for side in SCALES:
        done = generate(backbone, METHODS["ar"], Prompt(text="a red apple", size=side * FACTOR)).finish()
        assert len(done.tokens) == side * side and np.asarray(done.result()).shape == (side * FACTOR, side * FACTOR, 3)
    (loop.CHECKPOINTS / "pictogram.pt").unlink()
    recipe.main(PictogramOptions())
    recipe.main(PictogramOptions(export=True))  # whatever the numbers of a second say
    again = pictogram.read_card(shipped_folder)["decoder"]
    assert again["steps"] > first["steps"] and again["curve"][0] == first["curve"][0]
    recipe.main(PictogramOptions(export=True, offer="128"))
    assert pictogram.load(str(shipped_folder)).sizes == [128] and "at_scale" not in pictogram.load(str(shipped_folder)).capabilities


def test_what_is_offered_is_asked_for_or_was_offered_before(shipped_folder: Path) -> None:
    assert recipe.offered_sides("", SCALES) == [8, 16, 32] and recipe.offered_sides("256,64", SCALES) == [32, 8]
    ship(shipped_folder, {}, {"sides": [16]})
    assert recipe.offered_sides("", SCALES) == [16] and recipe.offered_sides("128,256", SCALES) == [16, 32]
    with pytest.raises(BadKnob, match="100 is not among"):
        recipe.offered_sides("100", SCALES)


def test_a_batch_has_the_tokens_of_its_scenes(shipped_folder: Path) -> None:
    """Captions and tokens of one row belong together at every scale; a step always gives the same batch."""
    names = {w: i + 1 for i, w in enumerate(emoji_scenes.vocabulary())}
    for side in SCALES:
        one, two = (recipe.Scenes(pictogram.load_tokenizer(), names, "cpu").batch(5, 3, side, 1.0) for _ in range(2))
        assert one[0] == two[0] and all(torch.equal(a, b) for a, b in zip(one[1:3], two[1:3], strict=True))
        assert one[1].shape == (3, pictogram.TEXT_SLOTS) and one[2].shape == (3, side * side)
        r = random.Random(5)
        scenes = emoji_scenes.trained_scenes(5 * 4096, 3, recipe.KINDS)
        hidden = [r.random() < recipe.UNPLACED * recipe.ANYWHERE for _ in scenes]
        encoded = recipe.Scenes(pictogram.load_tokenizer(), names, "cpu").encode(scenes, side)
        for row, unsaid in enumerate(hidden):
            assert unsaid or torch.equal(encoded[row], one[2][row])


def test_a_thinned_step_keeps_the_objects_and_some_of_the_rest() -> None:
    scenes = [s for s in emoji_scenes.trained_scenes(9, 40, {"single": 1.0}) if s.boxes[0][4] == 48]
    parts = recipe.misplaced_parts(scenes, 32, 1)
    chosen = recipe.chosen_rows(scenes, parts, 32, 448, 1)
    assert chosen.shape == (len(scenes), 448) and (chosen.diff() > 0).all()
    for scene, part, own in zip(scenes, parts, chosen, strict=True):
        _, _, left, top, side = scene.boxes[0]
        grid = torch.zeros(1024, dtype=torch.bool).index_fill(0, own, True).view(32, 32)
        y, x, width = top // 4, left // 4, side // 4
        assert grid[y - 1 : y + width + 1, x - 1 : x + width + 1].all() and 0.1 < grid[:2].float().mean() < 0.7
        assert part is None or grid[part.target].all()


def test_parts_of_objects_are_read_where_there_is_none() -> None:
    scenes = emoji_scenes.trained_scenes(9, 300)
    parts = recipe.misplaced_parts(scenes, 32, 1)
    assert 0.2 < np.mean([part is not None for part in parts]) <= 0.4
    tokens = torch.arange(len(scenes) * 1024).view(-1, 1024)
    for scene, part, before, after in zip(scenes, parts, tokens, recipe.misplace(tokens, parts, 32), strict=True):
        changed = (before != after).view(32, 32)
        assert not (changed & recipe.object_mask(scene, 32)).any()
        if part:
            rows, columns = part.source
            assert changed[part.target].all() and changed.sum() == changed[part.target].numel()
            assert (
                recipe.object_mask(scene, 32)[part.source].all()
                and after.view(32, 32)[part.target][0, 0] == before[32 * rows.start + columns.start]
            )


def test_half_of_the_pictures_are_read_with_some_wrong_tokens() -> None:
    tokens = torch.arange(400 * 64).view(400, 64)
    read = recipe.disturb_tokens(tokens, 3)
    wrong = (read != tokens).float().mean(1)
    assert torch.equal(read, recipe.disturb_tokens(tokens, 3)) and set(read.flatten().tolist()) <= set(range(400 * 64))
    assert 0.4 < (wrong == 0).float().mean() < 0.62 and 0.035 < wrong[wrong > 0].mean() < 0.075


def test_chosen_rows_see_each_other_only() -> None:
    torch.manual_seed(0)
    model = PictogramModel((4, 4), 10, layers=2, width=32, heads=2, inner=32)
    model.head_rows.data.normal_()
    words, tokens = torch.randint(0, 11, (2, pictogram.TEXT_SLOTS)), torch.randint(0, 16, (2, 64))
    with torch.inference_mode():
        whole = logits_of(model, words, tokens, 8)
        every = torch.arange(64).expand(2, -1)
        assert torch.allclose(logits_of(model, words, tokens, 8, every), whole, atol=1e-5)
        assert torch.allclose(logits_of(model, words, tokens, 8, every[:, :20]), whole[:, :20], atol=1e-5)
        chosen = torch.stack([torch.randperm(64)[:20].sort().values for _ in range(2)])
        logits = logits_of(model, words, tokens, 8, chosen)
        other = tokens.clone()
        hidden = [[i for i in range(63) if i + 1 not in chosen[b]] for b in range(2)]  # their embeddings are no row's input
        for b, places in enumerate(hidden):
            other[b, places] = (other[b, places] + 1) % 16
        assert torch.equal(logits_of(model, words, other, 8, chosen), logits)
        assert not torch.allclose(logits, whole.gather(1, chosen[:, :, None].expand(-1, -1, 16)), atol=1e-3)


def test_the_whole_world_can_be_taught(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--lessons world: all objects, relations and styles; the card records it, and benchmarks then use them."""
    recipe.main(PictogramOptions(fresh=True, lessons="world", minutes=0.01))
    card = pictogram.read_card(shipped_folder)
    assert (
        card["lessons"] == "world"
        and card["objects"].startswith(f"{len(emoji_scenes.OBJECTS)} of {len(emoji_scenes.OBJECTS)}:")
        and {"giraffe", "behind", "five", "outlined"} <= set(card["words"])
    )
    texts = texts_of(ImageBench(backbone=str(shipped_folder), count=40), pictogram.load(str(shipped_folder)))
    assert texts == emoji_scenes.held_out_prompts(40, emoji_scenes.WORLD) != emoji_scenes.held_out_prompts(40)
    assert set(emoji_scenes.words_of(" ".join(texts))) <= set(card["words"])


def test_disguised_objects_are_noise_that_their_looks_tell(shipped_folder: Path) -> None:
    """No object keeps its tokens or its name, and every object of a picture equals its look, token by token."""
    names = {w: i + 1 for i, w in enumerate(emoji_scenes.vocabulary(emoji_scenes.COMMON_WORLD))}
    scenes = recipe.Scenes(pictogram.load_tokenizer(), names, "cpu", emoji_scenes.COMMON_WORLD)
    spelt, seen = ["", *names], set()
    for step in range(12):
        drawn, ids, tokens, looks = scenes.batch(step, 3, 16, 1.0, True)
        plain = scenes.batch(step, 3, 16, 1.0)
        assert drawn == plain[0] and [look.shape for look in looks] == [look.shape for look in plain[3]]
        for b, scene in enumerate(drawn):
            words_of = {spelt[i] for i in ids[b].tolist() if i}
            assert not words_of & {group.name for group in scene.groups}
            assert not words_of or words_of & {"thing", "things"}
            inside = recipe.object_mask(scene, 16).flatten()
            assert torch.equal(tokens[b][~inside], plain[2][b][~inside])
            blocks = {look.name: block[b] for look, block in zip(recipe.looks_of_scene(scene), looks, strict=True)}
            for name, _, left, top, size in scene.boxes:
                x, y, width = left // 8, top // 8, size // 8
                own = tokens[b].view(16, 16)[y : y + width, x : x + width].flatten()
                assert (own == blocks[name]).all()
                seen.add(width)
    assert seen == {4, 6, 8}


def test_even_lessons_teach_to_read_looks(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder gets the looks of all objects, including untrained ones; a caption of one of these is read as a thing."""
    monkeypatch.setattr(recipe, "DRILLED", 2)
    recipe.main(PictogramOptions(fresh=True, lessons="common"))
    backbone = pictogram.load(str(shipped_folder))
    assert backbone.model.settings["looks"] == 3
    assert not {"scorpion", "scorpions"} & set(backbone.card["words"])
    assert backbone.objects_in("a scorpion on a green cap") == ("scorpion", "cap") and not backbone.unknown_words("two scorpions")
    thing = backbone.card["words"].index("thing") + 1
    assert backbone.ids_of(["scorpion"]) == [thing] + [0] * 31
    assert len(backbone.looks_of(["scorpion", "on", "a", "green", "cap"], 16)) == 2
    with_place, untold = (backbone.looks_of(caption.split(), 16)[0] for caption in ("a cat on blue", "a cat"))
    assert not torch.equal(with_place[0], untold[0]) and torch.equal(with_place[1:], untold[1:]) and torch.equal(untold[0], untold[1])
    one, two = (backbone.looks_of([name], 16)[0] for name in ("scorpion", "unicorn"))
    assert one.shape == (3, 64) and not torch.equal(one, two)
    for text in ("a scorpion", "a cat beside two small cars in the snow", "a blue background"):
        done = generate(backbone, METHODS["sjdpp"], Prompt(text=text, size=64)).finish()
        assert len(done.tokens) == 64
    (shipped_folder / "looks.webp").write_bytes(b"")
    with pytest.raises(MissingWeights, match=r"looks.webp is missing or damaged"):
        pictogram.load(str(shipped_folder))


def test_drills_end_where_a_stopped_training_expects_it() -> None:
    left = {"steps": 4702, "settings": {}}
    for step in (4702, 4800, 6633):
        assert recipe.end_of_drills(step, left) == 4702 + recipe.DRILLED
    assert recipe.end_of_drills(0, {}) == recipe.end_of_drills(100, left) == recipe.DRILLED
    assert recipe.end_of_drills(9000, {"steps": 9000, "settings": {"looks": 3}}) == 0


def test_what_a_judge_knows_moves_to_one_of_other_objects() -> None:
    old, new = Judge(("cat", "dog", "fox")), Judge(("fox", "bee", "cat", "owl"))
    silent = new.objects.bias.detach().clone()
    weights = move_weights(old, new)
    new.load_state_dict(weights)
    assert torch.equal(new.objects.weight[[0, 2]], old.objects.weight[[2, 0]]) and torch.equal(
        new.objects.bias[[0, 2]], old.objects.bias[[2, 0]]
    )
    assert not new.objects.weight[[1, 3]].any() and torch.equal(new.objects.bias[[1, 3]], silent[[1, 3]])  # they say nothing yet
    assert all(torch.equal(weights[name], value) for name, value in old.state_dict().items() if not name.startswith("objects"))
