"""Invisible panels whose scripts pass their values on to other panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from app.ui.panels import panel


def unseen(name: str, elem_id: str, value: Any, constants: Mapping[str, str] | None = None, before: Sequence[str] = ()) -> gr.HTML:
    """Builds an invisible panel with the script `<name>.js`."""
    classes = ["ft-panel", "ft-unseen"]
    return panel(name, value, "<i hidden></i>", dict(constants or {}), before, elem_id=elem_id, elem_classes=classes)


def example(elem_id: str) -> gr.HTML:
    """Shows a finished race on a page that has none: the answer of /example, final values of the panels by id."""
    return unseen("example", elem_id, {}, before=("asking",))


def menu_cards(elem_id: str) -> gr.HTML:
    """Fills menus once their model is loaded. Its value : cards, see method_menu.cards, by menu id"""
    return unseen("menu_cards", elem_id, {})


def wanted_settings(elem_id: str) -> gr.HTML:
    """Receives settings that another part of the page wants to apply here."""
    return unseen("wanted_settings", elem_id, None)
