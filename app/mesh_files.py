"""The files that a finished mesh is offered as."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from app.history import MESH_FORMATS, describe, write_mesh
from engine.mesh.read import Input
from engine.run import Run

FILES = {  # name: (what is on the button, what it is written as, ending of the download's name)
    "glb": ("GLB", "result.glb", ".glb"),
    "coloured": ("GLB, coloured", "acceptance.glb", "-accepted.glb"),
    "obj": ("OBJ", "result.obj", ".obj"),
    "ply": ("PLY", "result.ply", ".ply"),
    "stl": ("STL", "result.stl", ".stl"),
    "settings": ("run.json", "run.json", ".json"),
}


def write_files(run: Run, given: Input, folder: Path) -> dict[str, Path]:
    """Writes a run's mesh, in the place, size and axes of its input, and its settings; returns the files that there are, by name.

    folder : of the visitor; what an earlier run left there is replaced
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = describe(run, given)
    write_mesh(run, run.result(), folder, settings, given, MESH_FORMATS)
    (folder / "run.json").write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    stem = re.sub(r"[^\w-]+", "-", Path(given.name).stem, flags=re.ASCII).strip("-") or "mesh"
    found = {}
    for name, (_, written, ending) in FILES.items():
        path = folder / written
        if path.exists():
            found[name] = path.rename(folder / f"{stem}-{run.method.name}-{run.prompt.seed}{ending}")
    return found
