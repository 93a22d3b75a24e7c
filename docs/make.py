"""Writes the knob tables of docs/methods/*.md from the table of methods: `python docs/make.py`.

A page holds a pair of comments, `<!-- knobs NAME -->` and `<!-- end -->`; what stands between them is replaced. Several names give one
table for each. tests/test_docs.py fails when a table is out of date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout, whichever one is installed

from engine.core import Knob, Method  # noqa: E402
from engine.methods import METHODS, PRESETS  # noqa: E402

BLOCK = re.compile(r"(<!-- knobs ([\w ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def span(knob: Knob) -> str:
    """What a knob may be: its range, or its choices."""
    if knob.choices:
        return ", ".join(knob.choices)
    return f"{knob.low:g} to {knob.high:g}" + (", log scale" if knob.scale == "log" else "")


def acts(knob: Knob) -> str:
    """When a knob acts, and whether it can be moved during a run."""
    condition = f"{knob.when[0]} = {' or '.join(knob.when[1:])}" if knob.when else "always"
    return condition if knob.live else f"{condition}; fixed at the start"


def row(knob: Knob) -> str:
    """One line of a table; a bar inside a cell is escaped."""
    cells = (f"`{knob.name}`", knob.symbol, f"{knob.default}", span(knob), acts(knob), knob.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def presets_of(name: str) -> list[str]:
    """A line for each preset of a method."""
    return [
        f"- `{preset}`: " + ", ".join(f"`{knob}` = {value}" for knob, value in values.items())
        for preset, (method, values) in PRESETS.items()
        if method == name
    ]


def table(method: Method) -> str:
    """The knobs of a method and its presets, as Markdown."""
    lines = [f"**`{method.name}`**" + ("" if method.knobs else " has no knobs."), ""]
    if method.knobs:
        lines += ["| knob | symbol | default | values | acts when | what it does |", "|---|---|---|---|---|---|"]
        lines += [*map(row, method.knobs), ""]
    if presets := presets_of(method.name):
        lines += ["Presets:", "", *presets, ""]
    return "\n".join(lines)


def fill(page: str) -> str:
    """A page with all its tables written anew; raises KeyError for a method that does not exist."""

    def tables(found: re.Match[str]) -> str:
        return found[1] + "\n" + "\n".join(table(METHODS[name]) for name in found[2].split()) + "\n" + found[3]

    return BLOCK.sub(tables, page)


def main() -> None:
    """Rewrites the pages and names those that changed."""
    for path in sorted((ROOT / "docs/methods").glob("*.md")):
        old = path.read_text(encoding="utf-8")
        if (new := fill(old)) != old:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
