"""Examples for new pages: recorded ones that ship with the product, replaced by runs of this machine, which are stored for later starts."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from app.live.boards.picture import Board
from app.live.stream import Throttle, updates
from engine.assets import recordings
from engine.core import Backbone
from engine.errors import BadOutput
from engine.files import write_text
from engine.machine import machine_facts, processor

PATIENCE = 30.0  # seconds; slower models make no example here
TRIED = 64  # steps from which the duration is estimated; the first ones are slow


def shown(folder: Path, backbone: Backbone, inputs: dict[str, Any], name: str) -> tuple[dict[str, Any], str]:
    """Values of an example's panels by name, and the machine that made it, in words: this machine's if there is one, else the recorded
    one of this name."""
    if values := of_this_machine(folder, backbone, inputs):
        return values["panels"], "this machine"
    values = json.loads(gzip.decompress((recordings() / f"{name}.json.gz").read_bytes()))
    return values["panels"], values["machine"]


def of_this_machine(folder: Path, backbone: Backbone, inputs: dict[str, Any]) -> dict[str, Any]:
    """The example as stored by `make`; {} if there is none yet."""
    try:
        return json.loads(file_of(folder, backbone, inputs).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # not there yet, or damaged
        return {}


def make(folder: Path, backbone: Backbone, inputs: dict[str, Any], run: Callable[[], dict[str, Any]]) -> None:
    """Runs and stores an example, unless it is stored, or the model has no hash, so that it could not be told from another one.

    inputs : everything else that the example depends on; run : returns its values, {} if it would take too long or was interrupted
    """
    if backbone.weights_hash is not None and not of_this_machine(folder, backbone, inputs) and (values := run()):
        save(file_of(folder, backbone, inputs), {"machine": f"{backbone.name} on {processor()}", "panels": values})


def save(file: Path, values: dict[str, Any]) -> None:
    """Stores an example in place of older ones; if the disk refuses, the next start runs it again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        for old in file.parent.glob("*.json"):
            old.unlink(missing_ok=True)
        write_text(file, json.dumps(values))
    except (OSError, BadOutput):
        return


def file_of(folder: Path, backbone: Backbone, inputs: dict[str, Any]) -> Path:
    """The file of an example, named by a hash of the model, its dtype, the machine, the code's commit and the inputs."""
    parts = [backbone.name, backbone.weights_hash, backbone.precision, str(backbone.device), machine_facts(), inputs]
    return folder / f"{hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]}.json"


def race(boards: list[Board], interrupted: Callable[[], object]) -> Iterator[set[int]]:
    """Runs all sides to their end; stops early if interrupted, or if the last one, plain decoding, would take too long."""
    first = boards[-1]
    for changed in updates(boards, Throttle()):
        slow = not first.ended and first.count >= TRIED and first.run.seconds / first.count * len(first.verdict) > PATIENCE
        if slow or interrupted():
            for board in boards:
                board.run.stop()
        yield changed
