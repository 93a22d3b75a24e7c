"""`launch.py mesh`: generates a mesh from a point cloud or another mesh, or from each file in a folder."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.commands.options import (
    CommandParser,
    add_faces,
    add_json,
    add_model,
    add_run,
    add_sampling,
    add_source,
    check_method,
    check_source,
    file_path,
    load_backbone,
    method_of,
    sampling_of,
    whole,
)
from app.commands.report import decode, files_of, print_json, readable, report
from app.requests.limits import MOST_SEEDS


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("mesh", "Generates a mesh from a point cloud or another mesh.")
    p.add_argument("input", nargs="?", type=file_path, help="a file (PLY, OBJ, GLB, STL, OFF, XYZ, NPY, PCD ...), or a folder of them")
    add_source(p)
    add_run(p, "auto")
    add_faces(p)
    p.add_argument(
        "--best-of", type=whole(1, MOST_SEEDS), default=1, metavar="N", help="try N seeds from --seed on and use the nearest mesh (1)"
    )
    p.add_argument("--up", default="auto", help="the input's up axis: x, y, z or auto (a network decides); a negative one as --up=-x")
    p.add_argument(
        "--shrinkwrap", action="store_true", help="also write shrinkwrapped.glb: the mesh with its vertices moved to the input's points"
    )
    p.add_argument("--baseline", choices=["classical"], help="also write classical.glb: a surface made of the points without the model")
    p.add_argument("--formats", default="glb", help="result files besides acceptance.glb: glb,obj,ply,stl")
    add_sampling(p, guidance=False, guide=True)
    add_model(p, "lowpoly")
    add_json(p)
    return p


KEPT = {"faces": "most faces", "about": "number of faces", "up": "up axis", "best_of": "first tokens"}  # of the run of --from


@dataclass(frozen=True)
class MeshWork:
    """Settings shared by all files of one command."""

    options: argparse.Namespace
    backbone: Any
    method: Any
    knobs: Mapping[str, Any]
    sampling: Any
    formats: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    """Generates the meshes; returns 2 if a file in a folder could not be used."""
    options = parser().read(arguments)
    from app.requests.meshes import files_in
    from app.runs.finished import shape_of
    from app.runs.history import check_writable, home
    from engine.errors import ForetokenError, NotSupported
    from engine.nearest import seed_knobs
    from engine.recognition.up import read_standing
    from engine.sampling import with_values

    check_method(options)
    if (options.input is None) == (options.source is None):
        parser().error("give a file or a folder, or --from with the folder of a saved run")
    check_source(parser(), options, KEPT)
    sampling, formats = sampling_of(options), formats_of(options.formats)
    path = options.source or options.input
    is_folder = not options.source and os.path.isdir(path)  # never raises, even for very long or odd names
    files = files_in(path) if is_folder else [path]
    # a single input is read before the model is loaded
    first = None if is_folder else shape_of(path) if options.source else read_standing(path, options.up)
    check_up(options.up)
    check_writable(options.out or home() / "runs")
    backbone = load_backbone(options)
    if "mesh" not in backbone.capabilities:
        raise NotSupported(f"{backbone.name} makes pictures from words. Draw one with launch.py image, or choose a mesh model.")
    method, knobs = method_of(options, backbone)
    if options.best_of > 1:
        knobs = seed_knobs(method, knobs)
    work = MeshWork(options, backbone, method, knobs, with_values(backbone.sampling, sampling), formats)
    if first is not None:
        line = one_mesh(work, path, first, options.out)
        if options.json:
            print_json(line)
        return 0
    lines, failed = [], False
    for path in files:
        try:
            lines.append(one_mesh(work, path, read_standing(path, options.up), options.out and options.out / own_name(path, files)))
        except ForetokenError as e:
            failed = True
            print(f"{path.name}: {e}", file=sys.stderr)
    if options.json:
        print_json(lines)
    return 2 if failed else 0


def formats_of(text: str) -> tuple[str, ...]:
    """The formats of --formats; raises NotSupported for an unknown one."""
    from app.runs.history import MESH_FORMATS
    from engine.errors import NotSupported

    formats = tuple(dict.fromkeys(name.strip() for name in text.lower().split(",")))
    if unknown := [name for name in formats if name not in MESH_FORMATS]:
        raise NotSupported(f"There is no mesh format '{unknown[0]}'. Choose from: {', '.join(MESH_FORMATS)}.")
    return formats


def own_name(path: Path, files: Sequence[Path]) -> str:
    """Name of a file's output folder: its stem, or its whole name if another file has the same stem."""
    return path.stem if [other.stem for other in files].count(path.stem) == 1 else path.name


def check_up(axis: str) -> None:
    """Raises BadPrompt for an unknown axis, once for all files of a folder."""
    from engine.mesh.frame import choose_up

    choose_up("", axis)


def continued(work: MeshWork, prompt: Any) -> Any:
    """The prompt of the run of --from with its first tokens as a prefix, and the seed and the sampling options of `prompt`."""
    from dataclasses import replace

    from app.runs.finished import fork
    from engine.sampling import with_values

    options = work.options
    origin = fork(options.source, work.backbone, options.at, options.token)
    return replace(origin, seed=prompt.seed, sampling=with_values(origin.sampling, sampling_of(options)))


def best_seed(work: MeshWork, prompt: Any) -> tuple[Any, dict[str, Any] | None]:
    """(prompt with the seed of the nearest mesh, columns of the trials or None without --best-of)."""
    from dataclasses import replace

    from engine.nearest import nearest, try_seeds

    if work.options.best_of == 1:
        return prompt, None
    start = time.perf_counter()
    trials = try_seeds(work.backbone, prompt, work.options.best_of)
    seed, seconds = nearest(trials).seed, time.perf_counter() - start
    gaps = [each.chamfer and round(each.chamfer, 4) for each in trials]
    return replace(prompt, seed=seed), {"seeds": len(trials), "seed": seed, "seconds": round(seconds, 4), "chamfer": gaps}


def shrinkwrap(work: MeshWork, run: Any, shape: Any, folder: Path) -> dict[str, Any]:
    """Writes the mesh with its vertices moved to the points, in all formats; returns the columns."""
    from app.runs.mesh_files import save_shrinkwrapped

    start = time.perf_counter()
    chamfer = save_shrinkwrapped(run, shape, folder, work.formats)
    return {"chamfer": chamfer, "seconds": round(time.perf_counter() - start, 4)}


def baseline(work: MeshWork, run: Any, shape: Any, folder: Path) -> dict[str, Any]:
    """Writes the classical surface of the same points, in all formats; returns its columns."""
    from app.runs.history import to_input_frame
    from app.runs.mesh_files import classical_surface, write_classical
    from engine.mesh.distance import distance
    from engine.mesh.fit import fit_of

    start = time.perf_counter()
    vertices, faces = classical_surface(run)
    seconds = time.perf_counter() - start
    for form in work.formats:
        write_classical(run, (vertices, faces), shape, folder / f"classical.{form}")
    gaps = distance((to_input_frame(vertices, shape), faces), shape.reference)
    fits = fit_of(gaps)
    return {"name": "classical", "faces": len(faces), "chamfer": gaps["chamfer"], "fit": fits and fits.row(), "seconds": round(seconds, 4)}


def print_mesh(path: Path, line: dict[str, Any], seeds: int) -> None:
    """Prints the summary of a mesh in words. seeds : tried, if more than one"""
    tried, fit, snapped, classical = (line[key] for key in ("best_of", "fit", "shrinkwrap", "baseline"))
    print(f"{path.name}: {' '.join(line['notes'])}".rstrip())
    if tried:
        print(f"Best of {seeds} seeds: {tried['seed']}; trying them took {tried['seconds']:.1f} s.")
    print(readable(line))
    if line["faces"]:
        print(f"{line['faces']} faces, {line['vertices']} vertices, chamfer {line['chamfer']:.4f} (floor {line['floor']:.4f})")
    if fit:
        print(fit["text"])
    if (face := line["repeats_since"]) is not None:
        print(f"It repeats itself since face {face:,}. Try another seed.")
    if snapped:
        print(f"Shrinkwrapped: chamfer {snapped['chamfer']:.4f}, after {snapped['seconds']:.1f} s.")
    if classical:
        print(f"Classical surface, without the model: {classical['faces']} faces, {classical['seconds']:.1f} s.")
        print(classical["fit"]["text"] if classical["fit"] else "It has no area.")
    elif not line["faces"] or (fit and fit["verdict"] == "foreign"):
        print("--baseline classical makes a surface through the points without the model.")


def one_mesh(work: MeshWork, path: Path, shape: Any, out: Path | None) -> dict[str, Any]:
    """Generates one mesh and returns its summary, printed unless --json. out: folder for a copy of the files"""
    import torch

    from app.requests.meshes import NO_GUIDE, guided, misses_guide
    from app.runs.history import deliver, to_input_frame
    from engine.core import Prompt
    from engine.mesh.distance import distance
    from engine.mesh.fit import fit_of
    from engine.mesh.quality import quality
    from engine.mesh.repeats import loop_start

    options = work.options
    points = torch.from_numpy(shape.points)
    prompt = Prompt(points=points, seed=options.seed, size=options.faces, about=options.about, sampling=work.sampling)
    if options.source:
        prompt = continued(work, prompt)
    prompt = guided(work.backbone, prompt)
    if misses_guide(work.backbone, prompt):
        print(NO_GUIDE, file=sys.stderr)
    prompt, tried = best_seed(work, prompt)
    run, comparison = decode(options, work.backbone, work.method, prompt, work.knobs)
    start = time.perf_counter()
    folder, complaint = deliver(run, out, shape, work.formats)
    rendering = time.perf_counter() - start
    if complaint:
        print(complaint, file=sys.stderr)
    result = run.result()
    measures = quality(result.vertices, result.faces)
    gaps = distance((to_input_frame(result.vertices, shape), result.faces), shape.reference)
    line = report(run, folder) | {"input": str(path), "notes": shape.notes, "rendering_seconds": round(rendering, 4)}
    line |= {k: measures[k] for k in ("faces", "vertices", "watertight")} | {k: gaps[k] for k in ("chamfer", "hausdorff", "floor")}
    fits = fit_of(gaps)
    line |= {"fit": fits and fits.row(), "shrinkwrap": None, "baseline": None}
    if options.shrinkwrap and measures["faces"]:
        line |= {"shrinkwrap": shrinkwrap(work, run, shape, folder), "files": files_of(folder)}
    if options.baseline:
        line |= {"baseline": baseline(work, run, shape, folder), "files": files_of(folder)}
    loop = loop_start(result.parser.triangles().tolist())
    line |= {
        "repeats_since": loop,
        "best_of": tried,
        "quality": measures,
        "ended": bool(run.tokens) and run.tokens[-1] == work.backbone.end,
    } | comparison
    if not options.json:
        print_mesh(path, line, options.best_of)
    if not measures["faces"]:
        print(f"{path.name} produced no faces. Try another --seed, --up y, or more points with outward normals.", file=sys.stderr)
    return line
