"""Tables of the Bench tab: recorded benchmarks, and rows measured on the page.

A table is plain data for the browser:
name, title, about : its name, title, and a description of the measurement and the machine
kind               : "image" or "mesh", the tab that its settings belong to; "other" for a table without speeds
axes               : titles of the chart, and whether a greater y is better; None without speeds
columns, numeric   : headings, and whether a column is numeric
rows               : {"cells": texts, "order": sort key of each cell, "point": see `point`}
made               : caption of a figure
places, counted    : where speed-ups are computed, and whether the rows of its passes were counted
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.ui.panels import elsewhere
from engine.core import PLAIN
from engine.methods import AUTO, METHODS, PRESETS, find
from engine.methods import title as title_of
from engine.tuning.expected import Expected
from engine.tuning.roofline import ModelSize

Row = Mapping[str, Any]
Models = Mapping[str, ModelSize]  # by name
PLAIN_ROW = "A plain"  # plain decoding in tables of `bench mesh`
SPEED = "Speed-up over plain decoding (×)"
AXES = {
    "image": {
        "x": SPEED,
        "y": "How plausible the model finds its picture (log p per token)",
        "better": "up",
        "good": "Up and right is better. The height of exact methods differs from plain decoding only by chance.",
    },
    "mesh": {
        "x": SPEED,
        "y": "Distance from the input (× its floor; less is closer)",
        "better": "down",
        "good": "Up and right is better. The floor is the input's distance from itself, so 1 is as close as a mesh can get. "
        "MLP and cross-attention are draft heads; LoRA: with their adapter; PTS: pruned trees with this many tokens per level; "
        "best guesses: the most probable drafts.",
    },
}
COLUMNS = ("Method", "Exact", "Tokens / pass", "ms / pass", "Speed-up")
LAST = {"image": "Log probability", "mesh": "Distance / floor"}
MACHINE = ("processor", "threads", "device", "dtype", "torch", "commit", "weights")
SAMPLING = ("temperature", "top_k", "top_p", "guidance", "guide")  # older tables lack the last ones
KINDS = ("image", "mesh", "other")
NAMES = {"kernels": "GPU kernels, compiled"}
WIDEST = {  # knobs that bound the rows of a pass, for tables from before rows were counted
    **dict.fromkeys(("jacobi", "sjd", "sjdpp", "gsd", "spatial"), "window"),
    **{"xspecmesh": "depth", "lookup": "drafted", "surface": "drafted", "cross_regression": "horizon"},
}
SUBJECTS = {"auto": ", auto against fixed choices", "trees": ", trees and the dual stream"}  # by a word of the file name


def read_tables(folder: Path, models: Mapping[str, Models]) -> list[dict[str, Any]]:
    """Reads a folder's CSV files as tables: pictures, meshes, others; in each kind, most methods first, then most rows.
    models : for which speed-ups are computed, by kind"""
    tables, methods = [], {}
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{name: parse_cell(text) for name, text in row.items()} for row in csv.DictReader(file)]
        if rows:
            tables.append(table(path.stem, rows, models))
            methods[path.stem] = len({str(row.get("method")).split()[0] for row in rows})  # ignores swept values
    return sorted(tables, key=lambda each: (KINDS.index(each["kind"]), -methods[each["name"]], -len(each["rows"])))


def parse_cell(text: str) -> Any:
    """Value of a CSV cell written by a benchmark: a list or number in JSON, a truth value, or text."""
    if text in ("True", "False"):
        return text == "True"
    try:
        return json.loads(text)
    except ValueError:
        return text


def table(name: str, rows: list[Row], models: Mapping[str, Models], title: str = "") -> dict[str, Any]:
    """Builds a table from rows. name : of the file; models : see `read_tables`; title : replaces the default title"""
    timed = [row for row in rows if row.get("speedup")]
    if not timed:
        return table_without_speeds(name, rows)
    first = timed[0]
    kind = "image" if first.get("log_probability") else "mesh"
    prompts = "1 prompt" if first.get("prompts") == 1 else f"{first.get('prompts')} prompts"
    what = f"{prompts}, {first['size']} px" if kind == "image" else f"{first['inputs']} point clouds"
    about = next((about for word, about in SUBJECTS.items() if word in name.split("-")), "")
    subject = ("Pictures" if kind == "image" else "Meshes") + about
    dtypes = " and ".join(dict.fromkeys(str(row["dtype"]) for row in timed))
    machine = f"{first['processor']}, {dtypes} on {first['device']}"
    machine_facts = {key: str(first.get(key, "")) for key in MACHINE}
    sampling = ", ".join(f"{key.replace('_', ' ')} {first[key]}" for key in SAMPLING if key != "guide" or first.get(key))
    return {
        "name": name,
        "title": title or f"{subject}: {what}, {machine}",
        "about": f"{what}, each {times(first['repeats'])} alternating with plain decoding; {sampling}. {machine}, "
        f"PyTorch {first['torch']}, commit {first['commit']}, weights {first['weights']}.",
        "kind": kind,
        "axes": AXES[kind],
        "columns": [*COLUMNS, LAST[kind]],
        "numeric": [False, False, True, True, True, True],
        "rows": [line(kind, row, models[kind]) for row in timed],
        "places": elsewhere.places(models[kind]),
        "counted": bool(first.get("rows_per_pass")),
        "made": {"model": str(first["backbone"]), "inputs": what, "seeds": str(first["seeds"]), "sampling": sampling, **machine_facts},
    }


def times(repeats: int) -> str:
    """Number of runs of each method on each input, in words."""
    return "twice" if repeats == 1 else f"{2 * repeats} times"


def table_without_speeds(name: str, rows: list[Row]) -> dict[str, Any]:
    """Table without speeds, with the columns of its file."""
    heads = list(rows[0])
    numeric = [all(isinstance(row[head], int | float) and not isinstance(row[head], bool) for row in rows) for head in heads]
    return {
        "name": name,
        "title": NAMES.get(name, name),
        "about": f"{len(rows)} rows.",
        "kind": "other",
        "axes": None,
        "columns": [head.replace("_", " ") for head in heads],
        "numeric": numeric,
        "rows": [{"cells": [str(row[head]) for head in heads], "order": [row[head] for head in heads], "point": None} for row in rows],
        "made": {},
    }


def line(kind: str, row: Row, models: Models) -> dict[str, Any]:
    """Table row with a speed, and its point."""
    cost = row.get("milliseconds_per_pass") or row["milliseconds_per_step"]
    quality = row["log_probability"] if kind == "image" else row["chamfer_over_floor"]
    title, exact = label(row), row["exact"] is True
    middle = cost[0] if isinstance(cost, list) else cost
    return {
        "cells": [
            title, "exact" if exact else "not exact", with_quartiles(row["step_compression"], 2), with_quartiles(cost, 1),
            with_quartiles(row["speedup"], 2, "×"), with_quartiles(quality, 3 if kind == "image" else 2),
        ],
        "order": [title.lower(), str(not exact), row["step_compression"][0], middle, row["speedup"][0], quality[0]],
        "point": point(kind, row, title, quality) | {"ratios": elsewhere.ratios(of, models) if (of := counts(row)) else None},
    }  # fmt: skip


def point(kind: str, row: Row, title: str, quality: list[float]) -> dict[str, Any]:
    """Point of a row in the chart: x with its interval, y with its quartiles, the kind of mark, and the settings to load (None for plain
    decoding)."""
    plain = row["method"] == PLAIN
    return {
        "title": title,
        "group": "plain" if plain else "exact" if row["exact"] is True else "relaxed",
        "x": row["speedup"][0],
        "interval": row.get("speedup_interval") or row["speedup"][1:],
        "y": quality[0],
        "quartiles": quality[1:],
        "compressions": row["step_compression"],
        "knobs": knobs_in_words(row["knobs"]),
        "settings": None if plain else settings(kind, row),
    }


def counts(row: Row) -> Expected | None:
    """Averages per pass of a row's method; None if the table does not tell its rows."""
    name, knobs, tokens = method_name(row), row["knobs"], row["step_compression"][0]
    method = find(name)[0].name
    if row.get("rows_per_pass"):
        return Expected(name, knobs, tokens, row["rows_per_pass"], row["draft_passes_per_pass"])
    if row.get("nodes"):
        return Expected(name, knobs, tokens, 1 + row["nodes"], row["depth"])
    if method == PLAIN:
        return Expected(name, knobs, tokens, 1)
    if method not in WIDEST or str(knobs.get("drafts")).startswith("tree"):
        return None
    widest = WIDEST[method]
    return Expected(name, knobs, tokens, knobs[widest] + (widest != "window"))


def settings(kind: str, row: Row) -> dict[str, Any]:
    """Settings of a row in the form of run.json, without prompt and seed, which the page keeps."""
    name = method_name(row)
    return {
        "backbone": row["backbone"],
        "method": find(name)[0].name,
        "preset": name if name in PRESETS else None,
        "knobs": dict(row["knobs"]),
        "sampling": {key: row[key] for key in SAMPLING if row.get(key) is not None},
        "size": row.get("size") or None,
        "input": None if kind == "image" else {},
    }


def method_name(row: Row) -> str:
    """Method or preset of a row, without the label of a sweep."""
    return str(row["method"]).split(" ")[0]


def label(row: Row) -> str:
    """Label of a row."""
    if row.get("row"):
        return (
            str(row["row"]).removeprefix("sweep: ").capitalize() if str(row["row"]).startswith("sweep") else expand_title(str(row["row"]))
        )
    return expand_title(str(row["method"]))


def expand_title(text: str) -> str:
    """Replaces a method name at the start of a label with the method's title."""
    name, _, rest = text.replace(PLAIN_ROW, PLAIN, 1).partition(" ")
    known = name in METHODS or name in PRESETS or name.startswith(f"{AUTO}:")
    return f"{title_of(name)} {rest}".strip() if known else text


def knobs_in_words(knobs: Mapping[str, Any]) -> str:
    """Knob values as text."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in knobs.items())


def with_quartiles(numbers: list[float] | float, digits: int, unit: str = "") -> str:
    """A median with its quartiles in brackets, or a single number."""
    middle, low, high = numbers if isinstance(numbers, list) else (numbers, numbers, numbers)
    text = f"{middle:.{digits}f}{unit}" + (f" ({low:.{digits}f} to {high:.{digits}f})" if low != high else "")
    return text.replace("-", "−")
