"""`launch.py bench page`: how fast the page is for one visitor, in a browser: ready, first pixels, updates, time over clocks, bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json, file_path, whole
from app.commands.report import print_json


def parser() -> Parser:
    """The parser of the command's options."""
    p = Parser(
        "bench page",
        "Opens a studio of its own in a browser that nobody sees and races pictures and meshes there. Measures when the page is ready and "
        "when the first pixels come, the updates a second, the time over both clocks, and the bytes. Needs Playwright and a Chromium.",
    )
    p.add_argument("--runs", type=whole(1, 1000), default=9, help="of each kind, besides a first one that is not counted (9)")
    p.add_argument("--csv", type=file_path, help="append the rows to this file")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Measures."""
    options = parser().read(arguments)
    from app.server.browser import browser
    from app.server.studio import spare_core
    from engine.machine import facts
    from research.bench import page_speed
    from research.bench.load_test import studio
    from research.bench.rows import check_file, publish

    check_file(options.csv, "--csv")
    with browser() as chromium, studio() as server:
        stamp = {"runs": options.runs, **facts(), "threads": spare_core(), "browser": f"Chromium {chromium.version}"}
        found = page_speed.measured(chromium, server.address, options.runs)
        rows = publish(({"what": what} | summary(runs) for what, runs in found), readable, stamp, options.csv)
    if options.json:
        print_json(rows)
    return 0


def summary(runs: list[dict[str, float]]) -> dict[str, list[float]]:
    """The median and the quartiles of each number."""
    import numpy as np

    from research.bench.rows import quartiles

    return {name: quartiles(np.array([each[name] for each in runs])) for name in runs[0]}


def readable(row: dict[str, Any]) -> str:
    """A row as a line: medians, with the quartiles in brackets."""
    told = (f"{name} {value[0]:g} ({value[1]:g} to {value[2]:g})" for name, value in row.items() if isinstance(value, list))
    return f"{row['what']}: {', '.join(told)}"
