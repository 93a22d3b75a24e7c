"""BPT tokens: exact round trips, counts of the published tokenizer, a slow oracle, malformed input, owners of tokens, the grammar."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
import trimesh

from engine.errors import BadPrompt
from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import (
    BPT,
    TokenParser,
    clean,
    dequantize,
    mesh_of,
    parse,
    patches,
    quantize,
    serialize,
    sort_keys,
    tokenize,
)
from research.worlds.lowpoly_shapes import FAMILIES, shape

make = trimesh.creation

# Primitives and, where known, the numbers of tokens and patches of the published tokenizer.
PRIMITIVES = {
    "box": (lambda: make.box(), 36, 3),
    "icosphere 1": (lambda: make.icosphere(1), 240, 20),
    "icosphere 2": (lambda: make.icosphere(2), 894, 70),
    "icosphere 3": (lambda: make.icosphere(3), 3069, 245),
    "uv sphere": (lambda: make.uv_sphere(count=[16, 16]), 2282, 175),
    "torus 16x8": (lambda: make.torus(1, 0.35, major_sections=16, minor_sections=8), 673, 49),
    "torus 32x16": (lambda: make.torus(1, 0.35, major_sections=32, minor_sections=16), 2446, 196),
    "cylinder 16": (lambda: make.cylinder(0.5, 2, sections=16), 174, 14),
    "cylinder 32": (lambda: make.cylinder(0.5, 2, sections=32), 317, 28),
    "cone": (lambda: make.cone(1, 2, sections=16), 72, 2),
    "annulus": (lambda: make.annulus(0.5, 1, 1, sections=24), 524, 41),
    "capsule": (lambda: make.capsule(1, 0.5, count=[12, 12]), 691, 55),
    "box in pieces": (lambda: make.box().subdivide().subdivide().subdivide(), 2006, 134),
}


def oriented_faces(cells: np.ndarray, faces: np.ndarray) -> Counter:
    """The faces as triples of cells, winding kept: a multiset."""
    counts: Counter = Counter()
    for face in np.asarray(faces).tolist():
        corners = [tuple(cells[i].tolist()) for i in face]
        counts[min(tuple(corners[k:] + corners[:k]) for k in range(3))] += 1
    return counts


def unoriented_faces(cells: np.ndarray, faces: np.ndarray) -> Counter:
    """The faces as sorted triples of cells: a multiset."""
    return Counter(tuple(sorted(tuple(cells[i].tolist()) for i in face)) for face in np.asarray(faces).tolist())


def parse_faces(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All parsed faces as a soup: cells [3F, 3] and faces [F, 3]."""
    soup = parse(tokens).triangles().reshape(-1, 3)
    return soup, np.arange(len(soup)).reshape(-1, 3)


def primitive(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A primitive, quantised and clean."""
    mesh = PRIMITIVES[name][0]()
    return clean(quantize(mesh.vertices)[0], mesh.faces)


def random_mesh(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A small random soup, clean: edges with many faces, several fans around a vertex, faces back to back."""
    cells = rng.integers(0, 128, (rng.integers(4, 9), 3))
    return clean(cells, rng.integers(0, len(cells), (rng.integers(1, 30), 3)))


# --- the tables -------------------------------------------------------------------------------------------------------


def test_ids():
    assert (BPT.first, BPT.special, BPT.eos, BPT.vocabulary, BPT.cells) == ((0, 512), 4608, 5120, 5121, 128)


def test_a_vertex_is_spelled_as_block_and_offset():
    assert BPT.spell(np.array([[17, 5, 127]])).tolist() == [[1 * 64 + 0 * 8 + 7, 512 + 1 * 256 + 5 * 16 + 15]]


# --- quantisation and order -------------------------------------------------------------------------------------------


def test_quantisation_is_the_published_one():
    vertices = np.array([[10.0, 0, 0], [30, 10, 4], [20, 5, 2]])
    cells, frame = quantize(vertices)
    assert frame.centre == (20, 5, 2) and frame.scale == pytest.approx(1.9 / 20)
    expected = np.round((vertices - [20, 5, 2]) * 1.9 / (20 + 1e-6) * 64 + 63.5)
    assert np.array_equal(cells, expected)
    assert cells[:, 0].tolist() == [3, 124, 64]
    assert np.allclose(frame.from_model(frame.to_model(vertices)), vertices)
    back = frame.from_model(dequantize(cells))
    assert np.abs(back - vertices).max() <= 20 / 1.9 / 128 * 1.001
    assert dequantize(np.array([0, 127])).tolist() == [-1 + 1 / 128, 1 - 1 / 128]


def test_nothing_and_a_point_are_quantised_too():
    assert quantize(np.zeros((0, 3)))[0].shape == (0, 3)
    assert quantize(np.ones((4, 3)))[0].tolist() == [[64, 64, 64]] * 4
    vertices, faces = clean(np.zeros((3, 3), int), np.zeros((0, 3), int))
    assert vertices.shape == faces.shape == (0, 3) and serialize(vertices, faces).tolist() == []


def test_vertex_order():
    cells = np.random.default_rng(0).integers(0, 128, (500, 3))
    slow = sorted(range(500), key=lambda i: (*(cells[i][[1, 0, 2]] // 32), *cells[i][[1, 0, 2]]))
    assert np.array_equal(cells[np.argsort(sort_keys(cells), kind="stable")], cells[slow])


def test_clean_is_canonical():
    rng = np.random.default_rng(1)
    for _ in range(100):
        cells = rng.integers(0, 6, (20, 3)) * 20
        faces = rng.integers(0, 20, (40, 3))
        once = clean(cells, faces)
        order, turns = rng.permutation(20), rng.integers(3, size=40)
        shuffled = np.argsort(order)[faces[rng.permutation(40)]]
        shuffled = np.take_along_axis(shuffled, (turns[:, None] + np.arange(3)) % 3, 1)
        again = clean(cells[order], np.concatenate([shuffled, shuffled[:5]]))
        assert np.array_equal(once[0], again[0]) and np.array_equal(once[1], again[1])
        vertices, triples = once
        assert len(np.unique(vertices, axis=0)) == len(vertices) and set(triples.ravel().tolist()) == set(range(len(vertices)))
        assert (np.diff(sort_keys(vertices)) > 0).all() and (triples.argmin(1) == 0).all()
        assert sorted(map(sorted, triples.tolist())) == [sorted(t) for t in triples.tolist()]
        welded = unoriented_faces(cells, [f for f in faces.tolist() if len({tuple(cells[i].tolist()) for i in f}) == 3])
        assert set(welded) == set(unoriented_faces(vertices, triples))


# --- serialisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitives_have_the_published_number_of_tokens_and_come_back_exactly(name):
    vertices, faces = primitive(name)
    tokens = serialize(vertices, faces)
    assert (len(tokens), len(patches(faces, len(vertices)))) == PRIMITIVES[name][1:]
    assert parse([*tokens, EOS]).dangling() == [len(tokens)]
    assert oriented_faces(*parse_faces(tokens)) == oriented_faces(vertices, faces)
    again = clean(*mesh_of(parse(tokens).faces))
    assert np.array_equal(again[0], vertices) and np.array_equal(again[1], faces)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_come_back_exactly(family):
    for seed in range(3):
        mesh = shape(family, seed)
        vertices, faces = clean(quantize(mesh.vertices)[0], mesh.faces)
        tokens = serialize(vertices, faces)
        assert np.array_equal(tokens, tokenize(mesh.vertices, mesh.faces)[0])
        assert oriented_faces(*parse_faces(tokens)) == oriented_faces(vertices, faces)


def slow_patches(faces: list[list[int]]) -> list[list[int]]:
    """The fans by the paper's description, without an index: every step scans all faces."""
    open_faces = list(range(len(faces)))
    patches = []
    while open_faces:
        degree = Counter(v for f in open_faces for v in faces[f])
        head = faces[open_faces[0]]
        centre = head[int(np.argmax([degree[v] for v in head]))]
        triples = sorted((*sorted(set(faces[f]) - {centre}), f) for f in open_faces if centre in faces[f])
        times = Counter(v for u, w, _ in triples for v in (u, w))
        once = [v for v, n in times.items() if n == 1]
        ring, taken = [min(once) if once else triples[0][0]], []
        while True:
            fitting = [t for t in triples if t not in taken and ring[-1] in t[:2]]
            if not fitting:
                break
            taken.append(fitting[0])
            ring.append(fitting[0][0] + fitting[0][1] - ring[-1])
        first = faces[taken[0][2]]
        place = first.index(centre)
        if [first[(place + 1) % 3], first[(place + 2) % 3]] != ring[:2]:
            ring.reverse()
        open_faces = [f for f in open_faces if f not in [t[2] for t in taken]]
        patches.append([centre, *ring])
    return patches


def slow_tokens(cells: list[list[int]], faces: list[list[int]]) -> list[int]:
    """BPT tokens, spelled out."""
    tokens, register = [], -1
    for number, patch in enumerate(slow_patches(faces)):
        for place, vertex in enumerate(patch):
            block = sum((q // 16) * 8 ** (2 - axis) for axis, q in enumerate(cells[vertex]))
            offset = 512 + sum((q % 16) * 16 ** (2 - axis) for axis, q in enumerate(cells[vertex]))
            if place == 0:
                tokens.append(block + 4608 if number else block)
            elif block != register or (place == 1 and number):
                tokens.append(block)
            tokens.append(offset)
            register = block
    return tokens


def test_the_fast_serialiser_equals_the_slow_one():
    rng = np.random.default_rng(2)
    shaped = ["box", "icosphere 1", "torus 16x8", "cylinder 16", "cone", "annulus"]
    for vertices, faces in (*(primitive(name) for name in shaped), *(random_mesh(rng) for _ in range(300))):
        tokens = serialize(vertices, faces)
        assert tokens.tolist() == slow_tokens(vertices.tolist(), faces.tolist())
        assert unoriented_faces(*parse_faces(tokens)) == unoriented_faces(vertices, faces)  # winding may be lost where it is not consistent


# --- the parser -------------------------------------------------------------------------------------------------------

B, S = 0, 4608
O1, O2, O3, O4 = 513, 514, 515, 516


def cells_of(tokens: list[int]) -> list:
    return parse(tokens).triangles().tolist()


@pytest.mark.parametrize(
    "tokens",
    [[], [B], [B, O1], [B, O1, O2], [S], [S, S], [S, O1, S, O2, B, O3], [S, O1], [S, O1, B, O2], [5120], [-1, 5121, 10**9], [B, 5120, O1]],
)
def test_what_makes_no_face(tokens):
    parser = parse(tokens)
    assert parser.faces == [] and parser.triangles().shape == (0, 3, 3)
    assert parser.dangling() == list(range(len(tokens)))
    vertices, faces = mesh_of(parser.faces)
    assert vertices.shape == (0, 3) and faces.shape == (0, 3)


def test_malformed_sequences_mean_what_the_published_decoder_makes_of_them():
    plain = [[[0, 0, 1], [0, 0, 2], [0, 0, 3]]]
    assert cells_of([O1, O2, O3]) == plain  # no block yet: block 0
    assert cells_of([S, O1, O2, O3]) == plain  # the ring inherits the block of the centre
    assert cells_of([S + 1, O1, O2, O3]) == [[[0, 0, 17], [0, 0, 18], [0, 0, 19]]]
    assert cells_of([S, S, O1, B, O2, O3]) == plain  # an empty patch
    assert cells_of([B, O1, O2, O3, S]) == plain  # a patch that does not come
    assert cells_of([511, B, O1, O2, O3]) == plain  # the last block counts
    assert cells_of([B, O1, 5120, O2, 99999, O3]) == plain  # ids without geometry
    assert parse([B, O1, 5120, O2, 99999, -1, O3]).skipped == 2
    repeated = parse([B, O1, O2, O2, O3])
    assert [face.degenerate for face in repeated.faces] == [True, False]
    assert len(mesh_of(repeated.faces)[1]) == 1


def split_and_read(tokens: list[int]) -> list:
    """A batch decoder: splits before every special id, then reads each patch; the block continues from patch to patch."""
    block = np.zeros(3, int)
    soup = []
    starts = [0] + [i for i, t in enumerate(tokens) if S <= t < EOS] + [len(tokens)]
    for start, stop in itertools.pairwise(starts):
        points = []
        for token in tokens[start:stop]:
            if not 0 <= token < EOS:
                continue
            plain = token % S
            if plain < 512:
                block = 16 * np.array(np.unravel_index(plain, (8, 8, 8)))
            else:
                points.append((block + np.unravel_index(plain - 512, (16, 16, 16))).tolist())
        soup += [[points[0], a, b] for a, b in itertools.pairwise(points[1:])] if points else []
    return soup


def random_tokens(rng: np.random.Generator) -> list[int]:
    """Random ids, including invalid ones; offsets are frequent, so that there are faces."""
    top = BPT.vocabulary
    kinds = rng.integers(0, 10, rng.integers(0, 60))
    return [
        int(
            rng.integers(512, S) if k < 6
            else rng.integers(0, 512) if k < 8
            else rng.integers(S, top) if k == 8
            else rng.choice([-1, top, rng.integers(0, top), 10**6])
        )
        for k in kinds
    ]  # fmt: skip


def test_random_malformed_sequences():
    rng = np.random.default_rng(3)
    for _ in range(2000):
        tokens = random_tokens(rng)
        sequence = np.array(tokens, np.int64)
        parser = parse(sequence)
        assert sequence.tolist() == tokens
        assert parser.triangles().tolist() == split_and_read(tokens)
        cut = int(rng.integers(0, len(tokens) + 1))
        assert parse(tokens[:cut]).faces == parser.faces[: len(parse(tokens[:cut]).faces)]
        owned = [i for face in parser.faces for i in face.owned]
        assert sorted(owned + parser.dangling()) == list(range(len(tokens)))
        for face in parser.faces:
            assert face.degenerate == (len(set(face.vertices)) < 3)
            assert face.tokens[2][-1] == face.owned[-1] == max(face.owned)


def test_every_token_of_a_mesh_is_owned_by_one_face():
    parser = parse(serialize(*primitive("torus 16x8")))
    assert parser.dangling() == []
    owners = Counter(i for face in parser.faces for i in face.owned)
    assert set(owners.values()) == {1} and sorted(owners) == list(range(parser.length))
    assert len({face.tokens[0] for face in parser.faces}) == 49  # one centre for each patch
    head = parser.faces[0]
    assert head.owned == (*head.tokens[0], *head.tokens[1], *head.tokens[2])
    for before, face in itertools.pairwise(parser.faces):
        if before.tokens[0] == face.tokens[0]:
            assert face.owned == face.tokens[2] and face.tokens[1] == before.tokens[2]
    # The tokens of a corner spell it, given the block before.
    for face in parser.faces:
        for cell, indices in zip(face.vertices, face.tokens):
            assert BPT.spell(np.array([cell]))[0, -1] == serialize(*primitive("torus 16x8"))[indices[-1]]


def test_a_copy_shows_ghosts_and_leaves_the_parser_alone():
    tokens = serialize(*primitive("icosphere 1")).tolist()
    parser, whole = parse(tokens[:50]), parse(tokens)
    before = len(parser.faces)
    ghost = parser.copy()
    assert ghost.extend(tokens[50:80]) == whole.faces[before : before + len(ghost.faces)] and ghost.faces
    assert len(parser.faces) == before and parser.length == 50
    parser.extend(tokens[50:])
    assert parser.faces == whole.faces and parser.dangling() == []


def test_mesh_of_welds_and_drops():
    soup = np.array(
        [[[1, 1, 1], [2, 2, 2], [3, 3, 4]], [[2, 2, 2], [3, 3, 4], [1, 1, 1]], [[2, 2, 2], [1, 1, 1], [3, 3, 4]], [[1, 1, 1]] * 3]
    )
    vertices, faces = mesh_of(soup)
    assert vertices.tolist() == [[1, 1, 1], [2, 2, 2], [3, 3, 4]]
    assert faces.tolist() == [[0, 1, 2], [1, 0, 2]]  # the second is the same face, the third its back


# --- the grammar ------------------------------------------------------------------------------------------------------

EOS = BPT.eos


@pytest.mark.parametrize("canonical", [False, True])
def test_the_grammar_accepts_every_serialisation(canonical):
    grammar = BPTGrammar(canonical=canonical)
    rng = np.random.default_rng(4)
    meshes = [primitive(name) for name in PRIMITIVES] + [random_mesh(rng) for _ in range(50)]
    meshes += [clean(quantize(s.vertices)[0], s.faces) for s in (shape(family, 5) for family in FAMILIES)]
    for vertices, faces in meshes:
        if len(faces):
            tokens = [*serialize(vertices, faces), EOS]
            assert grammar.accepts(tokens)
            assert not grammar.accepts(tokens[:-1]) and not grammar.accepts([*tokens, 0])
            assert BPTGrammar(canonical=canonical, budget=len(faces)).accepts(tokens)
            assert len(faces) == 1 or not BPTGrammar(canonical=canonical, budget=len(faces) - 1).accepts(tokens)


def letters(mask: np.ndarray) -> str:
    """The classes that a mask allows, each completely or not at all."""
    parts = {"B": mask[:512], "O": mask[512:4608], "S": mask[4608:5120], "E": mask[5120:]}
    assert all(part.all() or not part.any() for part in parts.values())
    return "".join(name for name, part in parts.items() if part.any())


@pytest.mark.parametrize(
    ("canonical", "table"),
    [
        (True, {"q0": "B", "q1": "O", "q2c": "BO", "q2s": "B", "q3": "BO", "q4": "BOSE", "end": "E"}),
        (False, {"q0": "BS", "q1": "BO", "q2c": "BO", "q2s": "BO", "q3": "BOS", "q4": "BOSE", "end": "E"}),
    ],
)
def test_the_states_allow_what_the_table_says(canonical, table):
    grammar = BPTGrammar(canonical=canonical)
    seen = set()
    tokens = [B, O1, O2, B, O3, O4, S, O1, B, O2, B, O3, B, O4, EOS, EOS]
    names = ["q0", "q1", "q2c", "q3", "q1", "q4", "q4", "q1", "q2s", "q1", "q3", "q1", "q4", "q1", "q4", "end"]
    state = grammar.start
    for token, name in zip(tokens, names):
        assert grammar.name(state) == name
        assert letters(grammar.allowed_ids(state)) == table[name]
        seen.add(name)
        state = grammar.next(state, token)
    assert seen == set(table) and grammar.accepts(tokens)
    assert grammar.walk(tokens) == state and grammar.has_ended(state)


def test_masks_are_shared_and_read_only():
    grammar = BPTGrammar()
    mask = grammar.allowed_ids(grammar.start)
    assert mask.base is grammar.masks and mask.shape == (5121,) and mask.dtype == bool
    with pytest.raises(ValueError, match="read-only"):
        mask[0] = False
    assert np.array_equal(grammar.masks[grammar.mask_index(grammar.start)], mask)


@pytest.mark.parametrize("canonical", [False, True])
@pytest.mark.parametrize("budget", [None, 1, 7])
def test_random_walks_make_meshes_within_the_budget(canonical, budget):
    rng = np.random.default_rng(6)
    grammar = BPTGrammar(canonical=canonical, budget=budget)
    for _ in range(200):
        state, tokens = grammar.start, []
        while not grammar.has_ended(state):
            allowed = np.flatnonzero(grammar.allowed_ids(state))
            must_end = len(tokens) > 80 and EOS in allowed
            tokens.append(EOS if must_end else int(rng.choice(allowed)))
            state = grammar.next(state, tokens[-1])
        assert grammar.accepts(tokens)
        parser = parse(tokens)
        assert 1 <= len(parser.faces) <= (budget or 10**9)
        assert not canonical or parser.dangling() == [len(tokens) - 1]  # the end alone belongs to no face


def test_a_spent_budget_leaves_only_the_end():
    grammar = BPTGrammar(budget=2)
    state = grammar.walk([B, O1, O2, O3])
    assert letters(grammar.allowed_ids(state)) == "BOSE"
    assert letters(grammar.allowed_ids(grammar.next(state, O4))) == "E"
    assert grammar.name(grammar.next(state, O4)) == "q4"
    with pytest.raises(BadPrompt, match="budget of 0"):
        BPTGrammar(budget=0)


def test_next_is_total_and_pure():
    rng = np.random.default_rng(7)
    grammar = BPTGrammar(canonical=True, budget=3)
    state = grammar.start
    for token in rng.integers(-3, 5130, 500).tolist():
        if token == EOS:
            continue
        following = grammar.next(state, token)
        assert grammar.next(state, token) == following and grammar.name(following).startswith("q")
        assert grammar.allowed_ids(following).any()
        state = following
    assert grammar.next(state, 10**7) == state
    assert not grammar.accepts([B, O1, O2, O3, 10**7, EOS]) and not grammar.accepts([-1, EOS])


def test_the_states_follow_the_parser_through_anything():
    """The budget counts the faces that the parser emits, also after tokens that are not allowed."""
    rng = np.random.default_rng(8)
    grammar = BPTGrammar(budget=10**6)
    for _ in range(300):
        tokens = [t for t in random_tokens(rng) if t != EOS]
        state, parser = grammar.start, TokenParser()
        for token in tokens:
            state = grammar.next(state, token)
            parser.push(token)
        assert state >> 4 == len(parser.faces)


@pytest.mark.parametrize("budget", [None, 1, 3])
@pytest.mark.parametrize("canonical", [False, True])
def test_a_device_follows_many_paths_at_once(canonical: bool, budget: int | None) -> None:
    """Its automaton allows what the grammar allows after the same tokens; a budget of one face more does not."""
    grammar = BPTGrammar(canonical=canonical, budget=budget)
    automaton = grammar.automaton(torch.from_numpy(grammar.masks.copy()))
    late = replace(automaton, budget=automaton.budget + 1)
    rng = np.random.default_rng(5)
    ids = [np.flatnonzero(grammar.classes == each) for each in range(4)]
    states, there, equal = [grammar.start] * 64, torch.full((64,), grammar.start), []
    for _ in range(14):
        tokens = [int(rng.choice(ids[each])) for each in rng.choice(4, 64, p=[0.35, 0.5, 0.13, 0.02])]
        states, there = [grammar.next(*each) for each in zip(states, tokens, strict=True)], automaton.next(there, torch.tensor(tokens))
        allowed = torch.from_numpy(np.stack([grammar.allowed_ids(each) for each in states]))
        assert torch.equal(automaton.allowed_ids(there), allowed)
        equal.append(torch.equal(late.allowed_ids(there), allowed))
    assert all(equal) == (budget is None)
