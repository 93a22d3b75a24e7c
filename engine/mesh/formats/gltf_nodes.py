"""The nodes of a glTF scene: their meshes, transforms, instances and poses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.mesh.formats.gltf_buffers import Buffers

Tree = dict[str, Any]
CHUNK = 2**12  # instances per batch
INSTANCING, VISIBILITY = "EXT_mesh_gpu_instancing", "KHR_node_visibility"


class Globals:
    """Global matrices [4, 4] by node. A forged file with a cycle of nodes gets an arbitrary matrix."""

    def __init__(self, nodes: Sequence[dict[str, Any]], roots: Sequence[int]):
        """roots : the nodes of the scene, which have no parent in it"""
        self.nodes = nodes
        pairs = ((child, index) for index, node in enumerate(nodes) for child in node.get("children", ()))
        tops = {*roots}
        self._parents: dict[int, int] = {}
        for child, parent in pairs:
            if child not in tops:
                self._parents.setdefault(child, parent)
        self._known: dict[int, np.ndarray] = {}

    def __getitem__(self, index: int) -> np.ndarray:
        above: dict[int, None] = {}
        node: int | None = index
        while node is not None and node not in self._known and node not in above:
            above[node] = None
            node = self._parents.get(node)
        matrix = np.eye(4) if node is None or node in above else self._known[node]
        for node in reversed(above):
            matrix = self._known[node] = matrix @ transform(self.nodes[node])
        return self._known[index]


@dataclass(frozen=True)
class Placement:
    """A mesh in the scene.

    matrix  : [4, 4] global transform of its node
    weights : of the morph targets: the node's, else the mesh's
    skin    : the skin of the node, or None
    globals : matrices of all nodes
    node    : the node, {} for a mesh of a file without nodes
    """

    mesh: int
    matrix: np.ndarray
    weights: Sequence[float]
    skin: dict[str, Any] | None
    globals: Globals
    node: dict[str, Any]


def placements(tree: Tree) -> Iterator[Placement]:
    """Every mesh of the scene. Every node is visited once, even if a forged file has no tree; a hidden node hides its descendants.

    The scene is the file's default, else its first; a file without scenes shows all its nodes, one without nodes all its meshes.
    """
    nodes = tree.get("nodes", [])
    if not nodes:
        for index, mesh in enumerate(tree.get("meshes", [])):
            yield Placement(index, np.eye(4), mesh.get("weights", ()), None, Globals([], []), {})
        return
    scenes = tree.get("scenes")
    children = {child for node in nodes for child in node.get("children", ())}
    roots = scenes[tree.get("scene", 0)].get("nodes", []) if scenes else [i for i in range(len(nodes)) if i not in children]
    known = Globals(nodes, roots)
    waiting, seen = [*reversed(roots)], set()
    while waiting:
        index = waiting.pop()
        node = nodes[index]
        if index in seen or node.get("extensions", {}).get(VISIBILITY, {}).get("visible", True) is False:
            continue
        seen.add(index)
        if "mesh" in node:
            weights = node.get("weights", tree["meshes"][node["mesh"]].get("weights", ()))
            skin = tree["skins"][node["skin"]] if "skin" in node else None
            yield Placement(node["mesh"], known[index], weights, skin, known, node)
        waiting += reversed(node.get("children", []))


def instances(placement: Placement, buffers: Buffers) -> Iterator[np.ndarray]:
    """Yields the matrices [K, 4, 4] that place a mesh, in batches: its node's, or one per instance of EXT_mesh_gpu_instancing."""
    extension = placement.node.get("extensions", {}).get(INSTANCING)
    if extension is None:
        yield placement.matrix[None]
        return
    columns = {name: buffers.accessor(index) for name, index in extension["attributes"].items()}
    counts = {len(column) for column in columns.values()}
    if len(counts) != 1:
        raise ValueError("instances have as many translations as rotations and scales")
    count = counts.pop()
    for at in range(0, count, CHUNK):
        some = [columns[name][at : at + CHUNK] if name in columns else None for name in ("TRANSLATION", "ROTATION", "SCALE")]
        yield placement.matrix @ _compose(min(CHUNK, count - at), *some)


def transform(node: dict[str, Any]) -> np.ndarray:
    """The matrix [4, 4] of a node: its own, or from translation, rotation (a quaternion x y z w) and scale."""
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    parts = (np.array([node[name]]) if name in node else None for name in ("translation", "rotation", "scale"))
    return _compose(1, *parts)[0]


def _compose(count: int, translation: np.ndarray | None, rotation: np.ndarray | None, scale: np.ndarray | None) -> np.ndarray:
    """Matrices [K, 4, 4] from translations [K, 3], quaternions [K, 4] of any length and scales [K, 3]; None: no effect."""
    matrices = np.tile(np.eye(4), (count, 1, 1))
    if rotation is not None:
        length = np.linalg.norm(rotation.astype(np.float64), axis=1, keepdims=True)
        x, y, z, w = (rotation / np.where(length > 0, length, 1.0)).reshape(count, 4).T
        matrices[:, :3, :3] = np.array(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ]
        ).transpose(2, 0, 1)
    if scale is not None:
        matrices[:, :3, :3] *= scale.reshape(count, 1, 3)
    if translation is not None:
        matrices[:, :3, 3] = translation.reshape(count, 3)
    return matrices
