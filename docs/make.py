"""Writes the generated parts of the pages: `python docs/make.py`.

A part stands between `<!-- KIND ... -->` and `<!-- end -->`; PARTS names the kinds:

    methods                  a row for each method
    knobs NAME ...           knobs and presets of methods, without the shared ones; NAME = others: those of no other page
    shared knobs             knobs that at least three methods have in the same form
    bench FILE: COMMAND      rows of docs/bench/FILE, written by COMMAND with --csv
    passes FILE: COMMAND     passes on a CPU
    compiled FILE: COMMAND   compiled kernels
    bounds                   least times of kernels, computed
    aims                     the best recorded row for each aim

tests/test_docs.py fails when a part is out of date.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout, whichever one is installed

from engine.core import Knob, Knobs, Method  # noqa: E402
from engine.methods import METHODS, find, title  # noqa: E402
from research.bench.kernels import BANDWIDTH, WORK, lower_bound  # noqa: E402

AIMS = (  # subject, aim, file, exact or not, and the column that the aim is about
    ("exact pictures, time", "6x", "auto-image.csv", True, "speedup"),
    ("exact pictures, time", "6x", "xeon-amx-image.csv", True, "speedup"),
    ("exact pictures, tokens per pass", "-", "xeon-amx-image.csv", True, "step_compression"),
    ("exact meshes, time", "3x", "epyc-mesh.csv", True, "speedup"),
    ("exact meshes, time", "3x", "xeon-amx-mesh.csv", True, "speedup"),
    ("exact meshes, tokens per pass", "-", "xeon-amx-trees.csv", True, "step_compression"),
    ("relaxed pictures, tokens per pass", "13", "epyc-image.csv", False, "step_compression"),
)
SHARED = 3  # methods: a knob that this many have in the same form is described once
SAMPLING = ("temperature", "top_k", "top_p", "guidance")


def span(knob: Knob) -> str:
    """The range of a knob, or its choices."""
    if knob.choices:
        return ", ".join(knob.choices)
    return f"{knob.low:g} to {knob.high:g}" + (", log scale" if knob.scale == "log" else "")


def acts(knob: Knob) -> str:
    """The condition under which a knob acts, with a note if it is fixed at the start."""
    condition = f"{knob.when[0]} = {' or '.join(knob.when[1:])}" if knob.when else "always"
    return condition if knob.live else f"{condition}; fixed at the start"


def row(knob: Knob) -> str:
    """One line of a table, with bars inside cells escaped."""
    cells = (f"`{knob.name}`", knob.symbol, f"{knob.default}", span(knob), acts(knob), knob.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def presets_of(name: str) -> list[str]:
    """One line per preset of a method."""
    return [
        f"- `{preset.name}`: " + ", ".join(f"`{knob}` = {value}" for knob, value in preset.knobs.items())
        for preset in METHODS[name].presets
    ]


def is_exact(name: str) -> bool:
    """True if a method or preset is exact with its own knobs."""
    method, preset = find(name)
    return method.exact(Knobs({k.name: k.default for k in method.knobs} | preset))


def pages() -> dict[str, str]:
    """The page with the knobs of each method that has one, from the root, by method."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs/methods").glob("*.md"))}
    parts = ((path, part[2]) for path, page in texts.items() for part in PART.findall(page) if part[1] == "knobs")
    return {name: str(path.relative_to(ROOT)) for path, names in parts for name in names.split()}


def methods_table() -> str:
    """One row per method: its page, description, exactness and presets."""
    lines, known = ["| method | what it does | exact | presets |", "|---|---|---|---|"], pages()
    for name, method in METHODS.items():
        own = f"[`{name}`]({known[name]})" if name in known else f"`{name}`"
        presets = ", ".join(f"`{preset.name}` ({'exact' if is_exact(preset.name) else 'not exact'})" for preset in method.presets)
        lines.append(f"| {own} | {title(name)}. {method.about} | {'yes' if is_exact(name) else 'no'} | {presets} |")
    return "\n".join(lines)


def shared_knobs() -> dict[str, list[str]]:
    """Row of a table: the names of the methods that have it, for the rows of at least SHARED methods."""
    users: dict[str, list[str]] = {}
    for method in METHODS.values():
        for knob in method.knobs:
            users.setdefault(row(knob), []).append(method.name)
    return {line: names for line, names in users.items() if len(names) >= SHARED}


def shared_table() -> str:
    """The shared knobs with the methods that have them, as Markdown."""
    lines = ["| knob | symbol | default | values | acts when | effect | methods |", "|---" * 7 + "|"]
    lines += [f"{line} {', '.join(f'`{name}`' for name in names)} |" for line, names in shared_knobs().items()]
    return "\n".join([*lines, ""])


def table(method: Method) -> str:
    """The knobs of a method and its presets, as Markdown; shared knobs by name."""
    rows = {knob.name: row(knob) for knob in method.knobs}
    shared = [name for name, line in rows.items() if line in shared_knobs()]
    lines = [f"**`{method.name}`**" + ("" if rows else " has no knobs."), ""]
    if len(rows) > len(shared):
        lines += ["| knob | symbol | default | values | acts when | effect |", "|---" * 6 + "|"]
        lines += [*(line for name, line in rows.items() if name not in shared), ""]
    if shared:
        lines += ["[Shared knobs](knobs.md): " + ", ".join(f"`{name}`" for name in shared) + ".", ""]
    if presets := presets_of(method.name):
        lines += ["Presets:", "", *presets, ""]
    return "\n".join(lines)


def spread(cell: str, digits: int, unit: str = "") -> str:
    """A median with its quartiles in brackets, from the JSON of a CSV cell."""
    middle, low, high = json.loads(cell)
    return f"{middle:.{digits}f}{unit}" + (f" ({low:.{digits}f}-{high:.{digits}f})" if low != high else "")


def measured(row: Mapping[str, str]) -> str:
    """One line of a benchmark's table; the last cell is the log probability of pictures, or the distance of meshes over its floor."""
    quality = spread(row["log_probability"], 3) if row.get("log_probability") else spread(row["chamfer_over_floor"], 1)
    cost = row.get("milliseconds_per_pass") or spread(row["milliseconds_per_step"], 1)
    name, exact = row.get("row") or row["method"], "yes" if row["exact"] == "True" else "no"
    cells = (f"`{name}`", exact, spread(row["step_compression"], 2), cost, spread(row["speedup"], 2, "x"), quality)
    return "| " + " | ".join(cells) + " |"


def bench_table(path: Path, command: str) -> str:
    """The rows of a CSV file that have a speed-up, after the command, the settings and the machine; sweeps stay in the file."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row.get("speedup") and not (row.get("row") or "").startswith("sweep")]
    first = rows[0]
    inputs = f"{first['prompts']} prompts, {first['size']} px" if first.get("prompts") else f"{first['inputs']} clouds"
    names = [*SAMPLING, *(["guide"] if float(first.get("guide") or 0) else [])]
    sampling = ", ".join(f"{name.replace('_', '-')} {first[name]}" for name in names)
    types = " and ".join(dict.fromkeys(row["dtype"] for row in rows))
    last = "log p" if first.get("log_probability") else "chamfer over floor"
    return "\n".join([
        f"`python launch.py {command}`: {inputs}, {sampling}; {first['processor']}, {types}, PyTorch {first['torch']}, "
        f"commit {first['commit']}, weights {first['weights']}.",
        "",
        f"| row | exact | tokens per pass | ms per pass | time against plain | {last} |",
        "|---|---|---|---|---|---|",
        *map(measured, rows),
        "",
    ])  # fmt: skip


def compiled_table(path: Path, command: str) -> str:
    """Registers, spilled bytes and shared bytes of every program and compute capability, with the command."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    capabilities = list(dict.fromkeys(row["capability"] for row in rows))
    programs: dict[tuple[str, str, str], dict[str, str]] = {}
    for row in rows:
        needs = f"{row['registers']}, {row['spilled_bytes']}, {int(row['shared_bytes']):,}"
        programs.setdefault((row["kernel"], row["program"], row["warps"]), {})[row["capability"]] = needs
    lines = ["| kernel | program | warps | " + " | ".join(capabilities) + " |", "|---" * (3 + len(capabilities)) + "|"]
    for (kernel, program, warps), needs in programs.items():
        lines.append(f"| `{kernel}` | `{program}` | {warps} | " + " | ".join(needs[each] for each in capabilities) + " |")
    source = f"`python launch.py {command}`: Triton {rows[0]['triton']}, commit {rows[0]['commit']}."
    return "\n".join([source, "", *lines, ""])


def passes_table(path: Path, command: str) -> str:
    """Seconds of runs of the shipped models by PyTorch and by compiled functions."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    lines = ["| model | type | pixels | method | PyTorch | compiled | times per pass |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        start, seconds = f"| {row['backbone']} | {row['dtype']} | {row['size']} | `{row['method']}` |", []
        for kind in ("reference", "native"):
            seconds.append(f"{float(row[f'{kind}_seconds']):.2f} s")
        lines.append(f"{start} {' | '.join(seconds)} | {float(row['times']):.2f} |")
    first = rows[0]
    machine = f"{first['processor']}, {first['threads']} thread(s), {first['clock']} time, PyTorch {first['torch']}"
    return "\n".join([f"`python launch.py {command}`: {machine}, commit {first['commit']}.", "", *lines, ""])


def bounds_table() -> str:
    """The fewest bytes of typical calls, and their minimum time in microseconds at the bandwidth of each GPU."""
    gpus = [f"{name} ({BANDWIDTH[name] / 1e12:g} TB/s)" for name in BANDWIDTH]
    lines = ["| kernel | call | bytes | " + " | ".join(gpus) + " |", "|---" * (3 + len(gpus)) + "|"]
    for work in WORK:
        times = " | ".join(f"{lower_bound(work, name):.3g}" for name in BANDWIDTH)
        lines.append(f"| `{work.kernel}` | {work.what} | {work.bytes_moved:,} | {times} |")
    return "\n".join([*lines, ""])


def aims_table() -> str:
    """The best row of a file of measurements for each aim, plain decoding left out."""
    lines = ["| aim | number | best row | tokens per pass | time against plain | inputs | machine |", "|---" * 7 + "|"]
    for what, aim, name, exact, column in AIMS:
        with (ROOT / "docs/bench" / name).open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.DictReader(file) if row.get("speedup") and (row["exact"] == "True") == exact]
        best = max((row for row in rows if row["method"].split()[0] != "ar"), key=lambda row: json.loads(row[column])[0])
        inputs = f"{best['prompts']} prompts" if best.get("prompts") else f"{best['inputs']} clouds"
        cells = (what, aim, f"`{best.get('row') or best['method']}`", spread(best["step_compression"], 2), spread(best["speedup"], 2, "x"))
        lines.append("| " + " | ".join([*cells, inputs, f"{best['processor']}, commit {best['commit']}"]) + " |")
    return "\n".join([*lines, ""])


def knob_tables(names: str) -> str:
    """The tables of several methods; raises KeyError for a method that does not exist."""
    known = pages()
    chosen = [name for name in METHODS if name not in known] if names == "others" else names.split()
    return "\n".join(table(METHODS[name]) for name in chosen)


def from_file(write: Callable[[Path, str], str]) -> Callable[[str], str]:
    """A generator of a part from the `FILE: COMMAND` of its marker."""

    def generate(argument: str) -> str:
        name, _, command = argument.partition(": ")
        return write(ROOT / "docs/bench" / name, command)

    return generate


PARTS: dict[str, Callable[[str], str]] = {
    "methods": lambda _: methods_table(),
    "knobs": knob_tables,
    "shared knobs": lambda _: shared_table(),
    "bench": from_file(bench_table),
    "passes": from_file(passes_table),
    "compiled": from_file(compiled_table),
    "bounds": lambda _: bounds_table(),
    "aims": lambda _: aims_table(),
}
PART = re.compile(rf"(<!-- ({'|'.join(PARTS)})(?: ([^\n]*?))? -->\n).*?(<!-- end -->)", re.DOTALL)


def fill(page: str) -> str:
    """A page with all its generated parts renewed."""
    return PART.sub(lambda part: f"{part[1]}\n{PARTS[part[2]](part[3] or '')}\n{part[4]}", page)


def main() -> None:
    """Rewrites the pages and names those that changed."""
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        old = path.read_text(encoding="utf-8")
        if (new := fill(old)) != old:
            path.write_text(new, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
