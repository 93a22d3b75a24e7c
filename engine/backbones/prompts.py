"""The text of a prompt, before a model reads it, and a prompt for measurements."""

from __future__ import annotations

import torch

from engine.core import Backbone, Prompt
from engine.errors import BadPrompt


def probe_prompt(backbone: Backbone) -> Prompt:
    """A prompt that any model of its kind reads: a caption, a class, or points of a sphere with normals, and the sphere as a guide."""
    if "points" not in backbone.capabilities:
        return Prompt("a cat", label=0)  # a model of texts reads one, a model of classes the other
    normals = torch.nn.functional.normalize(torch.randn(1024, 3, generator=torch.Generator().manual_seed(0)), dim=-1)
    from trimesh.creation import icosphere  # slow to import

    sphere = icosphere(2, 0.95)
    return Prompt(points=torch.cat([0.95 * normals, normals], 1), guide=(sphere.vertices, sphere.faces))


def readable_text(text: str | None, example: str) -> str:
    """The text without surrounding blanks; raises BadPrompt if nothing is left. example: a prompt to suggest."""
    readable = (text or "").strip()
    if not readable:
        raise BadPrompt(f"The prompt is empty. Say what to draw, for instance: {example}.")
    return readable
