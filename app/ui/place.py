"""What every tab is given to build itself: the page it stands on, the model that is loaded, the visitors."""

from __future__ import annotations

from dataclasses import dataclass

import gradio as gr

from app.session import Sessions
from engine.core import Backbone


@dataclass(frozen=True)
class Place:
    """One page of the studio."""

    page: gr.Blocks
    backbone: Backbone
    sessions: Sessions
