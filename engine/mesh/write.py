"""Writes meshes as GLB, OBJ, PLY and STL, completely or not at all, with the settings of the run if the format can store them.

A coloured file shows one colour per face. In a GLB, colours belong to vertices, and a vertex that faces share would blend their colours.
So a coloured GLB is a set of separate triangles, and one without colours is a proper mesh.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import BadOutput
from engine.mesh.formats.gltf import header
from engine.mesh.formats.source import Source
from engine.mesh.frame import fit
from engine.mesh.surface import crosses

Writer = Callable[[np.ndarray, np.ndarray, np.ndarray | None, dict[str, Any] | None], bytes]
KEY = "foretoken"  # the key of the settings
PLAIN = [0.72, 0.75, 0.8, 1.0]  # colour of a mesh without colours


def write(
    path: Path | str,
    vertices: np.ndarray,
    faces: np.ndarray,
    colours: np.ndarray | None = None,
    metadata: dict[str, Any] | None = None,
    shift: np.ndarray | None = None,
) -> Path:
    """Writes a mesh in the format of the path's suffix and returns the path; raises BadOutput.

    vertices : [V, 3], in the coordinates of the file (see Frame.from_model)
    faces    : [F, 3]
    colours  : [F, 3 or 4] uint8, one per face; for .glb and .ply only
    metadata : settings for JSON; .glb (extras of the scene), .ply and .obj (a comment) keep them
    shift    : [3], subtracted from the vertices in an .stl, which has only float32 and names the shift in its title (see Frame.shift);
               None: the shift by the vertices' box. The other formats keep the coordinates
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise BadOutput(f"A mesh cannot be written as {path.name}. Choose one of: {', '.join(FORMATS)}.")
    if colours is not None and suffix not in COLOURED:
        raise BadOutput(f"{suffix[1:].upper()} cannot hold colours of faces. Choose one of: {', '.join(sorted(COLOURED))}.")
    if not len(faces):
        raise BadOutput(f"{path.name} was not written because the mesh has no faces.")
    vertices, faces = np.asarray(vertices, np.float64), np.asarray(faces, np.int64)
    if colours is not None:
        colours = np.asarray(colours, np.uint8)
        if colours.shape[1] == 3:
            colours = np.concatenate([colours, np.full((len(colours), 1), 255, np.uint8)], 1)
    if suffix == ".stl":
        content = _stl(vertices, faces, _shift(vertices) if shift is None else shift)
    else:
        content = WRITERS[suffix](vertices, faces, colours, metadata)
    _replace(path, content)
    return path


def settings(path: Path | str) -> dict[str, Any] | None:
    """The settings in a .glb that `write` made, None if it has none; raises BadFile if it is not a .glb or .gltf."""
    tree = header(Source(path))[0]
    scenes = tree.get("scenes")
    extras = scenes[0].get("extras") if isinstance(scenes, list) and scenes and isinstance(scenes[0], dict) else None
    metadata = extras.get(KEY) if isinstance(extras, dict) else None
    return metadata if isinstance(metadata, dict) else None


def _replace(path: Path, content: bytes) -> None:
    """Replaces the content of a path in one step."""
    part = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".part-", delete=False) as file:
            part = Path(file.name)
            file.write(content)
        part.chmod(0o644)
        os.replace(part, path)
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another folder with --out.") from e
    finally:
        if part is not None:
            part.unlink(missing_ok=True)  # absent if the write succeeded


def _text(metadata: dict[str, Any]) -> str:
    """Settings as one line."""
    return json.dumps({KEY: metadata}, ensure_ascii=True)


def _glb(vertices: np.ndarray, faces: np.ndarray, colours: np.ndarray | None, metadata: dict[str, Any] | None) -> bytes:
    """The bytes of a glTF 2.0 file. Its numbers are float32, so a mesh far from the origin is moved to it, and its node moves it back."""
    far = np.abs(vertices).max() > 100 * np.ptp(vertices, 0).max()
    middle = (vertices.min(0) + vertices.max(0)) / 2 if far else np.zeros(3)
    xyz = (vertices - middle).astype("<f4")
    index = faces.astype("<u4")
    if colours is not None:
        xyz, index = xyz[faces.reshape(-1)], np.arange(3 * len(faces), dtype="<u4")
    position = {
        "componentType": 5126, "type": "VEC3", "count": len(xyz), "min": xyz.min(0).tolist(), "max": xyz.max(0).tolist(),
    }  # fmt: skip
    parts = [
        (xyz, position, 34962),
        (index, {"componentType": 5125, "type": "SCALAR", "count": index.size}, 34963),
    ]
    attributes = {"POSITION": 0}
    if colours is not None:
        attributes["COLOR_0"] = 2
        shown = np.repeat(colours, 3, 0)
        parts.append((shown, {"componentType": 5121, "normalized": True, "type": "VEC4", "count": len(shown)}, 34962))
    views, accessors, data = [], [], b""
    for array, accessor, target in parts:
        content = array.tobytes()  # every item has a multiple of four bytes, as the format requires
        views.append({"buffer": 0, "byteOffset": len(data), "byteLength": len(content), "target": target})
        accessors.append({"bufferView": len(accessors), **accessor})
        data += content
    colour = {"baseColorFactor": PLAIN if colours is None else [1.0] * 4, "metallicFactor": 0.0, "roughnessFactor": 0.9}
    node: dict[str, Any] = {"mesh": 0} | ({"translation": middle.tolist()} if far else {})
    scene = {"nodes": [0]} | ({"extras": {KEY: metadata}} if metadata is not None else {})
    tree = {
        "asset": {"version": "2.0", "generator": "Foretoken"},
        "scene": 0,
        "scenes": [scene],
        "nodes": [node],
        "meshes": [{"primitives": [{"attributes": attributes, "indices": 1, "material": 0}]}],
        "materials": [{"pbrMetallicRoughness": colour, "doubleSided": True}],
        "accessors": accessors,
        "bufferViews": views,
        "buffers": [{"byteLength": len(data)}],
    }
    text = json.dumps(tree, ensure_ascii=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 4)
    chunks = b"".join(len(c).to_bytes(4, "little") + kind + c for kind, c in ((b"JSON", text), (b"BIN\0", data)))
    return b"glTF" + (2).to_bytes(4, "little") + (12 + len(chunks)).to_bytes(4, "little") + chunks


def _obj(vertices: np.ndarray, faces: np.ndarray, colours: None, metadata: dict[str, Any] | None) -> bytes:
    lines = [f"# {_text(metadata)}"] if metadata is not None else []
    lines += ["v {!r} {!r} {!r}".format(*row) for row in vertices.tolist()]
    lines += ["f {} {} {}".format(*row) for row in (faces + 1).tolist()]
    return ("\n".join(lines) + "\n").encode()


def _ply(vertices: np.ndarray, faces: np.ndarray, colours: np.ndarray | None, metadata: dict[str, Any] | None) -> bytes:
    """The bytes of a binary PLY file with float64 vertices, which a scan in map coordinates needs."""
    head = ["ply", "format binary_little_endian 1.0"]
    head += [f"comment {_text(metadata)}"] if metadata is not None else []
    head += [f"element vertex {len(vertices)}", *(f"property double {c}" for c in "xyz"), f"element face {len(faces)}"]
    head += ["property list uchar int vertex_indices"]
    row = [("count", "u1"), ("corners", "<i4", 3)]
    if colours is not None:
        head += [f"property uchar {c}" for c in ("red", "green", "blue", "alpha")]
        row.append(("colour", "u1", 4))
    rows = np.empty(len(faces), row)
    rows["count"], rows["corners"] = 3, faces
    if colours is not None:
        rows["colour"] = colours
    return "\n".join([*head, "end_header", ""]).encode() + vertices.astype("<f8").tobytes() + rows.tobytes()


def _shift(vertices: np.ndarray) -> np.ndarray:
    """The shift [3] of a mesh, from its box."""
    return fit(vertices, "z").shift if np.ptp(vertices, 0).max() > 0 else np.zeros(3)


def _stl(vertices: np.ndarray, faces: np.ndarray, shift: np.ndarray) -> bytes:
    vertices = vertices - shift
    title = "Foretoken" + ("; add {:.14g} {:.14g} {:.14g}".format(*shift) if shift.any() else "")
    normals = crosses(vertices, faces)
    rows = np.zeros(len(faces), [("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("colour", "<u2")])
    rows["normal"] = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    rows["corners"] = vertices[faces]
    return title.encode().ljust(80) + len(faces).to_bytes(4, "little") + rows.tobytes()


WRITERS: dict[str, Writer] = {".glb": _glb, ".obj": _obj, ".ply": _ply}
FORMATS = (*WRITERS, ".stl")
COLOURED = {".glb", ".ply"}
