"""Reads one uploaded file. It runs in a process of its own, so it imports no PyTorch, whose start takes longer than most readings."""

from __future__ import annotations

from pathlib import Path

from engine.errors import BadFile
from engine.mesh.read import Input, read

FACES = 500_000  # of a mesh


def read_small(path: Path, up: str) -> Input:
    """Reads a file in this process, without limits on time and memory; raises BadFile."""
    shape = read(path, up)
    if shape.surface is not None and len(shape.surface[1]) > FACES:
        faces = len(shape.surface[1])
        raise BadFile(f"{shape.name} has {faces:,} faces; meshes on this page can have at most {FACES:,}. Simplify it first.")
    return shape
