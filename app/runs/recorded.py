"""A finished run from its folder: the steps of its trace, as if they had just been made. The model is not needed, and not loaded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from app.runs.history import POINTS, SETTINGS, read_settings
from engine.core import ANY_SUIT, Method, Prompt, Sampling, Step, Suits
from engine.diagnostics import replay
from engine.errors import BadFile, ForetokenError
from engine.mesh.bpt_tokens import BPT
from engine.methods import find
from engine.run import Run

TRACE, PICTURE = "trace.npz", "result.png"
NO_DRAFTER = SimpleNamespace()  # of a run that decodes nothing


@dataclass(frozen=True)
class Absent:
    """What a page asks of the model that made a run, as far as the run's folder knows it. picture : the finished one; None: a mesh"""

    name: str
    weights_hash: str | None
    dtype: str
    device: str
    sampling: Sampling
    capabilities: frozenset[str]
    picture: np.ndarray | None
    end: int | None = BPT.eos
    suits: Suits = field(default_factory=lambda: ANY_SUIT)

    def warning(self, text: str) -> str:
        """Nothing: only the model knows its words."""
        return ""

    def added(self, prompt: Prompt) -> str:
        """Nothing: only the model knows its words."""
        return ""

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray | None:
        """The finished picture."""
        return self.picture


class Recorded(Run):
    """A run whose steps are those of a trace; `next` gives one after the other. settings : of its run.json"""

    def __init__(self, backbone: Absent, prompt: Prompt, settings: Mapping[str, Any], trace: Mapping[str, np.ndarray]):
        name = settings["preset"] or settings["method"]
        super().__init__(backbone, find(name)[0], prompt, settings["knobs"], drafter=NO_DRAFTER, name=name)
        self.settings = settings
        self._steps = iter([as_told(step, self.method) for step in replay(trace)])
        if backbone.picture is not None:
            rows, columns = grid(backbone.picture.shape, len(trace["tokens"]))
            layout = SimpleNamespace(rows=rows, columns=columns, factor=backbone.picture.shape[1] // columns)
            self.sequence = SimpleNamespace(layout=layout, close=lambda: None)

    def __next__(self) -> Step:
        step = next(self._steps, None)
        if step is None:
            self.seconds = float(self.settings["totals"]["seconds"])
            self.finished = True
            raise StopIteration
        self.take(step)
        return step

    @property
    def made_with(self) -> dict[str, str | None]:
        """The dtype and the device of the model that made the steps."""
        return {"dtype": self.settings["dtype"], "device": self.settings["device"]}

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that made the steps."""
        return {"processor": "an unknown machine", "threads": "?", "torch": "?", "commit": ""} | dict(self.settings["machine"])


def as_told(step: Step, method: Method) -> Step:
    """A step with its knobs as the method was told them: a trace keeps them as float32."""
    kinds = {knob.name: knob for knob in method.knobs}
    values = {name: value if isinstance(value, str) else kinds[name].to_value(float(f"{value:.7g}")) for name, value in step.knobs.items()}
    return replace(step, knobs=values)


def grid(shape: tuple[int, ...], count: int) -> tuple[int, int]:
    """Rows and columns of `count` tokens, each a square, that fill a picture [H, W, 3]; raises ValueError if they do not."""
    columns = round(math.sqrt(count * shape[1] / shape[0]))
    if not columns or count % columns or shape[0] * columns != shape[1] * (count // columns):
        raise ValueError(f"{count} tokens do not fill a picture of {shape[1]} x {shape[0]} pixels")
    return count // columns, columns


def open_run(folder: Path) -> Recorded:
    """The run of a folder, before its first step. Raises BadFile for a damaged folder, and for a run that was stopped: it has no end."""
    settings = read_settings(folder)
    trace = read_arrays(folder / TRACE)
    is_mesh = settings.get("input") is not None
    picture = None if is_mesh else read_picture(folder / PICTURE)
    points = torch.from_numpy(read_arrays(folder / POINTS)["points"]) if is_mesh else None
    try:
        if not settings["finished"]:
            raise BadFile(f"The run in {folder} was stopped before its end. Take a finished one.")
        sampling = Sampling(**settings["sampling"])
        prompt = Prompt(settings["prompt"], points=points, seed=settings["seed"], size=settings["size"], sampling=sampling)
        needs = find(settings["preset"] or settings["method"])[0].needs
        made_by = settings["backbone"], settings["weights"], settings["dtype"], settings["device"]
        return Recorded(Absent(*made_by, sampling, needs, picture), prompt, settings, trace)
    except ForetokenError:
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        raise BadFile(f"{folder / SETTINGS} or its {TRACE} is damaged ({type(e).__name__}: {e}). Take another run.") from e


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file; raises BadFile."""
    try:
        with path.open("rb") as raw, np.load(raw) as found:
            return dict(found)
    except (OSError, KeyError, ValueError, EOFError, BadZipFile) as e:
        raise BadFile(f"{path} cannot be read ({e}). Give the run's own folder, with all of its files.") from e


def read_picture(path: Path) -> np.ndarray:
    """uint8 [H, W, 3]: the finished picture; raises BadFile."""
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, UnidentifiedImageError) as e:
        raise BadFile(f"{path} cannot be read ({e}). Give the run's own folder, with all of its files.") from e
