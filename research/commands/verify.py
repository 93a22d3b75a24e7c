"""`launch.py verify`: tests the claims of exactness on the toy model, and with --others those of other projects."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from app.commands.options import CommandParser, add_json, whole
from app.commands.report import print_json

INSTALLED = "installed"


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser("verify", "Tests the claims of exactness on the toy model: exact methods must pass, their mutants must fail.")
    p.add_argument("methods", nargs="*", metavar="METHOD", help="methods to verify (all)")
    p.add_argument("--full", action="store_true", help="150,000 runs for each of three seeds")
    p.add_argument(
        "--others", nargs="?", const=INSTALLED, metavar="FOLDER",
        help="verify the rules of other projects instead: those of installed packages, and of wheels in FOLDER",
    )  # fmt: skip
    p.add_argument(
        "--mutation", type=int, metavar="N",
        help="change N random lines of the engine in a copy, one by one, and count those that claims and tests detect",
    )  # fmt: skip
    p.add_argument("--seed", type=int, default=0, metavar="S", help="with --mutation: which lines and changes (0)")
    p.add_argument(
        "--ceiling", type=int, metavar="N",
        help="measure accepted drafts on N inputs of each of our models, and the most that any exact rule could accept",
    )  # fmt: skip
    p.add_argument(
        "--dispatch", metavar="NAME",
        help="verify the methods through this implementation of passes and verdicts instead, or through all: "
        "reference, host, native, triton, joined, static",
    )  # fmt: skip
    p.add_argument(
        "--draws", type=whole(1, 10**7), metavar="N",
        help="with --others: draws of a rule, at most (100,000); with --dispatch: runs of a method (400)",
    )  # fmt: skip
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints the table; exit code 1 if any claim is false."""
    options = parser().read(arguments)
    if options.others is not None:
        return verify_others(options.others, options.draws or 100_000, options.json)
    if options.mutation is not None:
        return measure_mutation(options.mutation, options.seed, options.json)
    if options.ceiling is not None:
        return measure_ceiling(options.ceiling, options.json)
    from engine.errors import NotSupported
    from research.exactness import exactness

    table = exactness.table()
    for name in options.methods:
        if name not in table:
            raise NotSupported(f"There is no method '{name}' to verify. Choose from: {', '.join(table)}.")
    if options.dispatch is not None:
        return verify_dispatches(options.methods, options.dispatch, options.draws or 400, options.json)
    rows, holds, seconds = exactness.verify(options.methods or list(table), options.full)
    for key, row in rows.items():
        mutants = ", ".join(f"{m} {z:.0f}" for m, z in row["mutants"].items())
        kind, power = "exact" if row["exact"] else "NOT EXACT", f"finds {row['detects']:.3f} in {row['runs']:,} runs"
        print(f"{key:42} {kind:9} z = {row['z']:8.2f}   {power:27} mutants: {mutants or '-'}")
    print(f"{'Every claim holds' if holds else 'A CLAIM IS FALSE'} ({len(rows)} rows, {seconds:.0f} s)")
    if options.json:
        print_json(rows)
    return 0 if holds else 1


def measure_ceiling(count: int, as_json: bool) -> int:
    """Prints a row for each method that drafts chains."""
    from research.bench.plan import MOST_INPUTS, check_count
    from research.exactness.ceiling import HEADER, measure_runs

    check_count("ceiling", count, MOST_INPUTS)

    print(HEADER)
    rows = []
    for row in measure_runs(count):
        print(row.text(), flush=True)
        rows.append(row)
    if as_json:
        print_json([asdict(row) for row in rows])
    return 0


def measure_mutation(count: int, seed: int, as_json: bool) -> int:
    """Prints a row for each mutant, and the share that claims and tests detect."""
    from research.bench.plan import check_count
    from research.exactness.mutation_score import HEADER, MOST, measure

    check_count("mutation", count, MOST)

    print(HEADER)
    results = []
    for result in measure(count, seed):
        print(result.text(), flush=True)
        results.append(result)
    detected = [result for result in results if result.detected_by]
    seconds = sum(result.seconds for result in results)
    print(f"\n{len(detected)} of {len(results)} mutants detected, seed {seed}, {seconds / 60:.0f} minutes.")
    if as_json:
        print_json([asdict(result) for result in results])
    return 0


def verify_dispatches(methods: list[str], dispatch: str, runs: int, as_json: bool) -> int:
    """Prints a row for each method through each dispatch; exit code 1 if one changes tokens or the distribution."""
    from engine.errors import NotSupported
    from engine.methods import METHODS
    from research.exactness.dispatches import DISPATCHES, measure_all

    if dispatch not in (*DISPATCHES, "all"):
        raise NotSupported(f"There is no dispatch '{dispatch}'. Choose from: {', '.join(DISPATCHES)}, all.")
    rows = []
    for row in measure_all([name for name in methods or METHODS if name in METHODS], DISPATCHES if dispatch == "all" else [dispatch], runs):
        print(row.text(), flush=True)
        rows.append(row)
    holds = all(row.holds for row in rows)
    print("Every dispatch holds" if holds else "A DISPATCH IS FALSE")
    if as_json:
        print_json([vars(row) for row in rows])
    return 0 if holds else 1


def verify_others(folder: str, draws: int, as_json: bool) -> int:
    """Prints a row for each rule of another project, as it is measured, and what reproduces the false ones; exit code 1 if any is false."""
    from engine.errors import NotSupported

    wheels = None if folder == INSTALLED else Path(folder)
    if wheels is not None and not wheels.is_dir():
        raise NotSupported(f"There is no folder {folder}. Give --others a folder with wheels, from 'pip download --no-deps'.")
    os.environ["TRITON_INTERPRET"] = "1"  # kernels of others run on a CPU; Triton reads it when it is imported
    from research.exactness.others.table import HEADER, measure_all

    print(HEADER)
    rows = []
    for row in measure_all(wheels, draws):
        print(row.text(), flush=True)
        rows.append(row)
    for row in rows:
        if row.is_false and row.reproduction:
            print(f"\n{row.project} {row.version}, {row.path}:\n\n{row.reproduction}")
    if as_json:
        print_json([row.as_json() for row in rows])
    return 1 if any(row.is_false for row in rows) else 0
