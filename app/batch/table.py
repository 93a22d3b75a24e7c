"""results.csv: one row per input, in the order of the inputs, written atomically."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.runs.history import as_sentence
from engine import files

NAME = "results.csv"
COLUMNS = (
    "number", "input", "file", "status", "seed", "method", "exact", "tokens", "passes", "draft_passes", "tokens_per_pass", "seconds",
    "faces", "vertices", "watertight", "chamfer", "hausdorff", "shrinkwrapped_chamfer", "guide_faces",
    "unknown_words", "attempts", "process", "hash", "error",
)  # fmt: skip


def write(rows: Iterable[Mapping[str, Any]], root: Path) -> Path:
    """Writes the table; returns its path. Columns after `seconds` that no row has are omitted."""
    rows = list(rows)
    named = COLUMNS.index("seconds") + 1
    columns = [*COLUMNS[:named], *(name for name in COLUMNS[named:] if any(row.get(name) not in (None, "") for row in rows))]
    lines = [line(columns), *(line([cell(row.get(name)) for name in columns]) for row in rows)]
    path = root / NAME
    with as_sentence(root):
        files.write_text(path, "".join(lines))
    return path


def line(values: Sequence[Any]) -> str:
    """A line of the table. Python quotes only the kind of line end that it writes itself, but a prompt may contain either."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(values)
    return text.getvalue().removesuffix("\r\n") + "\n"


def cell(value: Any) -> Any:
    """A value of the table; "" for None, nan and infinity."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return str(value).lower() if isinstance(value, bool) else value
