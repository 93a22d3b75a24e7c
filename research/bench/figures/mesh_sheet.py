"""`launch.py bench mesh --sheet FILE`: held-out point clouds and the meshes that plain decoding makes of them, four pairs in a row."""

from __future__ import annotations

from PIL import Image

from engine.mesh.picture import View, contact_sheet
from research.bench.figures import sheet
from research.bench.mesh_inputs import subjects
from research.bench.meshes import Models, Row
from research.bench.plan import MeshSheet

SHOWN = 2048  # points of a cloud
PAIRS, CELL = 4, 192


def draw(plan: MeshSheet) -> None:
    """Writes the sheet; input i has seed i. Raises BadOutput if the file cannot be written, before anything is drawn."""
    sheet.check(plan.path)
    models = Models(plan)
    views = []
    for i, subject in enumerate(subjects(plan.count, "boxes", models.model(models.own).card["families"])):
        result = models.go(Row(models.own, "ar"), subject, i).result()
        views.append(View(subject.points[:SHOWN].numpy(), title=f"{subject.name}: input"))
        views.append(View(result.vertices, result.faces, title=f"{len(result.faces)} faces"))
    rows = [views[i : i + 2 * PAIRS] for i in range(0, len(views), 2 * PAIRS)]
    sheet.write(Image.fromarray(contact_sheet(rows, CELL)), plan.path)
