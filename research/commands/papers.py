"""`launch.py papers [PAPER [EXPERIMENT]]`: lists the tables and figures of the papers, or runs one or all and writes their files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands.options import CommandParser, add_device, add_json, file_path, refuse_unused, whole
from app.commands.report import print_json

if TYPE_CHECKING:
    from research.papers.declaration import Experiment, Paper

MOST_MINUTES = 30
ALL = "all"  # instead of a paper or an experiment


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("papers", "Lists every table and figure of the five papers, or runs one or all.")
    p.add_argument("paper", nargs="?", help="the paper to check; 'all' runs every check that can run here; without one, lists the papers")
    p.add_argument("experiment", nargs="?", help="a table or figure to run, or all; without one, lists those of the paper")
    p.add_argument("--count", type=whole(1, 10_000), help="maximum number of inputs (as declared)")
    p.add_argument("--minutes", type=whole(1, 1_000), help=f"stop each experiment after this time; run again to continue ({MOST_MINUTES})")
    p.add_argument("--once", action="store_true", help="decode each input once per row: faster, with rough times")
    p.add_argument("--out", "--to", dest="out", type=file_path, default=Path("papers"), help="folder of the files (papers)")
    p.add_argument("--backbone", metavar="NAME|PATH", help="a model or a folder of weights instead of the declared one")
    add_device(p)
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Lists experiments or runs them."""
    own = parser()
    options = own.read(arguments)
    if options.paper == ALL or options.experiment == ALL:
        return run_all(options)
    if options.experiment is None:
        refuse_unused(own, options, ("paper", "json"), "papers without an experiment")
        return show(options)
    from research.papers import experiment_of, paper_of

    paper = paper_of(options.paper)
    files, text = run_one(options, paper, experiment_of(paper, options.experiment))
    print(text)
    if options.json:
        print_json(files)
    return 0


def show(options: argparse.Namespace) -> int:
    """Lists all papers, or one."""
    from research.papers import PAPERS, paper_of

    papers = [paper_of(options.paper)] if options.paper else [*PAPERS.values()]
    rows = [row_of(paper, each) for paper in papers for each in paper.experiments]
    if options.json:
        print_json(rows)
        return 0
    for row in rows:
        how = f"{row['backbone']}, {row['generations']} runs" if row["runs"] else "does not run"
        print(f"{row['paper']:17}{row['experiment']:11}{how:26}{row['title']}. {row['asks']} {row['reports']}")
        if not row["runs"]:
            print(" " * 28 + f"{row['reason']}" + (f"; nearest: {row['nearest']}" if row["nearest"] else ""))
    can = sum(row["runs"] for row in rows)
    print(f"{can} of {len(rows)} run, each at most {MOST_MINUTES} minutes at a time: launch.py papers PAPER EXPERIMENT")
    return 0


def row_of(paper: Paper, each: Experiment) -> dict[str, Any]:
    """A row of the list. generations : decodings of a complete measurement; most_minutes : limit of one start without --minutes"""
    return {
        "paper": paper.name, "experiment": each.key, "title": each.title, "asks": each.asks, "reports": each.reports,
        "reported_on": each.reported_on, "reported": {label: dict(row) for label, row in each.reported.items()},
        "runs": each.runs is not None, "backbone": each.backbone, "inputs": each.runs.count if each.runs else 0,
        "generations": each.generations, "most_minutes": MOST_MINUTES if each.runs else 0, "reason": each.reason, "nearest": each.nearest,
    }  # fmt: skip


def run_all(options: argparse.Namespace) -> int:
    """Measures all experiments that can run, of all papers or of one, ordered by stored inputs, then by cost.
    Prints the error of an experiment that fails and goes on; the exit code is then 1."""
    from engine.errors import ForetokenError
    from research.papers import page, paper_of, runnable, running

    if options.paper == ALL and options.experiment not in (None, ALL):
        raise ForetokenError(f"'{options.experiment}' belongs to one paper. Write: python launch.py papers PAPER {options.experiment}")
    wanted = runnable(None if options.paper == ALL else paper_of(options.paper))
    wanted.sort(key=lambda pair: running.count_stored(options.out / f"{page.stem_of(*pair)}.csv"))
    written, failed = [], 0
    for number, (paper, experiment) in enumerate(wanted, 1):
        print(f"{number} of {len(wanted)}: {paper.name} {experiment.key}", file=sys.stderr, flush=True)
        try:
            written.append(run_one(options, paper, experiment)[0])
        except ForetokenError as e:
            failed += 1
            print(f"{paper.name} {experiment.key}: {e}", file=sys.stderr, flush=True)
            continue
        if not options.json:
            print(written[-1]["csv"], flush=True)
    if options.json:
        print_json(written)
    return 1 if failed else 0


def run_one(options: argparse.Namespace, paper: Paper, experiment: Experiment) -> tuple[dict[str, str], str]:
    """Measures an experiment, draws it and writes the folder's page. Returns its files and its text."""
    from engine.errors import BadOutput
    from research.bench.plot import need_matplotlib
    from research.papers import drawing, page, running

    assert experiment.runs is not None
    need_matplotlib()
    stem, count = options.out / page.stem_of(paper, experiment), options.count or experiment.runs.count
    if options.experiment in (None, ALL):
        count = min(count, experiment.runs.count)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise BadOutput(f"Cannot make {stem.parent} ({e.strerror}). Choose another folder with --out.") from e
    table, seconds = stem.with_suffix(".csv"), 60 * (options.minutes or MOST_MINUTES)
    rows = running.run(experiment, table, count, seconds, options.backbone or "", options.device, options.once)
    drawing.draw(experiment, rows, stem.with_suffix(".png"))
    whole_page = page.write_page(stem.parent)
    files = {"csv": str(table), "figure": str(stem.with_suffix(".png")), "page": str(whole_page)}
    return files, page.text_of(paper, experiment, rows)
