"""Finished runs on disk: result, trace and settings in one folder, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from engine.diagnostics import arrays
from engine.errors import BadOutput
from engine.machine import facts
from engine.run import Run


def home() -> Path:
    """The user's data directory: $FORETOKEN_HOME, or the platform's own place."""
    if given := os.environ.get("FORETOKEN_HOME"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "foretoken"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "foretoken"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "foretoken"


def describe(run: Run) -> dict[str, Any]:
    """Everything needed to repeat a run, and its totals: the content of run.json."""
    prompt = run.prompt
    sampling = prompt.sampling or run.backbone.sampling
    return {
        "backbone": run.backbone.name,
        "weights": getattr(run.backbone, "weights_hash", None),
        "dtype": getattr(run.backbone, "dtype", None),
        "method": run.method.name,
        "exact": run.exact,
        "prompt": prompt.text,
        "seed": prompt.seed,
        "size": prompt.size,
        "sampling": {k: getattr(sampling, k) for k in ("temperature", "top_k", "top_p", "guidance")},
        "knobs": run.steps[-1].knobs if run.steps else {},
        "totals": run.totals,
        "machine": facts(),
    }


def picture_with_settings(picture: np.ndarray, settings: dict[str, Any], path: Path) -> None:
    """A PNG whose text chunk "foretoken" holds the settings as JSON."""
    info = PngInfo()
    info.add_text("foretoken", json.dumps(settings, ensure_ascii=False))
    Image.fromarray(picture).save(path, pnginfo=info)


def save(run: Run, folder: Path | None = None) -> Path:
    """Writes a run's folder (result.png, trace.npz, run.json) under `folder` or the user's runs; returns its path."""
    root = folder or home() / "runs"
    check_writable(root)
    settings = describe(run)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run.method.name}-{run.prompt.seed}"
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=root))
    try:
        picture_with_settings(run.result(), settings, part / "result.png")
        np.savez_compressed(part / "trace.npz", **arrays(run.steps))
        (part / "run.json").write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return _rename(part, root, name)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _rename(part: Path, root: Path, name: str) -> Path:
    """Gives a finished folder its name; a number is added if the name is taken."""
    part.chmod(0o755)
    for number in range(1000):
        target = root / (name if number == 0 else f"{name}-{number}")
        if not target.exists():
            part.rename(target)
            return target
    raise BadOutput(f"{root} already holds a thousand runs named {name}. Delete some.")


def check_writable(folder: Path) -> None:
    """Makes the folder; raises BadOutput if that or writing in it is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as e:
        raise BadOutput(f"Cannot write in {folder} ({e.strerror or e}). Choose another folder with --out.") from e
