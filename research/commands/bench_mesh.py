"""`launch.py bench mesh`: measures the rows of XSpecMesh's tables or named methods, judges meshes, or draws a contact sheet of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json, add_model, add_sampling, file_path, refuse_unused, whole
from app.commands.report import print_json
from app.requests.limits import MOST_FACES, MOST_SEEDS
from research.commands.bench_options import add_choice, add_files, choice_of, model_of

COUNT, SHEET_COUNT, PACK_COUNT = 40, 24, 100
FULL = {"count": 200, "seeds": 3}
# the options that --sheet uses
SHEET = ("backbone", "device", "dtype", "temperature", "top_k", "top_p", "adherence", "faces", "json", "sheet", "count")
UPRIGHT = ("backbone", "device", "dtype", "count", "each", "packs", "csv", "json", "upright")
JUDGE = (*SHEET, "judge", "each", "packs", "up", "csv", "best_of", "shrinkwrap")


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser("bench mesh", "Times plain decoding and methods on held-out point clouds, in turns.")
    add_choice(p)
    p.add_argument(
        "--count",
        type=whole(1, 10_000),
        help=f"number of point clouds ({COUNT}; for --sheet {SHEET_COUNT}), or of files of --packs ({PACK_COUNT})",
    )
    p.add_argument("--full", action="store_true", help=f"measure {FULL['count']} clouds with {FULL['seeds']} seeds")
    p.add_argument("--repeats", type=whole(1, 1_000), help="how often each row decodes each cloud, twice each time (1)")
    p.add_argument("--faces", "--size", type=whole(1, MOST_FACES), dest="faces", help="most faces of a mesh (unlimited)")
    p.add_argument("--judge", action="store_true", help="instead of timing, count how often meshes are what their inputs are")
    p.add_argument("--upright", action="store_true", help="instead of timing, count how often the up axis is found, in six orientations")
    p.add_argument("--packs", type=file_path, nargs="+", metavar="DIR", help="with --judge: judge files of these folders too, not selected")
    p.add_argument("--each", type=whole(0, 1_000), help="with --judge: held-out shapes of every family (2; with --sheet 0)")
    p.add_argument("--up", help="with --packs: the files' axis that is up: x, y, z or auto; a negative one as --up=-x (auto)")
    p.add_argument("--best-of", type=whole(1, MOST_SEEDS), metavar="N", help="with --judge: judge the nearest mesh of N seeds (1)")
    p.add_argument("--shrinkwrap", action="store_true", help="with --judge: move the vertices to the input's points before")
    add_files(p)
    add_sampling(p, guidance=False, adherence=True)
    add_model(p, "lowpoly")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures or draws."""
    own = parser()
    options = own.read(arguments)
    if not (options.judge or options.upright):
        for name, value in (("--packs", options.packs), ("--each", options.each), ("--up", options.up), ("--best-of", options.best_of)):
            if value is not None:
                own.error(f"{name} chooses what is judged: add --judge or --upright")
        if options.shrinkwrap:
            own.error("--shrinkwrap changes what is judged: add --judge")
    if options.upright:
        refuse_unused(own, options, UPRIGHT, "bench mesh --upright")
        return upright(options)
    if options.judge:
        refuse_unused(own, options, JUDGE, "bench mesh --judge")
        return judge(options)
    if options.sheet:
        refuse_unused(own, options, SHEET, "bench mesh --sheet")
        return draw(options)
    if options.full and options.count:
        own.error(f"--full measures {FULL['count']} clouds: leave --count out, or --full")
    from research.bench import meshes
    from research.bench.plan import MeshBench

    many = FULL if options.full else {"count": options.count or COUNT}
    own_values = {"repeats": options.repeats or 1, "faces": options.faces, "csv": options.csv}
    rows = meshes.bench(MeshBench(**model_of(options), **choice_of(options), **many, **own_values))
    if options.json:
        print_json(rows)
    return 0


def plan_of(options: argparse.Namespace) -> Any:
    """The plan of --judge and --upright."""
    from research.bench.plan import MeshJudgeBench

    each = options.each if options.each is not None else 0 if options.sheet and options.packs else 2
    own_values = {"each": each, "packs": tuple(options.packs or ()), "count": options.count or PACK_COUNT, "up": options.up or "auto"}
    own_values |= {"best_of": options.best_of or 1, "shrinkwrap": options.shrinkwrap}
    return MeshJudgeBench(**model_of(options), **own_values, faces=options.faces, csv=options.csv)


def upright(options: argparse.Namespace) -> int:
    """Counts right up axes."""
    from research.bench import upright as measure

    rows = measure.bench(plan_of(options))
    if options.json:
        print_json(rows)
    return 0


def judge(options: argparse.Namespace) -> int:
    """Judges meshes, or draws inputs beside their meshes."""
    from research.bench import mesh_judged

    plan = plan_of(options)
    if options.sheet:
        mesh_judged.draw(plan, options.sheet)
        print_json({"sheet": str(options.sheet)}) if options.json else print(options.sheet)
        return 0
    rows = mesh_judged.bench(plan)
    if options.json:
        print_json(rows)
    return 0


def draw(options: argparse.Namespace) -> int:
    """Draws the contact sheet of meshes."""
    from research.bench.figures import mesh_sheet
    from research.bench.plan import MeshSheet

    mesh_sheet.draw(MeshSheet(**model_of(options), path=options.sheet, count=options.count or SHEET_COUNT, faces=options.faces))
    if options.json:
        print_json({"sheet": str(options.sheet)})
    else:
        print(options.sheet)
    return 0
