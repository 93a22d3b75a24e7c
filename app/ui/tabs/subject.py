"""Subjects of the Lab and Bench tabs: pictures of prompts, or meshes of example clouds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from app.live.boards.lazy import Lazy
from app.live.boards.mesh import MeshBoard
from app.live.boards.picture import Board
from app.live.stream import Growth
from app.requests import meshes as mesh_requests
from app.requests import pictures as picture_requests
from app.requests import validation
from app.requests.meshes import EXAMPLES, FIRST, ORDER
from app.sentences import brief
from app.ui.method_menu import choices
from app.ui.panels.kinds import KINDS, MESHES, PICTURES
from app.ui.tabs.mesh_tab import favourite_first
from engine.core import Backbone, Knob, Prompt, Sampling
from engine.errors import BadPrompt
from engine.mesh.read import read
from engine.run import Run

Chosen = Mapping[str, float | str]  # the settings of a tab


@dataclass(frozen=True)
class LabSubject:
    """One of KINDS with its loaded model.

    things    : inputs: prompts, or names of example clouds; series : name of the inputs in a setting
    size      : setting of the output's size, None = only one size
    favourite : initial method; menu : (title, name) of all methods
    board     : shows a run; warm : warm-up steps before the first run of a method
    """

    kind: str
    backbone: Backbone
    things: tuple[str, ...]
    series: str
    size: Knob | None
    favourite: str
    menu: tuple[tuple[str, str], ...]
    board: Callable[[Run], Growth]
    warm: int
    _prompt: Callable[[str, int, int | None, Sampling], Prompt]

    def prompt(self, thing: str, seed: int, chosen: Chosen) -> Prompt:
        """Prompt of an input with a tab's settings."""
        return self._prompt(thing, seed, self.size_in(chosen), self.backbone.sampling)

    def size_in(self, chosen: Chosen) -> int | None:
        """Size in a tab's settings, None = the model's default."""
        if self.size is None:
            return None
        value = chosen[self.size.name]
        return int(value.split()[0]) if isinstance(value, str) else int(value) or None

    def thing(self, text: object, cloud: object) -> str:
        """First input of a loop: the page's prompt or cloud. Raises BadPrompt."""
        if self.kind == PICTURES:
            return validation.text(text)
        return str(cloud) if cloud in ORDER else FIRST  # the text becomes part of a path


def for_kind(kind: object, backbone: Backbone, mesh: Lazy) -> LabSubject:
    """Subject of a kind. Raises BadPrompt for an unknown kind, MissingWeights without the mesh model."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadPrompt(f"Unknown kind {brief(kind)}. Choose pictures or meshes.")
    return pictures(backbone) if kind == PICTURES else meshes(mesh.get())


def pictures(backbone: Backbone) -> LabSubject:
    """Pictures of the example prompts."""
    sizes, size = tuple(f"{s} px" for s in backbone.sizes), None
    if len(sizes) > 1:
        middle = min(sizes, key=lambda s: abs(int(s.split()[0]) - 128))
        size = Knob("size", "", middle, choices=sizes, help="Side length of the pictures.", live=False)

    def prompt(thing: str, seed: int, side: int | None, sampling: Sampling) -> Prompt:
        return Prompt(thing, seed=seed, size=side, sampling=sampling)

    menu = tuple(choices(backbone))
    return LabSubject(PICTURES, backbone, picture_requests.EXAMPLES, "prompts", size, picture_requests.FAVOURITE, menu, Board, 1, prompt)


def meshes(backbone: Backbone) -> LabSubject:
    """Meshes of the example clouds."""
    menu = tuple(favourite_first(choices(backbone)))

    def prompt(thing: str, seed: int, faces: int | None, sampling: Sampling) -> Prompt:
        points = read(EXAMPLES / f"{thing}.ply").points
        return Prompt(thing, points=torch.from_numpy(points), seed=seed, size=faces, sampling=sampling)

    return LabSubject(
        MESHES, backbone, ORDER, "clouds", mesh_requests.BUDGET, menu[0][1], menu, MeshBoard, mesh_requests.WARM_STEPS, prompt
    )


def panel_words(subject: LabSubject) -> Mapping[str, Mapping[float, str]] | None:
    """Texts for numbers in the settings: a limit of 0 faces is off."""
    return mesh_requests.UNLIMITED if subject.kind == MESHES else None


def shown_points(prompt: Prompt, most: int = 2048) -> Any:
    """Points of a prompt for the view, [N, 6]; None for a picture."""
    if prompt.points is None:
        return None
    return prompt.points[:: -(-len(prompt.points) // most)].numpy()
