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

from engine.backbones.lowpoly import Mesh
from engine.diagnostics import arrays, per_face
from engine.errors import BadOutput
from engine.machine import facts
from engine.mesh.read import Input
from engine.mesh.write import write
from engine.run import Run

MESH_FORMATS = ("glb", "obj", "ply", "stl")
UNKNOWN = (150, 152, 156)  # of a face whose tokens say nothing


def home() -> Path:
    """The user's data directory: $FORETOKEN_HOME, or the platform's own place."""
    if given := os.environ.get("FORETOKEN_HOME"):
        return Path(given)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "foretoken"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home())) / "foretoken"
    return Path(os.environ.get("XDG_DATA_HOME", Path.home() / ".local" / "share")) / "foretoken"


def describe(run: Run, given: Input | None = None) -> dict[str, Any]:
    """Everything needed to repeat a run, and its totals: the content of run.json. given: the cloud or mesh that was its prompt."""
    prompt = run.prompt
    sampling = prompt.sampling or run.backbone.sampling
    return {
        "backbone": run.backbone.name,
        "weights": run.backbone.weights_hash,
        "dtype": run.backbone.dtype,
        "method": run.method.name,
        "exact": run.exact,
        "prompt": prompt.text if given is None else given.name,
        "input": None if given is None else {"up": given.frame.up, "notes": given.notes},
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


def save(run: Run, folder: Path | None = None, given: Input | None = None, formats: tuple[str, ...] = ("glb",)) -> Path:
    """Writes a run's folder (result, trace.npz, run.json) under `folder` or the user's runs; returns its path.

    A picture is result.png. A mesh is result.glb and what else `formats` names, in the place, size and axes of `given`, and
    acceptance.glb with a colour a face; a run without a single face writes none of these.
    """
    root = folder or home() / "runs"
    check_writable(root)
    settings = describe(run, given)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{run.method.name}-{run.prompt.seed}"
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=root))
    try:
        result = run.result()
        if isinstance(result, Mesh):
            write_mesh(run, result, part, settings, given, formats)
        else:
            picture_with_settings(result, settings, part / "result.png")
        np.savez_compressed(part / "trace.npz", **arrays(run.steps))
        (part / "run.json").write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return _rename(part, root, name)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def write_mesh(run: Run, mesh: Mesh, folder: Path, settings: dict[str, Any], given: Input | None, formats: tuple[str, ...]) -> None:
    """result.* and acceptance.glb in a folder; adds to the settings how many tokens own no face."""
    settings["tokens_without_face"] = len(mesh.parser.dangling())
    if not len(mesh.faces):
        return
    for suffix in formats:
        write(folder / f"result.{suffix}", placed(mesh.vertices, given), mesh.faces, metadata=settings)
    soup = run.backbone.render(run.tokens, run.positions, False)
    trace = arrays(run.steps)
    accepted = trace.get("accepted", np.full(len(run.tokens), np.nan, np.float32))
    accepted = np.where(trace["step_drafted"][trace["step"]] > 0, accepted, np.nan)  # where nothing was drafted, nothing was refused
    write(
        folder / "acceptance.glb",
        placed(soup.vertices, given),
        soup.faces,
        acceptance_colours(per_face(soup.parser.faces, accepted)),
        settings,
    )


def placed(vertices: np.ndarray, given: Input | None) -> np.ndarray:
    """Vertices [V, 3] of the model's frame in the coordinates of the input."""
    return vertices if given is None else given.frame.from_model(vertices)


def acceptance_colours(share: np.ndarray) -> np.ndarray:
    """uint8 [F, 3]: the accepted share of a face's tokens, 0 to 1, on the viridis scale; gray where it is not known."""
    from plotly.colors import sample_colorscale  # slow to load, and only meshes need it

    known = ~np.isnan(share)
    colours = np.full((len(share), 3), UNKNOWN, np.uint8)
    if known.any():
        colours[known] = np.array(sample_colorscale("Viridis", share[known].tolist(), colortype="tuple")) * 255
    return colours


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
