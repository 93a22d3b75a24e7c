"""`launch.py doctor`: checks what this machine offers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from app.commands.options import CommandParser, add_json
from app.commands.report import print_json

SHIPPED = ("pictogram", "lowpoly")  # the models whose passes are always measured; imported ones can take minutes to load


def parser() -> CommandParser:
    """The parser of the command's options."""
    p = CommandParser(
        "doctor",
        "Checks this machine: versions, devices, browser, font, and the cost of a pass by its width.",
    )
    p.add_argument("--again", action="store_true", help="measure the cost of passes anew")
    p.add_argument("--model", action="append", default=[], metavar="NAME|PATH", help="measure this model too; may be repeated")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints what a person reads, and with --json all facts as one line."""
    options = parser().read(arguments)
    from app.commands.doctor_costs import measured, table
    from engine.errors import ForetokenError
    from engine.kernels.cpu.library import native_choice
    from engine.machine import facts
    from engine.words.world import font_path

    found: dict[str, Any] = facts() | {"browser": browser()}
    checks: dict[str, Any] = {"font": lambda: str(font_path()), "native_functions": lambda: native_choice().reason}
    for name, check in checks.items():
        try:
            found[name] = check()
        except ForetokenError as e:  # doctor reports what is missing instead of failing
            found[name] = f"missing: {e}"
    print("\n".join(readable(found)))
    found["passes"] = measured([*SHIPPED, *options.model], options.again)
    print("\n".join(table(found["passes"])))
    if options.json:
        print_json(found)
    return 0


def readable(found: Mapping[str, Any]) -> list[str]:
    """The facts as lines for a person; `--json` prints them as they are."""
    half = "multiplies" if found["fast_bfloat16"] else "does not multiply"
    lines = [
        ("System", f"{found['platform']}, Python {found['python']}"),
        ("Processor", f"{found['processor']}; {half} bfloat16 in hardware"),
        ("PyTorch", f"{found['torch']}, {found['threads']} threads"),
        ("GPU", found["cuda"] or "PyTorch sees none"),
        ("Compiled passes", found["native_functions"]),
        ("Browser", found["browser"] or "none; only the tests of the page need one"),
        ("Training font", found["font"]),
        ("Commit", found["commit"] or "unknown: this is no checkout"),
    ]
    return [f"{name:16} {text}" for name, text in lines] + [""]


def browser() -> str | None:
    """The path of the browser that the page tests would use, None if there is none."""
    names = (os.environ.get("FORETOKEN_CHROMIUM", ""), "chromium", "google-chrome")
    return next((found for n in names if n and (found := shutil.which(n))), None)
