"""The world that lowpoly learns: shapes from seeds, the shapes held out of training, and point clouds that imitate scans.

A shape is a pure function of a family and a seed; the families are in research/worlds/families. Two boxes of parameters per family are held
out, and two whole families (`HELD_OUT_FAMILIES`): snowmen, whose parts occur in other families too, and gears, whose outline is unique.
Both are rare as inputs. `python -m research.worlds.lowpoly_shapes` prints faces and tokens of every family.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.random import PCG64, Generator

from engine.errors import BadPrompt
from engine.mesh.frame import SIDE, UP
from engine.mesh.rotation import rotation
from research.worlds.families import FAMILIES
from research.worlds.families.family import MeshShape, ShapeFamily

HELD_OUT_FAMILIES = ("gear", "snowman")
TRAINED_FAMILIES = tuple(name for name in FAMILIES if name not in HELD_OUT_FAMILIES)
EASY = ("table", "chair", "house", "tree", "tower", "bottle", "mushroom", "rocket")  # short sequences, taught first
SHARES = {  # drawn as often as this many other families: every assembly is different; the others were the worst at 14,000 steps
    "assembly": 10, "cart": 2, "robot": 2, "keg": 2, "mushroom": 2, "crystal": 2, "lamp": 2, "car": 2, "torch": 2,
}  # fmt: skip


def family_of(name: str) -> ShapeFamily:
    """A family by name; raises BadPrompt."""
    if name not in FAMILIES:
        raise BadPrompt(f"There is no family '{name}'. There are: {', '.join(FAMILIES)}.")
    return FAMILIES[name]


def _generator(*key: int | str) -> Generator:
    """A generator that depends on the key alone."""
    return Generator(PCG64([int.from_bytes(part.encode(), "big") if isinstance(part, str) else part for part in key]))


def shape(family: str, seed: int, detail: int = 0) -> MeshShape:
    """The shape of a family and a seed >= 0, held out or not."""
    return family_of(family)(_generator("shape", family, seed), detail)


def in_boxes(shape: MeshShape) -> bool:
    """True if a shape lies in one of its family's two held-out boxes."""
    boxes = family_of(shape.family).held_out
    return any(all(shape.parameters[name] in values for name, values in box.items()) for box in boxes)


def is_held_out(shape: MeshShape) -> bool:
    """True if this shape is never trained on: its family is held out, or it lies in one of the family's two held-out boxes."""
    return in_boxes(shape) or shape.family in HELD_OUT_FAMILIES


def training_shapes(first_seed: int, count: int, families: Sequence[str] = TRAINED_FAMILIES, detail: int = 0) -> Iterator[MeshShape]:
    """`count` shapes that are not held out, each a function of its own seed, first_seed, first_seed + 1, ..."""
    names = [name for name in families for _ in range(SHARES.get(name, 1))]
    for seed in range(first_seed, first_seed + count):
        rng = _generator("training", seed)
        family = family_of(names[rng.integers(len(names))])
        if family.name in HELD_OUT_FAMILIES:
            raise BadPrompt(f"The family '{family.name}' is held out. Train on some of: {', '.join(TRAINED_FAMILIES)}.")
        candidate = family(rng, detail)
        while is_held_out(candidate):
            candidate = family(rng, detail)
        yield candidate


def held_out_shapes(count: int, kind: str = "boxes", detail: int = 0) -> list[MeshShape]:
    """`count` different shapes that are never trained, family by family: kind "boxes" of trained families, or whole "families"."""
    if kind not in ("boxes", "families"):
        raise BadPrompt(f"Shapes are held out by 'boxes' or by 'families', not by '{kind}'.")
    names = TRAINED_FAMILIES if kind == "boxes" else HELD_OUT_FAMILIES
    return [held_out_shape(names[i % len(names)], i, detail) for i in range(count)]


def held_out_shape(family: str, number: int, detail: int = 0) -> MeshShape:
    """The held-out shape of a family and a number >= 0."""
    rng = _generator("held out", number)
    candidate = family_of(family)(rng, detail)
    while not is_held_out(candidate):
        candidate = family_of(family)(rng, detail)
    return candidate


# --- augmentation -----------------------------------------------------------------------------------------------------


def stretch(shape: MeshShape, rng: Generator) -> MeshShape:
    """A variant in the same pose, made before tokens: every axis is scaled by its own factor, 0.75 to 1.25.

    The lattices of the families hold so few shapes that a small model memorises them; stretched, no shape repeats.
    """
    return replace(shape, vertices=shape.vertices * rng.uniform(0.75, 1.25, 3))


def stretch_and_turn(shape: MeshShape, rng: Generator) -> MeshShape:
    """A stretched variant that faces the front, the right, the back or the left, because files seldom say which way is the front."""
    one = stretch(shape, rng)
    return replace(one, vertices=one.vertices @ rotation(90.0 * rng.integers(4)).T)


def augment(shape: MeshShape, rng: Generator) -> MeshShape:
    """A variant, made before tokens: mirrored, stretched, turned about y; a tenth of them jittered.

    A fifth are turned by any angle, the others by quarter turns.
    """
    vertices, polygons = stretch(shape, rng).vertices, shape.polygons
    if rng.random() < 0.5:
        vertices = vertices * [-1.0, 1, 1]
        backwards = np.where(polygons >= 0, np.arange(polygons.shape[1]), -1)
        order = np.argsort(-backwards, 1, kind="stable")  # the corners from last to first, then the padding
        polygons = np.take_along_axis(polygons, order, 1)
    degrees = rng.uniform(0, 360) if rng.random() < 0.2 else 90.0 * rng.integers(4)
    vertices = vertices @ rotation(degrees).T
    if rng.random() < 0.1:
        vertices = vertices + rng.uniform(-0.01, 0.01, vertices.shape) * np.ptp(vertices, axis=0).max()
    return replace(shape, vertices=vertices, polygons=polygons)


def sample_points(vertices: np.ndarray, faces: np.ndarray, count: int, rng: Generator) -> np.ndarray:
    """Points of a surface, uniform by area, with the unit normals of their faces: float32 [count, 6]."""
    corners = np.asarray(vertices, np.float64)[np.asarray(faces)]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    doubled = np.linalg.norm(normals, axis=1)
    total = np.cumsum(doubled)
    if not len(total) or not 0 < total[-1] < np.inf:
        raise BadPrompt("The mesh has no surface to take points from. Check that it has faces and finite coordinates.")
    chosen = np.searchsorted(total, rng.random(count) * total[-1], side="right").clip(max=len(total) - 1)
    u, v = rng.random((2, count, 1))
    outside = u + v > 1
    u, v = np.where(outside, 1 - u, u), np.where(outside, 1 - v, v)
    a, b, c = corners[chosen].swapaxes(0, 1)
    points = a + u * (b - a) + v * (c - a)
    return np.concatenate([points, normals[chosen] / doubled[chosen, None]], 1).astype(np.float32)


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; zero rows stay zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 1e-12)


def _survivors(clean: np.ndarray, size: float, rng: Generator) -> np.ndarray:
    """A mask of the points float64 [N, 6] that a scan keeps, bool [N]: some scans see one side only, have a hole, or are denser towards one
    side."""
    is_kept = np.ones(len(clean), bool)
    if rng.random() < 0.1:
        is_kept &= clean[:, 3:] @ _unit(rng.normal(size=(1, 3)))[0] > -0.1
    if rng.random() < 0.1:
        middle = clean[rng.integers(len(clean)), :3]
        is_kept &= np.linalg.norm(clean[:, :3] - middle, axis=1) > rng.uniform(0.1, 0.25) * size
    if rng.random() < 0.15:
        along = clean[:, :3] @ _unit(rng.normal(size=(1, 3)))[0]
        far = (along - along.min()) / max(float(np.ptp(along)), 1e-12)
        is_kept &= rng.random(len(clean)) < rng.uniform(0.05, 0.3) ** far  # the share that remains at the far side
    return is_kept


def degrade(points: np.ndarray, rng: Generator) -> np.ndarray:
    """An imitation of a real scan, float32 [N, 6], from clean points [N, 6]; lost points are replaced by repeats of others.

    A tenth of the clouds are seen from one side only, a tenth have a hole, 15 % are denser towards one side and a tenth are thin: only 64
    to N / 4 points are left. All get noise of up to 1 % of the longest side, on places and normals; a tenth of them three times that; 5 %
    have outliers; 15 % have no normals (zeros), 15 % have all normals flipped. Normals are unit or zero.
    """
    clean = np.asarray(points, np.float64)
    size = float(np.ptp(clean[:, :3], axis=0).max())
    survivors = np.flatnonzero(_survivors(clean, size, rng))
    if len(survivors) * 4 < len(clean):  # too little to recognise the object
        survivors = np.arange(len(clean))
    thin = rng.random() < 0.1 and len(clean) >= 256
    if thin:
        survivors = rng.permutation(survivors)[: rng.integers(64, len(clean) // 4 + 1)]
    chosen = np.concatenate([survivors, rng.choice(survivors, len(clean) - len(survivors))])
    noise = rng.uniform(0, 0.01) * (3 if rng.random() < 0.1 else 1)
    # Repeats in a thin scan are exact; the repeats of other points are moved, as samples nearby would be.
    jitter = rng.normal(size=clean.shape)[chosen if thin else slice(None)] * noise
    places = clean[chosen, :3] + jitter[:, :3] * size
    normals = _unit(clean[chosen, 3:] + jitter[:, 3:] * 10)
    if rng.random() < 0.05:
        stray = rng.random(len(clean)) < rng.uniform(0.005, 0.03)
        low, high = clean[:, :3].min(0) - 0.1 * size, clean[:, :3].max(0) + 0.1 * size
        places[stray] = rng.uniform(low, high, (int(stray.sum()), 3))
        normals[stray] = _unit(rng.normal(size=(int(stray.sum()), 3)))
    fate = rng.random()
    normals = normals * (0.0 if fate < 0.15 else -1.0 if fate < 0.3 else 1.0)
    return np.concatenate([places, normals], 1).astype(np.float32)


def disturb(points: np.ndarray, rng: Generator) -> np.ndarray:
    """A cloud float32 [N, 6] with the surroundings of a scanned object, inside its box: a floor or a heap of clutter, in place of up to a
    quarter of the points. Or its normals get random signs, as unoriented estimates have."""
    cloud, fate = points.copy(), rng.random()
    if fate < 0.3:
        cloud[:, 3:] *= rng.choice([-1.0, 1.0], (len(cloud), 1))
        return cloud
    low, high = cloud[:, :3].min(0), cloud[:, :3].max(0)
    replaced = rng.random(len(cloud)) < rng.uniform(0.05, 0.25)
    count = int(replaced.sum())
    if fate < 0.7:
        high = high.copy()
        high[1] = low[1]
        normals = np.tile([0.0, 1.0, 0.0], (count, 1))
    else:
        side = (high - low) * rng.uniform(0.05, 0.2)
        low = rng.uniform(low, high - side)
        high, normals = low + side, _unit(rng.normal(size=(count, 3)))
    cloud[replaced] = np.concatenate([rng.uniform(low, high, (count, 3)), normals], 1)
    return cloud


# --- which way is up --------------------------------------------------------------------------------------------------

LEAN = 8.0  # degrees, at most, that a tilted cloud leans
AXES = tuple(UP)  # the index of an axis is the answer of `orient`


def orient(
    shape: MeshShape, rng: Generator, count: int = 4096, degraded: float = 0.7, loose: float = 0.2, tilted: float = 0.0
) -> tuple[np.ndarray, int]:
    """A cloud float32 [count, 6] of a shape in one of six orientations, and the axis of the cloud that is up, an index into `AXES`.

    The shape is first stretched and turned about its own vertical axis, by any angle in a share `loose` of the clouds and by quarter turns
    in the others; a share `tilted` then leans by up to `LEAN` degrees. `degraded` is the share of clouds that pass through `degrade`. A
    file's size is arbitrary too, so the cloud's box is centred and 1.9 long, as in the model's frame.
    """
    one = stretch(shape, rng)
    degrees = rng.uniform(0, 360) if rng.random() < loose else 90.0 * rng.integers(4)
    if tilted and rng.random() < tilted:
        one = replace(one, vertices=one.vertices @ rotation(rng.uniform(-LEAN, LEAN), "xz"[rng.integers(2)]).T)
    cloud = sample_points(one.vertices @ rotation(degrees).T, one.faces, count, rng)
    if rng.random() < degraded:
        cloud = degrade(cloud, rng)
    axis = int(rng.integers(len(AXES)))
    upright = np.array(UP[AXES[axis]], np.float64)  # takes that axis to +y; its transpose, which acts on rows here, is the inverse
    places, normals = cloud[:, :3] @ upright, cloud[:, 3:] @ upright
    low, high = places.min(0), places.max(0)
    places = (places - (low + high) / 2) * (SIDE / float((high - low).max()))
    return np.concatenate([places, normals], 1).astype(np.float32), axis


def alike_up(shape: MeshShape) -> tuple[int, ...]:
    """Indices into `AXES` of the directions that could equally be up: stood on each, the shape looks the same from some side. Includes +y.

    Any of these answers is correct: a barrel looks the same upside down.
    """
    middle = (shape.vertices.min(0) + shape.vertices.max(0)) / 2
    centred = (shape.vertices - middle) / np.ptp(shape.vertices, axis=0).max()

    def corners(points: np.ndarray) -> set[tuple[int, ...]]:
        return set(map(tuple, np.round(points * 64).astype(int).tolist()))

    upright = [corners(centred @ rotation(90.0 * turn).T) for turn in range(4)]
    return tuple(i for i, axis in enumerate(AXES) if corners(centred @ np.array(UP[axis], np.float64).T) in upright)
