"""The judge of pictures: its training data, how an answer is compared with a scene, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.errors import MissingWeights
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import CELLS, COLOURS, DetectedObject, Judge, Logits, PictureReading, centre, compare
from engine.words.emoji_objects import TAUGHT
from engine.words.world import ObjectGroup, Scene, backgrounds
from research.train.judge import BENT, MISTAKES, bend, loss_of_logits, targets, with_mistakes
from research.worlds.emoji_scenes import trained_scenes


def scene(groups: tuple[ObjectGroup, ...], relation: str = "", background: str = "red") -> Scene:
    return Scene(groups, relation, background, (), 0)


def detection(name: str, row: int = 8, column: int = 8, colour: str = "") -> DetectedObject:
    return DetectedObject(name, colour, row, column)


def test_a_right_reading_has_no_fault() -> None:
    target = scene((ObjectGroup("cat", 2), ObjectGroup("dog")), "above")
    verdict = compare(PictureReading((detection("cat", 3, 4), detection("cat", 3, 8), detection("dog", 11, 6)), "red"), target)
    assert verdict.all and verdict.relation and verdict.colours is None


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        ((detection("cat", 3), detection("cat", 3, 3)), "objects"),
        ((detection("cat", 3), detection("cat", 3, 3), detection("dog", 11), detection("fox")), "objects"),
        ((detection("cat", 3), detection("dog", 11)), "counts"),
        ((detection("cat", 11), detection("cat", 11, 3), detection("dog", 3)), "relation"),
    ],
)
def test_each_fault_is_found(objects: tuple[DetectedObject, ...], fault: str) -> None:
    verdict = compare(PictureReading(objects, "red"), scene((ObjectGroup("cat", 2), ObjectGroup("dog")), "above"))
    assert not getattr(verdict, fault) and not verdict.all


def test_colours_and_backgrounds_are_judged_where_they_are_asked_for() -> None:
    target = scene((ObjectGroup("car", colour="blue"),))
    assert compare(PictureReading((detection("car", colour="blue"),), "red"), target).colours is True
    wrong = compare(PictureReading((detection("car", colour="green"),), "blue"), target)
    assert wrong.colours is False and not wrong.background and not wrong.all


def test_a_missing_object_is_in_no_relation() -> None:
    assert compare(PictureReading((detection("dog"),), "red"), scene((ObjectGroup("cat"), ObjectGroup("dog")), "left of")).relation is False


def test_targets_hold_every_box_of_a_scene() -> None:
    scenes = trained_scenes(0, 24)
    centres, weights, objects, colours, places = targets(scenes, TAUGHT)
    assert centres.sum() == sum(len(s.boxes) for s in scenes)
    assert (weights[centres == 1] > 1).all() and weights.min() == 0
    assert ((objects >= 0) == (weights != 1)).all() and ((colours >= 0) == (objects >= 0)).all()
    for b, s in enumerate(scenes):
        assert backgrounds()[places[b]] == s.background
        for box in s.boxes:
            row, column = centre(box)
            assert centres[b, row, column] == 1 and objects[b, row, column] == TAUGHT.index(box[0])
            assert COLOURS[colours[b, row, column]] == box[1] and objects[b, row + 1, column - 1] >= 0
            assert 0 < row < CELLS - 1 and 0 < column < CELLS - 1


def test_it_learns_two_pictures_and_reads_them_back() -> None:
    torch.manual_seed(0)
    model = Judge(("cat", "dog"), width=4)
    pictures = [np.full((128, 128, 3), 30, np.uint8), np.full((128, 128, 3), 200, np.uint8)]
    pictures[0][40:88, 40:88] = (250, 0, 0)
    pictures[1][40:88, 40:88] = (0, 0, 250)
    x = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1
    known = backgrounds()
    scenes = [Scene((), "", known[i], ((name, "", 40, 40, 48),), 0) for i, name in enumerate(model.names)]
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss_of_logits(model(x), targets(scenes, model.names)).backward()
        optimizer.step()
    first, second = model.eval().read([p.repeat(2, 0).repeat(2, 1) for p in pictures])  # at 256 pixels
    assert [f.name for f in first.objects] == ["cat"] and [f.name for f in second.objects] == ["dog"]
    assert (first.objects[0].row, first.objects[0].column) == (8, 8)
    assert [first.background, second.background] == backgrounds()[:2]


def test_a_sure_judge_counts_an_object_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbouring cells whose chances are 1 in float32 are one object."""
    model = Judge(("cat",), width=4).eval()
    sure = torch.full((1, CELLS, CELLS), -30.0)
    sure[0, 5, 5:7] = torch.tensor([40.0, 30.0])
    logits = Logits(sure, torch.zeros(1, 1, CELLS, CELLS), torch.zeros(1, len(COLOURS), CELLS, CELLS), torch.zeros(1, len(backgrounds())))
    monkeypatch.setattr(model, "forward", lambda x: logits)
    objects = model.read([np.zeros((128, 128, 3), np.uint8)])[0].objects
    assert [(f.row, f.column) for f in objects] == [(5, 5)]


def test_a_centre_without_a_sure_object_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Judge(("cat", "dog", "fox"), width=4).eval()
    centres, kinds = torch.full((1, CELLS, CELLS), -30.0), torch.zeros(1, 3, CELLS, CELLS)
    centres[0, 5, 5] = centres[0, 9, 9] = 40.0
    kinds[0, 1, 9, 9] = 5.0
    logits = Logits(centres, kinds, torch.zeros(1, len(COLOURS), CELLS, CELLS), torch.zeros(1, len(backgrounds())))
    monkeypatch.setattr(model, "forward", lambda x: logits)
    objects = model.read([np.zeros((128, 128, 3), np.uint8)])[0].objects
    assert [(f.name, f.row) for f in objects] == [("dog", 9)]


def test_without_weights_the_reason_is_said(tmp_path) -> None:
    with pytest.raises(MissingWeights, match="card"):
        judge.load(tmp_path)


def test_mistakes_take_tokens_from_elsewhere_and_come_again_with_the_step():
    tokens = torch.arange(4 * 16 * 16).reshape(4, 16, 16)
    mistaken = with_mistakes(tokens, torch.Generator().manual_seed(5))
    wrong = mistaken != tokens
    assert torch.equal(mistaken, with_mistakes(tokens, torch.Generator().manual_seed(5))) and wrong.any()
    assert wrong.float().mean((1, 2)).max() < MISTAKES + 0.1
    strange = mistaken[wrong] // 256 != tokens[wrong] // 256  # of another picture
    assert 0.1 < strange.float().mean() < 0.5


def test_bent_pictures_keep_what_they_show_where_it_is():
    rng = torch.Generator().manual_seed(3)
    assert torch.allclose(bend(torch.full((2, 3, 64, 64), 0.3), rng), torch.tensor(0.3), atol=1e-5)
    ramp = torch.linspace(-1, 1, 128).expand(2, 3, 128, 128).contiguous()
    moved = (bend(ramp, rng) - ramp).abs() * 63.5  # pixels
    assert moved.mean() > 0.2 and moved[..., 8:-8, 8:-8].max() < 2 * BENT
