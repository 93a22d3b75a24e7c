"""The files in which a finished mesh can be downloaded."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from app.history import MESH_FORMATS, as_sentence, describe, file_name, write_mesh, write_settings
from engine.mesh.read import Input
from engine.run import Run

FILES = {  # name: (label of the button, name of the written file, ending of the download's name)
    "glb": ("GLB", "result.glb", ".glb"),
    "coloured": ("GLB, coloured", "acceptance.glb", "-accepted.glb"),
    "obj": ("OBJ", "result.obj", ".obj"),
    "ply": ("PLY", "result.ply", ".ply"),
    "stl": ("STL", "result.stl", ".stl"),
    "settings": ("run.json", "run.json", ".json"),
}


def write_files(run: Run, given: Input, folder: Path) -> dict[str, Path]:
    """Writes a run's mesh, in the position, size and axes of its input, and its settings; returns the written files by name.

    folder : the visitor's; files of an earlier run in it are replaced. Raises BadOutput if the disk refuses.
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
                found[name] = path.rename(folder / f"{stem}-{file_name(run)}-{run.prompt.seed}{ending}")
    return found
