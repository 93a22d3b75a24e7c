"""What every tab is built from: the page, its tab, the models, the visitors."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.boards.lazy import Lazy
from app.session import Sessions
from engine.core import Backbone


@dataclass(frozen=True)
class Place:
    """One tab of the studio's page. backbone: the picture model; mesh: the mesh model; local: only this machine can open the page, so it
    may name folders."""

    page: gr.Blocks
    tab: gr.Tab
    backbone: Backbone
    mesh: Lazy
    sessions: Sessions
    local: bool = False
