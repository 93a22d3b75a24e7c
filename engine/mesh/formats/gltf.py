"""glTF 2.0, as .glb or as .gltf with its buffers next to it: the geometry of the scene in the rest pose, with all nodes joined.

Only geometry is read: no materials, no images, nothing from a network. An accessor is a view into its buffer, so that a claim
beyond the buffer fails before anything is allocated. glTF has +Y up.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.source import FACES, MESH_BYTES, Raw, Source, counted, plain, said

TYPES = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}
JSON_BYTES = 2**25  # as Python objects they take twenty times as much
POINTS, TRIANGLES, STRIP, FAN = 0, 4, 5, 6
COMPRESSED = ("KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_meshopt_compression")
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)  # the exceptions of a malformed tree


def read(source: Source) -> Raw:
    """The mesh of a scene; its points if it has no faces."""
    tree, data = header(source)
    try:
        if used := {*tree.get("extensionsRequired", ())}.intersection(COMPRESSED):
            raise BadFile(f"{source.name} is compressed ({', '.join(sorted(used))}), which cannot be read; save it without compression.")
        return _scene(source, tree, Buffers(source, tree, data))
    except DAMAGE as e:
        raise source.damaged(f"its scene cannot be followed ({type(e).__name__}: {plain(e)})") from e


def header(source: Source) -> tuple[dict[str, Any], bytes]:
    """The JSON tree of the file, and in a .glb the binary chunk after it."""
    content = source.whole()
    text, data = content, b""
    if content[:4] == b"glTF":
        chunks = dict(reversed([*_chunks(source, content)]))  # the first of each kind counts
        text, data = chunks.get(b"JSON", b""), chunks.get(b"BIN\0", b"")
    source.check(len(text), JSON_BYTES, "descriptions of scenes, with what is embedded in them,")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise source.damaged("its description is not JSON") from e
    version = tree.get("asset", {}).get("version", "2.0") if isinstance(tree, dict) and isinstance(tree.get("asset", {}), dict) else None
    if version is None or not str(version).startswith("2"):
        raise BadFile(f"{source.name} is not a glTF 2.0 file; save it as one.")
    return tree, data


def _chunks(source: Source, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of every chunk of a .glb."""
    at = 12
    while at + 8 <= len(content):
        size = int.from_bytes(content[at : at + 4], "little")
        source.claim(size, "bytes in a chunk", 1, len(content) - at - 8)
        yield content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        at += 8 + size


class Buffers:
    """The numbers of a scene by accessor."""

    def __init__(self, source: Source, tree: dict[str, Any], data: bytes):
        self.source, self.tree = source, tree
        self._left = MESH_BYTES  # for all buffers next to the file together
        self.buffers = [self._buffer(b, data) for b in tree.get("buffers", [])]

    def _buffer(self, buffer: dict[str, Any], data: bytes) -> bytes:
        """A buffer's bytes: the chunk of the .glb, base64 in the tree, or a file in the same folder."""
        uri = buffer.get("uri")
        if uri is None:
            return data
        if uri.startswith("data:"):
            try:
                return base64.b64decode(uri.partition(",")[2], validate=True)
            except binascii.Error as e:
                raise self.source.damaged("a buffer is not base64") from e
        name = Path(unquote(uri))
        if "://" in uri or ".." in name.parts or name.is_absolute():
            raise BadFile(f"{self.source.name} refers to '{plain(uri)}', which is not next to it; save it as one .glb file.")
        try:
            beside = Source(self.source.path.parent / name)
        except BadFile as e:
            raise BadFile(f"{self.source.name} needs the file {plain(uri)} next to it; add that file, or save it as one .glb file.") from e
        self._left -= beside.size
        beside.check(beside.size - min(self._left, 0), MESH_BYTES, "the buffers of a scene together")
        return beside.whole()

    def accessor(self, index: int) -> np.ndarray:
        """The numbers of an accessor, [count, width], in the type of the file, or float64 if they are normalised."""
        accessor = self.tree["accessors"][index]
        kind, width, count = np.dtype(TYPES[accessor["componentType"]]), WIDTHS[accessor["type"]], int(accessor["count"])
        if not 0 <= count <= 3 * FACES:
            raise BadFile(f"{self.source.name} claims {counted(count)} values in one place; {3 * FACES:,} are the most that can be read.")
        if "bufferView" in accessor:
            found = self._view(accessor["bufferView"], accessor.get("byteOffset", 0), kind, count, width)
        elif "sparse" in accessor:
            found = np.zeros((count, width), kind)
        else:  # another extension's compressed data
            raise ValueError("an accessor has no data")
        if sparse := accessor.get("sparse"):
            places, values = sparse["indices"], sparse["values"]
            number = int(sparse["count"])
            at = self._view(places["bufferView"], places.get("byteOffset", 0), np.dtype(TYPES[places["componentType"]]), number, 1)
            found = found.copy()
            found[at[:, 0]] = self._view(values["bufferView"], values.get("byteOffset", 0), kind, number, width)
        if accessor.get("normalized") and kind.kind != "f":
            found = np.maximum(found / np.iinfo(kind).max, -1.0)
        return found

    def _view(self, index: int, offset: int, kind: np.dtype, count: int, width: int) -> np.ndarray:
        """A view of a buffer."""
        view = self.tree["bufferViews"][index]
        if any(name in view.get("extensions", ()) for name in COMPRESSED):
            raise BadFile(f"{self.source.name} is compressed, which cannot be read; save it without compression.")
        start, size = view.get("byteOffset", 0), view["byteLength"]
        data = memoryview(self.buffers[view["buffer"]])[start : start + size]
        step = view.get("byteStride") or kind.itemsize * width
        end = offset + (count - 1) * step + kind.itemsize * width if count else 0
        if min(start, size, offset, step) < 0 or end > len(data):
            raise BadFile(
                f"{self.source.name} claims {counted(count)} values where there are {said(len(data))} of data: it is truncated or damaged."
            )
        return np.ndarray((count, width), kind, data, offset, (step, kind.itemsize))


def _scene(source: Source, tree: dict[str, Any], buffers: Buffers) -> Raw:
    """All nodes' primitives in the scene's coordinates."""
    vertices: list[np.ndarray] = []
    faces: list[np.ndarray] = []
    points: list[np.ndarray] = []
    normals: list[np.ndarray | None] = []
    placed = corners = triangles = 0
    for mesh, matrix in _placed(tree):
        for primitive in tree["meshes"][mesh]["primitives"]:
            mode, names = primitive.get("mode", TRIANGLES), primitive["attributes"]
            if mode not in (POINTS, TRIANGLES, STRIP, FAN) or "POSITION" not in names:
                continue  # lines
            packed = any(name in primitive.get("extensions", ()) for name in COMPRESSED)
            if packed and "bufferView" not in tree["accessors"][names["POSITION"]]:
                raise BadFile(f"{source.name} is compressed, which cannot be read; save it without compression.")
            xyz = buffers.accessor(names["POSITION"])
            if mode != POINTS:
                index = buffers.accessor(primitive["indices"])[:, 0].astype(np.int64) if "indices" in primitive else np.arange(len(xyz))
                if len(index) and index.max() >= len(xyz):
                    raise source.damaged(f"a face refers to vertex {index.max():,} of {len(xyz):,}")
                used, index = np.unique(index, return_inverse=True)  # many primitives may share one list of vertices
                xyz = xyz[used]
            placed += max(len(xyz), 100)  # an empty part costs time as well
            if placed > 3 * FACES:  # a small file can place one mesh very often
                raise BadFile(f"{source.name} has more than {3 * FACES:,} vertices once all its parts are placed; simplify it first.")
            xyz = _moved(xyz, matrix)
            if mode == POINTS:
                points.append(xyz)
                normals.append(_turned(buffers.accessor(names["NORMAL"]), matrix) if "NORMAL" in names else None)
                continue
            found = _triangles(index, mode)
            triangles += len(found)
            source.faces(triangles)
            vertices.append(xyz)
            faces.append((found if np.linalg.det(matrix[:3, :3]) >= 0 else found[:, ::-1]) + corners)  # a mirror reverses the winding
            corners += len(xyz)
    if triangles:
        notes = [f"{sum(map(len, points)):,} points that belong to no face were left out."] if points else []
        return Raw(np.concatenate(vertices), faces=np.concatenate(faces), notes=notes)
    if not points:
        raise BadFile(f"{source.name} holds neither faces nor points; give a cloud or a mesh.")
    known = [n for n in normals if n is not None]
    return Raw(np.concatenate(points), np.concatenate(known) if len(known) == len(normals) else None, total=sum(map(len, points)))


def _placed(tree: dict[str, Any]) -> Iterator[tuple[int, np.ndarray]]:
    """Every mesh of the scene with the matrix [4, 4] that places it. Every node is visited once, even if a forged file has no tree."""
    nodes = tree.get("nodes", [])
    if not nodes:
        yield from ((mesh, np.eye(4)) for mesh in range(len(tree.get("meshes", []))))
        return
    scenes = tree.get("scenes")
    children = {child for node in nodes for child in node.get("children", ())}
    roots = scenes[tree.get("scene", 0)].get("nodes", []) if scenes else [i for i in range(len(nodes)) if i not in children]
    waiting = [(root, np.eye(4)) for root in reversed(roots)]
    seen: set[int] = set()
    while waiting:
        index, above = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        matrix = above @ _matrix(nodes[index])
        if "mesh" in nodes[index]:
            yield nodes[index]["mesh"], matrix
        waiting += [(child, matrix) for child in reversed(nodes[index].get("children", []))]


def _matrix(node: dict[str, Any]) -> np.ndarray:
    """The matrix [4, 4] of a node: given, or from translation, rotation (a quaternion x y z w) and scale."""
    if "matrix" in node:
        return np.array(node["matrix"], np.float64).reshape(4, 4).T
    matrix = np.eye(4)
    if "rotation" in node:
        x, y, z, w = np.array(node["rotation"], np.float64) / (np.linalg.norm(node["rotation"]) or 1.0)
        matrix[:3, :3] = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    if "scale" in node:
        matrix[:3, :3] *= np.array(node["scale"], np.float64).reshape(3)
    if "translation" in node:
        matrix[:3, 3] = np.array(node["translation"], np.float64).reshape(3)
    return matrix


def _moved(xyz: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Positions [N, 3] in the scene, float64."""
    if xyz.shape[1] != 3:
        raise ValueError("positions need three values")
    return xyz.astype(np.float64) @ matrix[:3, :3].T + matrix[:3, 3]


def _turned(normals: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Normals [N, 3] in the scene, of any length: they are transformed by the inverse transpose."""
    return normals.astype(np.float64) @ np.linalg.pinv(matrix[:3, :3])


def _triangles(index: np.ndarray, mode: int) -> np.ndarray:
    """Triangles [F, 3] from the indices of a list, a strip or a fan."""
    if mode == TRIANGLES:
        return index[: len(index) // 3 * 3].reshape(-1, 3)
    count = max(len(index) - 2, 0)
    step = np.arange(count)
    if mode == FAN:
        return np.stack([np.broadcast_to(index[:1], count), index[step + 1], index[step + 2]], 1)
    odd = step % 2  # every other triangle of a strip has the opposite winding
    return np.stack([index[step], index[step + 1 + odd], index[step + 2 - odd]], 1)
