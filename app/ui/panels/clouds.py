"""Buttons of the example clouds, with small pictures of their points in the colours of the mesh panel."""

from __future__ import annotations

import json
from collections.abc import Mapping

import gradio as gr
import numpy as np

from app.ui.panels import panel, to_text

DOTS = 800  # points of a picture
SIDE = 128  # cells along a side of a picture
YAW, PITCH = 0.62, 0.36  # the initial view of the mesh panel
GRAY = (0.60, 0.66, 0.74)

TEMPLATE = '<div class="ft-clouds" role="group" aria-label="Examples"></div>'


def build(clouds: Mapping[str, np.ndarray], elem_id: str) -> gr.HTML:
    """Builds the buttons; the value is the chosen name, "" = none. clouds : points and unit normals [N, 6] by name, +Y up"""
    tiles = json.dumps([{"name": name, "dots": to_text(dots(points))} for name, points in clouds.items()])
    return panel("clouds", "", TEMPLATE, {"SIDE": str(SIDE), "CLOUDS": tiles}, before=("tiles",), elem_id=elem_id)


def dots(points: np.ndarray, most: int = DOTS) -> np.ndarray:
    """Points that face the viewer as dots, uint8 [D, 5]: x, y, red, green, blue; farthest first, at most `most`. points : [N, 6]"""
    sine, cosine = np.sin([YAW, PITCH]), np.cos([YAW, PITCH])
    back = np.array([sine[0] * cosine[1], sine[1], cosine[0] * cosine[1]])
    right = np.array([cosine[0], 0.0, -sine[0]])
    axes = np.stack([right, -np.cross(back, right), back], 1)
    places, normals = points[:, :3] @ axes, points[:, 3:]
    facing = normals @ back
    seen = np.flatnonzero(facing > -0.05)[:most]
    seen = seen[np.argsort(places[seen, 2], kind="stable")]
    low, high = places[:, :2].min(0), places[:, :2].max(0)
    cells = ((places[seen, :2] - (low + high) / 2) / float((high - low).max()) * 0.9 + 0.5) * (SIDE - 1)
    light = 0.62 + 0.46 * np.clip((facing[seen] + 0.4) / 1.2, 0, 1)
    colours = (0.38 * np.array(GRAY) + 0.62 * (normals[seen] * 0.5 + 0.5)) * light[:, None] * 255
    return np.concatenate([cells, colours], 1).clip(0, 255).round().astype(np.uint8)
