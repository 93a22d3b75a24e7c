"""`launch.py batch`: many prompts or clouds to a folder of results. It can be killed at any moment and resumes there."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from app.commands.options import (
    CommandParser,
    add_faces,
    add_json,
    add_knobs,
    add_model,
    add_sampling,
    add_size,
    check_method,
    check_seed,
    file_path,
    load_backbone,
    method_of,
    sampling_of,
    whole,
)
from app.commands.report import print_json

PICTURES, MESHES = "pictogram", "lowpoly"
LISTED = 20  # failures printed to stderr; results.csv has all
LOCAL = "local"


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("batch", "Makes a picture for each prompt in a file, or a mesh for each cloud in a folder. A later start resumes.")
    p.add_argument("input", type=file_path, help="prompts as text, CSV or JSON lines, or a folder of clouds and meshes")
    p.add_argument("--out", type=file_path, required=True, metavar="DIR", help="the folder of the results")
    p.add_argument("--method", default="auto", help="a method or preset, or auto: the fastest exact one here (auto)")
    add_knobs(p)
    p.add_argument("--seed", type=check_seed, default=0, help="seed of inputs without one; each further equal input gets the next (0)")
    add_size(p)
    add_faces(p)
    p.add_argument("--up", default="auto", help="the up axis of clouds: x, y, z or auto (a network decides); a negative one as --up=-x")
    p.add_argument("--formats", default="glb", help="files of a mesh besides acceptance.glb: glb,obj,ply,stl")
    p.add_argument(
        "--shrinkwrap", action="store_true", help="also write shrinkwrapped.glb: the mesh with its vertices moved to the input's points"
    )
    p.add_argument("--retries", type=whole(0, 100), default=1, help="how often a failed input is retried (1)")
    p.add_argument("--no-sheet", action="store_true", help="write no contact sheet")
    p.add_argument(
        "--at-once", type=whole(1, 1000), help="inputs that a model decodes together (16 if it joins their passes, else 1; with --ray 1)"
    )
    p.add_argument(
        "--ray", nargs="?", const=LOCAL, metavar="ADDRESS", help="work through Ray: on this machine, or on a cluster (auto, HOST:PORT)"
    )
    p.add_argument("--actors", type=whole(1, 10_000), help="with --ray: maximum models at work (one per GPU; without GPUs, one per core)")
    add_sampling(p, guide=True)
    add_model(p, f"{PICTURES}, of clouds {MESHES}")
    p.set_defaults(backbone=None)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Makes the unfinished inputs; returns 2 if an input has no result."""
    options = parser().read(arguments)
    from app.batch.folder import BatchFolder, locked_batch
    from app.batch.inputs import read_inputs
    from app.batch.running import Batch

    check_method(options)
    sampling_of(options)
    inputs = read_inputs(options.input, options.seed)
    check(options, inputs.are_files)
    if inputs.unused:
        print(f"These fields of {options.input.name} are not used: {', '.join(inputs.unused)}.", file=sys.stderr)
    with locked_batch(options.out):
        folder = BatchFolder(options.out)
        plan, backbone = load_plan(options, folder, inputs.are_files)
        from app.batch.making import Maker, check_sizes

        batch = Batch(folder, [check_sizes(entry, plan) for entry in inputs.entries], options.retries)
        if options.ray is None:
            maker = Maker(plan, folder, backbone)
            batch.run(lambda entries: maker.rows(entries, options.at_once))
        else:
            from app.batch.with_ray import Cluster

            with Cluster(options.ray, plan, folder, options.actors, options.at_once or 1) as cluster:
                batch.run(cluster.rows)
        folder.clean()  # of actors that died
        return summarize(options, batch)


def check(options: argparse.Namespace, are_files: bool) -> None:
    """Sets the default model; raises ForetokenError for options of the other kind of input, and for --actors without --ray."""
    own = parser()
    for name in ("size",) if are_files else ("faces", "about", "up", "formats", "shrinkwrap"):
        if getattr(options, name) != own.get_default(name):
            own.error(f"{options.input.name} contains {'clouds' if are_files else 'prompts'}, which do not use --{name}")
    if options.actors is not None and options.ray is None:
        own.error("--actors belongs to --ray")
    options.backbone = options.backbone or (MESHES if are_files else PICTURES)


def load_plan(options: argparse.Namespace, folder: Any, are_files: bool) -> tuple[Any, Any]:
    """(plan of the batch, which an earlier start may have set, loaded model). Raises ForetokenError if they do not match."""
    from app.batch.folder import stored_settings
    from app.batch.plan import BatchPlan
    from app.commands.mesh import check_up, formats_of
    from engine.backbones import resolve
    from engine.errors import NotSupported
    from engine.sampling import with_values

    check_up(options.up)
    formats = formats_of(options.formats)
    earlier = stored_settings(options.out)
    wanted = options.method
    if earlier is not None and earlier.get("asked") == wanted:
        options.method = str(earlier["method"])
        options.dtype = str(earlier["dtype"]) if options.dtype == "auto" else options.dtype
    backbone = load_backbone(options)
    if ("mesh" in backbone.capabilities) != are_files:
        outputs, inputs = ("meshes from clouds", "prompts") if not are_files else ("pictures from words", "clouds")
        raise NotSupported(f"{backbone.name} makes {outputs}, and {options.input.name} contains {inputs}. Choose another --backbone.")
    with_values(backbone.sampling, sampling_of(options))
    _, knobs = method_of(options, backbone)
    name, path = resolve(options.backbone)
    plan = BatchPlan(
        name, path, backbone.weights_hash, str(backbone.dtype).removeprefix("torch."), wanted, options.method, knobs, sampling_of(options),
        options.faces if are_files else options.size, options.up, formats,
        options.shrinkwrap, options.about, backbone.weight_form,
    )  # fmt: skip
    return folder.open(plan), backbone


def summarize(options: argparse.Namespace, batch: Any) -> int:
    """Writes the contact sheet and prints the counts; returns the exit code."""
    from app.batch import sheet, table
    from engine.errors import ForetokenError

    pages: list[str] = []
    if not options.no_sheet:
        try:
            pages = [str(path) for path in sheet.write(batch.table(), batch.folder.root)]
        except ForetokenError as e:
            print(f"There is no contact sheet: {e}", file=sys.stderr)
    failures = batch.failures
    for row in failures[:LISTED]:
        print(f"input {row['number']} failed: {row['error']}", file=sys.stderr)
    if len(failures) > LISTED:
        print(f"{len(failures) - LISTED} more inputs failed; results.csv lists them.", file=sys.stderr)
    count, path = len(batch.entries), str(batch.folder.root / table.NAME)
    line = {
        "inputs": count,
        "done": count - len(failures),
        "before": batch.before,
        "failed": len(failures),
        "results": path,
        "sheets": pages,
    }
    if options.json:
        print_json(line)
    else:
        print(f"{line['done']} of {count} done, {line['before']} of them before; {line['failed']} failed")
        print("\n".join([path, *pages]))
    return 2 if failures else 0
