"""A race that was recorded, for those who wait: the last values of the Image tab's panels, from which the page plays it without a model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from engine import assets

FILE = assets.assets() / "examples" / "recorded" / "race.json.gz"
LONG = 10.0  # seconds of a wait that is worth showing something
HEADLINE = "While you wait: a recorded race"


@cache
def race(path: Path = FILE) -> dict[str, Any]:
    """The values of the panels by name; {} where none is recorded (an installed wheel carries none)."""
    return json.loads(gzip.decompress(path.read_bytes())) if path.is_file() else {}


def write(panels: Mapping[str, Any], prompt: str, processor: str, path: Path = FILE) -> None:
    """Writes a race that has ended. panels: their values by name; the line above the pictures says that it is recorded, and where"""
    said = panels["verdict"]
    detail = f"{said['headline']}: '{prompt}', recorded on {processor}. Press Replay to watch it; your own run replaces it."
    told = dict(panels) | {"verdict": said | {"headline": HEADLINE, "detail": detail}}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(told).encode(), mtime=0))
