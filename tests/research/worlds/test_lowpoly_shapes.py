"""lowpoly's world: pure functions of seeds, closed parts that face outwards, sizes, what is held out, augmentation and scans."""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import PCG64, Generator

from engine.errors import BadPrompt
from engine.mesh.bpt_tokens import clean, quantize, sort_keys, tokenize
from engine.mesh.frame import SIDE, UP
from research.worlds import lowpoly_shapes as world
from research.worlds.families import FAMILIES
from research.worlds.families.family import MeshShape

SEEDS = range(8)

GOLDEN = {  # checksums of the tokens of seed 0
    "table": 0x7A844A9E, "chair": 0x766ACD34, "bed": 0x29E54F4D, "sofa": 0xBAF7F14E, "bookshelf": 0xBB0876C2, "lamp": 0x7E253874,
    "desk": 0x0A9A5B26, "cabinet": 0x0DF5F93E, "bench": 0x2F992CD2, "candle": 0x369569DD, "torch": 0x7AE00F00, "house": 0x62B0FF7B,
    "tower": 0x69751383, "stairs": 0xDC5A75E0, "fence": 0x6E190CD7, "pillar": 0xB6C0C599, "wall": 0x74DAAB08, "bridge": 0x3F445DC0,
    "well": 0x0712A7D4, "car": 0x049E3C4A, "plane": 0x4170F344, "boat": 0x131D3920, "rocket": 0xA9C6059E, "cart": 0xE7A1878E,
    "tree": 0x4D952AC3, "mushroom": 0x1698B8F5, "cactus": 0x5157894D, "crystal": 0xEA9B3B03, "rock": 0xAC19AAA6, "gem": 0x7BA584AB,
    "fish": 0xA9E31E7A, "plant": 0x11032253, "bottle": 0x29A9336F, "mug": 0xA32D2685, "barrel": 0x297F4A08, "chest": 0x7CA8BB9B,
    "cup": 0xB2C77B88, "plate": 0xAF663BC9, "keg": 0x98354DB9, "crate": 0xBFD3A44B, "gear": 0x3380D96C, "sword": 0xC257EF5F,
    "axe": 0x4D4748C1, "hammer": 0x6682B5F8, "shield": 0x8844971C, "robot": 0xEF66B510, "snowman": 0x6A806F01,
    "chess_piece": 0xC6666597, "assembly": 0x195E104A,
}  # fmt: skip


def token_hash(shape: MeshShape) -> int:
    """A checksum of the tokens."""
    return zlib.crc32(tokenize(shape.vertices, shape.faces)[0].astype("<i8").tobytes())


def volumes(shape: MeshShape) -> list[float]:
    """The signed volume of every connected solid of a shape; positive where its faces look outwards."""
    root = list(range(len(shape.vertices)))

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    for face in shape.faces.tolist():
        for other in face[1:]:
            root[find(other)] = find(face[0])
    solids: dict[int, float] = {}
    centred = shape.vertices - shape.vertices.mean(0)
    for face in shape.faces.tolist():
        solid = find(face[0])
        solids[solid] = solids.get(solid, 0) + float(np.linalg.det(centred[face])) / 6
    return list(solids.values())


def test_the_world_is_as_large_as_promised():
    assert len(world.TRAINED_FAMILIES) >= 37 and set(world.HELD_OUT_FAMILIES) == {"gear", "snowman"}
    wanted = """crate barrel keg chest bookshelf bed sofa desk lamp candle torch plate cup mug bottle pillar stairs wall fence bridge well
        cart car boat plane sword shield axe hammer gem rock cactus fish chess_piece assembly"""
    assert set(wanted.split()) <= set(world.TRAINED_FAMILIES)
    assert set(world.EASY) <= set(world.TRAINED_FAMILIES) and len(world.EASY) == 8


@pytest.mark.parametrize("family", FAMILIES)
def test_golden_tokens(family):
    assert token_hash(world.shape(family, 0)) == GOLDEN[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_shape_is_a_function_of_its_seed(family):
    first, again = world.shape(family, 3), world.shape(family, 3)
    assert first.parameters == again.parameters and np.array_equal(first.vertices, again.vertices)
    assert np.array_equal(first.faces, again.faces) and np.array_equal(first.parts, again.parts)
    assert len({tuple(world.shape(family, seed).parameters.items()) for seed in range(30)}) > 8


@pytest.mark.parametrize("detail", [0, 1])
@pytest.mark.parametrize("family", FAMILIES)
def test_parts_are_closed_and_face_outwards(family, detail):
    for seed in SEEDS:
        shape = world.shape(family, seed, detail)
        edges = Counter((int(a), int(b)) for face in shape.faces for a, b in zip(face, np.roll(face, -1)))
        assert set(edges.values()) == {1}
        assert {(b, a) for a, b in edges} == set(edges)
        assert min(volumes(shape)) > 0
        corners = shape.vertices[shape.faces]
        areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
        assert areas.min() > 1e-3
        assert len(shape.parts) == len(shape.faces) and set(shape.parts.tolist()) == set(range(len(shape.part_names)))


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_stand_on_the_floor_and_have_a_readable_size(family):
    for seed in SEEDS:
        shape = world.shape(family, seed)
        assert shape.vertices[:, 1].min() == 0
        assert 4 <= np.ptp(shape.vertices, axis=0).max() <= 40
        assert 24 <= len(shape.faces) <= 250
        assert 60 <= len(tokenize(shape.vertices, shape.faces)[0]) <= 640


def test_most_families_are_short():
    middles = {
        name: np.median([len(tokenize(one.vertices, one.faces)[0]) for one in (world.shape(name, seed) for seed in range(15))])
        for name in FAMILIES
    }
    assert sum(tokens < 400 for tokens in middles.values()) >= len(middles) - 3
    assert all(middles[name] < 320 for name in world.EASY)


@pytest.mark.parametrize("vary", [world.stretch, world.stretch_and_turn, world.augment])
@pytest.mark.parametrize("family", FAMILIES)
def test_faces_survive_quantisation(family, vary):
    for seed in SEEDS:
        shape = world.shape(family, seed)
        for one in (shape, vary(shape, Generator(PCG64(seed)))):
            _, faces = clean(quantize(one.vertices)[0], one.faces)
            assert len(faces) >= 0.97 * len(one.faces), one.parameters


def test_diagonals_start_in_the_first_corner():
    for shape in (world.shape("table", 1), world.augment(world.shape("house", 2), Generator(PCG64(5)))):
        keys = sort_keys(quantize(shape.vertices)[0])
        by_corners = {frozenset(polygon[polygon >= 0].tolist()): polygon[polygon >= 0] for polygon in shape.polygons}
        quads = [polygon for polygon in by_corners.values() if len(polygon) == 4]
        faces = [set(face) for face in shape.faces.tolist()]
        for quad in quads:
            halves = [face for face in faces if face <= set(quad.tolist())]
            assert len(halves) == 2
            assert min(quad.tolist(), key=lambda i: keys[i]) in halves[0] & halves[1]


# --- what is held out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", world.TRAINED_FAMILIES)
def test_both_boxes_of_a_family_hold_some_but_not_much(family):
    shapes = [world.shape(family, seed) for seed in range(150)]
    for box in FAMILIES[family].held_out:
        share = np.mean([all(shape.parameters[name] in values for name, values in box.items()) for shape in shapes])
        assert 0.02 < share < 0.25, box
        assert all(set(values) <= set(FAMILIES[family].lattice[name]) for name, values in box.items())
    assert np.mean([world.is_held_out(shape) for shape in shapes]) < 0.4


@pytest.mark.parametrize("family", world.TRAINED_FAMILIES)
def test_no_trained_parameters_build_a_held_out_shape(family):
    """Some parameters have no effect next to others; such a parameter must not lead out of a box."""
    kinds: dict[bytes, set[bool]] = {}
    for values in itertools.product(*(some[:4] if isinstance(some, range) else some for some in FAMILIES[family].lattice.values())):
        shape = FAMILIES[family].make(dict(zip(FAMILIES[family].lattice, values)))
        kinds.setdefault(shape.vertices.tobytes() + shape.polygons.tobytes(), set()).add(world.is_held_out(shape))
    assert all(len(kind) == 1 for kind in kinds.values())
    assert len(kinds) >= 36


def test_training_never_sees_what_is_held_out():
    trained = list(world.training_shapes(0, 300))
    assert not any(world.is_held_out(shape) for shape in trained)
    assert {shape.family for shape in trained} == set(world.TRAINED_FAMILIES)
    boxes, families = world.held_out_shapes(60), world.held_out_shapes(10, "families")
    assert all(world.is_held_out(shape) for shape in boxes + families)
    assert {shape.family for shape in boxes} == set(world.TRAINED_FAMILIES)
    assert {shape.family for shape in families} == set(world.HELD_OUT_FAMILIES)
    assert not {token_hash(shape) for shape in trained} & {token_hash(shape) for shape in boxes + families}


def test_training_shapes_go_by_their_seed():
    some = list(world.training_shapes(10, 6, world.EASY))
    later = list(world.training_shapes(13, 3, world.EASY))
    assert [token_hash(shape) for shape in some[3:]] == [token_hash(shape) for shape in later]
    assert {shape.family for shape in some} <= set(world.EASY)


def test_mistakes_are_said():
    with pytest.raises(BadPrompt, match="no family 'spoon'"):
        world.shape("spoon", 0)
    with pytest.raises(BadPrompt, match="'gear' is held out"):
        list(world.training_shapes(0, 1, ["gear"]))
    with pytest.raises(BadPrompt, match="not by 'colour'"):
        world.held_out_shapes(1, "colour")
    with pytest.raises(BadPrompt, match="no surface"):
        world.sample_points(np.zeros((3, 3)), np.zeros((0, 3), int), 10, Generator(PCG64(0)))


# --- augmentation and scans -------------------------------------------------------------------------------------------


def test_augmented_shapes_stay_closed_and_face_outwards():
    for seed in range(40):
        shape = world.shape("mug", seed)
        turned = world.augment(shape, Generator(PCG64(seed)))
        assert min(volumes(turned)) > 0
        assert turned.vertices.shape == shape.vertices.shape and turned.faces.shape == shape.faces.shape
        before, after = np.ptp(shape.vertices[:, 1]), np.ptp(turned.vertices[:, 1])
        assert 0.72 * before < after < 1.3 * before
    same = [world.augment(world.shape("mug", 1), Generator(PCG64(9))).vertices for _ in range(2)]
    assert np.array_equal(*same)


def test_stretching_keeps_the_pose_and_no_shape_comes_twice():
    house = world.shape("house", 1)
    stretched = [world.stretch(house, Generator(PCG64(seed))).vertices for seed in range(20)]
    assert len({one.tobytes() for one in stretched}) == 20
    for one in stretched:
        factors = np.ptp(one, axis=0) / np.ptp(house.vertices, axis=0)
        assert ((factors > 0.74) & (factors < 1.26)).all()
        assert np.allclose(one, house.vertices * factors)


def test_turned_shapes_look_in_four_directions_and_stay_upright():
    sofa = world.shape("sofa", 1)
    seen = set()
    for seed in range(40):
        one, plain = (vary(sofa, Generator(PCG64(seed))).vertices for vary in (world.stretch_and_turn, world.stretch))
        turns = [k for k in range(4) if np.allclose(one, plain @ world.rotation(90 * k).T)]
        assert len(turns) == 1 and np.allclose(one[:, 1], plain[:, 1])
        seen.update(turns)
    assert seen == {0, 1, 2, 3}


def test_assemblies_come_more_often_than_any_family():
    drawn = Counter(shape.family for shape in world.training_shapes(0, 1000, ("chair", "assembly")))
    assert 0.8 < drawn["assembly"] / 1000 < 0.92
    assert len({token_hash(world.shape("assembly", seed)) for seed in range(100)}) == 100
    plans = {world.shape("assembly", seed).parameters["plan"] for seed in range(50)}
    assert plans == set(FAMILIES["assembly"].lattice["plan"])


def test_held_out_shapes_are_those_of_their_number():
    shapes = world.held_out_shapes(3)
    for i, shape in enumerate(shapes):
        assert token_hash(shape) == token_hash(world.held_out_shape(shape.family, i)) and world.is_held_out(shape)


def test_a_cloud_stands_on_any_axis_and_says_which():
    """A tower turned back by the returned axis stands upright again: narrow above, with its flared foot below."""
    shape, seen = world.shape("rocket", 0), Counter()
    for seed in range(60):
        cloud, axis = world.orient(shape, Generator(PCG64(seed)), 600, degraded=0)
        assert cloud.shape == (600, 6) and cloud.dtype == np.float32
        assert abs(np.ptp(cloud[:, :3], axis=0).max() - SIDE) < 1e-5
        rotation = np.array(UP[world.AXES[axis]], float)
        upright, normals = cloud[:, :3] @ rotation.T, cloud[:, 3:] @ rotation.T
        assert np.linalg.det(rotation) == 1
        height = np.ptp(upright[:, 1])
        assert height == np.ptp(upright, axis=0).max()
        top = upright[:, 1] > upright[:, 1].max() - 0.2 * height
        low = upright[:, 1] < upright[:, 1].min() + 0.2 * height
        assert np.ptp(upright[top, 0]) < 0.6 * np.ptp(upright[low, 0])
        assert (upright[:, [0, 2]] * normals[:, [0, 2]]).sum(1).mean() > 0  # normals were turned with their points
        seen[axis] += 1
    assert set(seen) == set(range(6)) and len(world.AXES) == 6
    again = [world.orient(shape, Generator(PCG64(5)), 300) for _ in range(2)]
    assert again[0][1] == again[1][1] and np.array_equal(again[0][0], again[1][0])


def test_shapes_that_stand_as_well_on_their_head_are_known():
    box = world.shape("crate", 0)
    cube = np.array(list(itertools.product((0.0, 1), (0.0, 1), (0.0, 1))))
    assert world.alike_up(replace(box, vertices=cube)) == tuple(range(6))
    assert world.alike_up(replace(box, vertices=cube * [1, 2, 1])) == (0, 3)
    assert all(world.alike_up(world.shape(name, seed)) == (0,) for name in ("chair", "tower", "tree", "boat") for seed in range(5))
    assert all(3 in world.alike_up(world.shape("barrel", seed)) for seed in range(5))


def test_some_scans_are_thin_and_some_denser_towards_one_side():
    shape = world.shape("crate", 0)
    clean_points = world.sample_points(shape.vertices, shape.faces, 1024, Generator(PCG64(0)))
    fewest, uneven = [], 0
    for seed in range(200):
        points = world.degrade(clean_points, Generator(PCG64(seed)))
        fewest.append(len(np.unique(points, axis=0)))
        uneven += len(np.unique(points[:, :3], axis=0)) == 1024 and abs(np.median(points[:, 0]) - np.median(clean_points[:, 0])) > 1
    thin = [count for count in fewest if count <= 256]
    assert 8 <= len(thin) <= 40 and min(thin) >= 64
    assert uneven >= 3


def test_points_lie_on_the_surface_and_are_spread_by_area():
    # A long box: the two ends have a tenth of the area of the four sides together.
    shape = world.shape("tower", 2)
    vertices = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [3, 0, 0], [3, 0, 3]], float)
    faces = np.array([[0, 1, 2], [0, 2, 3], [1, 4, 5]])  # areas 0.5, 0.5, 3
    points = world.sample_points(vertices, faces, 20000, Generator(PCG64(0)))
    assert points.shape == (20000, 6) and points.dtype == np.float32
    up = points[:, 5] == 1
    assert abs(up.mean() - 0.25) < 0.02 and np.abs(points[up, 2]).max() < 1e-6 and np.abs(points[~up, 1]).max() < 1e-6
    assert np.abs(points[up, :2].mean(0) - 0.5).max() < 0.02
    points = world.sample_points(shape.vertices, shape.faces, 2000, Generator(PCG64(1)))
    assert np.allclose(np.linalg.norm(points[:, 3:], axis=1), 1, atol=1e-5)
    low, high = shape.vertices.min(0) - 1e-4, shape.vertices.max(0) + 1e-4
    assert (points[:, :3] >= low).all() and (points[:, :3] <= high).all()
    # Outwards: a sphere-like body's normals point away from its middle on the whole.
    rock = world.shape("rock", 0)
    points = world.sample_points(rock.vertices, rock.faces, 2000, Generator(PCG64(1)))
    assert (((points[:, :3] - rock.vertices.mean(0)) * points[:, 3:]).sum(1) > 0).mean() > 0.95


def test_scans_have_unit_or_zero_normals_and_every_kind_of_damage_happens():
    shape = world.shape("chair", 0)
    clean_points = world.sample_points(shape.vertices, shape.faces, 512, Generator(PCG64(0)))
    size = np.ptp(clean_points[:, :3], axis=0).max()
    kinds: Counter = Counter()
    for seed in range(400):
        points = world.degrade(clean_points, Generator(PCG64(seed)))
        assert points.shape == (512, 6) and points.dtype == np.float32 and np.isfinite(points).all()
        length = np.linalg.norm(points[:, 3:], axis=1)
        zero = length < 1e-6
        assert zero.all() or not zero.any()
        assert np.allclose(length[~zero], 1, atol=1e-5)
        assert np.ptp(points[:, :3], axis=0).max() < 1.35 * size
        kinds["none"] += bool(zero.all())
        if not zero.any():
            nearest = np.linalg.norm(points[:, None, :3] - clean_points[None, :, :3], axis=2).argmin(1)
            kinds["flipped"] += float((points[:, 3:] * clean_points[nearest, 3:]).sum(1).mean()) < 0
    assert 35 <= kinds["none"] <= 90 and 35 <= kinds["flipped"] <= 90
    assert np.array_equal(world.degrade(clean_points, Generator(PCG64(3))), world.degrade(clean_points, Generator(PCG64(3))))
