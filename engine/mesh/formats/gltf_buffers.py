"""The numbers of a glTF scene. An accessor is a view into its buffer, so a claim beyond the buffer fails before anything is allocated."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

import numpy as np

from engine.errors import BadFile
from engine.mesh.formats.source import FACES, MESH_BYTES, Source, count_text, printable, size_text

TYPES = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4, "MAT4": 16}
COMPRESSED = ("KHR_draco_mesh_compression", "EXT_meshopt_compression", "KHR_meshopt_compression")


class Buffers:
    """The numbers of a scene by accessor. A buffer is read on first use."""

    def __init__(self, source: Source, tree: dict[str, Any], data: bytes):
        """data : the binary chunk of a .glb"""
        self.source, self.tree, self.data = source, tree, data
        self._left = MESH_BYTES  # for all buffers next to the file in total
        self._buffers: dict[int, bytes] = {}

    def _buffer(self, index: int) -> bytes:
        """A buffer's bytes: the chunk of the .glb, a data URI in the tree, or a file in the same folder."""
        if index not in self._buffers:
            uri = self.tree["buffers"][index].get("uri")
            self._buffers[index] = (
                self.data if uri is None else self._decode_data_uri(uri) if uri.startswith("data:") else self._in_folder(uri)
            )
        return self._buffers[index]

    def _is_there(self, index: int) -> bool:
        """True unless the buffer is a placeholder for decompressed data."""
        buffer = self.tree["buffers"][index]
        return "uri" in buffer or (index == 0 and not any(name in buffer.get("extensions", ()) for name in COMPRESSED))

    def _decode_data_uri(self, uri: str) -> bytes:
        """The bytes of a data URI."""
        kind, _, text = uri.partition(",")
        if not kind.endswith(";base64"):
            return unquote_to_bytes(text)
        try:
            return base64.b64decode(unquote(text), validate=True)
        except (binascii.Error, ValueError) as e:
            raise self.source.bad_file("a buffer is not base64") from e

    def _in_folder(self, uri: str) -> bytes:
        """The bytes of a file in the same folder."""
        name = Path(unquote(uri))
        if "://" in uri or ".." in name.parts or name.is_absolute():
            raise BadFile(f"{self.source.name} refers to '{printable(uri)}', which is not next to it; save it as one .glb file.")
        try:
            neighbour = Source(self.source.path.parent / name)
        except BadFile as e:
            raise BadFile(
                f"{self.source.name} needs the file {printable(uri)} next to it; add that file, or save it as one .glb file."
            ) from e
        self._left -= neighbour.size
        neighbour.check_size(neighbour.size - min(self._left, 0), MESH_BYTES, "the buffers of a scene together")
        return neighbour.whole()

    def accessor(self, index: int) -> np.ndarray:
        """The numbers of an accessor, [count, width], in the type of the file, or float64 if they are normalised."""
        accessor = self.tree["accessors"][index]
        kind, width, count = np.dtype(TYPES[accessor["componentType"]]), WIDTHS[accessor["type"]], int(accessor["count"])
        if not 0 <= count <= 3 * FACES:
            raise BadFile(
                f"{self.source.name} claims {count_text(count)} values in one place; {3 * FACES:,} are the most that can be read."
            )
        if "bufferView" in accessor:
            numbers = self._view(accessor["bufferView"], accessor.get("byteOffset", 0), kind, count, width)
        elif "sparse" in accessor:
            numbers = np.zeros((count, width), kind)
        else:  # another extension's compressed data
            raise ValueError("an accessor has no data")
        if sparse := accessor.get("sparse"):
            places, values = sparse["indices"], sparse["values"]
            number = int(sparse["count"])
            at = self._view(places["bufferView"], places.get("byteOffset", 0), np.dtype(TYPES[places["componentType"]]), number, 1)
            numbers = numbers.copy()
            numbers[at[:, 0]] = self._view(values["bufferView"], values.get("byteOffset", 0), kind, number, width)
        if accessor.get("normalized") and kind.kind != "f":
            numbers = np.maximum(numbers / np.iinfo(kind).max, -1.0)
        return numbers

    def _view(self, index: int, offset: int, kind: np.dtype, count: int, width: int) -> np.ndarray:
        """A view of a buffer."""
        view = self.tree["bufferViews"][index]
        if any(name in view.get("extensions", ()) for name in COMPRESSED) and not self._is_there(view["buffer"]):
            raise BadFile(f"{self.source.name} is compressed, which cannot be read; save it without compression.")
        start, size = view.get("byteOffset", 0), view["byteLength"]
        data = memoryview(self._buffer(view["buffer"]))[start : start + size]
        step = view.get("byteStride") or kind.itemsize * width
        end = offset + (count - 1) * step + kind.itemsize * width if count else 0
        if min(start, size, offset, step) < 0 or end > len(data):
            raise BadFile(
                f"{self.source.name} claims {count_text(count)} values where there are {size_text(len(data))} of data: "
                "it is truncated or damaged."
            )
        return np.ndarray((count, width), kind, data, offset, (step, kind.itemsize))
