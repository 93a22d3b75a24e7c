"""Example race for a new page. It is run once on this machine when the studio starts, and stored for later starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.live.boards.picture import Board
from app.live.stream import Throttle, updates
from engine.core import Backbone
from engine.errors import BadOutput
from engine.files import write_text
from engine.machine import machine_facts

PATIENCE = 30.0  # seconds; slower models show no example
TRIED = 4  # steps from which the duration is estimated


def read(folder: Path, backbone: Backbone, inputs: dict[str, Any], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Values of the example's panels, by name; {} for a model without a hash, whose examples could not be told from another model's.

    inputs : everything else that the example depends on; make : runs it, and returns {} if it would take too long
    """
    if backbone.weights_hash is None:
        return {}
    file = folder / f"{key(backbone, inputs)}.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there yet, or damaged
        values = make()
    if values:
        save(file, values)
    return values


def save(file: Path, values: dict[str, Any]) -> None:
    """Stores an example in place of older ones; if the disk refuses, the next start runs it again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for old in file.parent.glob("*.json"):
            old.unlink(missing_ok=True)
        write_text(file, json.dumps(values))
    except (OSError, BadOutput):
        return


def key(backbone: Backbone, inputs: dict[str, Any]) -> str:
    """Hash of the model, its dtype, the machine, the code's commit and the inputs."""
    parts = [backbone.name, backbone.weights_hash, backbone.precision, str(backbone.device), machine_facts(), inputs]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]


def race(boards: list[Board]) -> Iterator[set[int]]:
    """Runs all sides to their end; stops early if the last one, plain decoding, would take too long."""
    first = boards[-1]
    for changed in updates(boards, Throttle()):
        if not first.ended and first.count >= TRIED and first.run.seconds / first.count * len(first.verdict) > PATIENCE:
            for board in boards:
                board.run.stop()
        yield changed
