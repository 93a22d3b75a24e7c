"""A guided lowpoly: its prompt gets a surface of the points, every method decodes the tokens of plain decoding, and the mesh is nearer."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from engine.backbones import lowpoly
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.lowpoly_together import decode_together
from engine.core import Prompt
from engine.errors import NotSupported
from engine.mesh.distance import distance
from engine.methods import METHODS
from engine.run import Run, generate
from tests.engine.backbones import tiny

SEEDED = {"ar": {}} | {name: {"verify": "match seed"} for name in ("surface", "sjdpp", "lookup", "eagle")}


@pytest.fixture(scope="module")
def prompt() -> Prompt:
    """An ellipsoid, which the model has not learned, and a small guide."""
    cloud = tiny.sphere(3000)
    cloud[:, :3] *= torch.tensor([0.9, 0.5, 0.4])
    cloud[:, 3:] = torch.nn.functional.normalize(cloud[:, 3:] / torch.tensor([0.9, 0.5, 0.4]), dim=-1)
    return lowpoly.load().guided(Prompt(points=cloud, seed=3, about=40))


def decode(model: Lowpoly, name: str, prompt: Prompt) -> Run:
    return generate(model, METHODS[name], prompt, SEEDED[name]).finish()


def test_a_prompt_gets_a_guide_once_and_only_if_its_sampling_wants_one(prompt: Prompt) -> None:
    model = lowpoly.load()
    assert prompt.guide is not None and 30 <= len(prompt.guide[1]) <= 44
    assert model.guided(prompt) is prompt
    alone = replace(prompt, guide=None, sampling=replace(model.sampling, guide=0.0))
    assert model.guided(alone) is alone and model.bias(alone) is None
    assert model.bias(replace(prompt, guide=None)) is None
    flat = torch.tensor([[0.1, 0.2, 0.3, 0.0, 0.0, 1.0]]).repeat(50, 1)
    with pytest.raises(NotSupported, match="span no classical surface"):
        model.guided(Prompt(points=flat))


def test_every_method_decodes_the_tokens_of_plain_decoding(prompt: Prompt) -> None:
    model = lowpoly.load()
    runs = {name: decode(model, name, prompt) for name in SEEDED}
    tokens = {name: run.tokens for name, run in runs.items()}
    assert list(tokens.values()) == [tokens["ar"]] * len(SEEDED) and tokens["ar"] == decode_together(model, [prompt])[0]
    assert tokens["ar"] != decode(model, "ar", replace(prompt, guide=None)).tokens
    assert runs["surface"].totals["forwards"] < 0.6 * runs["ar"].totals["forwards"], "the guide's own tokens are good drafts"


def test_drafts_of_another_state_are_found(prompt: Prompt, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutant: rows of drafts get the bias of the first row."""
    model = lowpoly.load()
    alone = decode(model, "ar", prompt).tokens
    along = "engine.networks.sequence.states_along"
    right = lambda machine, parents, tokens, state: [state] * (1 + len(tokens.to_list()))  # noqa: E731
    monkeypatch.setattr(along, right)
    assert decode(model, "surface", prompt).tokens != alone


def test_the_mesh_is_nearer_with_a_guide(prompt: Prompt) -> None:
    model, points = lowpoly.load(), prompt.points.numpy()
    large = model.guided(replace(prompt, guide=None, about=200))

    def gap(one: Prompt) -> float:
        mesh = decode(model, "ar", one).result()
        return distance((mesh.vertices, mesh.faces), points)["chamfer"]

    assert gap(large) < 0.7 * gap(replace(large, guide=None))
