"""Rows that read the cloud around the newest vertex: the same by training, alone, together and in windows; by the path of each row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.backbones.lowpoly_together import decode_together
from engine.core import NO_DRAFT, Draft, Prompt
from engine.methods import METHODS
from engine.networks import sequence as sequences
from engine.networks.local_reader import Surroundings
from engine.networks.mesh_decoder import MeshModel, describe, settings_of
from engine.run import generate
from research.train.lowpoly import surroundings
from research.train.teachers import behind
from tests.engine.backbones import tiny

PROMPTS = [Prompt(points=tiny.sphere(), seed=seed) for seed in (1, 2, 3)]


def plain(backbone, prompt: Prompt) -> list[int]:
    """The tokens of plain decoding."""
    return generate(backbone, METHODS["ar"], prompt).finish().tokens


def logits_of(sequence, tokens: list[int]) -> torch.Tensor:
    """The logits of the rows of a window [R, V]."""
    return sequence.forward(Draft(torch.tensor(tokens))).logits[0]


def one_by_one(backbone, tokens: list[int]) -> torch.Tensor:
    """The logits after each prefix of the tokens [R, V], a pass each."""
    sequence, rows = backbone.start(PROMPTS[0]), []
    for token in [*tokens, 0]:
        rows.append(sequence.forward(NO_DRAFT).logits[0, -1])
        sequence.commit([], token)
    return torch.stack(rows)


def test_a_window_reads_what_single_passes_read_and_a_mutant_does_not(monkeypatch):
    backbone = tiny.local_lowpoly()
    tokens = plain(backbone, PROMPTS[0])[:24]
    expected = one_by_one(backbone, tokens)
    torch.testing.assert_close(logits_of(backbone.start(PROMPTS[0]), tokens), expected, atol=1e-4, rtol=1e-4)

    right = sequences.states_along

    def committed_only(machine, parents, drafted, state):
        states = right(machine, parents, drafted, state)
        return [state] * len(states) if machine is sequence.local else states

    sequence = backbone.start(PROMPTS[0])
    monkeypatch.setattr(sequences, "states_along", committed_only)
    assert (logits_of(sequence, tokens) - expected).abs().max() > 0.01


def test_meshes_decoded_together_are_those_decoded_alone():
    backbone = tiny.local_lowpoly()
    assert decode_together(backbone, PROMPTS) == [plain(backbone, prompt) for prompt in PROMPTS]


def test_the_rows_matter():
    with_rows, without = tiny.local_lowpoly(), tiny.lowpoly()
    assert plain(with_rows, PROMPTS[0]) != plain(without, PROMPTS[0])


def test_training_reads_what_a_run_reads():
    backbone = tiny.local_lowpoly()
    tokens = np.array(plain(backbone, PROMPTS[0])[:40])
    points = backbone.read_points(PROMPTS[0])
    read = surroundings(points.numpy(), tokens, 48)
    local = backbone.model.read(points[None]).local[0]
    learned = backbone.model.local(Surroundings(read.near[:41], read.empty[:41]))
    torch.testing.assert_close(local.rows(local.along(tokens.tolist())), learned)
    assert not read.near[41:].any() and not read.empty[41:].any()


@pytest.mark.parametrize("make", [tiny.mesh_model, tiny.local_mesh_model])
def test_the_shape_is_read_from_the_weights(make):
    settings = settings_of(make().state_dict())
    assert settings == make().settings and ("local" in describe(settings)) == bool(settings.local)
    MeshModel(settings).load_state_dict(make().state_dict())


def test_windows_of_the_stream_read_the_tokens_before_them_and_their_guesses():
    backbone = tiny.local_lowpoly()
    tokens = plain(backbone, PROMPTS[0])[:30]
    cloud = backbone.model.read(backbone.read_points(PROMPTS[0])[None]).local[0]
    states = behind(cloud, tokens, [4, 9], [tokens[4:7], tokens[9:12]])
    expected = cloud.along(tokens)
    torch.testing.assert_close(cloud.rows(states), cloud.rows(expected[5:8] + expected[10:13]))
