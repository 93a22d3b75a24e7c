"""Block verification apart from its distribution: impossible drafts, rows that cannot be drawn from, other devices, refused knobs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch

from engine.core import Draft, Prompt, Rows
from engine.decoding.verdict import judge_block
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import BadKnob
from engine.methods import METHODS
from engine.noise import Noise
from engine.rules import block
from engine.run import generate
from research.exactness.toy import Toy
from tests.engine.device.far import Far, as_on_a_gpu, move_module
from tests.engine.device.models import MODELS, Model, near

BLOCKS: dict[str, dict[str, Any]] = {
    "sjd": {"window": 5}, "spatial": {"window": 5}, "cross_regression": {"horizon": 3}, "eagle": {"depth": 3, "width": 1},
}  # fmt: skip


def tokens_of(model: Model, name: str, count: int = 4) -> list[list[int]]:
    """The tokens of the first steps of a run that verifies blocks."""
    run = generate(model.backbone, METHODS[name], model.prompt, BLOCKS[name] | {"verify": "block"}, model.drafter_of(METHODS[name]))
    steps = list(islice(run, count))
    run.close()
    return [step.tokens for step in steps]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """The simulated device, entered."""
    with as_on_a_gpu(monkeypatch) as far:
        yield far


@pytest.mark.parametrize("name", BLOCKS)
def test_numpy_and_the_reference_verify_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_numpy = tokens_of(near("pictogram"), name)
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert tokens_of(near("pictogram"), name) == by_numpy


@pytest.mark.parametrize("name", BLOCKS)
def test_a_device_verifies_alike_with_one_read(device: Far, name: str) -> None:
    far = MODELS["pictogram"](move_module)
    with device.count_traffic() as traffic:
        ours = tokens_of(far, name)
    assert ours == tokens_of(near("pictogram"), name)
    assert name == "eagle" or set(traffic.reads) == {"core/rows.py: DeviceIds.to_list_with"}  # a tree's panels read its probabilities


def test_a_draft_that_the_model_rules_out_ends_the_block() -> None:
    """The rows after it may have no possible token, and the length and the token before it are not disturbed."""
    p = torch.tensor([[0.5, 0.5, 0.0], [torch.nan] * 3, [torch.nan] * 3], dtype=torch.float64)
    q = torch.full((2, 3), 1 / 3, dtype=torch.float64)
    length, reach, rest = block(p, q, torch.tensor([2, 0]), torch.tensor([1e-9, 1e-9], dtype=torch.float64))
    assert length == 0 and reach.tolist() == [0, 0] and rest[0].tolist() == pytest.approx([1 / 6, 1 / 6, 0])
    assert not rest.isnan().any()


def test_a_row_that_cannot_be_drawn_from_is_an_error() -> None:
    scores = torch.zeros(3, 3, dtype=torch.float64)
    scores[1] = torch.nan
    rows = Rows(scores[None], lambda logits: logits[0])
    with pytest.raises(FloatingPointError):
        judge_block(rows, torch.tensor([0, 1]), torch.full((2, 3), 1 / 3, dtype=torch.float64), Noise(1, 3, dtype=torch.float64), 0, 0)


def test_equal_distributions_accept_every_draft() -> None:
    rows = Rows(torch.zeros(1, 4, 3, dtype=torch.float64), lambda logits: logits[0])
    for iteration in range(50):
        draft = Draft(torch.tensor([0, 2, 1]), q=torch.full((3, 3), 1 / 3, dtype=torch.float64))
        assert judge_block(rows, draft.tokens, draft.q, Noise(1, 3, dtype=torch.float64), 0, iteration).a == 3


@pytest.mark.parametrize(
    ("name", "knobs"), [("eagle", {"width": 2}), ("eagle", {"width": 1, "relax": "additive"}), ("spatial", {"mode": "published"})]
)
def test_what_is_no_block_is_refused(name: str, knobs: dict[str, Any]) -> None:
    with pytest.raises(BadKnob, match="block needs"):
        generate(Toy(), METHODS[name], Prompt(), knobs | {"verify": "block"}).finish()
