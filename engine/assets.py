"""The location of the shipped models, examples and recorded tables: assets/ and docs/bench/ in a checkout, foretoken_assets/ and
foretoken_bench/ next to engine/ in an installed wheel."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]  # the checkout, or the site-packages of an installation


def checkout() -> Path | None:
    """The root of the checkout that this code runs from; None for an installed wheel."""
    return ROOT if (ROOT / "launch.py").is_file() else None


def assets() -> Path:
    """The folder with models/ and examples/."""
    return ROOT / ("assets" if checkout() else "foretoken_assets")


def models() -> Path:
    """The folder of the shipped models, one folder each."""
    return assets() / "models"


def clouds() -> Path:
    """The folder of the example point clouds, PLY files."""
    return assets() / "examples" / "clouds"


def recordings() -> Path:
    """The folder of the recorded runs that a new page shows, compressed JSON."""
    return assets() / "examples" / "recorded"


def benches() -> Path:
    """The folder of the recorded benchmarks, CSV files."""
    return ROOT / ("docs/bench" if checkout() else "foretoken_bench")
