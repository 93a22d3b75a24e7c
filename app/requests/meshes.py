"""Requests for a mesh: the settings of a run, the prompt that a client's fields describe, and the inputs of a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from app.requests import validation
from app.requests.sides import REPEAT
from engine import assets
from engine.backbones.lowpoly import Lowpoly
from engine.core import Knob, Prompt, Sampling
from engine.errors import BadFile, BadPrompt, NotSupported
from engine.mesh.read import READERS, Input

FAVOURITE = "xspecmesh"  # the default method
WARM_STEPS = 3  # the first pass of a method has no draft yet
EXAMPLES = assets.clouds()
ORDER = ("table", "chair", "house", "tree", "tower", "bottle", "barrel", "sword")  # of the examples
FIRST = "chair"
ABOUT = Knob(
    "about", "", 0, 0, 512, 8, "log", live=False, label="About how many faces", help="The model aims at this number and may miss it."
)
BUDGET = Knob(
    "face_budget", "", 0, 0, 512, 8, "log", live=False, label="At most how many faces",
    help="The mesh never has more. Without a number to aim at, the model aims at this one.",
)  # fmt: skip
NO_GUIDE = "No surface could be laid through the points to guide this mesh, so the model decided alone."
UNLIMITED = {"about": {0: "any"}, "face_budget": {0: "off"}}  # texts for 0


def settings(sampling: Sampling) -> tuple[Knob, ...]:
    """The settings of a race besides its methods' knobs, declared like knobs."""
    temperature = Knob(
        "temperature", "", sampling.temperature, 0, 2, 0.05, help="Randomness. 0: always the most probable token.", live=False
    )
    guide = Knob(
        "guide", "", sampling.guide, 0, 30, 1, live=False, label="Follow the surface",
        help="How strongly the model follows a surface that is laid through the points without it. 0: the model decides alone.",
    )  # fmt: skip
    return temperature, guide, ABOUT, BUDGET, REPEAT


def read_prompt(shape: Input, seed: object, values: object, own: Sampling) -> Prompt:
    """The Prompt that a client's fields describe; raises BadPrompt or BadKnob. own: the model's sampling, for values without a field"""
    chosen = validation.knobs(values, settings(own))
    sampling = replace(own, **{name: float(chosen[name]) for name in ("temperature", "guide")})
    size, about = (int(chosen[knob.name]) or None for knob in (BUDGET, ABOUT))
    return Prompt(points=torch.from_numpy(shape.points), seed=validation.seed(seed), size=size, about=about, sampling=sampling)


def guided(backbone: Lowpoly, prompt: Prompt) -> Prompt:
    """The prompt with the guide that its sampling requires; as it is where the points, or this machine, allow none (`misses_guide`)."""
    try:
        return backbone.guided(prompt)
    except NotSupported:
        return prompt


def misses_guide(backbone: Lowpoly, prompt: Prompt) -> bool:
    """True if the sampling of a prompt requires a guide that it does not have."""
    return bool((prompt.sampling or backbone.sampling).guide) and prompt.guide is None


def files_in(folder: Path) -> list[Path]:
    """The readable clouds and meshes of a folder, sorted; raises BadPrompt if there are none, BadFile if the folder cannot be read."""
    try:
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in READERS)
    except OSError as e:
        raise BadFile(f"Cannot read the folder {folder} ({e.strerror or e}). Give another.") from e
    if not files:
        raise BadPrompt(f"{folder} has no readable file ({', '.join(READERS)}). Give another folder.")
    return files
