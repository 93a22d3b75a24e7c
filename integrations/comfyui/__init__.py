"""Nodes for ComfyUI: a picture from a prompt, a mesh from a point cloud, and one node per method for its knobs.

The classes follow ComfyUI's protocol (INPUT_TYPES, RETURN_TYPES, FUNCTION) and import nothing of ComfyUI. Where it has loaded its module
`comfy.utils`, a run reports its tokens and previews to the progress bar there, which also raises when the user interrupts.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import engine
from engine.core import Backbone, Knob, Method, Prompt
from engine.errors import BadPrompt, NotSupported
from engine.mesh.frame import UP
from engine.mesh.write import write
from engine.methods import METHODS, find
from engine.recognition.up import read_standing
from engine.run import Run
from engine.tuning.auto import unmeasured_method

CATEGORY = "Foretoken"
CHOSEN = "FORETOKEN_METHOD"  # type of the link from a method's node
PREVIEWED = 0.25  # seconds between two previews
LARGEST = 512  # pixels of a preview
LARGEST_SEED = 2**32 - 1
LOG = logging.getLogger(__name__)

Choice = tuple[str, Mapping[str, float | str]]  # the name of a method, and its knobs


@dataclass(frozen=True)
class ComfyMesh:
    """A batch of one mesh as ComfyUI's nodes for meshes read it: vertices float32 [1, V, 3], faces int64 [1, F, 3]."""

    vertices: Tensor
    faces: Tensor


class PictureNode:
    """A picture from a prompt."""

    CATEGORY, FUNCTION = CATEGORY, "generate"
    RETURN_TYPES, RETURN_NAMES = ("IMAGE", "STRING"), ("image", "report")
    DESCRIPTION = "Draws a prompt with an autoregressive model. Connect a method to choose how; else a fast exact one is taken."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Inputs with their widgets."""
        return {
            "required": {
                "prompt": ("STRING", {"multiline": True, "default": "a red apple on a blue background"}),
                "seed": _seed(),
                "size": ("INT", {"default": 0, "min": 0, "max": 4096, "tooltip": "Pixels along a side; 0: what the model prefers."}),
                "model": ("STRING", {"default": "pictogram", "tooltip": "A model's name, or a folder of launch.py models import."}),
            },
            "optional": {"method": (CHOSEN,)},
        }

    def generate(self, prompt: str, seed: int, size: int, model: str, method: Choice | None = None) -> tuple[Tensor, str]:
        """The picture, float32 [1, height, width, 3] in 0..1, and a sentence on its run."""
        backbone = _load(model, "text")
        run = _run(backbone, method, Prompt(prompt, seed=seed, size=size or None))
        _follow(run, lambda: Image.fromarray(np.asarray(_rendered(run, final=False))))
        pixels = torch.from_numpy(np.array(_rendered(run, final=True)))
        return pixels[None].float() / 255, _report(run)


class MeshNode:
    """A mesh from a file with a point cloud or a mesh."""

    CATEGORY, FUNCTION, OUTPUT_NODE = CATEGORY, "generate", True
    RETURN_TYPES, RETURN_NAMES = ("MESH", "STRING", "STRING"), ("mesh", "file", "report")
    DESCRIPTION = "Writes a mesh of few faces through a point cloud. Connect a method to choose how; else a fast exact one is taken."

    @classmethod
    def INPUT_TYPES(cls) -> dict[str, Any]:
        """Inputs with their widgets."""
        return {
            "required": {
                "cloud": ("STRING", {"default": "", "tooltip": "A file with points or a mesh: PLY, OBJ, STL, GLB, XYZ, NPZ, ..."}),
                "save_as": ("STRING", {"default": "output/foretoken.glb", "tooltip": "GLB, OBJ, PLY or STL."}),
                "seed": _seed(),
                "up": (["auto", *UP], {"tooltip": "The axis of the file that points upward."}),
                "faces": ("INT", {"default": 0, "min": 0, "max": 512, "tooltip": "About how many faces; 0: the model decides."}),
                "model": ("STRING", {"default": "lowpoly", "tooltip": "A model's name, or a folder of launch.py models import."}),
            },
            "optional": {"method": (CHOSEN,)},
        }

    def generate(
        self, cloud: str, save_as: str, seed: int, up: str, faces: int, model: str, method: Choice | None = None
    ) -> tuple[ComfyMesh, str, str]:
        """The mesh in the coordinates of the file, the path that it was written to, and a sentence on its run."""
        backbone, shape = _load(model, "points"), read_standing(cloud, up)
        prompt = _with_guide(backbone, Prompt(points=torch.from_numpy(shape.points), seed=seed, about=faces or None))
        run = _run(backbone, method, prompt)
        _follow(run, None)
        made = run.result()
        if not len(made.faces):
            raise BadPrompt(f"The model ended this mesh without a face. Try another seed than {seed}.")
        vertices = shape.frame.from_model(made.vertices)
        path = Path(save_as).expanduser().resolve()
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, vertices, made.faces)
        mesh = ComfyMesh(torch.from_numpy(vertices).float()[None], torch.from_numpy(made.faces)[None])
        return mesh, str(path), _report(run)


def method_node(method: Method) -> type:
    """The node of a method: a widget for each of its knobs, and a link to a picture's or a mesh's node.

    The link holds only knobs that differ from their defaults, so that the model's recommended values stand for the others.
    """

    def input_types(cls: type) -> dict[str, Any]:
        return {"required": {knob.name: _widget(knob) for knob in method.knobs}}

    def choose(self: Any, **knobs: float | str) -> tuple[Choice]:
        return ((method.name, {knob.name: knobs[knob.name] for knob in method.knobs if knobs[knob.name] != knob.default}),)

    members = {
        "CATEGORY": f"{CATEGORY}/methods", "FUNCTION": "choose", "RETURN_TYPES": (CHOSEN,), "RETURN_NAMES": ("method",),
        "DESCRIPTION": method.about, "INPUT_TYPES": classmethod(input_types), "choose": choose, "__doc__": method.about,
    }  # fmt: skip
    return type(f"{method.name.title().replace('_', '')}Node", (), members)


def _widget(knob: Knob) -> tuple[Any, dict[str, Any]]:
    """A knob as an input with a widget."""
    about = {"default": knob.default, "tooltip": knob.help}
    if knob.choices:
        return list(knob.choices), about
    kind = "INT" if knob.is_whole else "FLOAT"
    number = int if knob.is_whole else float
    return kind, about | {"default": number(knob.default), "min": number(knob.low), "max": number(knob.high), "step": number(knob.step)}


def _seed() -> tuple[str, dict[str, Any]]:
    return "INT", {"default": 0, "min": 0, "max": LARGEST_SEED, "control_after_generate": True}


def _load(model: str, capability: str) -> Backbone:
    """A model; raises NotSupported if it reads something else."""
    backbone = engine.load(model.strip())
    if capability not in backbone.capabilities:
        raise NotSupported(f"{backbone.name} does not read {capability}. Choose another model, or use the other node of Foretoken.")
    return backbone


def _with_guide(backbone: Backbone, prompt: Prompt) -> Prompt:
    """The prompt with a surface that the model follows, if it takes one and the points allow it; otherwise this is logged."""
    try:
        return backbone.guided(prompt)
    except NotSupported as e:
        LOG.warning("The model decides alone, without a surface to follow. %s", e)
        return prompt


def _run(backbone: Backbone, choice: Choice | None, prompt: Prompt) -> Run:
    name, knobs = choice or (unmeasured_method(backbone), {})
    method, preset = find(name)
    return engine.generate(backbone, method, replace(prompt, sampling=backbone.sampling), preset | dict(knobs), name=name)


def _rendered(run: Run, final: bool) -> Any:
    return run.backbone.render(run.tokens, run.positions, final, run.prompt.size)


def _follow(run: Run, picture: Any) -> None:
    """Decodes a run to its end and reports to ComfyUI's progress bar. picture : returns a preview; None: there is none"""
    bar, shown = _progress_bar(), time.monotonic()
    try:
        for _ in run:
            limit = run.sequence.limit
            if bar is not None and time.monotonic() - shown >= PREVIEWED:
                bar.update_absolute(min(len(run.tokens), limit), limit, picture and ("JPEG", picture(), LARGEST))
                shown = time.monotonic()
    finally:
        run.close()
    if bar is not None:
        bar.update_absolute(1, 1)


def _progress_bar() -> Any:
    """ComfyUI's progress bar; None outside of ComfyUI."""
    utilities = sys.modules.get("comfy.utils")
    return None if utilities is None else utilities.ProgressBar(1)


def _report(run: Run) -> str:
    """A sentence on a run."""
    t = run.totals
    exactly = "with the distribution of the model" if run.exact else "not with the distribution of the model alone"
    return f"{t['tokens']} tokens in {t['forwards']} passes and {run.seconds:.1f} s by {run.name}, {exactly}."


NODE_CLASS_MAPPINGS = {
    "ForetokenPicture": PictureNode,
    "ForetokenMesh": MeshNode,
    **{f"Foretoken_{name}": method_node(method) for name, method in METHODS.items()},
}
NODE_DISPLAY_NAME_MAPPINGS = {
    "ForetokenPicture": "Picture from a prompt (Foretoken)",
    "ForetokenMesh": "Mesh from a point cloud (Foretoken)",
    **{f"Foretoken_{name}": f"{method.title} (Foretoken)" for name, method in METHODS.items()},
}
