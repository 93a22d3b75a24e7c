"""What every tab is given to build itself: the page and the tab it stands on, the models, the visitors."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.boards.lazy import Lazy
from app.session import Sessions
from engine.core import Backbone


@dataclass(frozen=True)
class Place:
    """One tab of one page of the studio. backbone: the model for pictures; mesh: the one for meshes."""

    page: gr.Blocks
    tab: gr.Tab
    backbone: Backbone
    mesh: Lazy
    sessions: Sessions
