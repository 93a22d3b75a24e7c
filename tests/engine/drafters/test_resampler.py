"""Resamplers return distributions, see no row below, and map a plain picture from one scale to another."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.drafters.resampler import SPREADS, PictureResampler, TrainedResampler, UpSampler, read_resampler, weights_file
from engine.errors import MissingWeights
from engine.layout import Raster, fine_rows
from engine.networks.weights import ship
from research.exactness.toy import TableResampler
from tests.engine.backbones import tiny

COARSE, FINE = Raster(8, 8), Raster(16, 16)


def tokens(count: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    """Random ids."""
    return torch.randint(vocabulary, (count,), generator=torch.Generator().manual_seed(seed))


def random_resampler(factor: int = 2) -> TrainedResampler:
    """An untrained network in which every layer has an effect."""
    torch.manual_seed(0)
    network = UpSampler(tiny.pictogram().codebook(), factor, width=8, blocks=1)
    for p in network.parameters():
        torch.nn.init.normal_(p, std=0.3)
    return TrainedResampler(tiny.pictogram().tokenizer, {factor: network})


RESAMPLERS = {
    "picture": (lambda: PictureResampler(tiny.pictogram().tokenizer), 32),
    "trained": (random_resampler, 32),
    "tables": (lambda: TableResampler(5), 5),
}


@pytest.fixture(params=list(RESAMPLERS))
def resampler(request: pytest.FixtureRequest):
    """Each kind in turn, and its vocabulary."""
    make, vocabulary = RESAMPLERS[request.param]
    with torch.no_grad():
        yield make(), vocabulary


@pytest.mark.parametrize("fine", [FINE, Raster(32, 32)])
def test_up_gives_a_distribution_for_every_finer_token(resampler, fine: Raster) -> None:
    found, v = resampler
    for first, stop in ((0, 8), (0, 1), (3, 5), (7, 8)):
        probs = found.up(tokens(stop * 8, v), COARSE, fine, first, stop)
        top, bottom = fine_rows(COARSE, fine, first, stop)
        assert probs.shape == ((bottom - top) * fine.columns, v)
        torch.testing.assert_close(probs.sum(-1), torch.ones_like(probs[:, 0]))


def test_up_needs_no_row_below_the_ones_asked_for(resampler) -> None:
    """The same rows have the same distributions, whatever rows follow below."""
    found, v = resampler
    all_rows = tokens(64, v)
    for stop in (1, 4, 7):
        assert torch.equal(found.up(all_rows[: stop * 8], COARSE, FINE, stop - 1, stop), found.up(all_rows, COARSE, FINE, stop - 1, stop))


def test_up_looks_at_the_coarser_tokens(resampler) -> None:
    found, v = resampler
    one, other = tokens(64, v), tokens(64, v, 1)
    assert (found.up(one, COARSE, FINE, 2, 3) - found.up(other, COARSE, FINE, 2, 3)).abs().max() > 1e-3


def test_down_gives_the_coarser_tokens_and_looks_at_no_later_row(resampler) -> None:
    found, v = resampler
    picture = tokens(256, v)
    for first, stop in ((0, 8), (0, 1), (5, 7)):
        down = found.down(picture, FINE, COARSE, first, stop)
        assert down.shape == ((stop - first) * 8,) and down.min() >= 0 and down.max() < v
        cut = picture.clone()
        cut[2 * stop * 16 :] = 0
        assert torch.equal(found.down(cut, FINE, COARSE, first, stop), down)


def test_rows_of_ragged_rasters_share_all_finer_rows_out() -> None:
    for coarse, fine in (((2, 2), (3, 3)), ((1, 2), (2, 3)), ((2, 1), (5, 3))):
        small, large = Raster(*coarse), Raster(*fine)
        rows = [row for first in range(small.rows) for row in range(*fine_rows(small, large, first, first + 1))]
        assert rows == list(range(large.rows))


def test_the_spread_says_how_sure_the_picture_is() -> None:
    tokenizer = tiny.pictogram().tokenizer
    with torch.no_grad():
        sharp, flat = (PictureResampler(tokenizer, {2: s}).up(tokens(64, 32), COARSE, FINE, 0, 8) for s in (0.01, 10.0))
    assert torch.equal(sharp.argmax(-1), flat.argmax(-1))
    assert sharp.max(-1).values.mean() > flat.max(-1).values.mean() + 0.2


def test_trained_networks_come_back_from_their_folder(tmp_path: Path) -> None:
    tokenizer, network = tiny.pictogram().tokenizer, random_resampler().networks[2]
    tensors = {f"2.{name}": tensor for name, tensor in network.state_dict().items()}
    card = {"resampler": {"networks": {"2": network.settings}, "spreads": {"4": 0.3}}}
    ship(tmp_path, {weights_file(tmp_path).name: tensors}, card)
    with torch.no_grad():
        loaded = read_resampler(tmp_path, card, tokenizer)
        arguments = (tokens(64, 32), COARSE, FINE, 0, 8)
        torch.testing.assert_close(loaded.up(*arguments), random_resampler().up(*arguments), atol=2e-2, rtol=0)
    assert loaded.spreads == {2: SPREADS[2], 4: 0.3}
    weights_file(tmp_path).unlink()
    with pytest.raises(MissingWeights):
        read_resampler(tmp_path, card, tokenizer)
    free = read_resampler(tmp_path, {}, tokenizer)
    assert type(free) is PictureResampler and free.training_free is free
    assert type(loaded.training_free) is PictureResampler and loaded.training_free.spreads == loaded.spreads
