"""Panels that are never seen: the script of each hands its value on to other panels, or asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from app.ui.panels import panel


def unseen(name: str, elem_id: str, value: Any, constants: Mapping[str, str] | None = None) -> gr.HTML:
    """A panel without a look, whose script is `<name>.js`."""
    classes = ["ft-panel", "ft-unseen"]
    return panel(name, value, "<i hidden></i>", dict(constants or {}), elem_id=elem_id, elem_classes=classes)


def example(elem_id: str) -> gr.HTML:
    """Brings a finished race to a page that has none. Its value: the panels' values at the end by their ids, sent once the page is there"""
    return unseen("example", elem_id, {})


def menu_cards(elem_id: str) -> gr.HTML:
    """Gives menus their cards once their model is loaded. Its value: cards, as method_menu.cards makes them, by the menus' ids"""
    return unseen("menu_cards", elem_id, {})


def wanted_settings(elem_id: str) -> gr.HTML:
    """Its value becomes the settings that another part of the page wants to have here."""
    return unseen("wanted_settings", elem_id, None)
