"""Identifies the columns of a table of points by their names or, if they have none, by their number and values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.mesh.formats.source import Raw, printable

WIDTHS = tuple(range(3, 11))  # widest table: x y z intensity r g b nx ny nz
AXES = {"x": 0, "y": 1, "z": 2}
NORMAL = {"n", "norm", "norms", "normal", "normals"}
POSITION = {
    "p", "pt", "pts", "pos", "position", "positions", "point", "points", "coord", "coords", "coordinate", "coordinates", "vertex",
    "vertices", "loc", "location", "xyz", "utm", "map", "world", "global", "local", "m", "mm", "cm", "km", "ft", "in", "meter", "meters",
    "metre", "metres",
}  # fmt: skip
SURVEY = {
    "easting": 0, "east": 0, "e": 0, "rechtswert": 0, "northing": 1, "north": 1, "n": 1, "hochwert": 1, "elevation": 2, "elev": 2,
    "height": 2, "h": 2, "altitude": 2, "alt": 2, "up": 2, "u": 2, "höhe": 2, "hoehe": 2,
}  # fmt: skip
DIRECTIONS = {  # vectors that are not positions
    "v", "vel", "velocity", "a", "acc", "accel", "acceleration", "rot", "rotation", "r", "q", "quat", "quaternion", "scale", "size", "s",
    "w", "omega", "angular", "gyro", "mag", "f", "force", "t", "tangent", "std", "sigma", "var", "cov", "err", "error", "d", "dir",
    "direction",
    "color", "colour", "rgb", "speed", "linear", "flow", "curvature", "euler", "angle", "torque", "cross", "wind", "viewpoint", "vp",
}  # fmt: skip
KNOWN = {
    *AXES, *SURVEY, "r", "g", "b", "red", "green", "blue", "alpha", "i", "intensity", "reflectance", "label", "class", "classification",
    "id", "index", "time", "timestamp", "lat", "lon", "lng", "latitude", "longitude", "v", "range", "azimuth", "distance", "depth",
    "theta", "phi", "rho", "radius", "nx", "ny", "nz", "row", "col", "column",
}  # fmt: skip


@dataclass(frozen=True)
class Columns:
    """Indices of the columns of x, y and z, and of a normal if there is one."""

    places: tuple[int, int, int]
    normals: tuple[int, int, int] | None = None

    def raw(self, table: np.ndarray, total: int) -> Raw:
        """The cloud of a table [N, width]."""
        normals = None if self.normals is None else np.asarray(table[:, self.normals], np.float64)
        return Raw(np.asarray(table[:, self.places], np.float64), normals, total=total)

    def select(self, indices: Sequence[int]) -> Columns:
        """The same columns in a table with only the columns `indices`."""
        x, y, z, *normals = (list(indices).index(at) for at in self.used)
        return Columns((x, y, z), (normals[0], normals[1], normals[2]) if normals else None)

    @property
    def used(self) -> tuple[int, ...]:
        """All indices."""
        return (*self.places, *(self.normals or ()))


def cloud_by_name(columns: Mapping[str, np.ndarray], normals: tuple[str, str, str], total: int) -> Raw:
    """The points in the columns [N] named x, y and z, and their normals if all three are present."""
    places, directions = (
        np.stack([columns[name] for name in names], 1, dtype=np.float64) if set(names) <= columns.keys() else None
        for names in (("x", "y", "z"), normals)
    )
    return Raw(places, directions, total=total)


# --- by name ----------------------------------------------------------------------------------------------------------


def by_name(names: Sequence[str]) -> Columns | None:
    """The columns named x, y and z, in any order, with units, prefixes or suffixes; None if the names do not identify them."""
    if numbered := are_numbered(names):
        return Columns(numbered)
    groups: dict[str, dict[int, int]] = {}  # by the rest of the name: the first column of each axis
    for at, name in enumerate(names):
        if (meaning := _axis(name)) is not None:
            groups.setdefault(meaning[0], {}).setdefault(meaning[1], at)
    whole = {key: (axes[0], axes[1], axes[2]) for key, axes in groups.items() if len(axes) == 3}
    normals = whole.pop("normal", None)
    if "" in whole:
        return Columns(whole[""], normals)
    placed = {key: axes for key, axes in groups.items() if set(key.split()) <= POSITION}
    if complete := [key for key in placed if key in whole]:
        return Columns(whole[complete[0]], normals)
    mixed = {axis: [axes[axis] for axes in placed.values() if axis in axes] for axis in range(3)}
    for axis in range(3):
        mixed[axis] = mixed[axis] or [at for at, name in enumerate(names) if _survey(name) == axis]
    if all(len(columns) == 1 for columns in mixed.values()):
        return Columns((mixed[0][0], mixed[1][0], mixed[2][0]), normals)
    others = [axes for key, axes in whole.items() if not set(key.split()) & DIRECTIONS]
    return Columns(others[0], normals) if len(others) == 1 else None


def are_numbered(names: Sequence[str]) -> tuple[int, int, int] | None:
    """Indices of the columns 0, 1 and 2 where the names only number the columns, as pandas writes them."""
    start = 1 if names[:1] == [""] else 0
    return (start, start + 1, start + 2) if list(names[start:]) == [str(at) for at in range(max(3, len(names) - start))] else None


def are_known(names: Sequence[str]) -> bool:
    """True if any name is usual for an axis or for another column."""
    return any(_axis(name) is not None or set(_tokens(name)) & KNOWN for name in names)


def _tokens(name: str) -> list[str]:
    """Lower-case words and numbers of a name, without its units: "PosX [m]" has pos and x."""
    bare = re.sub(r"\[.*?\]|\(.*?\)|\{.*?\}|<.*?>", " ", name)
    bare = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", bare)
    return [token.lower() for token in re.findall(r"[^\W\d_]+|\d+", bare)]


def _axis(name: str) -> tuple[str, int] | None:
    """The rest of a name ("" = nothing, "normal", "pos" ...) and its axis; None if it names no axis."""
    tokens = _tokens(name)
    if len(tokens) > 1 and tokens[-1] in ("0", "1", "2") and set(tokens[:-1]) <= POSITION | NORMAL:  # ParaView's Points:0
        return ("normal" if set(tokens) & NORMAL else " ".join(sorted(tokens[:-1]))), int(tokens[-1])
    for at, token in enumerate(tokens):
        rest = tokens[:at] + tokens[at + 1 :]
        for axis, number in AXES.items():
            if token == axis:
                others = rest
            elif token.endswith(axis) and token[:-1] in POSITION | NORMAL | DIRECTIONS:
                others = [token[:-1], *rest]
            elif token.startswith(axis) and token[1:] in POSITION | NORMAL:
                others = [token[1:], *rest]
            else:
                continue
            return ("normal" if set(others) & NORMAL else " ".join(sorted(others))), number
    return None


def _survey(name: str) -> int | None:
    """The axis of a surveyor's name: easting, northing, elevation."""
    axes = [SURVEY[token] for token in _tokens(name) if token in SURVEY]
    return axes[0] if len(axes) == 1 else None


# --- by their number --------------------------------------------------------------------------------------------------


def cloud(table: np.ndarray, total: int, numbers: Sequence[int] | None = None) -> Raw:
    """The cloud of a table [N, 3 to 10] without names: x, y, z, then a normal, a colour, an intensity or others in any order.

    Three neighbouring columns are a normal if they have unit length. A first column of row numbers is left out. A note lists the
    ignored columns.

    numbers : of the columns in the file, from 0; None: all of them
    """
    numbers = list(range(table.shape[1]) if numbers is None else numbers)
    ignored = []
    if table.shape[1] > 3 and _counts(table[:, 0]):
        table, ignored, numbers = table[:, 1:], numbers[:1], numbers[1:]
    width = table.shape[1]
    starts = (3, 6) if width in (6, 9) else range(3, width - 2)
    start = next((at for at in starts if _are_unit(np.asarray(table[:, at : at + 3], np.float64))), None)
    columns = Columns((0, 1, 2), None if start is None else (start, start + 1, start + 2))
    raw = columns.raw(table, total)
    if width in (6, 9) and not ignored:
        raw.notes += ["The columns after x, y and z are not unit normals and were read as colours."] if start is None else []
        return raw
    ignored += [number for at, number in enumerate(numbers) if at not in columns.used]
    raw.notes += [left_out([str(number + 1) for number in ignored])] if ignored else []
    return raw


def left_out(names: Sequence[str]) -> str:
    """The note about columns that are not read."""
    shown = [printable(name, 20) for name in names[:12]] + (["..."] if len(names) > 12 else [])
    return f"Ignored column{'s' * (len(names) > 1)} of the table: {', '.join(shown)}{'' if shown[-1] == '...' else '.'}"


def _counts(column: np.ndarray) -> bool:
    """True if a column numbers the rows: whole numbers, each larger than the one before."""
    column = np.asarray(column, np.float64)
    return len(column) > 2 and bool((np.diff(column) > 0).all() and (column == np.round(column)).all())


def _are_unit(block: np.ndarray) -> bool:
    """True if nine of ten rows [N, 3] have unit length within 2 %; zero rows are missing normals and are not counted."""
    length = np.sqrt(np.einsum("nc,nc->n", block, block))
    length = length[np.isfinite(length) & (length > 1e-6)]
    return len(length) > 0 and float(np.mean(np.abs(length - 1) < 0.02)) > 0.9
