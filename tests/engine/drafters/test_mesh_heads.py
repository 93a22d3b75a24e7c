"""The heads of one row in numpy against those in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine.core import Prompt
from engine.drafters.mesh_heads import BoundHeads, HeadsByKind, HostHeads, MeshHeads
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny

DEPTH, VOCABULARY, SEEN = 5, 333, 41


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    """No gradients, as in a run."""
    with torch.inference_mode():
        yield


def heads_and_cross(kind: str, width: int, heads: int) -> tuple[MeshHeads, tuple[Tensor, Tensor] | None]:
    """Random heads, and their keys and values of a condition."""
    torch.manual_seed(0)
    own = MeshHeads(DEPTH, width, heads, VOCABULARY, kind)
    for p in own.parameters():
        nn.init.normal_(p, std=0.3 if p.ndim < 3 or p.shape[1] == 1 else width**-0.5)
    return own, own.keys_values(torch.randn(1, SEEN, width))


def on_host(own: MeshHeads, looked: tuple[Tensor, Tensor] | None, hidden: Tensor, count: int) -> Tensor:
    laid = None if looked is None else tuple(each[:, 0].numpy() for each in looked)
    return torch.from_numpy(HostHeads(own)(hidden.numpy(), laid, count))


@pytest.mark.parametrize("kind", ["mlp", "cross"])
@pytest.mark.parametrize(("width", "heads"), [(192, 6), (32, 2), (33, 1)])
def test_it_is_the_reference_up_to_rounding(kind: str, width: int, heads: int) -> None:
    own, looked = heads_and_cross(kind, width, heads)
    hidden = 2 * torch.randn(width)
    for count in (1, 3, DEPTH):
        ours, theirs = on_host(own, looked, hidden, count), own.features(hidden[None, None], looked, count)[:, 0, 0]
        assert ours.shape == (count, width) and ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=5e-5)
        assert len({tuple(row.tolist()) for row in ours}) == count  # each head has its own weights


@pytest.mark.parametrize("kind", ["mlp", "cross"])
def test_a_head_is_the_same_in_a_call_of_any_number(kind: str) -> None:
    own, looked = heads_and_cross(kind, 192, 6)
    hidden = torch.randn(192)
    whole = on_host(own, looked, hidden, DEPTH)
    assert all(torch.equal(on_host(own, looked, hidden, count), whole[:count]) for count in range(1, DEPTH + 1))


def test_only_float32_heads_on_a_cpu_are_computed_on_the_host() -> None:
    own, _ = heads_and_cross("mlp", 32, 2)
    assert BoundHeads(own, nn.Identity()).host is not None
    assert BoundHeads(own.double(), nn.Identity()).host is None


@pytest.mark.parametrize("kind", ["mlp", "cross"])
@pytest.mark.parametrize("grammar", [True, False])
@pytest.mark.parametrize("verify", ["residual", "match seed"])
def test_a_run_has_the_tokens_and_drafts_of_the_reference(kind: str, grammar: bool, verify: str) -> None:
    drafts: list[list[Any]] = []
    model = tiny.quick_lowpoly(grammar)
    model.capabilities |= {"mesh_heads"}
    torch.manual_seed(1)
    own = MeshHeads(4, 32, 2, model.vocabulary, kind)
    for p in own.parameters():
        nn.init.normal_(p, std=0.2)
    for hosted in (False, True):
        bound = BoundHeads(own, model.model.decoder.head)
        bound.host = bound.host if hosted else None
        knobs = {"accept": "residual", "drafts": "most probable", "heads": "multilayer", "depth": 3, "verify": verify}
        drafter = HeadsByKind(["multilayer"], lambda _, bound=bound: bound, "tiny")
        run = generate(model, METHODS["xspecmesh"], Prompt(points=tiny.sphere(), seed=2), knobs, drafter)
        drafts.append([(step.tokens, None if step.draft is None else step.draft["tokens"].tolist()) for step in islice(run, 30)])
    assert drafts[0] == drafts[1] and any(draft for _, draft in drafts[0])
