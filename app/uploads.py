"""Files of strangers, read for the page: in a process of its own, with limits of size, faces, seconds and memory.

The command line reads larger files (engine/mesh/read.py says how large); here everybody else waits meanwhile.
"""

from __future__ import annotations

from pathlib import Path

from engine.apart import Died, TookTooLong, apart
from engine.errors import BadFile
from engine.mesh.formats.source import plain, said
from engine.mesh.read import Input, read

BYTES = 64 * 2**20  # of a file
FACES = 500_000  # of a mesh
SECONDS = 30.0  # for reading
MEMORY = 3 * 2**30  # bytes, for reading
WAIT = 120.0  # seconds for which a file may stand in the line of those to be read


def read_upload(path: Path, up: str = "auto") -> Input:
    """The input that a stranger's file holds; raises BadFile, also for one that is too large for the page."""
    name = plain(path.name)
    size = path.stat().st_size if path.exists() else 0
    if size > BYTES:
        raise BadFile(f"{name} holds {said(size)}; files on this page can have {said(BYTES)} at most, so make it smaller first.")
    try:
        return apart(read_small, path, up, seconds=SECONDS, memory=MEMORY)
    except TookTooLong as e:
        raise BadFile(f"{name} was not read within {SECONDS:.0f} seconds. Simplify it, or read it with the command line.") from e
    except (Died, MemoryError) as e:
        raise BadFile(f"{name} needs more memory than a file on this page may take. Simplify it first.") from e


def read_small(path: Path, up: str) -> Input:
    """The same in this process, without limits of time and memory."""
    found = read(path, up)
    if found.surface is not None and len(found.surface[1]) > FACES:
        faces = len(found.surface[1])
        raise BadFile(f"{found.name} has {faces:,} faces; on this page {FACES:,} are the most, so simplify it first.")
    return found
