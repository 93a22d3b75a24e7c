"""Files of torch.save, read without torch.load: the zip form and the older form of several pickles with the numbers after them.

A storage is not read but found: where its bytes lie in the file. Nothing is unpacked, so a file cannot hold more than its size; compressed
entries, which PyTorch never writes, are refused.
"""

from __future__ import annotations

import io
import mmap
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from engine.checkpoints.pickles import Storage, Stored, unpickled

MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle of the older form
PROTOCOL = 1001
LARGEST_PICKLE = 64 * 2**20  # bytes of the pickle of a zip form, which holds names and shapes only
MOST_ENTRIES = 200_000
LOCAL_HEADER = 30  # bytes before the name of an entry; two lengths stand at 26 and 28


@dataclass(frozen=True)
class TorchFile:
    """What a file holds, and where the bytes of each storage begin."""

    path: Path
    tree: Any
    starts: dict[str, int]

    def open(self) -> mmap.mmap:
        """The file in memory, page by page as it is used; changes stay in this process."""
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def tensor(self, stored: Stored, pages: mmap.mmap) -> Tensor:
        """The numbers of a tensor, mapped from the file."""
        storage = stored.storage
        if not storage.count:
            return torch.empty(stored.shape, dtype=storage.dtype)
        start, size = self.starts[storage.key], storage.dtype.itemsize
        if start % size:  # the older form aligns nothing
            flat = torch.frombuffer(bytearray(pages[start : start + storage.count * size]), dtype=storage.dtype)
        else:
            flat = torch.frombuffer(pages, dtype=storage.dtype, count=storage.count, offset=start)
        return flat.as_strided(stored.shape, stored.stride, stored.offset)


def read_torch_file(path: Path) -> TorchFile:
    """Names, shapes and places of a file's tensors; raises ValueError for a damaged file, WouldRun for one that would run code."""
    size = path.stat().st_size
    with path.open("rb") as file:
        beginning = file.read(4)
        file.seek(0)
        if beginning[:2] != b"PK" and beginning[:1] != b"\x80":
            raise ValueError("it was not written by torch.save")
        tree, starts = _zip_form(file, size) if beginning[:2] == b"PK" else _older_form(file, size)
    return TorchFile(path, tree, starts)


# --- the zip form -----------------------------------------------------------------------------------------------------


def _zip_form(file: BinaryIO, size: int) -> tuple[Any, dict[str, int]]:
    try:
        with zipfile.ZipFile(file) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            root = _root(entries)
            if f"{root}byteorder" in entries and archive.read(entries[f"{root}byteorder"]) != b"little":
                raise ValueError("its numbers are stored in big-endian order")
            tree = unpickled(io.BytesIO(archive.read(entries[f"{root}data.pkl"])))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OverflowError) as e:
        raise ValueError(f"it is cut off or damaged ({first_line(e)})") from e
    lengths = {storage.key: storage for storage in storages(tree)}
    starts = {}
    for key, storage in lengths.items():
        entry = entries.get(f"{root}data/{key}")
        if entry is None:
            raise ValueError(f"the numbers of its storage {key[:20]} are missing")
        if entry.file_size != storage.count * storage.dtype.itemsize:
            raise ValueError(f"its storage {key[:20]} holds {entry.file_size:,} bytes, not {storage.count * storage.dtype.itemsize:,}")
        starts[key] = _start(file, entry, size)
    return tree, starts


def _root(entries: dict[str, zipfile.ZipInfo]) -> str:
    """The folder inside the zip; raises ValueError if the file is no checkpoint or is packed."""
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"it has {len(entries):,} entries")
    pickles = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        raise ValueError("it is a zip file without the tensors of PyTorch")
    if any(name.endswith("/constants.pkl") for name in entries):
        raise ValueError("it is a TorchScript program, and only its code knows what its numbers mean")
    packed = next((e for e in entries.values() if e.compress_type != zipfile.ZIP_STORED or e.compress_size != e.file_size), None)
    if packed is not None:
        raise ValueError(f"its entry {packed.filename[:60]} is compressed, which PyTorch never does")
    if entries[pickles[0]].file_size > LARGEST_PICKLE:
        raise ValueError(f"its pickle has {entries[pickles[0]].file_size:,} bytes")
    return pickles[0].removesuffix("data.pkl")


def _start(file: BinaryIO, entry: zipfile.ZipInfo, size: int) -> int:
    """Where the bytes of an entry begin; they must lie in the file."""
    file.seek(entry.header_offset + 26)
    lengths = file.read(4)
    start = entry.header_offset + LOCAL_HEADER + int.from_bytes(lengths[:2], "little") + int.from_bytes(lengths[2:], "little")
    if len(lengths) < 4 or start + entry.file_size > size:
        raise ValueError(f"it is cut off: {entry.filename[:60]} would end at byte {start + entry.file_size:,} of {size:,}")
    return start


# --- the older form ---------------------------------------------------------------------------------------------------


def _older_form(file: BinaryIO, size: int) -> tuple[Any, dict[str, int]]:
    """Pickles of a number, a version, the system, the content and the order of the storages; then a count and the bytes of each."""
    if unpickled(file) != MAGIC or unpickled(file) != PROTOCOL:
        raise ValueError("it was not written by torch.save")
    system = unpickled(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise ValueError("its numbers are stored in big-endian order")
    tree, order = unpickled(file), unpickled(file)
    known = {storage.key: storage for storage in storages(tree)}
    starts, place = {}, file.tell()
    for key in map(str, order if isinstance(order, list) else []):
        file.seek(place)
        count = int.from_bytes(file.read(8), "little")
        storage = known.get(key)
        if storage is None or storage.count != count:
            raise ValueError(f"its storage {key[:20]} is not the one that its tensors name")
        starts[key] = place + 8
        place += 8 + count * storage.dtype.itemsize
        if place > size:
            raise ValueError(f"it is cut off: its numbers would end at byte {place:,} of {size:,}")
    if missing := known.keys() - starts.keys():
        raise ValueError(f"the numbers of its storage {min(missing)[:20]} are missing")
    return tree, starts


# --- trees ------------------------------------------------------------------------------------------------------------


def storages(tree: Any) -> list[Storage]:
    """All storages that a tree's tensors name."""
    return [stored.storage for _, stored in tensors_in(tree)]


def tensors_in(tree: Any) -> list[tuple[tuple[Any, ...], Stored]]:
    """All tensors of a tree with the keys that lead to them; each dict and list is entered once."""
    found: list[tuple[tuple[Any, ...], Stored]] = []
    seen: set[int] = set()
    left: list[tuple[tuple[Any, ...], Any]] = [((), tree)]
    while left:
        keys, value = left.pop()
        if isinstance(value, Stored):
            _check_view(value)
            found.append((keys, value))
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            inside = value.items() if isinstance(value, dict) else enumerate(value)
            left += [((*keys, key), each) for key, each in inside if isinstance(each, Stored | dict | list | tuple)]
    return found


def _check_view(stored: Stored) -> None:
    """Raises ValueError for a view that reaches beyond its storage, or has more numbers than it."""
    count, last = 1, stored.offset
    for length, step in zip(stored.shape, stored.stride, strict=True):
        count *= length
        last += max(0, length - 1) * step
    if count and (last >= stored.storage.count or count > stored.storage.count):
        raise ValueError(f"a tensor of shape {list(stored.shape)} reaches beyond its {stored.storage.count:,} numbers")


def first_line(error: Exception) -> str:
    """The first line of another library's message, as part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]
