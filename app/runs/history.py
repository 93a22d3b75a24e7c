"""Writes finished runs: result, trace and settings in one folder, complete or not at all, with everything needed to repeat the run."""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from engine import files
from engine.backbones.lowpoly import Mesh
from engine.core import Step
from engine.diagnostics import arrays, per_face
from engine.errors import BadOutput, ForetokenError
from engine.files import home as home
from engine.mesh.read import Input
from engine.mesh.write import write
from engine.run import Run

MESH_FORMATS = ("glb", "obj", "ply", "stl")
UNKNOWN = (150, 152, 156)  # colour of a face whose tokens had no drafts
SETTINGS, TRACE, PICTURE, POINTS = "run.json", "trace.npz", "result.png", "points.npz"
TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EACCES)  # errors when the new name exists
SAME_SECOND = 1000  # maximum number of runs of one method and seed in one second


# --- what a run was ---------------------------------------------------------------------------------------------------


def describe(run: Run, shape: Input | None = None) -> dict[str, Any]:
    """The content of run.json: everything needed to repeat a run, and its totals. shape : the cloud or mesh of its prompt.

    knobs : all values at the first step; moves : {"step", "name", "value"} for each change, effective from that step
    """
    prompt = run.prompt
    sampling = prompt.sampling or run.backbone.sampling
    return {
        "id": identity(run.in_order),
        "parent": prompt.origin and prompt.origin.parent,
        "at": prompt.origin and prompt.origin.at,
        "backbone": run.backbone.name,
        "weights": run.backbone.weights_hash,
        **run.made_with,
        "method": run.method.name,
        "preset": run.name if run.name != run.method.name else None,
        "exact": run.exact,
        "prompt": prompt.text if shape is None else shape.name,
        "input": None if shape is None else shape.frame.settings | {"notes": shape.notes},
        "seed": prompt.seed,
        "size": prompt.size,
        "about": prompt.about,
        "prefix": list(prompt.prefix),
        "sampling": dict(vars(sampling)),
        "guide": None if prompt.guide is None else {"faces": len(prompt.guide[1])},
        "knobs": run.steps[0].knobs if run.steps else run.live.read(),
        "moves": moves(run.steps),
        "steps": len(run.steps),
        "finished": run.finished,
        "totals": run.totals,
        "machine": run.machine,
    }


def identity(tokens: Sequence[int]) -> str:
    """Short name of a result, the same for runs with the same tokens. tokens : in the order of positions"""
    return hashlib.sha256(np.array(tokens, np.int64).tobytes()).hexdigest()[:16]


def moves(steps: list[Step]) -> list[dict[str, Any]]:
    """Changes of knobs during a run: {"step": first step with the new value, "name", "value"}."""
    changes = []
    for number, (before, step) in enumerate(pairwise(steps), start=1):
        changed = [name for name, value in step.knobs.items() if before.knobs[name] != value]
        changes += [{"step": number, "name": name, "value": step.knobs[name]} for name in changed]
    return changes


# --- writing ----------------------------------------------------------------------------------------------------------


def save(
    run: Run, folder: Path | None = None, shape: Input | None = None, formats: tuple[str, ...] = ("glb",), other: Run | None = None
) -> Path:
    """Writes a run's folder (result, trace.npz, run.json) into `folder`, None = the user's runs; returns its path.

    A picture is result.png. A mesh is result.* in each of `formats`, in the position, size and axes of `shape`, and acceptance.glb with
    one colour per face; a run without faces writes none of these. points.npz contains the model's input points. other : the left side of
    the same race, whose method and speed are noted. Raises BadOutput if the disk refuses, and then leaves no files.
    """
    root = folder or home() / "runs"
    check_writable(root)
    files.clean(root)
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{file_name(run)}-{run.prompt.seed}"
    placed_at: list[Path] = []
    with as_sentence(root), files.whole_folder(root, name, lambda part: placed_at.append(_move_into_place(part, root, name))) as part:
        write_run(run, part, shape, formats, other)
    return placed_at[0]


def file_name(run: Run) -> str:
    """Name of a run's method for file names: letters, digits, hyphens, dots and underscores."""
    return re.sub(r"[^\w.]+", "-", run.name)


def deliver(run: Run, out: Path | None, shape: Input | None = None, formats: tuple[str, ...] = ("glb",)) -> tuple[Path, str]:
    """Writes a run into the history and, if given, into the folder `out`. Returns the folder with the requested files and, if the history
    could not be written, an error message. Raises BadOutput if the requested files cannot be written."""
    if out is None:
        return save(run, None, shape, formats), ""
    check_writable(out)
    try:
        source, complaint = save(run, None, shape, formats), ""
    except BadOutput as e:
        source, complaint = None, f"{e} The run is saved only in {out}."
    with as_sentence(out):
        if source is not None:
            _copy_all(source, out)
            return out, complaint
        part = files.part_beside(out / "run")
        part.mkdir()
        try:
            write_run(run, part, shape, formats)
            _copy_all(part, out)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return out, complaint


def _copy_all(source: Path, target: Path) -> None:
    for path in sorted(source.iterdir()):
        files.copy(path, target / path.name)


def write_run(run: Run, folder: Path, shape: Input | None, formats: tuple[str, ...], other: Run | None = None) -> None:
    """Writes all files of a run into a folder."""
    settings, result = describe(run, shape), run.result()
    if other is not None:
        settings["other"] = {"method": other.name, "tokens_per_second": other.totals["tokens_per_second"]}
    if isinstance(result, Mesh):
        write_mesh(run, result, folder, settings, shape, formats)
    else:
        picture_with_settings(result, settings, folder / PICTURE)
    if run.prompt.points is not None:
        np.savez_compressed(folder / POINTS, points=run.prompt.points.cpu().numpy())
    np.savez_compressed(folder / TRACE, **arrays(run.steps))
    write_settings(settings, folder / SETTINGS)


def write_settings(settings: dict[str, Any], path: Path) -> None:
    """Writes run.json."""
    path.write_text(json.dumps(settings, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def picture_with_settings(picture: np.ndarray, settings: dict[str, Any], path: Path) -> None:
    """Writes a PNG that contains the settings; raises BadOutput if the disk refuses."""
    with as_sentence(path):
        Image.fromarray(picture).save(path, pnginfo=text_of(settings))


def text_of(settings: dict[str, Any]) -> PngInfo:
    """Settings as JSON in the PNG text chunk "foretoken"."""
    info = PngInfo()
    info.add_text("foretoken", json.dumps(settings, ensure_ascii=False))
    return info


def write_mesh(run: Run, mesh: Mesh, folder: Path, settings: dict[str, Any], shape: Input | None, formats: tuple[str, ...]) -> None:
    """Writes result.* and acceptance.glb into a folder; adds the number of tokens without a face to the settings."""
    settings["tokens_without_face"] = len(mesh.parser.dangling())
    if not len(mesh.faces):
        return
    for suffix in formats:
        write(
            folder / f"result.{suffix}",
            to_input_frame(mesh.vertices, shape),
            mesh.faces,
            metadata=settings,
            shift=shape and shape.frame.shift,
        )
    soup = run.backbone.render(run.tokens, run.positions, False)
    trace = arrays(run.steps)
    accepted = trace.get("accepted", np.full(len(run.tokens), np.nan, np.float32))
    accepted = np.where(trace["step_drafted"][trace["step"]] > 0, accepted, np.nan)  # a step without drafts has no acceptance
    write(
        folder / "acceptance.glb",
        to_input_frame(soup.vertices, shape),
        soup.faces,
        acceptance_colours(per_face(soup.parser.faces, accepted)),
        settings,
    )


def to_input_frame(vertices: np.ndarray, shape: Input | None) -> np.ndarray:
    """Transforms vertices [V, 3] from the model's frame to the coordinates of the input."""
    return vertices if shape is None else shape.frame.from_model(vertices)


def acceptance_colours(share: np.ndarray) -> np.ndarray:
    """uint8 [F, 3]: viridis colours of the accepted share, 0 to 1, of each face's tokens; gray where it is nan."""
    from plotly.colors import sample_colorscale  # slow to load, and only meshes need it

    known = ~np.isnan(share)
    colours = np.full((len(share), 3), UNKNOWN, np.uint8)
    if known.any():
        colours[known] = np.array(sample_colorscale("Viridis", share[known].tolist(), colortype="tuple")) * 255
    return colours


def _move_into_place(part: Path, root: Path, name: str) -> Path:
    """Renames a finished folder; adds a number if the name exists, even if another run takes it at the same moment."""
    for number in range(SAME_SECOND):
        target = root / (name if number == 0 else f"{name}-{number}")
        try:
            if not target.exists():
                part.rename(target)
                return target
        except OSError as e:
            if e.errno not in TAKEN or not target.exists():
                raise
    raise BadOutput(f"{root} already contains a thousand runs named {name}. Delete some.")


def check_writable(folder: Path) -> None:
    """Creates the folder; raises BadOutput if it cannot be created or written to."""
    with as_sentence(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


@contextmanager
def as_sentence(where: Path) -> Iterator[None]:
    """Converts an OSError inside into BadOutput."""
    try:
        yield
    except ForetokenError:
        raise
    except OSError as e:
        raise BadOutput(f"Cannot write in {where} ({e.strerror or e}). Free some space, or choose another folder with --out.") from e
