"""Boards of the tiny models' runs, for tests of the display and of files."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from app.live.boards.picture import Board
from app.requests import meshes
from app.runs.mesh_pictures import SketchedMesh
from engine.core import Prompt, Sampling
from engine.mesh.read import read
from engine.methods import find
from engine.run import Run, generate

CHAIR = meshes.EXAMPLES / "chair.ply"


def numbers(text: str, kind: Any = np.float32) -> np.ndarray:
    """The array encoded in base64."""
    return np.frombuffer(base64.b64decode(text), kind)


def picture_run(picto: Any, name: str, seed: int = 5, text: str = "a red apple", sampling: Sampling | None = None, **knobs: Any) -> Run:
    """An unstarted run of a method or preset at 64 pixels."""
    method, values = find(name)
    return generate(picto, method, Prompt(text, seed=seed, size=64, sampling=sampling), values | knobs, name=name)


def mesh_run(low: Any, name: str, seed: int = 7, size: int | None = 8, **knobs: Any) -> Run:
    """An unstarted run of a method on the chair."""
    prompt = Prompt(points=torch.from_numpy(read(CHAIR).points), seed=seed, size=size)
    return generate(low, find(name)[0], prompt, knobs, name=name)


def board_of(run: Run, steps: int | None = None, seconds: float | None = None) -> Any:
    """Board of a run after some steps, or at its end. seconds : recorded time of every step, so that times map to steps"""
    board = (SketchedMesh if run.prompt.points is not None else Board)(run)
    for step in run:
        step.seconds = step.seconds if seconds is None else seconds
        board.add(step)
        if board.count == steps:
            break
    if seconds is not None:
        run.seconds = seconds * len(run.steps)
    return board


def board(picto: Any, name: str, steps: int | None = None, **knobs: Any) -> Board:
    """The board of a picture after some steps, or at its end."""
    return board_of(picture_run(picto, name, **knobs), steps)
