"""The guide: alone it writes its own mesh; it follows moved vertices, returns to patches that were left, and its states are pure."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.errors import NotSupported
from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import BPT, clean, mesh_of, parse, serialize
from engine.mesh.guide import SAME, Guide
from tests.engine.backbones.tiny import octahedron

BOX = np.array([(x, y, z) for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)], float) * [0.9, 0.5, 0.3]
SIDES = ((0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3))
BOX_FACES = np.array([corners for a, b, c, d in SIDES for corners in ((a, b, c), (a, c, d))])
TWO = (np.concatenate([BOX * 0.3 - 0.5, octahedron()[0] * 0.3 + 0.5]), np.concatenate([BOX_FACES, octahedron()[1] + 8]))
MESHES = {"octahedron": octahedron(), "box": (BOX, BOX_FACES), "two parts": TWO}


def own_tokens(mesh: tuple[np.ndarray, np.ndarray]) -> list[int]:
    """The tokens in which BPT writes a mesh, with the end."""
    cells = np.clip(np.floor((mesh[0] + 1) * 64), 0, 127).astype(int)
    return [*serialize(*clean(cells, mesh[1])).tolist(), BPT.eos]


def followed(guide: Guide, begin: list[int], longest: int = 300) -> list[int]:
    """Tokens that begin so and then are the ones that the guide favours most, under the grammar."""
    grammar, tokens = BPTGrammar(canonical=True), list(begin)
    state, allowed = guide.start, grammar.walk(begin)
    for token in begin:
        state = guide.next(state, token)
    while (not tokens or tokens[-1] != BPT.eos) and len(tokens) < longest:
        lost = guide.loss(state).masked_fill(torch.from_numpy(~grammar.allowed_ids(allowed)), torch.inf)
        tokens.append(int(lost.argmin()))
        state, allowed = guide.next(state, tokens[-1]), grammar.next(allowed, tokens[-1])
    return tokens


@pytest.mark.parametrize("name", MESHES)
def test_a_guide_alone_writes_its_mesh(name: str) -> None:
    mesh = MESHES[name]
    guide, expected = Guide(*mesh, 10.0), own_tokens(mesh)
    assert followed(guide, []) == expected
    states = [guide.start]
    for token in expected:
        states.append(guide.next(states[-1], token))
    gains = [-float(guide.loss(state)[token]) for state, token in zip(states, expected, strict=False)]
    assert min(gains) == 10.0, "every token of its mesh gains the whole strength"
    assert hash(states[-1]) is not None and guide.next(states[3], expected[3]) == states[4]


def test_a_vertex_that_the_model_moves_is_expected_at_its_new_place() -> None:
    guide, tokens = Guide(*MESHES["box"], 10.0), own_tokens(MESHES["box"])
    moved = [tokens[0], tokens[1] + 2 * 256 + 1]  # the first vertex: two cells along x, one along z
    cells, faces = mesh_of(parse(followed(guide, moved)).faces)
    true, whole = mesh_of(parse(tokens).faces)
    assert len(cells) == len(true) and len(faces) == len(whole), "the mesh stays closed, with one vertex in another place"
    shifted = {tuple(c) for c in cells.tolist()} ^ {tuple(c) for c in true.tolist()}
    assert len(shifted) == 2 and np.ptp(np.array(sorted(shifted)), axis=0).tolist() == [2, 0, 1]


def test_a_patch_that_the_model_leaves_is_expected_again() -> None:
    guide, tokens = Guide(*MESHES["box"], 10.0), own_tokens(MESHES["box"])
    later = next(i for i, token in enumerate(tokens) if token >= BPT.special)
    cut = followed(guide, [*tokens[: later - 1], tokens[later]])  # the next patch opens before the last vertex of the first one
    whole = {frozenset(map(tuple, face)) for face in parse(tokens).triangles().tolist()}
    again = {frozenset(map(tuple, face)) for face in parse(cut).triangles().tolist()}
    assert cut[-1] == BPT.eos and len(again & whole) >= len(whole) - 1


def test_a_vertex_far_from_the_expected_one_ends_the_patch() -> None:
    guide, tokens = Guide(*MESHES["box"], 10.0), own_tokens(MESHES["box"])
    state = guide.next(guide.next(guide.start, tokens[0]), BPT.first[1] + (tokens[1] - BPT.first[1] + (SAME + 1) * 16) % 4096)
    assert not state.rest and state.again
    gain = [-float(guide.loss(state).min())]
    for token in (tokens[1], tokens[1], tokens[1], tokens[1]):
        state = guide.next(state, token)
        gain.append(-float(guide.loss(state).min()))
    assert gain == sorted(gain) and gain[-1] > gain[0], "the longer the model writes without a patch of the guide, the more it gains"


def test_a_guide_needs_a_mesh() -> None:
    with pytest.raises(NotSupported, match="no surface that could guide"):
        Guide(np.zeros((3, 3)), np.array([[0, 1, 2]]), 10.0)
