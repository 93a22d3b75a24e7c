"""Reads uploaded files for the page in a separate process, with limits on size, faces, time and memory.

The command line reads larger files (engine/mesh/read.py has its limits); here they would keep other visitors waiting.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from app.live.reading import read_small
from engine.errors import BadFile
from engine.mesh.formats.source import printable, size_text
from engine.mesh.read import Input
from engine.recognition.up import stand_up
from engine.sandbox import Died, TookTooLong, run_sandboxed

BYTES = 64 * 2**20  # maximum size of a file
SECONDS = 30  # maximum processor time for reading
LONGEST = 90.0  # maximum seconds for reading on a busy machine
MEMORY = 3 * 2**30  # maximum bytes for reading
MODEST = 5  # niceness of reading: below other visitors' runs, above the pictures of finished races
WAIT = 180.0  # seconds that a file may wait to be read


def adopt(file: Path, folder: Path) -> Path:
    """Moves an uploaded file into its own folder and returns the new path; raises BadFile if the file is gone."""
    if not file.is_file():
        raise BadFile(f"{file.name} did not arrive. Drop it again.")
    folder.mkdir(parents=True)
    return Path(shutil.move(file, folder / file.name))


def read_upload(path: Path, up: str = "auto", work: int = SECONDS) -> Input:
    """The input in an uploaded file; raises BadFile, also for a file that is too large for the page. work: seconds of processor time"""
    name = printable(path.name)
    size = path.stat().st_size if path.exists() else 0
    if size > BYTES:
        raise BadFile(f"{name} has {size_text(size)}; files on this page can have at most {size_text(BYTES)}. Make it smaller first.")
    try:
        shape = run_sandboxed(read_small, path, up, seconds=LONGEST, memory=MEMORY, work=work, nice=MODEST)
    except TookTooLong as e:
        raise BadFile(f"{name} could not be read within {work} seconds. Simplify it, or use the command line.") from e
    except (Died, MemoryError) as e:
        raise BadFile(f"{name} needs more memory than a file on this page may use. Simplify it first.") from e
    return stand_up(shape) if up == "auto" else shape
