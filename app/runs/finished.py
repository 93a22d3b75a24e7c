"""Reads a finished run from its folder: settings, steps and result, without loading the model that made it.

Replay, restore, export and the endpoint all read runs here; app/runs/history.py writes them.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from app.live.worker import ELSEWHERE, LayoutOnly
from app.runs.history import PICTURE, POINTS, SETTINGS, TRACE, identity
from engine.backbones import current_name
from engine.core import Backbone, Method, Origin, Prompt, Sampling, Step
from engine.diagnostics import DECISIONS, PER_TOKEN, replay
from engine.errors import BadFile, BadPrompt, ForetokenError
from engine.loading import model_columns
from engine.mesh.bpt_tokens import BPT
from engine.mesh.formats.source import printable
from engine.mesh.frame import UP, MeshFrame
from engine.mesh.read import Input
from engine.methods import find
from engine.run import Run, generate

LARGEST = 100_000  # steps
WHOLE = ("tokens", "positions", "step_tokens", "step_drafted", "step_forwards", "step_draft_forwards")
NEEDED = (*WHOLE, "step_seconds", "step_exact")
DECIDED = [f"decision_{name}" for name in DECISIONS]
CANDIDATES = DECIDED[:3]  # with several numbers per token
NO_TRACE = "{} is not the trace of a run ({}). Give the trace.npz of a saved run."
UNREADABLE = "{} cannot be read ({}). Give the complete folder of the run."
REASONS = (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError, EOFError, BadZipFile, NotImplementedError, RuntimeError,
           MemoryError, zlib.error)  # fmt: skip


@dataclass(frozen=True)
class AbsentModel(Backbone):
    """The model that made a run, as recorded in the run's folder. picture : the finished picture, None for a mesh"""

    name: str
    weights_hash: str | None = field()  # required: no class default
    dtype: str
    device: str
    sampling: Sampling
    capabilities: frozenset[str]
    picture: np.ndarray | None
    end: int | None = BPT.eos

    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray | None:
        """The finished picture."""
        return self.picture


class FinishedRun(Run):
    """A run that replays the steps of a trace: `next` returns them one by one.

    folder : the run's folder; settings : content of its run.json
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], prompt: Prompt, trace: Mapping[str, np.ndarray], picture: Any = None):
        name = settings["preset"] or settings["method"]
        method = find(name)[0]
        made_by = settings["backbone"], settings["weights"], settings["dtype"], settings["device"]
        model = AbsentModel(*made_by, prompt.sampling, method.needs, picture)
        super().__init__(model, method, prompt, settings["knobs"], drafter=ELSEWHERE, name=name)
        self.folder, self.settings = folder, settings
        self._steps = iter([with_exact_knobs(step, method) for step in replay(trace)])
        if picture is not None:
            rows, columns = grid(picture.shape, len(trace["tokens"]))
            self.sequence = LayoutOnly(SimpleNamespace(rows=rows, columns=columns, factor=picture.shape[1] // columns))

    @classmethod
    def open(cls, folder: Path) -> FinishedRun:
        """Opens the run of a folder, before its first step. Raises BadFile for a damaged folder or a stopped run."""
        settings, trace = read_settings(folder), read_trace(folder / TRACE)
        picture = read_picture(folder / PICTURE) if settings.get("input") is None else None
        try:
            if not settings["finished"]:
                raise BadFile(f"The run in {folder} was stopped before its end. Choose a finished run.")
            return cls(folder, settings, prompt_of(folder, settings), trace, picture)
        except ForetokenError:
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
            raise BadFile(f"{folder / SETTINGS} or its {TRACE} is damaged ({type(e).__name__}: {e}). Choose another run.") from e

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
        """Dtype and device of the model that made the run."""
        return {"dtype": self.settings["dtype"], "device": self.settings["device"]}

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that made the run."""
        return {"processor": "an unknown machine", "threads": "?", "torch": "?", "commit": ""} | dict(self.settings["machine"])


def with_exact_knobs(step: Step, method: Method) -> Step:
    """Copy of a step with its knobs converted back from the float32 of a trace."""
    kinds = {knob.name: knob for knob in method.knobs}
    values = {name: value if isinstance(value, str) else kinds[name].to_value(float(f"{value:.7g}")) for name, value in step.knobs.items()}
    return replace(step, knobs=values)


def grid(shape: tuple[int, ...], count: int) -> tuple[int, int]:
    """Rows and columns of `count` square tokens that fill a picture [H, W, 3]; raises ValueError if there are none."""
    columns = round(math.sqrt(count * shape[1] / shape[0]))
    if not columns or count % columns or shape[0] * columns != shape[1] * (count // columns):
        raise ValueError(f"{count} tokens do not fill a picture of {shape[1]} x {shape[0]} pixels")
    return count // columns, columns


def repeat(folder: Path, backbone: Backbone) -> Run:
    """Repeats a saved run, moved knobs included, and returns it finished; the same weights give the same tokens.

    folder : the run's; backbone : the model that made it. Raises BadFile for damaged files or a run of another model.
    """
    settings = read_settings(folder)
    try:
        _check_model(folder, settings, backbone, ("weights", "dtype"))
        name = settings["preset"] or settings["method"]
        prompt = prompt_of(folder, settings)
        prompt = backbone.guided(prompt) if settings.get("guide") else prompt
        run = generate(backbone, find(name)[0], prompt, settings["knobs"], name=name)
        turns: dict[int, dict[str, Any]] = {}
        for move in settings["moves"]:
            turns.setdefault(int(move["step"]), {})[move["name"]] = move["value"]
        count = int(settings["steps"])
        limit = None if settings["finished"] else count  # a stopped run stops at the same step again
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise BadFile(f"{folder / SETTINGS} is damaged ({type(e).__name__}: {e}). Choose another run.") from e
    while limit is None or len(run.steps) < limit:
        run.set(**turns.get(len(run.steps), {}))
        if next(run, None) is None:
            break
    run.close()
    return run


def fork(folder: Path, backbone: Backbone, at: int, token: int | None = None) -> Prompt:
    """The prompt of a saved run with its first tokens as a prefix, so that another run goes on from there.

    at : number of tokens, in the order of positions; token : one more, instead of the one that followed
    Raises BadFile for a damaged folder or a run of other weights, BadPrompt if the run does not have these tokens.
    """
    settings, trace = read_settings(folder), read_trace(folder / TRACE)
    try:
        _check_model(folder, settings, backbone, ("weights",))
        prompt = prompt_of(folder, settings)
        prompt = backbone.guided(prompt) if settings.get("guide") else prompt
        tokens = dict(zip(trace["positions"].tolist(), trace["tokens"].tolist(), strict=True))
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise BadFile(f"{folder / SETTINGS} is damaged ({type(e).__name__}: {e}). Choose another run.") from e
    known = next((place for place in range(len(tokens)) if place not in tokens), len(tokens))
    if not 0 < at <= known:
        raise BadPrompt(f"The run in {folder} has {known} tokens from its start, so {at} of them cannot be kept. Choose 1 to {known}.")
    kept = tuple(tokens[place] for place in range(at))
    origin = Origin(identity([tokens[place] for place in sorted(tokens)]), at)
    return replace(prompt, prefix=kept if token is None else (*kept, token), origin=origin)


def shape_of(folder: Path) -> Input:
    """The input of a saved run of a mesh: its points, in the coordinates of the file that they were read from. Raises BadFile."""
    settings = read_settings(folder)
    try:
        own = settings["input"]
        if own is None:
            raise BadFile(f"The run in {folder} drew a picture. Continue it with launch.py image.")
        frame = MeshFrame(own["up"], np.array(own["centre"], np.float64).reshape(3), float(own["scale"]))
        if frame.up not in UP or not (0 < frame.scale < math.inf and np.isfinite(frame.centre).all()):
            raise ValueError("the frame of the input is none")
        return Input(str(settings["prompt"]), "cloud", prompt_of(folder, settings).points.numpy(), frame, None, [])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise BadFile(f"{folder / SETTINGS} is damaged ({type(e).__name__}: {e}). Choose another run.") from e


def _check_model(folder: Path, settings: Mapping[str, Any], backbone: Backbone, alike: tuple[str, ...]) -> None:
    """Raises BadFile if a run was made by another model. alike : the entries, besides its name, in which the models must agree"""
    origin, here = ({name: each[name] for name in ("backbone", *alike)} for each in (settings, model_columns(backbone)))
    if origin != here:
        made_by, loaded = (f"{own['backbone']} ({', '.join(str(own[name]) for name in alike)})" for own in (origin, here))
        raise BadFile(f"The run in {folder} was made by {made_by}, not by {loaded}. Load that model.")


# --- files ------------------------------------------------------------------------------------------------------------


def read_settings(folder: Path) -> dict[str, Any]:
    """Content of a run's run.json; raises BadFile."""
    path = folder / SETTINGS
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise BadFile(f"{path} cannot be read ({e}). Give the folder of a saved run.") from e
    if not isinstance(settings, dict):
        raise BadFile(f"{path} does not contain the settings of a run. Give the folder of a saved run.")
    return settings | {"backbone": current_name(str(settings["backbone"]))} if "backbone" in settings else settings


def prompt_of(folder: Path, settings: Mapping[str, Any]) -> Prompt:
    """The prompt of a saved run; reads the points of a mesh from their file."""
    known = {name: value for name, value in settings["sampling"].items() if name != "adherence"}  # a setting of earlier runs
    sampling, points, text = Sampling(**known), None, settings["prompt"]
    if not all(isinstance(value, int | float) for value in vars(sampling).values()):
        raise ValueError("a sampling value is not a number")
    if settings["input"] is not None:
        try:
            with (folder / POINTS).open("rb") as raw, np.load(raw) as stored:
                points = torch.from_numpy(stored["points"])
        except (OSError, KeyError, ValueError, EOFError, BadZipFile) as e:
            raise BadFile(UNREADABLE.format(folder / POINTS, e)) from e
    about, prefix = settings.get("about"), tuple(settings.get("prefix", ()))  # runs of 0.2.0 have no such entries
    origin = Origin(settings["parent"], settings["at"]) if settings.get("parent") else None
    own = {"about": about, "sampling": sampling, "prefix": prefix, "origin": origin}
    return Prompt(text, points=points, seed=settings["seed"], size=settings["size"], **own)


def read_picture(path: Path) -> np.ndarray:
    """The finished picture, uint8 [H, W, 3]; raises BadFile."""
    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, UnidentifiedImageError) as e:
        raise BadFile(UNREADABLE.format(path, e)) from e


def read_trace(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a trace; raises BadFile unless they fit together."""
    name = printable(path.name)
    try:
        with path.open("rb") as raw, np.load(raw) as stored:
            arrays = dict(stored)
        check_trace(arrays)
    except REASONS as e:
        raise BadFile(NO_TRACE.format(name, type(e).__name__)) from e
    return arrays


def check_trace(arrays: Mapping[str, np.ndarray]) -> None:
    """Raises ValueError or KeyError unless the arrays fit together."""
    steps, tokens = len(arrays["step_tokens"]), len(arrays["tokens"])
    counts, wrong = arrays["step_tokens"], []
    for name in {*NEEDED, *arrays}:
        of_step = name.startswith(("step_", "knob_"))
        fits = arrays[name].shape == ((steps,) if of_step else (tokens,)) or not (of_step or name in (*NEEDED, *PER_TOKEN, *DECIDED))
        if name in CANDIDATES:
            fits = arrays[name].shape == (tokens, *arrays["decision_tokens"].shape[1:2])
        if not fits or (name in WHOLE and arrays[name].dtype.kind not in "iu"):
            wrong.append(name)
    if wrong or steps > LARGEST or (counts < 0).any() or int(counts.sum()) != tokens:
        raise ValueError(f"do not fit: {wrong}")
