"""The panels below a race, from top to bottom. To add one: its .py and .js in app/ui/panels, and its line here."""

from __future__ import annotations

from app.ui.panels import lens, quality, runs, trace, tree
from app.ui.panels.race import RacePanels

PICTURES = RacePanels("", (lens.panel_for(runs.PICTURES), runs.panel_for(runs.PICTURES), trace.PANEL, tree.PANEL))
MESHES = RacePanels("mesh-", (lens.panel_for(runs.MESHES), quality.PANEL, runs.panel_for(runs.MESHES), trace.PANEL, tree.PANEL))
