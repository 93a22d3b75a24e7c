"""The recipe of the feature drafter on tiny models: recordings match decoding, levels match trees, files are read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import lowpoly, pictogram
from engine.core import NO_DRAFT, Prompt, Sampling
from engine.drafters.feature_draft import NAME, FeatureDrafter, NetworkFeatures
from engine.methods import METHODS
from engine.run import generate
from research.train import feature_draft, loop
from research.train.feature_draft import FeatureDraftOptions, RecordedSequences, acceptance, chains, loss_of_rows
from research.train.teachers import MeshTeacher, PictureTeacher, Recorded
from tests.engine.backbones import tiny
from tests.research.train import tiny_folders


@pytest.fixture(autouse=True)
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with tiny random backbones, where the recipe reads and writes."""
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(feature_draft, "UNSEEN", 4)
    monkeypatch.setitem(feature_draft.PRESETS, "cpu", {"minutes": 0.05, "sequences": 8, "batch": 2, "rows": 64})
    return tmp_path


def drafter(teacher: PictureTeacher | MeshTeacher) -> FeatureDrafter:
    """A random drafter for a teacher."""
    torch.manual_seed(2)
    drafter = FeatureDrafter(teacher.width, teacher.heads, 48)
    tiny.spread(drafter, 0.3)
    return drafter


@pytest.mark.parametrize("reads_looks", [False, True])
def test_pictures_painted_together_are_painted_alone(reads_looks: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy tokens of a batch equal plain decoding of each caption, and so do the states of both branches."""
    if reads_looks:
        monkeypatch.setattr(pictogram, "load", lambda device: tiny.with_looks())
    teacher = PictureTeacher("cpu")
    teacher.sampling = Sampling(temperature=0.0, guidance=3.0)
    texts = (
        ("two red cats on a apple on green", "green apple on two cats on red")
        if reads_looks
        else ("two red cats", "green apple on a table")
    )
    conditions = torch.tensor([teacher.backbone.ids_of(teacher.backbone._readable_words(Prompt(text=text))) for text in texts])
    for text, row in zip(texts, teacher.generate(conditions, Generator(PCG64(0))), strict=True):
        prompt = Prompt(text=text, sampling=teacher.sampling)
        assert generate(teacher.backbone, METHODS["ar"], prompt).finish().tokens == row.tokens.tolist()
        with torch.inference_mode():
            sequence = teacher.backbone.start(prompt)
            for i, token in enumerate(row.tokens.tolist()[:5]):
                torch.testing.assert_close(sequence.forward(NO_DRAFT).hidden[:, 0], row.hidden[:, i].float(), atol=2e-2, rtol=1e-2)
                sequence.commit([], token)


def test_meshes_are_recorded_with_the_states_that_predicted_them() -> None:
    teacher = MeshTeacher("cpu")
    conditions = teacher.conditions(2, False)
    order = torch.randperm(lowpoly.READ, generator=torch.Generator().manual_seed(0)).argsort()
    for row in teacher.generate(conditions, Generator(PCG64(0))):
        assert row.hidden.shape == (1, len(row.tokens), teacher.width)
        with torch.inference_mode():
            sequence = teacher.backbone.start(Prompt(points=row.condition[order]))
            for i, token in enumerate(row.tokens.tolist()[:5]):
                torch.testing.assert_close(sequence.forward(NO_DRAFT).hidden[0, 0], row.hidden[0, i].float(), atol=2e-2, rtol=1e-2)
                sequence.commit([], token)


@pytest.mark.parametrize("kind", [PictureTeacher, MeshTeacher])
def test_levels_are_what_a_growing_tree_sees(kind: type[PictureTeacher | MeshTeacher]) -> None:
    """The rows that acceptance is measured on equal the drafter's rows in a tree method, chain by chain."""
    teacher = kind("cpu")
    network, row = drafter(teacher), teacher.generate(teacher.conditions(1, True), Generator(PCG64(1)))[0]
    tokens = row.tokens[:12].tolist()
    row = Recorded(row.condition, row.tokens[:12], row.hidden[:, :12])
    order = torch.randperm(lowpoly.READ, generator=torch.Generator().manual_seed(0)).argsort()
    prompt = Prompt(points=row.condition[order]) if kind is MeshTeacher else Prompt(text="a")
    with torch.inference_mode():
        levels = list(chains(network, teacher, row, 3))
        for first in (0, 4):
            sequence = teacher.backbone.start(prompt)
            sequence.trunk.drafts_once = False  # training computes both branches of a guidance pair
            if kind is PictureTeacher:
                sequence.trunk.gist = teacher.model.gist(teacher._pair(row.condition[None]), teacher.side)
            growth = NetworkFeatures(network).start(sequence)
            behind = [growth.root(row.hidden[:, : first + 1].float(), tokens[: first + 1])]
            behind += [growth.expand([level - 1], [tokens[first + level + 1]])[0] for level in range(2)]
            for level, logits in enumerate(behind):
                torch.testing.assert_close(levels[level][first + level], logits, atol=2e-3, rtol=1e-3)


@pytest.mark.parametrize("kind", [PictureTeacher, MeshTeacher])
@pytest.mark.parametrize("loss", ["kl", "paper", "adt"])
def test_a_few_steps_lower_the_loss_and_raise_acceptance(kind: type[PictureTeacher | MeshTeacher], loss: str) -> None:
    teacher = kind("cpu")
    library = RecordedSequences("tiny", teacher, 4, 2)
    network = drafter(teacher)
    before, rate = acceptance(network, teacher, library.recorded, 1)[0], torch.optim.Adam(network.parameters(), 5e-3)
    losses = []
    for step in range(30):
        rate.zero_grad()
        losses.append(loss_of_rows(network, teacher, library.batch(step), 64, loss, step))
        losses[-1].backward()
        rate.step()
    assert sum(losses[-5:]).item() < sum(losses[:5]).item()
    assert acceptance(network, teacher, library.recorded, 1)[0] > before


def test_recordings_are_read_back_and_those_of_other_weights_go(shipped_folder: Path) -> None:
    teacher = PictureTeacher("cpu")
    first = RecordedSequences("tiny", teacher, 6, 2)
    files = sorted((shipped_folder / "training" / f"{NAME}_tiny" / teacher.weights_hash).iterdir())
    written = [path.stat().st_mtime_ns for path in files]
    again = RecordedSequences("tiny", teacher, 6, 2)
    assert [path.stat().st_mtime_ns for path in files] == written and len(files) == 2
    assert all(torch.equal(a.hidden, b.hidden) for a, b in zip(first.recorded, again.recorded, strict=True))
    assert [r.tokens.tolist() for r in first.batch(3)] == [r.tokens.tolist() for r in again.batch(3)]
    teacher.weights_hash = "other"
    RecordedSequences("tiny", teacher, 2, 2)
    assert not files[0].exists()


def test_a_portion_holds_its_own_clouds_and_no_other(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clouds are views of all conditions; a file that stored the base of a view would be as large as all files together."""
    monkeypatch.setattr(feature_draft, "TOGETHER", 2)
    teacher = MeshTeacher("cpu")
    library = RecordedSequences("tiny", teacher, 8, 2)
    files = list((shipped_folder / "training" / f"{NAME}_tiny" / teacher.weights_hash).iterdir())
    held = sum(x.nbytes for row in library.recorded for x in (row.condition, row.tokens, row.hidden))
    assert len(files) == 4 and sum(path.stat().st_size for path in files) < 1.5 * held


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_the_recipe_trains_resumes_ships_and_the_tree_draws_plain_tokens(name: str, shipped_folder: Path, capsys) -> None:
    feature_draft.main(FeatureDraftOptions(backbone=name))
    feature_draft.main(FeatureDraftOptions(backbone=name, export=True))
    assert "resumed" in capsys.readouterr().out
    module, prompt = {"pictogram": (pictogram, Prompt(text="red cats")), "lowpoly": (lowpoly, Prompt(points=tiny.sphere(), size=6))}[name]
    backbone = module.load()
    row = backbone.card[NAME]
    assert len(row["held_out"]["acceptance"]) == feature_draft.DEPTH and row["backbone"] == backbone.weights_hash
    assert all(0 < share <= 1 for share in row["held_out"]["acceptance"])
    plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
    assert generate(backbone, METHODS["eagle"], prompt, {"verify": "match seed", "width": 4}).finish().tokens == plain


def test_only_this_recipe_asks_whose_drafter() -> None:
    options = FeatureDraftOptions.parser("feature-draft").parse_args(["--backbone", "lowpoly", "--loss", "paper"])
    assert FeatureDraftOptions(**vars(options)).backbone == "lowpoly" and FeatureDraftOptions(**vars(options)).loss == "paper"
    assert not hasattr(loop.RecipeOptions(), "loss")
