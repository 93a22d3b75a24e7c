"""What the page and the API of one studio share: its models, its visitors, its runs and its limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from app.limits import Limits
from app.live.boards.lazy import Lazy
from app.live.session import Sessions
from app.live.worker import LocalRunner, RemoteRunner
from app.runs.run_store import RunStore
from engine.core import Backbone
from engine.files import home


@dataclass(frozen=True)
class StudioState:
    """One studio.

    backbone, mesh : the picture model and the mesh model; weights : the folder of the picture model, None = the shipped one
    examples       : the folder where the first race of a page is kept; None = a page begins without one
    local          : only this machine can open the page, so it may name folders
    shelf          : where it keeps finished runs; runner : where it decodes
    """

    backbone: Backbone
    mesh: Lazy
    sessions: Sessions
    local: bool = False
    weights: Path | None = None
    examples: Path | None = None
    shelf: RunStore = field(default_factory=lambda: RunStore(home() / "runs", Limits()))
    runner: LocalRunner | RemoteRunner = field(default_factory=LocalRunner)

    @property
    def limits(self) -> Limits:
        """What the page may keep and take."""
        return self.shelf.limits
