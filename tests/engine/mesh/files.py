"""Files of every format, written byte by byte by the tests, so that reading is tested independently of our writers."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np


def ply(path: Path, points: np.ndarray, faces: list | None = None, order: str = "ascii", normals: bool = False) -> Path:
    """A PLY file; faces may have any number of corners."""
    names = ["x", "y", "z", *(["nx", "ny", "nz"] if normals else [])]
    head = ["ply", f"format {order} 1.0", "comment by hand", f"element vertex {len(points)}", *(f"property float {n}" for n in names)]
    if faces is not None:
        head += [f"element face {len(faces)}", "property list uchar int vertex_indices", "property uchar red"]
    text = "\n".join([*head, "end_header", ""]).encode()
    rows = points[:, : len(names)]
    if order == "ascii":
        body = "".join(" ".join(map(repr, row)) + "\n" for row in rows.tolist())
        body += "".join(" ".join(map(str, [len(f), *f, 7])) + "\n" for f in faces or [])
        path.write_bytes(text + body.encode())
    else:
        sign = "<" if "little" in order else ">"
        body = rows.astype(sign + "f4").tobytes()
        body += b"".join(struct.pack(f"{sign}B{len(f)}iB", len(f), *f, 7) for f in faces or [])
        path.write_bytes(text + body)
    return path


def obj(path: Path, points: np.ndarray, faces: list, extra: str = "") -> Path:
    """An OBJ file with corners as v/vt/vn."""
    lines = ["# by hand", "mtllib nowhere.mtl", *("v {} {} {}".format(*p) for p in points.tolist()), "vt 0 0", "vn 0 1 0", "usemtl red"]
    lines += ["f " + " ".join(f"{i + 1}/1/1" for i in f) for f in faces]
    path.write_text("\n".join(lines) + "\n" + extra)
    return path


def off(path: Path, points: np.ndarray, faces: list, head: str = "OFF\n# by hand\n", behind: str = "") -> Path:
    """An OFF file."""
    body = "".join("{} {} {}{}\n".format(*p, behind) for p in points.tolist())
    body += "".join(f"{len(f)} {' '.join(map(str, f))} 255 0 0\n" for f in faces)
    path.write_text(f"{head}{len(points)} {len(faces)} 0\n{body}")
    return path


def stl(path: Path, points: np.ndarray, faces: np.ndarray, text: bool = False) -> Path:
    """An STL file."""
    if text:
        corners = ["\n".join("      vertex {:e} {:e} {:e}".format(*p) for p in points[f].tolist()) for f in faces]
        body = "\n".join(f"  facet normal 0 0 1\n    outer loop\n{c}\n    endloop\n  endfacet" for c in corners)
        path.write_text(f"solid by hand\n{body}\nendsolid by hand\n")
    else:
        body = b"".join(struct.pack("<12fH", 0, 0, 1, *points[f].reshape(-1), 0) for f in faces)
        path.write_bytes(b"solid that is binary".ljust(80) + struct.pack("<I", len(faces)) + body)
    return path


def pcd(path: Path, points: np.ndarray, data: str = "ascii", names: str = "x y z") -> Path:
    """A PCD file; compressed data are literals except the last bytes."""
    width = len(names.split())
    rows = points[:, :width].astype("<f4")
    head = [
        "# .PCD v0.7", "VERSION 0.7", f"FIELDS {names}", f"SIZE {'4 ' * width}", f"TYPE {'F ' * width}", f"COUNT {'1 ' * width}",
        f"WIDTH {len(points)}", "HEIGHT 1", "VIEWPOINT 0 0 0 1 0 0 0", f"POINTS {len(points)}", f"DATA {data}", "",
    ]  # fmt: skip
    if data == "ascii":
        body = "".join(" ".join(map(repr, row)) + "\n" for row in rows.tolist()).encode()
    elif data == "binary":
        body = rows.tobytes()
    else:
        plain = rows.T.tobytes()  # field by field
        packed = b"".join(bytes([len(plain[i : i + 32]) - 1]) + plain[i : i + 32] for i in range(0, len(plain), 32))
        body = struct.pack("<II", len(packed), len(plain)) + packed
    path.write_bytes("\n".join(head).encode() + body)
    return path


def text(path: Path, table: np.ndarray, separator: str = " ", head: str = "") -> Path:
    """Columns of numbers."""
    path.write_text(head + "".join(separator.join(map(repr, row)) + "\n" for row in table.tolist()))
    return path


class Scene:
    """A glTF scene in the making."""

    def __init__(self) -> None:
        self.data = b""
        self.tree: dict[str, Any] = {"asset": {"version": "2.0"}, "scene": 0, "scenes": [{"nodes": []}]}
        self.tree |= {name: [] for name in ("nodes", "meshes", "accessors", "bufferViews")}

    def numbers(self, array: np.ndarray, kind: int, **more: Any) -> int:
        """Adds an accessor and returns its index."""
        array = np.atleast_2d(array.T).T
        self.tree["bufferViews"].append({"buffer": 0, "byteOffset": len(self.data), "byteLength": array.nbytes})
        self.data += array.tobytes() + b"\0" * (-array.nbytes % 4)
        kinds = {1: "SCALAR", 3: "VEC3", 4: "VEC4", 16: "MAT4"}
        self.tree["accessors"].append(
            {
                "bufferView": len(self.tree["bufferViews"]) - 1,
                "componentType": kind,
                "count": len(array),
                "type": kinds[array.shape[1]],
                **more,
            }
        )
        return len(self.tree["accessors"]) - 1

    def mesh(self, points: np.ndarray, index: np.ndarray | None, mode: int = 4, **attributes: int) -> int:
        """Adds a mesh of one primitive and returns its index."""
        primitive: dict[str, Any] = {"attributes": {"POSITION": self.numbers(points.astype("<f4"), 5126), **attributes}, "mode": mode}
        if index is not None:
            primitive["indices"] = self.numbers(index.reshape(-1).astype("<u2"), 5123)
        self.tree["meshes"].append({"primitives": [primitive]})
        return len(self.tree["meshes"]) - 1

    def node(self, parent: int | None = None, **node: Any) -> int:
        """Adds a node below another, or at the top, and returns its index."""
        self.tree["nodes"].append(node)
        index = len(self.tree["nodes"]) - 1
        if parent is None:
            self.tree["scenes"][0]["nodes"].append(index)
        else:
            self.tree["nodes"][parent].setdefault("children", []).append(index)
        return index

    def glb(self, path: Path) -> Path:
        """One file."""
        text = json.dumps({**self.tree, "buffers": [{"byteLength": len(self.data)}]}).encode()
        text += b" " * (-len(text) % 4)
        chunks = b"".join(struct.pack("<I", len(c)) + k + c for k, c in ((b"JSON", text), (b"BIN\0", self.data)))
        path.write_bytes(b"glTF" + struct.pack("<II", 2, 12 + len(chunks)) + chunks)
        return path

    def gltf(self, path: Path, uri: str | None = None) -> Path:
        """The description with its data inside, or a reference to a file that is not written."""
        uri = uri or "data:application/octet-stream;base64," + base64.b64encode(self.data).decode()
        path.write_text(json.dumps({**self.tree, "buffers": [{"byteLength": len(self.data), "uri": uri}]}))
        return path
