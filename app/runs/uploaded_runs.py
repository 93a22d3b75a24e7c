"""Finished runs that a browser sends back to export a race of several runs; the server does not store them.

They are untrusted JSON, so everything that goes into a file is checked.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from app.live.boards.mesh import FACE, steps_of
from app.ui.panels.mesh import CELLS
from engine.core import Step
from engine.errors import BadPrompt

FEWEST, MOST = 2, 4  # runs of a race
LONGEST = 16 * 2**20  # bytes of one uploaded run
LARGEST = 4096  # pixels along a side
WORDS = 200  # characters of a title
INCOMPLETE = "The chosen runs arrived incomplete ({}). Choose them again."
REASONS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OSError, binascii.Error, Image.DecompressionBombError)


@dataclass(frozen=True)
class UploadedRun:
    """An uploaded run of a race, used in place of a board and its run to write files.

    title, about : its method, and how it differs from the other runs; value : the value of its panel
    settings : as in run.json; seconds, steps, positions : of the run; steps have only seconds and a token count
    rows, columns, picture : of a picture, uint8 [H, W, 3]
    faces, step : of a mesh, uint8 [F, 3, 3], corners in 0..127, and int64 [F], the step that completed each face
    """

    title: str
    about: str
    value: Mapping[str, Any]
    settings: Mapping[str, Any]
    seconds: float
    steps: Sequence[Step]
    positions: Sequence[int] = ()
    rows: int = 0
    columns: int = 0
    picture: np.ndarray | None = None
    faces: np.ndarray | None = None
    step: np.ndarray | None = None
    ended: bool = True

    @property
    def run(self) -> UploadedRun:
        """Itself: it is both the board and its run."""
        return self

    @property
    def words(self) -> str:
        """Title and differences in one line."""
        return f"{self.title} · {self.about}" if self.about else self.title

    def final(self) -> np.ndarray | None:
        """The picture."""
        return self.picture


def read_runs(value: object, meshes: bool) -> list[UploadedRun]:
    """Reads the runs uploaded by a page; raises BadPrompt."""
    entries = value.get("lanes") if isinstance(value, Mapping) else None
    if not isinstance(entries, Sequence) or not FEWEST <= len(entries) <= MOST:
        raise BadPrompt(INCOMPLETE.format(f"a race has {FEWEST} to {MOST} runs"))
    try:
        return [_lane(each, meshes) for each in entries]
    except REASONS as e:
        raise BadPrompt(INCOMPLETE.format(type(e).__name__)) from e


def _lane(entry: Mapping[str, Any], meshes: bool) -> UploadedRun:
    value, settings = entry["value"], entry["settings"]
    size = len(json.dumps(entry, ensure_ascii=False).encode())  # an unpaired surrogate cannot be written to a file
    if not isinstance(value, Mapping) or not isinstance(settings, Mapping) or size > LONGEST:
        raise ValueError("value or settings are missing, or too long")
    title, about = ("".join(c for c in entry[name][:WORDS] if c.isprintable()) for name in ("title", "about"))
    return UploadedRun(title, about, value, settings, **(_shape if meshes else _picture)(value))


def _picture(value: Mapping[str, Any]) -> dict[str, Any]:
    rows, columns, course = value["rows"], value["columns"], value["course"]
    head, body = value["picture"].split(",")
    with Image.open(io.BytesIO(base64.b64decode(body, validate=True)), formats=("PNG",)) as picture:
        if head != "data:image/png;base64" or max(picture.size) > LARGEST:
            raise ValueError("not a small PNG")
        pixels = np.asarray(picture.convert("RGB"))
    positions, clock = _numbers(course["position"], "<i4"), _numbers(course["end"], "<f4")
    if min(rows, columns) < 1 or rows * columns != len(positions) or (np.sort(positions) != np.arange(len(positions))).any():
        raise ValueError("positions are not a permutation")
    course = _course(clock, np.arange(1, len(clock) + 1))
    return course | {"positions": positions.tolist(), "rows": rows, "columns": columns, "picture": pixels}


def _shape(value: Mapping[str, Any]) -> dict[str, Any]:
    records = _numbers(value["faces"], FACE)
    faces, step = records["corners"], steps_of(records)
    clock, tokens = _numbers(value["course"]["seconds"], "<f4"), _numbers(value["course"]["tokens"], "<i4")
    if (faces >= CELLS).any() or (np.diff(step) < 0).any() or (step >= len(clock)).any():
        raise ValueError("invalid faces")
    return _course(clock, tokens) | {"faces": faces, "step": step}


def _numbers(text: str, kind: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text, validate=True), kind)


def _course(clock: np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """Seconds and steps of a run. clock, tokens : [S], seconds and token count after each step"""
    seconds, counts = np.diff(clock.astype(float), prepend=0.0), np.diff(tokens, prepend=0)
    if not len(clock) or clock.shape != tokens.shape or not np.isfinite(clock).all() or (seconds < 0).any() or (counts < 0).any():
        raise ValueError("invalid course")
    steps = [Step(range(count), [], seconds=time) for count, time in zip(counts.tolist(), seconds.tolist(), strict=True)]
    return {"seconds": float(clock[-1]), "steps": steps}
