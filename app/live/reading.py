"""Reads one uploaded file, in a separate process. It does not import PyTorch, which takes longer than reading most files."""

from __future__ import annotations

from pathlib import Path

from engine.errors import BadFile
from engine.mesh.read import Input, read

FACES = 500_000  # maximum of a mesh


def read_small(path: Path, up: str) -> Input:
    """Reads a file in this process, without limits on time and memory; raises BadFile."""
    shape = read(path, up)
    if shape.surface is not None and len(shape.surface[1]) > FACES:
        faces = len(shape.surface[1])
        raise BadFile(f"{shape.name} has {faces:,} faces; meshes on this page can have at most {FACES:,}. Simplify it first.")
    return shape
