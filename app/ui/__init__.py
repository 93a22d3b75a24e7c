"""The tabs of the page. A new tab needs one file and one line here."""

from __future__ import annotations

TABS: dict[str, str] = {  # name on the page: module with `build(place: app.ui.tab_context.TabContext) -> None`
    "Image": "app.ui.tabs.image_tab",
    "Mesh": "app.ui.tabs.mesh_tab",
    "Lab": "app.ui.tabs.lab_tab",
    "Bench": "app.ui.tabs.bench_tab",
    "Models": "app.ui.tabs.models_tab",
}
