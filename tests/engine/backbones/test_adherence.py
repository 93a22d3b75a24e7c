"""Adherence: the penalty of tokens by their distance from the points; with it every method decodes the tokens of plain decoding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt

from engine.backbones import lowpoly
from engine.backbones.adherence import FAR, Adherence, squares
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.lowpoly_together import decode_together
from engine.core import NO_DRAFT, Prompt, Sampling
from engine.errors import NotSupported
from engine.mesh.bpt_tokens import BPT, DEEPMESH, TokenParser, dequantize
from engine.mesh.nearest import Nearest
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny
from tests.research.train import tiny_folders

STRENGTH = 40.0
SAMPLING = Sampling(1.0, 50, 0.95, temperature_last=True, adherence=STRENGTH)
SEED = {"verify": "match seed"}
SEEDED = {
    "xspecmesh": {"accept": "residual", **SEED},
    "surface": SEED,
    "sjdpp": SEED,
    "lookup": SEED,
    "eagle": SEED,
    "adt_tree": SEED,
    "cross_regression": SEED,
}


def cloud(seed: int, count: int = 300) -> torch.Tensor:
    """Points of a small off-centre ball, so that most of the cube is far away."""
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=torch.Generator().manual_seed(seed)), dim=-1)
    return torch.cat([0.3 * directions + 0.4, directions], -1)


@pytest.fixture
def backbone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lowpoly:
    """The tiny model."""
    tiny_folders.ship(tmp_path, monkeypatch)
    return lowpoly.load()


def prompts(count: int, **sampling: float) -> list[Prompt]:
    return [Prompt(points=cloud(i), seed=i, size=12, sampling=replace(SAMPLING, **sampling)) for i in range(count)]


def test_squares_are_those_of_the_exact_transform() -> None:
    cells = np.random.default_rng(0).integers(0, 64, (40, 3))
    empty = np.ones((64,) * 3, bool)
    empty[tuple(cells.T)] = False
    exact = np.minimum(np.rint(distance_transform_edt(empty) ** 2), FAR**2)
    assert np.array_equal(squares(cells, 64), exact) and 0.1 < (exact == FAR**2).mean() < 0.9


def test_a_token_loses_by_the_distance_of_its_cell() -> None:
    points = cloud(0)[:, :3].numpy()
    machine = Adherence(points, STRENGTH)
    block, offsets = 438, np.arange(4096)  # 438: the block 6, 6, 6
    cells = np.stack(np.unravel_index(offsets, (16,) * 3), 1) + 96
    distances = np.minimum(Nearest(points).query(dequantize(cells))[0], FAR / 64)
    lost = machine.loss(machine.next(machine.start, block))
    assert np.abs(lost[512:4608].numpy() / STRENGTH - distances).max() < 3**0.5 / 64  # a point stands for its cell
    assert lost[block] == lost[4608 + block] == lost[512:4608].min()
    assert lost[BPT.eos] == 0
    assert lost[0] == lost[4608] == pytest.approx(STRENGTH * FAR / 64)  # the corner of the cube is far from everything
    assert machine.next(machine.next(7, 4608 + 9), 600) == 9  # a patch opens in block 9, and an offset stays there
    with pytest.raises(NotSupported, match="deepmesh does not have"):
        Adherence(points, STRENGTH, DEEPMESH)


def test_vertices_keep_to_the_points(backbone: Lowpoly) -> None:
    def distance_after(strength: float) -> float:
        distances = []
        for prompt, tokens in zip(points := prompts(6, adherence=strength), decode_together(backbone, points), strict=True):
            parser = TokenParser(BPT)
            cells = [face.vertices for face in parser.extend(tokens)]
            distances.append(Nearest(prompt.points[:, :3].numpy()).query(dequantize(np.array(cells).reshape(-1, 3)))[0].mean())
        return float(np.mean(distances))

    assert distance_after(200.0) < 0.25 * distance_after(0.0)


@pytest.mark.parametrize("name", list(SEEDED))
def test_every_method_decodes_the_tokens_of_plain_decoding(name: str) -> None:
    """With the shipped weights, which have every drafter."""
    shipped, clouds = lowpoly.load(), prompts(2)
    alone = [generate(shipped, METHODS["ar"], prompt).finish().tokens for prompt in clouds]
    fast = [generate(shipped, METHODS[name], prompt, SEEDED[name]).finish().tokens for prompt in clouds]
    assert fast == alone == decode_together(shipped, clouds)
    assert alone != decode_together(shipped, prompts(2, adherence=0.0))


def test_a_bias_that_does_not_walk_along_the_drafts_is_found(backbone: Lowpoly, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: rows of drafts get the penalty of the first row."""
    backbone.grammar = False  # which also follows the drafts and would be wrong
    clouds = [replace(prompt, size=None) for prompt in prompts(2)]

    def decode_all(name: str) -> list[list[int]]:
        return [generate(backbone, METHODS[name], prompt, SEEDED.get(name, {})).finish().tokens for prompt in clouds]

    alone = decode_all("ar")
    assert decode_all("sjdpp") == alone
    along = "engine.networks.sequence.states_along"
    monkeypatch.setattr(along, lambda machine, parents, tokens, state: [state] * (1 + len(tokens.to_list())))
    assert decode_all("sjdpp") != alone


def test_models_that_read_no_points_refuse_it() -> None:
    picture = tiny.pictogram()
    with torch.inference_mode(), pytest.raises(NotSupported, match="Only models that read points have adherence"):
        picture.start(Prompt(text="red apple", sampling=replace(picture.sampling, adherence=1.0)))


def test_a_pass_of_several_runs_loses_it_too() -> None:
    """A page's race computes the passes of both sides together."""
    quick = tiny.quick_lowpoly()
    prompt = Prompt(points=tiny.sphere(), sampling=SAMPLING)
    with torch.inference_mode():
        alone, joined = quick.start(prompt), quick.start(prompt)
        if "joined" not in quick.capabilities:
            pytest.skip("no compiled blocks here")
        joined.run_together = lambda request: request.trunk.run_together([request])[0]
        torch.testing.assert_close(joined.forward(NO_DRAFT).p, alone.forward(NO_DRAFT).p)
        plain = quick.start(replace(prompt, sampling=replace(SAMPLING, adherence=0.0)))
        assert not torch.allclose(plain.forward(NO_DRAFT).p, alone.forward(NO_DRAFT).p)
