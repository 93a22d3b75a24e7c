"""The Models tab: what is loaded, on which machine, and the data and numbers on the model's card."""

from __future__ import annotations

from html import escape
from typing import Any

import gradio as gr

from app.boards.lazy import Lazy
from app.ui.panels.notice import without_paths
from app.ui.place import Place
from engine.core import Backbone
from engine.errors import ForetokenError
from engine.machine import facts
from engine.networks.weights import read_card

ABOUT = "Foretoken runs on this machine only: no prompt, picture or number leaves it."
KEPT = "the folder that the terminal shows at the start"
LONG = 12  # most entries of a list that are shown; the rest is counted


def build(place: Place) -> None:
    """Builds the tab."""
    backbone = place.backbone
    with gr.Column(elem_classes="ft-about"):
        gr.HTML(section(f"Loaded: {backbone.name}", summary(backbone)))
        gr.HTML(section("Card", card(backbone.card)))
        if words := backbone.words:
            gr.HTML(paragraph(f"{len(words)} known words", ", ".join(sorted(words))))
        gr.HTML(meshes(place.mesh))
        gr.HTML(section("This machine", {**facts(), "runs are kept in": KEPT}))
        gr.HTML(paragraph("About", ABOUT))


def meshes(mesh: Lazy) -> str:
    """The section of the mesh model, which need not be loaded yet."""
    if not mesh.here:
        missing = f"Its weights are not on this machine. Train them: python launch.py train {mesh.name}."
        return paragraph(f"For meshes: {mesh.name}", missing)
    try:
        return section(f"For meshes: {mesh.name}", card(read_card(mesh.folder)))
    except ForetokenError as e:
        return paragraph(f"For meshes: {mesh.name}", without_paths(str(e)))


def summary(backbone: Backbone) -> dict[str, Any]:
    """The rows of the loaded model's summary."""
    sampling = backbone.sampling
    found: dict[str, Any] = {"device": str(backbone.device)}
    if backbone.parameters:
        found["parameters"] = f"{backbone.parameters / 1e6:.1f} million"
    found["vocabulary (number of tokens)"] = f"{backbone.vocabulary:,}"
    if backbone.sizes:
        found["picture sizes"] = ", ".join(f"{s} px" for s in backbone.sizes)
    found["default sampling"] = f"guidance {sampling.guidance:g}, temperature {sampling.temperature:g}"
    return found


def card(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """A card's entries, flattened, without the word list, which has its own section."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        if key == "words":
            continue
        name = f"{prefix}{key.replace('_', ' ')}"
        if isinstance(value, dict):
            found |= card(value, f"{name} / ")
        else:
            found[name] = brief(value)
    return found


def brief(value: Any) -> str:
    """A value as text; long lists are shortened."""
    if not isinstance(value, list):
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else without_paths(str(value))
    shown = without_paths(", ".join(map(str, value[:LONG])))
    return f"{shown} and {len(value) - LONG} more" if len(value) > LONG else shown


def paragraph(title: str, text: str) -> str:
    """A heading and some text, escaped."""
    return f'<section><h2>{escape(title)}</h2><p class="ft-words">{escape(text)}</p></section>'


def section(title: str, rows: dict[str, Any]) -> str:
    """A heading and a table, escaped, since a card may come from anywhere."""
    cells = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in rows.items() if v is not None)
    return f"<section><h2>{escape(title)}</h2><table>{cells}</table></section>"
