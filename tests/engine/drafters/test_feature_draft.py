"""The contract of the feature drafter on tiny random models: a node's row is its path's, and a dropped tree leaves no trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from engine.backbones.lowpoly import Lowpoly
from engine.backbones.pictogram import FOLDER, Pictogram
from engine.cache import KVCache
from engine.core import NO_DRAFT, Backbone, Prompt, Sampling
from engine.drafters.feature_draft import NAME, FeatureDrafter, NetworkFeatures, NetworkGrowth, read_drafter, weights_file
from engine.errors import MissingWeights, NotSupported
from engine.kernels.cpu.library import native
from engine.layout import Raster
from engine.methods import METHODS
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import causal_mask
from engine.networks.weights import build_network, read_card, read_tensors, ship
from engine.run import generate
from engine.tree import path
from tests.engine.backbones import tiny

CPU = torch.device("cpu")
TREE = [-1, -1, 0, 0, 1, 3]  # two roots; 0 has two children; the deepest path is 0, 3, 5
LEVELS = ([0, 1], [2, 3, 4], [5])


def network() -> FeatureDrafter:
    """A random drafter for states of width 32."""
    torch.manual_seed(6)
    drafter = FeatureDrafter(32, 2, 48)
    tiny.spread(drafter, 0.3)
    torch.nn.init.normal_(drafter.bias, std=0.3)
    return drafter.requires_grad_(False)


@dataclass
class Case:
    """A backbone with a drafter, and a prompt that it reads."""

    backbone: Backbone
    prompt: Prompt

    def growth(self, count: int) -> tuple[TransformerSequence, NetworkGrowth, torch.Tensor, list[int]]:
        """A sequence with `count` committed tokens, a fresh growth, the states that predicted these tokens, and the tokens."""
        sequence = self.backbone.start(self.prompt)
        growth, states, tokens = NetworkFeatures(network()).start(sequence), [], []
        for i in range(count):
            states.append(sequence.forward(NO_DRAFT).hidden)
            tokens += sequence.commit([], (5 * i + 2) % sequence.vocabulary)
        return sequence, growth, torch.cat(states, 1), tokens


MAKERS = {
    "pictogram": lambda: Case(tiny.pictogram(), Prompt(text="two red cats", sampling=Sampling(guidance=2.0))),
    "lowpoly": lambda: Case(tiny.lowpoly(grammar=False), Prompt(points=tiny.sphere())),
}


@pytest.fixture(params=list(MAKERS))
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    """Each backbone in turn, under inference mode as in a run."""
    with torch.inference_mode():
        yield MAKERS[request.param]()


def grow(growth: NetworkGrowth, tokens: list[int]) -> torch.Tensor:
    """Grows TREE with these tokens level by level; guided logits [6, V]."""
    return torch.cat([growth.expand([TREE[node] for node in level], [tokens[node] for node in level]) for level in LEVELS])


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    """Asserts that logits agree."""
    torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("count", [1, 4])
def test_a_tree_is_its_paths(case: Case, count: int) -> None:
    sequence, growth, states, tokens = case.growth(count)
    first = growth.root(states, tokens)
    nodes = [(7 * i + 1) % sequence.vocabulary for i in range(len(TREE))]
    rows = grow(growth, nodes)
    assert growth.kv_cache.kept == count + len(TREE)
    for node in range(len(TREE)):
        _, chain, states_again, tokens_again = case.growth(count)
        same(chain.root(states_again, tokens_again), first)
        for number, step in enumerate(path(TREE, node)):
            row = chain.expand([number - 1], [nodes[step]])
        same(row[0], rows[node])


def test_rows_differ_and_see_their_ancestors(case: Case) -> None:
    sequence, growth, states, tokens = case.growth(2)
    growth.root(states, tokens)
    nodes = [(7 * i + 1) % sequence.vocabulary for i in range(len(TREE))]
    rows = grow(growth, nodes)
    growth.root(states[:, -1:], tokens[-1:])  # one token more
    moved = grow(growth, [nodes[0] + 1, *nodes[1:]])
    assert ((rows - moved).abs().amax(-1) > 1e-2).all()


def test_the_root_behind_commits_equals_one_from_scratch(case: Case) -> None:
    """Tokens in pieces, with trees grown and dropped in between, leave the same cache as all tokens at once."""
    sequence, growth, states, tokens = case.growth(7)
    nodes = [(3 * i + 1) % sequence.vocabulary for i in range(len(TREE))]
    for start, stop in ((0, 1), (1, 4), (4, 5), (5, 7)):
        behind = growth.root(states[:, start:stop], tokens[start:stop])
        tree = grow(growth, nodes)
    _, fresh, states, tokens = case.growth(7)
    same(fresh.root(states, tokens), behind)
    same(grow(fresh, nodes), tree)
    torch.testing.assert_close(growth.kv_cache.block[..., :7, :], fresh.kv_cache.block[..., :7, :], atol=2e-4, rtol=1e-4)


def with_drafter(backbone: Backbone, folder: Path) -> Backbone:
    """The backbone as loaded from a folder with a drafter."""
    drafter = network()
    ship(folder, {weights_file(folder).name: drafter.state_dict()}, {NAME: {"settings": drafter.settings}})
    card = {NAME: {"settings": drafter.settings}}
    if isinstance(backbone, Lowpoly):
        return Lowpoly(backbone.model, card, folder)
    return Pictogram(backbone.model, backbone.tokenizer, list(backbone.words), backbone.sides, card, folder)


UNTRAINED = [
    (tiny.pictogram, NAME, "feature-draft", "eagle"), (tiny.lowpoly, NAME, "feature-draft", "eagle"),
    (tiny.pictogram, "spatial_heads", "spatial-heads", "medusa"),
    (tiny.pictogram, "predictive_stream", "predictive-stream", "cross_regression"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "drafter", "recipe", "method"), UNTRAINED)
def test_what_was_not_trained_is_not_claimed(make: Callable[[], Backbone], drafter: str, recipe: str, method: str) -> None:
    assert drafter not in make().capabilities
    with pytest.raises(MissingWeights, match=f"train {recipe}"):
        make().drafter(drafter)
    with pytest.raises(NotSupported, match=drafter):
        generate(make(), METHODS[method], Prompt(text="red cats"))


def test_a_file_without_its_card_or_damaged_is_refused(tmp_path: Path) -> None:
    backbone = with_drafter(tiny.lowpoly(), tmp_path / "lowpoly")
    assert NAME in backbone.capabilities and backbone.drafter(NAME) is backbone.drafter(NAME)
    backbone = with_drafter(tiny.pictogram(), tmp_path)
    backbone.card = {}
    with pytest.raises(MissingWeights, match="card"):
        backbone.drafter(NAME)
    weights_file(tmp_path).write_bytes(b"half")
    backbone.card = {NAME: {"settings": network().settings}}
    with pytest.raises(MissingWeights, match="damaged"):
        backbone.drafter(NAME)


@torch.inference_mode()
def test_codebooks_reach_the_sequence() -> None:
    """By capability: pictures have a codebook, meshes have none."""
    for case in (MAKERS["pictogram"](), Case(tiny.janus(), Prompt(text="red apple"))):
        sequence = case.backbone.start(case.prompt)
        assert "codebook" in case.backbone.capabilities and len(sequence.codebook) == sequence.vocabulary
    assert MAKERS["lowpoly"]().backbone.start(Prompt(points=tiny.sphere())).codebook is None


def test_the_shipped_drafter_is_the_trained_network() -> None:
    """On a CPU its block and its products are compiled functions where possible."""
    card = read_card(FOLDER)
    settings = card[NAME]["settings"]
    plain = build_network(FeatureDrafter, settings, read_tensors(weights_file(FOLDER)), FOLDER).eval()
    quick = read_drafter(weights_file(FOLDER), card, CPU).network
    heads, width = settings["heads"], settings["width"]
    embedded, features = torch.randn(2, 2, 5, width, generator=torch.Generator().manual_seed(0)).unbind()
    cos, sin = plain.rotary(Raster(16, 16), 5)
    with torch.inference_mode():
        caches, mask = [KVCache(1, 2, heads, 9, width // heads, CPU, torch.float32) for _ in range(2)], causal_mask(5, 0, CPU)
        outputs = [each(embedded, features, cos, sin, mask, kv_cache) for each, kv_cache in zip((plain, quick), caches, strict=True)]
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-4, rtol=1e-4)
    assert (quick.decoder.quick is not None) == (native() is not None)


@torch.inference_mode()
def test_a_drafter_has_the_number_type_of_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off the processor its weights and its cache are half as large for a model in bfloat16. Its tree differs by rounding alone."""
    drafter = network()
    card = {NAME: {"settings": drafter.settings}}
    ship(tmp_path, {weights_file(tmp_path).name: drafter.state_dict()}, card)
    assert read_drafter(weights_file(tmp_path), card, CPU, dtype=torch.bfloat16).network.bias.dtype == torch.float32
    there = read_drafter(weights_file(tmp_path), card, torch.device("meta"), dtype=torch.bfloat16).network
    assert {p.dtype for p in there.parameters()} == {torch.bfloat16}
    backbone = tiny.janus()
    assert backbone.draft_dtype == backbone.hosted.decoder.dtype
    logits = []
    for dtype in (torch.float32, torch.bfloat16):
        growth = NetworkFeatures(network().to(dtype)).start(backbone.start(Prompt(text="red apple")))
        states = torch.randn(growth.kv_cache.branches, 2, 32, generator=torch.Generator().manual_seed(1))
        logits.append(torch.cat([growth.root(states, [1, 2])[None], growth.expand([-1, -1], [3, 4])]))
        assert growth.kv_cache.block.dtype == growth.states.dtype == dtype
    torch.testing.assert_close(*logits, atol=0.05 * float(logits[0].abs().max()), rtol=0.05)
