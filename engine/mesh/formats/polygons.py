"""Splits faces of any number of corners into triangles."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np

from engine.mesh.formats.source import Source, counted


def triangles(source: Source, corners: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Polygons as fans around their first corner, int64 [F, 3]; those with fewer than three corners are dropped.

    corners : vertex indices of all polygons, one after the other
    sizes   : [P] the number of corners of each
    """
    sizes = np.asarray(sizes, np.int64)
    fans = np.maximum(sizes - 2, 0)
    count = int(fans.sum())
    source.faces(count)
    first = np.repeat(np.cumsum(sizes) - sizes, fans)
    step = np.arange(count) - np.repeat(np.cumsum(fans) - fans, fans)
    index = np.stack([first, first + step + 1, first + step + 2], 1)
    return np.asarray(corners)[index].astype(np.int64)


def from_lines(source: Source, lines: Iterable[str], number: int, count: int, skip: int = 0) -> np.ndarray:
    """Triangles from `count` lines, each with a number of corners and the corners; further values are ignored.

    number : the number of the first line in the file
    skip   : how many values come before the number of corners
    """
    source.faces(count)
    corners, sizes = array("q"), array("q")
    for at, line in enumerate(lines, number):
        if len(sizes) == count:
            break
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            size = int(words[skip])
            found = [int(word) for word in words[skip + 1 : skip + 1 + size]]
            corners.extend(found)
        except (ValueError, IndexError, OverflowError):
            raise source.damaged(f"line {at:,} is no face") from None
        if len(found) != size or size < 0:
            raise source.damaged(f"line {at:,} announces {counted(size)} corners and has {len(found)}")
        sizes.append(size)
    if len(sizes) < count:
        raise source.damaged(f"it claims {count:,} faces and ends after {len(sizes):,}")
    return triangles(source, np.array(corners), np.array(sizes))
