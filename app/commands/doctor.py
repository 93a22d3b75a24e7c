"""`launch.py doctor`: checks what this machine offers."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from app.commands.doctor_gpu import gpu_facts, gpu_lines
from app.commands.options import CommandParser, add_json
from app.commands.report import print_json

BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
SHIPPED = ("pictogram", "lowpoly")  # models whose passes are always measured; imported ones can take minutes to load


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser(
        "doctor",
        "Checks this machine: versions, devices, browser, font, and the cost per pass by width.",
    )
    p.add_argument("--again", action="store_true", help="measure the cost of passes again")
    p.add_argument("--model", action="append", default=[], metavar="NAME|PATH", help="measure this model too; may be repeated")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints the facts as text, and with --json also as one line."""
    options = parser().read(arguments)
    from app.commands.doctor_costs import cost_rows, table
    from engine.errors import ForetokenError
    from engine.kernels.cpu.library import native_choice
    from engine.machine import machine_facts
    from engine.words.world import font_path

    report: dict[str, Any] = machine_facts() | {"browser": browser(), "gpu": gpu_facts()}
    checks: dict[str, Any] = {"font": lambda: str(font_path()), "native_functions": lambda: native_choice().reason}
    for name, check in checks.items():
        try:
            report[name] = check()
        except ForetokenError as e:  # doctor reports what is missing instead of failing
            report[name] = f"missing: {e}"
    print("\n".join(readable(report)))
    report["passes"] = cost_rows([*SHIPPED, *options.model], options.again)
    print("\n".join(table(report["passes"])))
    if options.json:
        print_json(report)
    return 0


def readable(report: Mapping[str, Any]) -> list[str]:
    """The facts as lines of text."""
    half = "multiplies" if report["fast_bfloat16"] else "does not multiply"
    lines = [
        ("System", f"{report['platform']}, Python {report['python']}"),
        ("Processor", f"{report['processor']}; {half} bfloat16 in hardware"),
        ("PyTorch", f"{report['torch']}, {report['threads']} threads"),
        *gpu_lines(report["gpu"]),
        ("Compiled passes", report["native_functions"]),
        ("Browser", report["browser"] or "none; only the tests of the page need one"),
        ("Training font", report["font"]),
        ("Commit", report["commit"] or "unknown: this is not a checkout"),
    ]
    return [f"{name:16} {text}" for name, text in lines] + [""]


def browser() -> str | None:
    """Path of the browser for the page tests; None if there is none."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)
