"""Measurements of a model on this machine, in a small file of the user's data folder.

A file belongs to a processor, a GPU, a version of PyTorch, compiled functions or none, a model and its weights; another of these has
another file. A file that is damaged or of an earlier form counts as absent: it is measured again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from engine.core import Backbone
from engine.files import home, refusal, write_text
from engine.kernels.cpu.library import native
from engine.machine import processor
from engine.memory import FULL
from engine.tuning.curve import CostCurve

FORM = 4  # version of the files; another version is measured again


@dataclass
class StepCosts:
    """Costs with one dtype and number of threads: the cost curve, and milliseconds of a step outside its pass, by method and knobs.

    extra : may be negative, because the passes of the curve store distributions that some methods do not need
    """

    curve: CostCurve
    extra: dict[str, float] = field(default_factory=dict)


@dataclass
class ModelMeasurements:
    """Measurements of a model on this machine.

    about     : what it was measured on
    threads   : milliseconds by number of threads
    costs     : by number of threads and dtype
    tokens    : rows of expected tokens (see expected.py) that `doctor` recorded, if the model's card has none
    disturbed : whether other programs kept the processor busy during a measurement
    """

    about: dict[str, str]
    threads: dict[int, float] = field(default_factory=dict)
    costs: dict[tuple[int, str], StepCosts] = field(default_factory=dict)
    tokens: list[dict[str, Any]] = field(default_factory=list)
    disturbed: bool = False


def conditions(backbone: Backbone) -> dict[str, str]:
    """Facts that a measurement depends on in addition to dtype and threads."""
    device = backbone.device
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    library = native() if device.type == "cpu" else None
    functions = "PyTorch" if library is None else "native with matrix units" if library.has_units else "native"
    machine = {"processor": processor(), "device": device.type, "gpu": gpu, "torch": torch.__version__, "functions": functions}
    form = {} if backbone.weight_form == FULL else {"form": backbone.weight_form}
    return machine | {"model": backbone.name, "weights": str(backbone.weights_hash)} | form


def path_of(key: Mapping[str, str]) -> Path:
    """The file of a key."""
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return home() / "measured" / f"{key['model'].replace(':', '-')}-{digest}.json"


def read(backbone: Backbone) -> ModelMeasurements:
    """Read the measurements of a model on this machine; empty if there are none yet."""
    key = conditions(backbone)
    try:
        return parse(json.loads(path_of(key).read_text(encoding="utf-8")), key)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ModelMeasurements(key)


def parse(row: Mapping[str, Any], key: Mapping[str, str]) -> ModelMeasurements:
    """The content of a file; raises ValueError, KeyError, TypeError or AttributeError for anything else."""
    if row["form"] != FORM or row["about"] != key:
        raise ValueError("another form or another machine")
    costs = {
        (int(each["threads"]), str(each["dtype"])): StepCosts(
            CostCurve.of(each["pass"]), {str(name): float(value) for name, value in each["extra"].items()}
        )
        for each in row["costs"]
    }
    threads = {int(count): float(cost) for count, cost in row["threads"].items()}
    return ModelMeasurements(dict(key), threads, costs, list(row["tokens"]), bool(row.get("disturbed")))


def write(measured: ModelMeasurements) -> None:
    """Stores what was measured; raises BadOutput if the disk refuses."""
    row = {
        "form": FORM,
        "about": measured.about,
        "threads": {str(count): cost for count, cost in measured.threads.items()},
        "costs": [
            {"threads": count, "dtype": dtype, "pass": each.curve.row(), "extra": each.extra}
            for (count, dtype), each in sorted(measured.costs.items())
        ],
        "tokens": measured.tokens,
        "disturbed": measured.disturbed,
    }
    path = path_of(measured.about)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(row, indent=1) + "\n")
    except OSError as e:
        raise refusal(path, e, "Free some space, or set FORETOKEN_HOME to another folder.") from e


def forget(backbone: Backbone) -> None:
    """Removes what is stored for a model on this machine; raises BadOutput if the disk refuses."""
    path = path_of(conditions(backbone))
    try:
        path.unlink(missing_ok=True)
    except OSError as e:
        raise refusal(path, e, "Remove it by hand.") from e
