"""Reads uploaded files for the page in a separate process, with limits on size, faces, time and memory.

The command line reads larger files (engine/mesh/read.py has its limits); here all other visitors would wait.
"""

from __future__ import annotations

from pathlib import Path

from engine.apart import Died, TookTooLong, apart
from engine.errors import BadFile
from engine.mesh.formats.source import plain, said
from engine.mesh.read import Input, read
from engine.recognition.up import stood

BYTES = 64 * 2**20  # of a file
FACES = 500_000  # of a mesh
SECONDS = 30.0  # for reading
MEMORY = 3 * 2**30  # bytes, for reading
WAIT = 120.0  # seconds that a file may wait to be read


def read_upload(path: Path, up: str = "auto") -> Input:
    """The input in an uploaded file; raises BadFile, also for a file that is too large for the page."""
    name = plain(path.name)
    size = path.stat().st_size if path.exists() else 0
    if size > BYTES:
        raise BadFile(f"{name} holds {said(size)}; files on this page can have at most {said(BYTES)}. Make it smaller first.")
    try:
        given = apart(read_small, path, up, seconds=SECONDS, memory=MEMORY)
    except TookTooLong as e:
        raise BadFile(f"{name} could not be read within {SECONDS:.0f} seconds. Simplify it, or use the command line.") from e
    except (Died, MemoryError) as e:
        raise BadFile(f"{name} needs more memory than a file on this page may use. Simplify it first.") from e
    return stood(given) if up == "auto" else given


def read_small(path: Path, up: str) -> Input:
    """Reads a file in this process, without limits on time and memory; raises BadFile."""
    found = read(path, up)
    if found.surface is not None and len(found.surface[1]) > FACES:
        faces = len(found.surface[1])
        raise BadFile(f"{found.name} has {faces:,} faces; meshes on this page can have at most {FACES:,}. Simplify it first.")
    return found
