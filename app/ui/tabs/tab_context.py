"""What every tab is built from: the page, its tab, the models, the visitors."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import gradio as gr

from app.limits import Limits
from app.live.boards.lazy import Lazy
from app.live.session import Sessions
from app.live.worker import Away, Here
from app.runs.run_store import Shelf
from engine.core import Backbone
from engine.files import home


@dataclass(frozen=True)
class Place:
    """One tab of the studio's page.

    backbone, mesh : the picture model and the mesh model; weights : the folder of the picture model, None = the shipped one
    examples       : the folder where the first race of a page is kept; None = a page begins without one
    local          : only this machine can open the page, so it may name folders
    limits, shelf  : what the page may keep and take, and where it keeps finished runs; runner : where it decodes
    """

    page: gr.Blocks
    tab: gr.Tab
    backbone: Backbone
    mesh: Lazy
    sessions: Sessions
    local: bool = False
    weights: Path | None = None
    examples: Path | None = None
    limits: Limits = field(default_factory=Limits)
    shelf: Shelf = field(default_factory=lambda: Shelf(home() / "runs", Limits()))
    runner: Here | Away = field(default_factory=Here)
