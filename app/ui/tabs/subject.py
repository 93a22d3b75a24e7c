"""Subjects of the Lab tab and the Bench tab: pictures of prompts, or meshes of example clouds."""

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

    things    : what is drawn, by name: prompts, or example clouds; series : what a setting calls them
    size      : the setting for the size of what is made, None = there is one size
    favourite : the method that is chosen first; menu : (title, name) of all, it first
    board     : shows a run; warm : unmeasured steps before the first run of a method
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
        """Prompt for a thing with a tab's settings."""
        return self._prompt(thing, seed, self.size_in(chosen), self.backbone.sampling)

    def size_in(self, chosen: Chosen) -> int | None:
        """The size that a tab's settings ask for, None = the model's own."""
        if self.size is None:
            return None
        value = chosen[self.size.name]
        return int(value.split()[0]) if isinstance(value, str) else int(value) or None

    def thing(self, text: object, cloud: object) -> str:
        """First thing to draw: the page's prompt or cloud. Raises BadPrompt."""
        if self.kind == PICTURES:
            return validation.text(text)
        return str(cloud) if cloud in ORDER else FIRST  # the page's text becomes a path


def for_kind(kind: object, backbone: Backbone, mesh: Lazy) -> LabSubject:
    """The subject that a page asks for. Raises BadPrompt for another word, MissingWeights without the model of meshes."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise BadPrompt(f"There is no kind {brief(kind)}. Choose pictures or meshes.")
    return pictures(backbone) if kind == PICTURES else meshes(mesh.get())


def pictures(backbone: Backbone) -> LabSubject:
    """Pictures of the examples' prompts."""
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


def panel_words(subject: LabSubject) -> dict[str, dict[float, str]] | None:
    """Words for numbers of the settings: a budget of no faces is none."""
    return {"face_budget": {0: "off"}} if subject.kind == MESHES else None


def shown_points(prompt: Prompt, most: int = 2048) -> Any:
    """The points of a prompt that a view shows, [N, 6]; None for a picture."""
    if prompt.points is None:
        return None
    return prompt.points[:: -(-len(prompt.points) // most)].numpy()
