"""`launch.py export`: replays one to four saved runs in an HTML file, a GIF or an MP4. It does not load the model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.commands.options import CommandParser, add_json, file_path
from app.commands.report import print_json

FORMATS = (".html", ".gif", ".mp4")
MOST = 4  # runs in one file


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser(
        "export",
        "Replays one to four saved runs in one file: HTML with scrubber, maps and charts (charts for up to two runs), GIF or MP4.",
    )
    p.add_argument("run", type=file_path, metavar="RUN", help="the folder of a run, or its name in the history; with LEFT the right side")
    p.add_argument("left", type=file_path, nargs="*", metavar="LEFT", help="the run to compare with; three or four race in the order given")
    p.add_argument("--out", type=file_path, required=True, metavar="FILE", help=f"the file to write: {', '.join(FORMATS)}")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Writes the file and prints its name."""
    own = parser()
    options = own.read(arguments)
    kind = options.out.suffix.lower()
    if kind not in FORMATS:
        own.error(f"--out {options.out.name} has an unknown ending; choose one of {', '.join(FORMATS)}")
    if len(options.left) >= MOST:
        own.error(f"{1 + len(options.left)} runs are too many for one file; give at most {MOST}")
    from app.runs.exporting import write
    from app.runs.history import as_sentence, check_writable

    folders = [folder_of(path) for path in (options.run, *options.left)]
    check_writable(options.out.resolve().parent)
    with as_sentence(options.out):
        write(folders, options.out, kind)
    line: dict[str, Any] = {"file": str(options.out), "bytes": options.out.stat().st_size, "runs": [str(folder) for folder in folders]}
    if options.json:
        print_json(line)
    else:
        print(f"{line['file']}: {line['bytes'] / 1e6:.1f} MB")
    return 0


def folder_of(path: Path) -> Path:
    """Folder of a run: the path itself, or the run of this name in the history."""
    from app.runs.history import SETTINGS, home

    in_history = home() / "runs" / path
    return in_history if not (path / SETTINGS).exists() and (in_history / SETTINGS).exists() else path
