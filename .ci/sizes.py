"""Prints lines of source by room with the ceilings in CONTRIBUTING.md, and the word count of docs/.

usage: .venv/bin/python .ci/sizes.py

Lines are physical lines of Python, JavaScript, C and CSS that git tracks. CONTRIBUTING.md says how a ceiling is raised.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {".py", ".js", ".c", ".h", ".css"}
TABLE = re.compile(r"^\| `([a-z_./]+)` \|.*\| ([\d,]+) \|$", re.MULTILINE)  # rows of CONTRIBUTING.md: a room and its ceiling


def tracked_files() -> list[Path]:
    """Files that git tracks, relative to the root."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def text(path: Path) -> str:
    """The content of a tracked text file."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


def lines_by_room(files: list[Path]) -> Counter[str]:
    """Lines of source per folder, including its subfolders."""
    lines: Counter[str] = Counter()
    for path in files:
        if path.suffix in SOURCES:
            count = text(path).count("\n")
            for folder in [path, *path.parents][:-1]:
                lines[folder.as_posix()] += count
    return lines


def main() -> None:
    """Prints the table."""
    files = tracked_files()
    lines = lines_by_room(files)
    print(f"{'room':24}{'lines':>9}{'ceiling':>9}")
    for room, ceiling in TABLE.findall(text(Path("CONTRIBUTING.md"))):
        over = "  above" if lines[room] > int(ceiling.replace(",", "")) else ""
        print(f"{room:24}{lines[room]:>9,}{ceiling:>9}{over}")
    words = sum(len(text(path).split()) for path in files if path.suffix == ".md" and path.parts[0] == "docs")
    print(f"{'docs, words':24}{words:>9,}{'39,200':>9}{'  above' if words > 39_200 else ''}")


if __name__ == "__main__":
    main()
