"""Mutants of mesh and cloud files: each is read as something finite, or refused with a sentence, in bounded memory and time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from engine.mesh.formats import source as limits
from engine.mesh.frame import UP
from engine.mesh.read import Input, read
from tests.engine.mesh import files
from tests.engine.mesh.shapes import QUADS, box, sphere_points
from tests.faults import forked, mutate, mutate_arrays
from tests.faults.corpus import clouds, meshes
from tests.faults.mutate import BYTES, TEXT, Mutator
from tests.faults.sentences import hold

EACH = 30  # mutants of each of the good files
CORPUS = Path(__file__).parent / "corpus" / "readers"


def scene(points: np.ndarray) -> files.Scene:
    """A scene with everything: meshes at several places, points, normals, nodes below nodes."""
    vertices, faces = box()
    graph = files.Scene()
    top = graph.node(translation=[0.0, 1.0, 0.0], rotation=[0.0, 0.0, 0.0, 1.0], scale=[1.0, 2.0, 1.0])
    graph.node(top, mesh=graph.mesh(vertices, faces))
    graph.node(top, mesh=graph.mesh(vertices, None, 5), matrix=[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0.5, 0, 0, 1])
    graph.node(mesh=graph.mesh(points[:, :3], None, 0, NORMAL=graph.numbers(points[:, 3:].astype("<f4"), 5126)))
    return graph


def good(folder: Path) -> dict[str, tuple[bytes, tuple[Mutator, ...]]]:
    """Good files with their mutators."""
    points, (vertices, faces) = sphere_points(120), box()
    few = points[:40]
    np.save(folder / "cloud.npy", points.astype("f4"))
    np.save(folder / "fortran.npy", np.asfortranarray(points))
    np.savez(folder / "cloud.npz", points=points[:, :3], normals=points[:, 3:])
    np.savez_compressed(folder / "mesh.npz", vertices=vertices, faces=faces)
    text, both, tree = TEXT + BYTES[:10], TEXT[:6] + BYTES, (mutate.json_file,) * 20 + BYTES[:8] + TEXT[:3]
    shuffled = (mutate.glb,) * 20 + BYTES
    array, archive = (mutate_arrays.head,) * 14 + BYTES, (mutate_arrays.archive,) * 14 + BYTES
    examples = [
        (files.ply(folder / "ascii.ply", vertices, QUADS), text),
        (files.ply(folder / "cloud.ply", few, normals=True), text),
        (files.ply(folder / "little.ply", vertices, QUADS, "binary_little_endian"), both),
        (files.ply(folder / "mixed.ply", vertices, [*QUADS[:3], [0, 1, 2]], "binary_big_endian"), both),
        (files.obj(folder / "mesh.obj", vertices, QUADS, "f -1 -2 -3\nl 1 2\ng \\\n name\n"), text),
        (files.obj(folder / "cloud.obj", few, []), text),
        (files.off(folder / "mesh.off", vertices, QUADS), text),
        (files.stl(folder / "binary.stl", vertices, faces), BYTES),
        (files.stl(folder / "text.stl", vertices, faces, True), text),
        (files.pcd(folder / "ascii.pcd", few), text),
        (files.pcd(folder / "binary.pcd", points, "binary"), both),
        (files.pcd(folder / "packed.pcd", points, "binary_compressed", "x y z normal_x normal_y normal_z"), both),
        (files.text(folder / "cloud.xyz", few), text),
        (files.text(folder / "names.csv", few, ",", "x,y,z,nx,ny,nz\n"), text),
        (files.text(folder / "count.txt", few[:, :3], ";", "40\n"), text),
        (folder / "cloud.npy", array),
        (folder / "fortran.npy", array),
        (folder / "cloud.npz", archive),
        (folder / "mesh.npz", archive),
        (scene(few).glb(folder / "scene.glb"), shuffled),
        (scene(few).glb(folder / "bytes.glb"), BYTES),
        (scene(few).gltf(folder / "scene.gltf"), tree),
        (files.Scene().gltf(folder / "empty.gltf"), tree),
        (_sparse(vertices, faces).glb(folder / "sparse.glb"), shuffled),
    ]
    return {path.name: (path.read_bytes(), mutators) for path, mutators in examples}


def _sparse(vertices: np.ndarray, faces: np.ndarray) -> files.Scene:
    """A scene with an accessor that changes some numbers of another."""
    graph = files.Scene()
    mesh = graph.mesh(vertices, faces)
    graph.node(mesh=mesh, rotation=[0.0, 0.7071, 0.0, 0.7071])
    places, values = graph.numbers(np.array([1, 2], "<u2"), 5123), graph.numbers(vertices[:2].astype("<f4"), 5126)
    position = graph.tree["meshes"][mesh]["primitives"][0]["attributes"]["POSITION"]
    graph.tree["accessors"][position]["sparse"] = {
        "count": 2, "indices": {"bufferView": places, "componentType": 5123}, "values": {"bufferView": values},
    }  # fmt: skip
    return graph


def mutants(folder: Path) -> dict[str, bytes]:
    """The mutants by name: NUMBER-GOODFILE, as-OTHER-GOODFILE for another format under a name, and SAMPLE-NAME of the corpus."""
    contents = {}
    for at, sample in enumerate((*clouds.SAMPLES, *meshes.SAMPLES)):
        (own := folder / f"sample{at}").mkdir()
        path, random = sample.write(own), Random(sample.name)
        contents[f"{at}-{path.name}"] = random.choice(TEXT + BYTES)(random, path.read_bytes())
    whole = good(folder)
    for name, (content, mutators) in whole.items():
        for number in range(EACH):
            random = Random(f"{name} {number}")
            contents[f"{number:02}-{name}"] = random.choice(mutators)(random, content)
        contents |= {f"as-{other.replace('.', '-')}-{name}": content for other, (content, _) in list(whole.items())[::5]}
    return contents


def read_case(path: Path, up: str = "auto") -> Callable[[], str]:
    """A case that reads a file and checks the result."""

    def do() -> str:
        limits.FACES = 100_000  # in the child only: reads that take seconds at five million must also end at a hundred thousand
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Duplicate name")  # which is what a mutant of an archive is about
        shape = read(path, up)
        check(shape)
        return f"{shape.kind} of {len(shape.points)}"

    return do


def check(shape: Input) -> None:
    """Checks the guarantees of every Input."""
    points, normals = shape.points[:, :3], shape.points[:, 3:]
    assert shape.points.dtype == np.float32 and np.isfinite(shape.points).all()
    assert np.abs(points).max() <= 0.96, "the points leave the model's frame"
    assert np.abs(np.linalg.norm(normals, axis=1) - 1).max() < 1e-3, "normals are not unit vectors"
    assert np.isfinite(shape.frame.from_model(points)).all()
    assert all(note.isprintable() and note.endswith(".") for note in shape.notes), shape.notes
    if shape.surface is not None:
        vertices, faces = shape.surface
        assert np.isfinite(vertices).all() and len(faces) and faces.min() >= 0 and faces.max() < len(vertices)


@pytest.mark.filterwarnings("ignore:Duplicate name")  # which is what a mutant of an archive is about
def test_mutants_of_files(tmp_path: Path) -> None:
    """Deterministic: the same names are the same bytes everywhere."""
    contents = mutants(tmp_path)
    assert len(contents) >= 900
    cases = []
    for number, (name, content) in enumerate(contents.items()):
        (path := tmp_path / f"x{name}").write_bytes(content)
        cases.append(forked.Case(path.name, read_case(path, ("auto", "auto", *UP)[number % (2 + len(UP))])))
    outcomes = forked.run(cases)
    assert min(sum(o.end == end for o in outcomes) for end in ("value", "sentence")) > 100, "the mutants are all alike"
    hold(outcomes, f"Each is a file in {tmp_path}. Keep a failure: cp {tmp_path}/NAME {CORPUS}/WHAT-IS-WRONG.SUFFIX")


@pytest.mark.parametrize("path", sorted(p for p in CORPUS.iterdir() if p.name != "README.md"), ids=lambda p: p.name)
def test_files_that_failed_once(path: Path) -> None:
    outcomes = forked.run([forked.Case(path.name, read_case(path))])
    hold(outcomes)
