"""State shared by the page and the API of a studio: models, visitors, runs and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from app.limits import Limits
from app.live.background import Background
from app.live.boards.lazy import Lazy
from app.live.session import Sessions
from app.live.worker import LocalRunner, RemoteRunner
from app.runs.run_store import RunStore
from engine.core import Backbone
from engine.files import home


@dataclass(frozen=True)
class StudioState:
    """A studio.

    backbone, mesh : picture model and mesh model; weights : folder of the picture model, None = the shipped one
    examples       : folder of the examples that this machine made; None = a new page is empty
    local          : only this machine can open the page, so visitors may name folders
    run_store      : finished runs on disk; runner : decodes in this process or in another
    background     : work that no visitor waits for
    """

    backbone: Backbone
    mesh: Lazy
    sessions: Sessions
    local: bool = False
    weights: Path | None = None
    examples: Path | None = None
    run_store: RunStore = field(default_factory=lambda: RunStore(home() / "runs", Limits()))
    runner: LocalRunner | RemoteRunner = field(default_factory=LocalRunner)
    background: Background = field(default_factory=lambda: Background(Sessions()))

    @property
    def limits(self) -> Limits:
        """Limits on uploads and stored runs."""
        return self.run_store.limits
