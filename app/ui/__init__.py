"""The tabs of the page. A new tab needs one file and one line here; the page imports nothing else by name."""

from __future__ import annotations

TABS: dict[str, str] = {  # name on the page: module with `build(place: app.ui.place.Place) -> None`
    "Image": "app.ui.image_tab",
    "Mesh": "app.ui.mesh_tab",
    "Lab": "app.ui.lab_tab",
    "Bench": "app.ui.bench_tab",
    "Models": "app.ui.models_tab",
}
