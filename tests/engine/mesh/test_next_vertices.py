"""Drafts from the surface: they predict the vertices that close it, follow repeated steps, and spell both like the serialiser."""

from __future__ import annotations

import numpy as np
import pytest

from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import BPT, TokenLevels, clean, serialize, tokenize
from engine.mesh.next_vertices import SYMMETRIES, NextVertices, Symmetry
from research.worlds.lowpoly_shapes import held_out_shapes

TETRAHEDRON = np.array([[10, 10, 10], [100, 10, 10], [10, 100, 10], [10, 10, 100]]), np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]])


def count_right(tokens: list[int], count: int) -> tuple[int, int]:
    """Numbers of drafted and of right tokens before every token of a mesh."""
    vertices, drafted, right = NextVertices(BPT), 0, 0
    for i, token in enumerate(tokens):
        drafts = vertices.continuation(count)
        same = [a == b for a, b in zip(drafts, tokens[i:], strict=False)]
        drafted += len(drafts)
        right += same.index(False) if False in same else len(same)
        vertices.add([token])
    return drafted, right


def test_the_last_face_of_a_closed_surface_is_known() -> None:
    """A fan of three faces around one corner leaves three open edges; a face on one of them has only one possible third vertex."""
    tokens = serialize(*TETRAHEDRON).tolist()
    vertices = NextVertices(BPT)
    for i, token in enumerate(tokens):
        if i == len(tokens) - 1:
            assert vertices.continuation(1) == [token]
        vertices.add([token])
    assert not any(vertices.open_into.values())  # every edge has two faces
    assert vertices.continuation(4) == []


def test_an_open_edge_waits_for_the_other_direction() -> None:
    vertices = NextVertices(BPT)
    vertices.add(serialize(TETRAHEDRON[0], TETRAHEDRON[1][:1]).tolist())
    edges = {(a, b) for b, those in vertices.open_into.items() for a in those}
    assert len(edges) == 3 and all((b, a) not in edges for a, b in edges)


def test_steps_that_repeat_are_taken_from_the_newest_vertex() -> None:
    """Two known steps are followed by the third one, shifted, also across the border of a block."""
    cells = [(0, 0, 0), (5, 0, 0), (5, 7, 0), (0, 7, 3), (14, 2, 4), (19, 2, 4), (19, 9, 4)]
    ids = BPT.spell(np.array(cells))
    tokens: list[int] = []
    for i, (block, offset) in enumerate(ids.tolist()):
        tokens += [offset] if i and block == ids[i - 1, 0] else [block, offset]
    vertices = NextVertices(BPT)
    vertices.add(tokens)
    vertices.open_into.clear()  # only the steps
    block, offset = BPT.spell(np.array([(14, 9, 7)]))[0].tolist()
    assert vertices.continuation(2) == [block, offset]
    vertices.add([block])
    assert vertices.continuation(2)[:1] == [offset]
    other = NextVertices(BPT)
    other.add([*tokens, ids[3, 0] + 1])  # another block was written
    other.open_into.clear()
    assert other.continuation(2) == []


def fan_and_image(symmetry: Symmetry) -> list[int]:
    """Tokens of an irregular open fan and of its image, which share no vertex."""
    centre, ring = (30, 40, 20), [(38, 35, 21), (33, 31, 29), (25, 36, 30), (22, 44, 25), (27, 49, 17)]
    cells = np.array([centre, *ring])
    images = [symmetry.image(x << 20 | y << 10 | z, BPT.cells) for x, y, z in cells.tolist()]
    faces = np.array([(0, i, i + 1) for i in range(1, len(ring))])
    other = (faces[:, ::-1] if sum(symmetry) % 2 else faces) + len(cells)
    moved = np.array([(v >> 20, v >> 10 & 1023, v & 1023) for v in images])
    return serialize(*clean(np.concatenate([cells, moved]), np.concatenate([faces, other]))).tolist()


@pytest.mark.parametrize("is_wrong", [False, True])
@pytest.mark.parametrize("symmetry", SYMMETRIES)
def test_a_symmetry_draws_the_image_of_an_earlier_fan(symmetry: Symmetry, is_wrong: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once its centre is written, the ring follows. Wrong: mirrored faces keep their winding, or the turn goes the other way."""
    tokens = fan_and_image(symmetry)
    if is_wrong:
        monkeypatch.setattr(Symmetry, "inverse", property(lambda self: Symmetry(self[0], not self[1], self[2])))
    second = next(i for i, token in enumerate(tokens) if i and token >= BPT.special)
    vertices, plain = NextVertices(BPT), NextVertices(BPT, symmetric=False)
    for each in (vertices, plain):
        each.add(tokens[: second + 2])
    rest = tokens[second + 2 :]
    assert (vertices.continuation(99)[: len(rest)] == rest) != is_wrong and plain.continuation(99) == []


def test_nothing_is_drafted_outside_of_the_grid() -> None:
    offsets = BPT.spell(np.array([(15, 0, 0), (10, 0, 0), (5, 0, 0), (0, 0, 0)]))[:, 1].tolist()
    vertices = NextVertices(BPT)
    vertices.add([0, *offsets[:3]])
    assert vertices.continuation(1) == []  # the second of equal steps: they were not followed yet
    vertices.add(offsets[3:])
    assert vertices.continuation(1) == []  # the same step again would lead to x = -5


def test_drafts_are_mostly_right_on_held_out_shapes_and_always_grammatical() -> None:
    drafted = right = 0
    grammar = BPTGrammar(canonical=True)
    for shape in held_out_shapes(24, "boxes"):
        tokens = tokenize(shape.vertices, shape.faces)[0].tolist()
        a, b = count_right(tokens, 6)
        drafted, right = drafted + a, right + b
        vertices = NextVertices(BPT)
        for i, token in enumerate(tokens):
            drafts, state = vertices.continuation(6), grammar.start
            for each in tokens[:i]:
                state = grammar.next(state, each)
            for each in drafts:
                assert grammar.allowed_ids(state)[each], (i, drafts)
                state = grammar.next(state, each)
            vertices.add([token])
            if i > 60:
                break
    assert right / drafted > 0.6 and drafted > 1000


def test_ids_of_another_vocabulary_change_nothing() -> None:
    vertices = NextVertices(TokenLevels((1, 1)))
    vertices.add([1, 7, 1, 1, 9, 1, 1])
    assert vertices.continuation(2) == [1]  # the same cell, again; what follows that is not known yet
