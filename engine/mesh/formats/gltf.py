"""glTF 2.0, as .glb or as .gltf with its buffers next to it: the geometry of the scene in the rest pose, with all nodes joined.

Only geometry is read: no materials, no images, nothing from a network. Skins, morph targets with their weights and instances are
applied. glTF has +Y up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.gltf_buffers import COMPRESSED, Buffers
from engine.mesh.formats.gltf_nodes import Placement, Tree, instances, placements
from engine.mesh.formats.gltf_pose import apply_skin, morph
from engine.mesh.formats.polygons import strips
from engine.mesh.formats.source import FACES, Raw, Source, printable

JSON_BYTES = 2**25  # maximum bytes of JSON; as Python objects they take twenty times as much
POINTS, TRIANGLES, STRIP, FAN = 0, 4, 5, 6
DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)  # the exceptions of a malformed tree
SUPPORTED = ("KHR_mesh_quantization", "EXT_mesh_gpu_instancing", "KHR_node_visibility")
# Extensions that leave the geometry as it is: looks, light, sound, behaviour, descriptions
HARMLESS = re.compile(
    r"[A-Z0-9]+_((materials?|textures?|lights?|image|xmp|audio|metadata|physics|animation|camera|packing)(_\w*)?|\w*_metadata)"
    r"|KHR_(techniques?_webgl|node_hoverability|node_selectability|interactivity|rigid_bodies|implicit_shapes)"
    r"|MSFT_(texture_dds|audio_emitter|lod)|NV_materials_mdl|CESIUM_primitive_outline"
    r"|EXT_(mesh_features|instance_features|mesh_manifold)|MOZ_(lightmap|hubs_components)|GODOT_single_root|VRM(C_\w+)?"
)


def read(source: Source) -> Raw:
    """The mesh of a scene; its points if it has no faces.

    Raises BadFile for an extension that the file requires and that would change the geometry.
    """
    tree, data = header(source)
    try:
        _check_extensions(source, tree)
        return _Scene(source, tree, Buffers(source, tree, data)).raw()
    except DAMAGE as e:
        raise source.bad_file(f"its scene cannot be followed ({type(e).__name__}: {printable(e)})") from e


def header(source: Source) -> tuple[Tree, bytes]:
    """The JSON tree of the file, and in a .glb the binary chunk after it."""
    content = source.whole()
    text, data = content, b""
    if content[:4] == b"glTF":
        chunks = dict(reversed([*_chunks(source, content)]))  # the first of each kind counts
        text, data = chunks.get(b"JSON", b""), chunks.get(b"BIN\0", b"")
    source.check_size(len(text), JSON_BYTES, "descriptions of scenes, with what is embedded in them,")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise source.bad_file("its description is not JSON") from e
    asset = tree.get("asset", {}) if isinstance(tree, dict) else None
    if not isinstance(asset, dict):
        raise BadFile(f"{source.name} is not a glTF 2.0 file; save it as one.")
    version = str(asset.get("version", "1.0" if isinstance(tree.get("meshes"), dict) else "2.0"))  # glTF 1.0 has a dictionary of meshes
    if not version.startswith("2"):
        raise BadFile(f"{source.name} is a glTF of version {printable(version, 20)}, and only 2 can be read; save it as glTF 2.0.")
    return tree, data


def _chunks(source: Source, content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and content of every chunk of a .glb."""
    at = 12
    while at + 8 <= len(content):
        size = int.from_bytes(content[at : at + 4], "little")
        source.check_claim(size, "bytes in a chunk", 1, len(content) - at - 8)
        yield content[at + 4 : at + 8], content[at + 8 : at + 8 + size]
        at += 8 + size


def _check_extensions(source: Source, tree: Tree) -> None:
    """Raises BadFile for required extensions that are not supported and may change the geometry."""
    required = [name for name in tree.get("extensionsRequired", ()) if name not in SUPPORTED]
    if packed := sorted({*required}.intersection(COMPRESSED)):
        raise BadFile(f"{source.name} is compressed ({', '.join(packed)}), which cannot be read; save it without compression.")
    if unknown := [printable(name) for name in required if not HARMLESS.fullmatch(name)]:
        raise BadFile(f"{source.name} requires the extension {unknown[0]}, which cannot be read; save it without this extension.")


@dataclass
class _Part:
    """A primitive before it is placed.

    xyz     : [N, 3] float64 positions, after morph targets and skin
    normals : [N, 3] of points, or None
    faces   : [F, 3] int64, None for points
    posed   : True if a skin has moved it to the scene's coordinates
    """

    xyz: np.ndarray
    normals: np.ndarray | None
    faces: np.ndarray | None
    posed: bool


class _Scene:
    """Joins the primitives of all nodes, within the limits of a mesh."""

    def __init__(self, source: Source, tree: Tree, buffers: Buffers):
        self.source, self.tree, self.buffers = source, tree, buffers
        self.vertices: list[np.ndarray] = []
        self.faces: list[np.ndarray] = []
        self.points: list[np.ndarray] = []
        self.normals: list[np.ndarray | None] = []
        self.placed = self.corners = self.triangles = 0

    def raw(self) -> Raw:
        """The mesh, or the points if there are no faces."""
        for placement in placements(self.tree):
            for primitive in self.tree["meshes"][placement.mesh]["primitives"]:
                self._add(placement, primitive)
        count = sum(map(len, self.points))
        if self.triangles:
            notes = [f"{count:,} points that belong to no face were left out."] if self.points else []
            return Raw(np.concatenate(self.vertices), faces=np.concatenate(self.faces), notes=notes)
        if not self.points:
            raise BadFile(f"{self.source.name} holds neither faces nor points; give a cloud or a mesh.")
        known = [n for n in self.normals if n is not None]
        return Raw(np.concatenate(self.points), np.concatenate(known) if len(known) == len(self.normals) else None, total=count)

    def _add(self, placement: Placement, primitive: dict[str, Any]) -> None:
        """Places a primitive, if it has triangles or points."""
        mode, names = primitive.get("mode", TRIANGLES), primitive["attributes"]
        if mode not in (POINTS, TRIANGLES, STRIP, FAN) or "POSITION" not in names:
            return  # lines
        packed = any(name in primitive.get("extensions", ()) for name in COMPRESSED)
        if packed and "bufferView" not in self.tree["accessors"][names["POSITION"]]:
            raise BadFile(f"{self.source.name} is compressed, which cannot be read; save it without compression.")
        part = self._part(placement, primitive, mode)
        for matrices in [np.eye(4)[None]] if part.posed else instances(placement, self.buffers):
            self._place(part, matrices)

    def _place(self, part: _Part, matrices: np.ndarray) -> None:
        """Adds a part at the places of some matrices [K, 4, 4]."""
        count = len(matrices)
        self._count(count * len(part.xyz))
        self.triangles += count * (0 if part.faces is None else len(part.faces))
        self.source.check_faces(self.triangles)
        places = (part.xyz @ matrices[:, :3, :3].transpose(0, 2, 1) + matrices[:, None, :3, 3]).reshape(-1, 3)
        if part.faces is None:
            self.points.append(places)
            self.normals.append(None if part.normals is None else (part.normals @ np.linalg.pinv(matrices[:, :3, :3])).reshape(-1, 3))
            return
        mirrored = np.linalg.det(matrices[:, :3, :3]) < 0  # which reverses the winding
        faces = np.where(mirrored[:, None, None], part.faces[:, ::-1], part.faces)
        starts = self.corners + len(part.xyz) * np.arange(count)
        self.vertices.append(places)
        self.faces.append((faces + starts[:, None, None]).reshape(-1, 3))
        self.corners += len(places)

    def _count(self, vertices: int) -> None:
        """Counts vertices; refuses a small file that places a mesh too often."""
        self.placed += max(vertices, 100)  # an empty part takes time too
        if self.placed > 3 * FACES:
            raise BadFile(f"{self.source.name} has more than {3 * FACES:,} vertices once all its parts are placed; simplify it first.")

    def _part(self, placement: Placement, primitive: dict[str, Any], mode: int) -> _Part:
        """A primitive's geometry in the coordinates of its node, or of the scene if it has a skin."""
        names = primitive["attributes"]
        xyz = self.buffers.accessor(names["POSITION"])
        if xyz.shape[1] != 3:
            raise ValueError("positions need three values")
        faces = used = None
        if mode != POINTS:
            index = self.buffers.accessor(primitive["indices"])[:, 0].astype(np.int64) if "indices" in primitive else np.arange(len(xyz))
            if len(index) and index.max() >= len(xyz):
                raise self.source.bad_file(f"a face refers to vertex {index.max():,} of {len(xyz):,}")
            used, index = np.unique(index, return_inverse=True)  # many primitives may share one list of vertices
            faces = _triangles(index, mode)
        normals = self.buffers.accessor(names["NORMAL"]) if mode == POINTS and "NORMAL" in names else None
        for weight, _ in zip(placement.weights, primitive.get("targets", ())):
            self._count(len(xyz if used is None else used)) if weight else None
        xyz = morph(self.buffers, primitive, "POSITION", xyz, placement.weights, used)
        if normals is not None:
            normals = morph(self.buffers, primitive, "NORMAL", normals, placement.weights, used)
        if placement.skin is None or "JOINTS_0" not in names or "WEIGHTS_0" not in names:
            return _Part(xyz, normals, faces, False)
        xyz, normals, mirrored = apply_skin(self.buffers, names, placement.skin, placement.globals, xyz, normals, used)
        return _Part(xyz, normals, faces[:, ::-1] if mirrored and faces is not None else faces, True)


def _triangles(index: np.ndarray, mode: int) -> np.ndarray:
    """Triangles [F, 3] from the indices of a list, a strip or a fan."""
    if mode == TRIANGLES:
        return index[: len(index) // 3 * 3].reshape(-1, 3)
    if mode == STRIP:
        return strips(index, np.array([len(index)]))
    count = max(len(index) - 2, 0)
    return np.stack([np.broadcast_to(index[:1], count), index[1 : count + 1], index[2:]], 1)
