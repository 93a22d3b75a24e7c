"""`launch.py doctor`: what this machine offers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any

from app.commands.options import Parser, add_json
from app.commands.report import print_json


def parser() -> Parser:
    """The options."""
    p = Parser("doctor", "What this machine offers: versions, devices, browser, font, and the cost of a pass by its width.")
    add_json(p)
    return p


def main(arguments: Sequence[str]) -> int:
    """Prints a line for each fact."""
    options = parser().read(arguments)
    from engine.backbones import load
    from engine.data.emoji_scenes import font_path
    from engine.errors import ForetokenError
    from engine.machine import facts
    from engine.measure.bench.cost_curve import cost_curve

    found: dict[str, Any] = facts() | {"browser": browser()}
    checks = {"font": lambda: str(font_path()), "pass_milliseconds": lambda: cost_curve(load("pictogram"))}
    for name, check in checks.items():
        try:
            found[name] = check()
        except ForetokenError as e:  # a doctor says what is missing instead of failing on it
            found[name] = f"missing: {e}"
    for key, value in found.items():
        print(f"{key:20} {value}")
    if options.json:
        print_json(found)
    return 0


def browser() -> str | None:
    """The browser that the page's tests would use."""
    names = (os.environ.get("FORETOKEN_CHROMIUM", ""), "chromium", "google-chrome")
    return next((found for n in names if n and (found := shutil.which(n))), None)
