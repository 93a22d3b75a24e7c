"""The recipe of the predictive stream on a tiny pictogram: windows match decoding, the loss is the paper's, files are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import load, lowpoly, pictogram
from engine.core import NO_DRAFT, Prompt, Sampling
from engine.drafters.predictive_stream import PredictiveStream
from engine.methods import METHODS
from engine.networks import weights as folder
from engine.run import generate
from research.train import loop, predictive_stream
from research.train.feature_draft import RecordedSequences
from research.train.predictive_stream import Replay, StreamOptions, StreamStudent, add_noise, draw_rejected, expected_right, window_places
from research.train.teachers import MeshTeacher, PictureTeacher, Recorded, Teacher
from tests.engine.drafters.test_predictive_stream import dual
from tests.research.train import tiny_folders


@pytest.fixture(autouse=True)
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders with tiny random backbones, where the recipe reads and writes."""
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr(predictive_stream, "UNSEEN", 2)
    monkeypatch.setitem(predictive_stream.PRESETS, "cpu", {"minutes": 0.03, "sequences": 4, "batch": 2, "rows": 32})
    return tmp_path


@pytest.mark.parametrize("kind", [PictureTeacher, MeshTeacher])
@pytest.mark.parametrize("causal", [True, False])
def test_a_window_sees_what_decoding_sees(causal: bool, kind: type[Teacher], monkeypatch: pytest.MonkeyPatch) -> None:
    """p is the distribution of plain decoding after the true tokens, q that of predictive rows after them, window by window."""
    monkeypatch.setattr(pictogram.Pictogram, "sampling", Sampling(temperature=0.7, top_k=0, top_p=1.0, guidance=1.8))
    teacher = kind("cpu")
    student = StreamStudent(teacher, causal)
    for up in student.lora.up:
        torch.nn.init.normal_(up, std=0.2)
    width, starts = 4, [0, 9]
    rows = teacher.generate(teacher.conditions(1, True), Generator(PCG64(0)))
    guesses = torch.from_numpy(Generator(PCG64(1)).integers(0, teacher.vocabulary, (1, 8)))
    prompt = prompt_of(teacher, rows[0])
    tokens = rows[0].tokens.tolist()
    with torch.inference_mode():
        p, q = student.probs(rows, starts, guesses)
        for i, start in enumerate(starts):
            sequence = teacher.backbone.start(prompt)
            sequence.trunk.drafts_once = False  # training computes both branches of a guidance pair
            for token in tokens[:start]:
                sequence.forward(NO_DRAFT)
                sequence.commit([], token)
            read = PredictiveStream(student.lora, causal).start(sequence)
            window = guesses[0, i * width : (i + 1) * width].tolist()
            passed = sequence.forward(dual(tokens[start : start + width], window, start, causal))
            here = slice(i * width, (i + 1) * width)
            read_probs = (read(passed, width + 1) / sequence.sampling.temperature).softmax(-1)
            torch.testing.assert_close(q[0, here].exp(), read_probs, atol=1e-4, rtol=1e-3)
            torch.testing.assert_close(p[0, here], passed.first(width + 1).p[1:], atol=1e-4, rtol=1e-3)


def prompt_of(teacher: Teacher, row: Recorded) -> Prompt:
    """The prompt of a recorded sequence."""
    if isinstance(teacher, PictureTeacher):
        words = {i: word for word, i in teacher.backbone.words.items()}
        return Prompt(text=" ".join(words[i] for i in row.condition.tolist() if i))
    order = torch.randperm(lowpoly.READ, generator=torch.Generator().manual_seed(0)).argsort()
    return Prompt(points=row.condition[order])


def test_weights_count_the_guesses_behind_that_are_right_in_a_row() -> None:
    """For distributions with a single token, s is the paper's backward recurrence."""
    right = [[1, 0, 1, 1], [1, 1, 1, 1]]
    p = torch.eye(2)[torch.zeros(1, 8, dtype=torch.int64)]
    q = torch.eye(2)[1 - torch.tensor(right).view(1, 8)]
    assert expected_right(p, q, 4).tolist() == [[[0, 2, 1, 0], [3, 2, 1, 0]]]
    assert expected_right(p, p * 0.5 + 0.25, 4)[0, 0].tolist() == [0.75 + 0.75**2 + 0.75**3, 0.75 + 0.75**2, 0.75, 0]


def test_an_adapter_that_sees_both_ways_lies_beside_the_causal_one(shipped_folder: Path) -> None:
    predictive_stream.main(StreamOptions())
    before = (shipped_folder / "pictogram/predictive_stream/adapter_model.safetensors").read_bytes()
    assert load("pictogram", str(shipped_folder / "pictogram")).drafter("predictive_stream").both_ways is None
    predictive_stream.main(StreamOptions(both_ways=True))
    assert (shipped_folder / "pictogram/predictive_stream/adapter_model.safetensors").read_bytes() == before
    backbone = load("pictogram", str(shipped_folder / "pictogram"))
    stream = backbone.drafter("predictive_stream")
    assert stream.causal and not stream.both_ways.causal and stream.both_ways.lora is not stream.lora
    prompt, knobs = Prompt("apple", seed=1), {"refresh": "redraw", "mask": "both ways", "verify": "match seed"}
    assert generate(backbone, METHODS["cross_regression"], prompt, knobs).finish().tokens == generate(
        backbone, METHODS["ar"], prompt
    ).finish().tokens  # fmt: skip


def test_noise_stands_behind_a_front() -> None:
    guesses = torch.full((64, 8), 99)
    noised = add_noise(guesses, 4, 32, Generator(PCG64(0))).view(-1, 4)
    is_kept = noised == 99
    assert (is_kept.long().cumprod(1) == is_kept.long()).all()
    assert set(is_kept.sum(1).tolist()) == {0, 1, 2, 3, 4} and noised[~is_kept].max() < 32


def test_the_buffer_begins_with_the_truth_and_remembers() -> None:
    recorded = PictureTeacher("cpu").generate(torch.ones(2, 32, dtype=torch.int64), Generator(PCG64(0)))
    replay, places = Replay(recorded, 32, "cpu"), window_places([3, 10], 2)
    assert places.tolist() == [3, 4, 10, 11]
    assert torch.equal(replay.read([1], places, 2)[0, 1::2], recorded[1].tokens[places[1::2]])
    replay.write([1], places, torch.tensor([[1, 2, 3, 4]]), torch.tensor([[5, 6, 7, 8]]))
    assert replay.read([0, 1], places, 2)[1].tolist() == [5, 2, 7, 4]
    assert replay.read([1], places, 4)[0].tolist() == [5, 2, 3, 4]
    assert torch.equal(replay.read([0], places, 2)[0, 1::2], recorded[0].tokens[places[1::2]])


def test_a_refused_token_has_the_distribution_of_refused_drafts() -> None:
    """The rejected part of q: never a token at which p is at least q."""
    p, q = torch.tensor([[0.5, 0.3, 0.1, 0.1]]), torch.tensor([[0.1, 0.4, 0.3, 0.2]])
    u = torch.from_numpy(Generator(PCG64(0)).random(20_000))
    found = draw_rejected(p.expand(20_000, 1, 4), q.expand(20_000, 1, 4), u)
    shares = found.bincount(minlength=4) / len(found)
    torch.testing.assert_close(shares, torch.tensor([0.0, 0.25, 0.5, 0.25]), atol=0.015, rtol=0)


@pytest.mark.parametrize("name", ["pictogram", "lowpoly"])
def test_an_adapter_is_trained_written_and_read(name: str, shipped_folder: Path) -> None:
    """The whole recipe for a few seconds; the backbone then claims the stream and decodes with it, exactly."""
    assert "predictive_stream" not in load(name, str(shipped_folder / name)).capabilities
    predictive_stream.main(StreamOptions(backbone=name))
    card = folder.read_card(shipped_folder / name / "predictive_stream")
    assert card["causal"] and card["skipped_layers"] == 0 and card["base"]["name"] == name
    assert ("--backbone lowpoly" in card["command"]) == (name == "lowpoly")
    assert all(len(card["held_out"][f"acceptance_{kind}"]) == predictive_stream.WIDTHS[name] for kind in ("fresh", "refused"))
    backbone = load(name, str(shipped_folder / name))
    assert "predictive_stream" in backbone.capabilities
    layers = {path.split(".")[1] for path in backbone.drafter("predictive_stream").lora.paths}
    assert "0" in layers
    points = ball() if name == "lowpoly" else None
    prompt = Prompt(text="green apple", points=points, seed=3)
    plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
    run = generate(backbone, METHODS["cross_regression"], prompt, {"horizon": 4, "verify": "match seed"}).finish()
    assert run.tokens == plain and np.isfinite(run.totals["step_compression"])


def test_training_goes_on_from_the_shipped_adapter_where_its_checkpoint_is_lost(
    shipped_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    predictive_stream.main(StreamOptions(backbone="lowpoly"))
    before = folder.read_card(shipped_folder / "lowpoly" / "predictive_stream")
    backbone = load("lowpoly", str(shipped_folder / "lowpoly"))
    ups = dict(zip((own := backbone.drafter("predictive_stream").lora).paths, own.up, strict=True))
    for lost in loop.CHECKPOINTS.glob("predictive-stream*.pt"):
        lost.unlink()
    started: list[dict[str, torch.Tensor]] = []
    monkeypatch.setattr(loop.Training, "run", lambda training, *_, **__: started.append(training.model.lora))
    predictive_stream.main(StreamOptions(backbone="lowpoly"))
    assert f"warm start from the shipped weights, step {before['steps']}" in capsys.readouterr().out
    assert started and all(torch.equal(up, ups[path]) for path, up in zip(started[0].paths, started[0].up, strict=True))
    predictive_stream.main(StreamOptions(backbone="lowpoly", fresh=True))
    assert "warm start" not in capsys.readouterr().out and not any(up.any() for up in started[1].up)


def test_sequences_too_short_for_a_window_are_left_out() -> None:
    teacher = PictureTeacher("cpu")
    assert len(RecordedSequences("pictogram", teacher, 4, 2, shortest=64).recorded) == 4
    assert RecordedSequences("pictogram", teacher, 4, 2, shortest=65).recorded == []


def ball() -> torch.Tensor:
    """Points on a sphere with their normals, [200, 6]."""
    normals = torch.nn.functional.normalize(torch.randn(200, 3, generator=torch.Generator().manual_seed(4)), dim=-1)
    return torch.cat([normals * 0.9, normals], -1)


def test_training_raises_the_chance_of_acceptance() -> None:
    """A few steps on two pictures: the loss trains what acceptance depends on."""
    teacher = PictureTeacher("cpu")
    rows = teacher.generate(
        torch.tensor([teacher.backbone.ids_of(teacher.backbone._readable_words(Prompt(text=t))) for t in ("two cats", "a table")]),
        Generator(PCG64(0)),
    )
    student, starts = StreamStudent(teacher, True), [5, 30]
    guesses = add_noise(Replay(rows, 32, "cpu").read([0, 1], window_places(starts, 8), 8), 8, 32, Generator(PCG64(2)))
    optimizer = torch.optim.Adam(student.parameters(), 1e-2)
    chances = []
    for _ in range(25):
        p, q = student.probs(rows, starts, guesses)
        chances.append(torch.minimum(p, q.exp()).sum(-1).mean().item())
        weight = expected_right(p, q.detach().exp(), 8).flatten(1) + 1
        optimizer.zero_grad()
        (-((p * q).sum(-1) * weight).sum() / weight.sum()).backward()
        optimizer.step()
    assert chances[-1] > chances[0] + 0.1
    assert all(p.grad is None for p in teacher.model.parameters())
