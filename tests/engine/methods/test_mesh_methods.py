"""XSpecMesh and lookup on meshes: behaviour that the toy cannot test, because it has no condition and no grammar of patches."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from engine.core import NO_DRAFT, Knobs, Prompt, Sampling
from engine.decoding import head_drafts
from engine.decoding.head_drafts import PathTree, best_guess, best_of
from engine.drafters.mesh_heads import SHORT, BoundHeads, HeadsByKind, MeshHeads
from engine.errors import NotSupported
from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import BPT
from engine.methods import METHODS
from engine.methods.lookup import Index
from engine.methods.xspecmesh import replacement
from engine.noise import DRAFTER, Noise
from engine.run import Run, generate
from engine.sampling import draw_gumbel
from tests.engine.backbones import tiny


def heads(kind: str = "cross", tied: bool = True) -> BoundHeads:
    """Random heads for the tiny lowpoly."""
    torch.manual_seed(5)
    heads = MeshHeads(4, 32, 2, BPT.vocabulary, kind, tied)
    tiny.spread(heads, 0.3)
    for p in heads.parameters():
        if p.ndim == 3:
            torch.nn.init.normal_(p, std=0.2)
    return BoundHeads(heads, tiny.mesh_model().decoder.head)


def run(name: str, seed: int = 0, sampling: Sampling | None = None, size: int | None = None, **knobs: float | str) -> Run:
    """One finished run of a method on the tiny lowpoly with random heads."""
    backbone = tiny.lowpoly()
    backbone.capabilities = backbone.capabilities | {"mesh_heads"}
    prompt = Prompt(points=tiny.sphere(), seed=seed, size=size, sampling=sampling)
    drafter = HeadsByKind(["cross-attention", "multilayer"], lambda kind: heads(SHORT[kind]), "lowpoly")
    return generate(backbone, METHODS[name], prompt, knobs, drafter if name in ("xspecmesh", "surface") else None).finish()


@pytest.mark.parametrize("accept", ["threshold", "residual", "top k", "typical"])
def test_every_mesh_obeys_the_grammar_and_its_budget(accept: str) -> None:
    for seed in range(3):
        done = run("xspecmesh", seed, size=9, accept=accept, accept_probability=0.05)
        ended = done.tokens[-1] == BPT.eos
        assert ended or len(done.tokens) == 96
        grammar = BPTGrammar(canonical=True, budget=9)
        assert not ended or grammar.accepts(done.tokens)
        assert len(done.result().parser.faces) <= 9
        assert done.positions == list(range(len(done.tokens)))


def test_a_replacement_is_drawn_with_the_noise_of_its_own_position() -> None:
    noise, rows = Noise(3, 500), SimpleNamespace(host=None, scores=torch.zeros(4, 500))
    for a in range(4):
        assert replacement(rows, a, noise, 9) == draw_gumbel(rows.scores[:1], noise.gumbel(9 + a, 1)).item()


@torch.no_grad()
def test_one_row_of_heads_is_what_all_rows_would_give() -> None:
    """The drafter's answer for a row equals a batched evaluation over many rows, for every kind of heads."""
    for kind, tied in itertools.product(("cross", "mlp"), (True, False)):
        bound = heads(kind, tied)
        condition, hidden = torch.randn(7, 32), torch.randn(5, 32)
        many = bound.heads.features(hidden[None], bound.heads.keys_values(condition[None]))
        logits = bound.heads.logits(many, bound.head)[:, 0]
        states: list[Any] = []
        sequence = SimpleNamespace(condition=condition, masks=None, look_ahead=lambda *ahead, states=states: states.append(ahead))
        rows = SimpleNamespace(hidden=hidden[None], ahead=())
        guess = bound.start(sequence)
        ((ahead, *tensors),) = states
        for i in range(5):
            torch.testing.assert_close(guess(rows, i, 3), logits[:3, i], atol=2e-5, rtol=1e-4)
            (there,) = ahead(hidden[None], torch.tensor(i), *tensors)
            torch.testing.assert_close(there, logits[:, i], atol=2e-5, rtol=1e-4)


def test_fresh_heads_hand_on_a_share_of_the_hidden_state() -> None:
    """Zero last layers: a head is the output layer on the scaled hidden state, whatever the condition."""
    heads = MeshHeads(3, 32, 2, BPT.vocabulary)
    hidden = torch.randn(1, 2, 32)
    assert torch.equal(heads.features(hidden, heads.keys_values(torch.randn(1, 4, 32))), (heads.gain[0] * hidden).expand(3, -1, -1, -1))


def test_heads_that_were_not_trained_are_refused_with_a_sentence() -> None:
    drafter = HeadsByKind(["cross-attention"], lambda kind: heads(), "lowpoly")
    assert drafter.of("cross-attention") is drafter.of("cross-attention")
    with pytest.raises(NotSupported, match=r"no multilayer heads\. Set heads=cross-attention"):
        drafter.of("multilayer")


@torch.inference_mode()
def test_the_best_guess_is_the_best_of_the_distribution() -> None:
    """It gives the same token without a distribution: grammar, top-k, top-p and temperature do not change the most probable token."""
    sequence = tiny.lowpoly().start(Prompt(points=tiny.sphere(), seed=1))
    logits = torch.randn(12, sequence.vocabulary, generator=torch.Generator().manual_seed(2))
    path: list[int] = []
    for row in logits:
        guess = best_guess(row, sequence.allowed_ids(path))
        assert torch.equal(guess, sequence.probs_after(row[None], path).argmax(-1))
        path.append(guess.item())


class Flat:
    """A sequence without grammar: a distribution is the softmax of its logits."""

    def probs_after(self, logits: torch.Tensor, path: list[int]) -> torch.Tensor:
        """[k, V]"""
        return torch.softmax(logits, -1)

    def state(self, path: list[int]) -> None:
        """The only one."""


def test_the_pruned_tree_draws_whole_paths_by_their_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    """The conditionals of a `PathTree` multiply to the weights of the surviving paths, normalised."""
    monkeypatch.setattr(head_drafts, "PRUNED", 0.05)
    logits = torch.randn(3, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 1.5
    tops = [best_of(torch.softmax(row[None], -1), 2)[0] for row in logits]
    weights = {
        path: float(torch.stack([t[x] for t, x in zip(tops, path, strict=True)]).prod()) for path in itertools.product(range(6), repeat=3)
    }
    alive = {path: w for path, w in weights.items() if w >= 0.05}
    assert 0 < len(alive) < 8, "some paths are pruned, some are not"
    tree = PathTree(logits, Flat(), 3, 2)
    for path, weight in alive.items():
        chance = 1.0
        for j in range(3):
            chance *= float(tree.probs_after(list(path[:j]))[0, path[j]])
        assert chance == pytest.approx(weight / sum(alive.values()))


def test_lookup_finds_the_longest_earlier_run() -> None:
    index = Index(3)
    assert index.continuation(3, 4) == []
    index.add([1, 2, 3, 9, 2, 3])
    assert index.continuation(3, 4) == [9, 2, 3, 9]  # after "2 3" came 9; at the end it continues from itself
    assert index.continuation(1, 1) == [9]
    index.add([1])
    assert index.continuation(3, 2) == [2, 3]  # "3 1" is new, "1" is not


def test_lookup_of_a_repeated_token_verifies_its_first_draft() -> None:
    """A known bug elsewhere commits the first draft unseen."""
    index = Index(3)
    index.add([1, 1, 1])
    assert index.continuation(3, 3) == [1, 1, 1]
    done = run("lookup", 2)
    assert sum(len(s.tokens) for s in done.steps) == len(done.tokens)
    assert all(len(s.tokens) <= s.drafted + 1 for s in done.steps)


@torch.inference_mode()
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("drafts", ["independent", "most probable", "tree"])
def test_a_chain_drawn_at_once_is_the_chain_drawn_head_by_head(drafts: str, seeded: bool) -> None:
    """On a device all heads draw under every mask before the host follows the path; here they draw one by one."""
    sequence = tiny.lowpoly().start(Prompt(points=tiny.sphere(), seed=1))
    noise, knobs = Noise(3, sequence.vocabulary), Knobs({"drafts": drafts, "tree_top": 3})
    seen = set()
    for iteration in range(6):
        random = torch.Generator().manual_seed(iteration)
        logits = 2 * torch.randn(4, sequence.vocabulary, generator=random)
        plain = head_drafts.propose(logits, sequence, knobs, noise, iteration, seeded)
        u = noise.uniform(DRAFTER, sequence.length, 4, iteration)
        chain = head_drafts.at_once(logits, sequence, knobs, noise, u, seeded)
        assert chain.tokens.tolist() == plain.tokens.tolist()
        torch.testing.assert_close(chain.probs(), plain.probs())
        seen |= {sequence.mask_index(chain.tokens[:j].tolist()) for j in range(4)}
        sequence.forward(NO_DRAFT)
        sequence.commit([], chain.tokens[0].item())
    assert len(seen) > 1, "one mask was enough, so no choice was made"
