"""Realistic inputs, written by this project's own code: one generator per kind, with the expected reading.

`clouds.SAMPLES` and `meshes.SAMPLES` list them; tests/faults/test_corpus.py reads each, and the readers' fuzzer starts from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Sample:
    """A kind of file, and what its reading must give.

    write    : writes the file (and any companions) into a folder and returns its path
    count    : points of a cloud, or faces of a mesh; None: not compared
    low, high: corners of the box of the points or vertices, in the file's coordinates
    area     : of a mesh's surface; None: a cloud
    notes    : words that a note of the input must contain
    sentence : words that the BadFile must contain; "": the file is readable
    """

    name: str
    write: Callable[[Path], Path]
    count: int | None = None
    low: tuple[float, float, float] | None = None
    high: tuple[float, float, float] | None = None
    area: float | None = None
    notes: tuple[str, ...] = ()
    sentence: str = ""
