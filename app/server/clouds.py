"""The readable point clouds and meshes of a folder."""

from __future__ import annotations

from pathlib import Path

from engine.errors import BadFile, BadPrompt


def files_in(folder: Path) -> list[Path]:
    """The readable files of a folder, sorted; raises BadPrompt if there are none, BadFile if the folder cannot be read."""
    from engine.mesh.read import READERS

    try:
        files = sorted(p for p in folder.iterdir() if p.suffix.lower() in READERS)
    except OSError as e:
        raise BadFile(f"Cannot read the folder {folder} ({e.strerror or e}). Give another.") from e
    if not files:
        raise BadPrompt(f"{folder} holds no file that can be read ({', '.join(READERS)}). Give another folder.")
    return files
