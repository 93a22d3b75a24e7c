"""`launch.py bench studio`: scripted visitors of a studio, several at a time: lost runs, waiting time, memory, and what an upload costs."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from app.commands.options import Parser, add_json, whole
from app.commands.report import print_json

WARMING = 0.2  # of the minutes: visits before the memory is measured, while caches and the allocator's pools fill


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench studio",
        "Starts a studio and sends scripted visitors, who generate, upload, cancel, close the page, and come again. Counts lost runs and "
        "compares the server's memory before and after; then times a run beside another visitor's uploads.",
    )
    p.add_argument("--visitors", type=whole(1, 64), default=4, help="at a time (4)")
    p.add_argument("--minutes", type=whole(1, 10_000), default=30, help="for which visitors come (30)")
    p.add_argument("--pairs", type=whole(0, 1000), default=5, help="runs alone and beside uploads, in turns; 0: none (5)")
    p.add_argument("--seed", type=whole(0, 2**31 - 1), default=0, help="of what the visitors do (0)")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures, prints what was found, and returns 1 if a run was lost."""
    options = parser().read(arguments)
    from statistics import median

    from engine.machine import facts
    from research.bench import load_test as crowd

    first, tally = crowd.Tally(), crowd.Tally()
    with crowd.studio() as server:
        crowd.everything_once(server.address, options.visitors, first)
        say(f"everything once: {dict(first.count)}, then {mebibytes(crowd.settled(server))}")
        crowd.crowd(server.address, options.visitors, WARMING * 60.0 * options.minutes, first, options.seed + 1)
        before = crowd.settled(server)
        say(f"warmed: {dict(first.count)}, then {mebibytes(before)}")
        crowd.crowd(server.address, options.visitors, 60.0 * options.minutes, tally, options.seed)
        after = crowd.settled(server)
        say(f"{options.minutes} minutes: {dict(tally.count)}, then {mebibytes(after)}")
        alone, beside = crowd.beside_uploads(server.address, options.pairs) if options.pairs else ([], [])
        tracebacks = server.log.read_text(errors="replace").count("Traceback")
    lost = tally.count["lost"] + first.count["lost"]
    row = {
        "visitors": options.visitors,
        "minutes": options.minutes,
        **{name: tally.count[name] for name in ("visits", "finished", "cancelled", "abandoned")},
        "lost": lost,
        "tracebacks": tracebacks,
        "wait_median_seconds": round(median(tally.seconds), 2) if tally.seconds else None,
        "wait_longest_seconds": round(max(tally.seconds), 2) if tally.seconds else None,
        "memory_before": mebibytes(before),
        "memory_after": mebibytes(after),
        "memory_ratio": round(after / before, 4) if before and after else None,
        "beside_uploads": round(crowd.slowdown(alone, beside), 3) if alone else None,
        "machine": facts(),
        "wrong": (first.wrong + tally.wrong)[:10],
    }
    if options.json:
        print_json(row)
    else:
        for name, value in row.items():
            print(f"{name}: {value}")
    return 1 if lost else 0


def say(line: str) -> None:
    """Prints how far the measurement is, on stderr: stdout belongs to the result."""
    print(line, file=sys.stderr, flush=True)


def mebibytes(size: int | None) -> str:
    """A size of memory for people."""
    return "unknown" if size is None else f"{size / 2**20:.1f} MiB"
