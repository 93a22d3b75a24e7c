"""Switch between pictures and meshes; its value is the kind, named as in the table of runs."""

from __future__ import annotations

import gradio as gr

from app.ui.panels import panel

PICTURES, MESHES = "image", "mesh"
KINDS = {PICTURES: "Pictures", MESHES: "Meshes"}


def build(elem_id: str) -> gr.HTML:
    """Builds the two buttons; pictures are selected initially."""
    buttons = "".join(f'<button type="button" data-kind="{kind}">{title}</button>' for kind, title in KINDS.items())
    template = f'<div class="ft-segments ft-kinds-of" role="group" aria-label="Pictures or meshes">{buttons}</div>'
    return panel("kinds", PICTURES, template, elem_id=elem_id)
