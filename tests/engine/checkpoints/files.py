"""Files that run code if pickle loads them; each then leaves a trace in a folder."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class Calls:
    """An object whose pickle calls a function, as a malicious checkpoint does."""

    def __init__(self, function: Callable[..., Any], *arguments: Any):
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


def traps(trace: Path) -> dict[str, Any]:
    """Objects by name; each would create `trace` when it is loaded."""
    write = f"open({str(trace)!r}, 'w').close()"
    return {
        "os.system": Calls(os.system, f"touch {trace}"),
        "exec": Calls(exec, write),
        "eval": Calls(eval, f"open({str(trace)!r}, 'w')"),
        "open": Calls(open, str(trace), "w"),
        "getattr": Calls(getattr, Calls(__import__, "os"), "system"),
        "nested torch.load": Calls(torch.storage._load_from_bytes, pickle.dumps(Calls(os.mkdir, str(trace)))),
        "a method of str": Calls(Path.touch, trace),
    }


def torch_file(path: Path, tree: Any) -> Path:
    """The file that torch.save writes."""
    torch.save(tree, path)
    return path


def with_pickle(path: Path, content: bytes, entries: dict[str, bytes] | None = None, packed: bool = False) -> Path:
    """A zip file with a given pickle and entries."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", content)
        archive.writestr("archive/version", b"3\n")
        archive.writestr("archive/byteorder", b"little")
        for name, data in (entries or {}).items():
            archive.writestr(f"archive/{name}", data)
    return path


def pickle_of(tree: Any) -> bytes:
    """The data.pkl that torch.save writes for a tree."""
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))
