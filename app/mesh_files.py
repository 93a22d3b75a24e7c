"""The files that a finished mesh is offered as."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from app.history import MESH_FORMATS, as_sentence, describe, write_mesh, write_settings
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

    folder : of the visitor; what an earlier run left there is replaced. Raises BadOutput where the disk does not take the files.
    """
    settings = describe(run, given)
    stem = re.sub(r"[^\w-]+", "-", Path(given.name).stem, flags=re.ASCII).strip("-") or "mesh"
    found = {}
    with as_sentence(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_mesh(run, run.result(), folder, settings, given, MESH_FORMATS)
        write_settings(settings, folder / "run.json")
        for name, (_, written, ending) in FILES.items():
            path = folder / written
            if path.exists():
                found[name] = path.rename(folder / f"{stem}-{run.name}-{run.prompt.seed}{ending}")
    return found
