"""Lists of prompts, the batch command, and its results."""

from __future__ import annotations

import csv
from pathlib import Path

from PIL import Image

from app import cli
from app.batch import table
from app.batch.folder import ROW

ROOT = Path(__file__).resolve().parents[3]
CODE = "import sys; from app import cli; sys.exit(cli.main(sys.argv[1:]))"  # the command in a separate process
CHAIR = ROOT / "assets" / "examples" / "clouds" / "chair.ply"
PROMPTS = ["a red apple", "two cats", "a green balloon", "a dog and a tree", "a yellow star", "a red apple"]
OPTIONS = ["--method", "sjdpp", "--set", "window=8", "--size", "64", "--dtype", "float32"]


def prompts(folder: Path, lines: list[str] = PROMPTS, name: str = "prompts.txt") -> Path:
    """A file with these lines."""
    path = folder / name
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def rows_of(out: Path) -> list[dict[str, str]]:
    """The table of a batch."""
    with (out / table.NAME).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def batch(path: Path, out: Path, *more: str) -> tuple[int, list[dict[str, str]]]:
    """The exit code of a batch, and the rows of its table."""
    return cli.main(["batch", str(path), "--out", str(out), *OPTIONS, "--no-sheet", *more]), rows_of(out)


def marks(out: Path) -> dict[str, tuple[int, int]]:
    """Modification time and inode per result; both differ once a result is made again."""
    stats = {path.parent.name: path.stat() for path in out.glob(f"results/[!.]*/{ROW}")}
    return {name: (stat.st_mtime_ns, stat.st_ino) for name, stat in stats.items()}


def pixels(path: Path) -> bytes:
    """Pixels of a picture, because its file also contains the run's time."""
    with Image.open(path) as picture:
        return picture.tobytes()
