"""Rows of a benchmark: the columns that describe the experiment, printing, and the CSV file that rows are appended to."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from math import isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

from engine.core import Backbone, Sampling
from engine.errors import BadFile, BadOutput
from engine.loading import model_columns
from engine.machine import machine_facts
from engine.run import Run, speedup
from engine.tuning.auto import expected_run

Row = dict[str, Any]


def experiment(backbone: Backbone, sampling: Sampling, **more: Any) -> Row:
    """Returns the columns that describe an experiment: machine, commit, weights, dtype, device, sampling, and `more`."""
    return machine_facts() | model_columns(backbone) | sampling_columns(sampling) | more


def sampling_columns(sampling: Sampling) -> Row:
    """Returns the columns of the sampling settings."""
    return {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "guidance", "temperature_last", "guide")}


def publish(rows: Iterable[Row], readable: Callable[[Row], str], stamp: Row, path: Path | None) -> list[Row]:
    """Prints each row as soon as it is measured and adds the missing columns of `stamp`; appends all rows to a CSV file at `path`.
    Returns the rows."""
    published = []
    for row in rows:
        print(readable(row), flush=True)
        published.append(row | {name: value for name, value in stamp.items() if name not in row})
    if path:
        append_csv(path, published)
    return published


def quartiles(values: np.ndarray) -> list[float]:
    """Returns the median and the first and third quartiles."""
    return [round(float(np.quantile(values, q)), 4) for q in (0.5, 0.25, 0.75)]


def bootstrap(values: np.ndarray, draws: int = 2000) -> list[float]:
    """Returns the 95 % bootstrap interval of the median over inputs."""
    r = np.random.default_rng(0)
    medians = np.median(r.choice(values, (draws, len(values))), axis=1)
    return [round(float(np.quantile(medians, q)), 3) for q in (0.025, 0.975)]


def timing(mine: Sequence[Sequence[Run]], plain: Sequence[Sequence[Run]]) -> Row:
    """Returns a row's columns of time, relative to plain decoding on the same inputs. mine, plain : runs per input"""
    seconds = np.array([np.median([run.seconds for run in of]) for of in mine])
    forwards = np.array([of[0].totals["forwards"] for of in mine])
    counts = expected_run(mine[0][0].name, {}, [of[0] for of in mine])
    ratios = np.array([speedup(slow, fast) for slow, fast in zip(plain, mine, strict=True)])
    return {
        "exact": all(of[0].exact for of in mine),
        "seconds": quartiles(seconds),
        "forwards": quartiles(forwards),
        "milliseconds_per_step": quartiles(1000 * seconds / forwards),
        "step_compression": quartiles(np.array([of[0].totals["step_compression"] for of in mine])),
        "rows_per_pass": round(counts.rows, 3),
        "draft_passes_per_pass": round(counts.draft_passes, 3),
        "speedup": quartiles(ratios),
        "speedup_interval": bootstrap(ratios),
    }


# --- the table --------------------------------------------------------------------------------------------------------

DRAFT_COLUMNS = ("accepted_a_pass", "nodes", "depth", "mean_deviation")


def row_text(row: Row) -> str:
    """Formats a row about a method on pictures or meshes: time, passes, speed-up, quality, drafts and the judge's shares."""
    parts = [f"{row.get('row') or row['method']:28} {'exact' if row['exact'] else 'NOT EXACT':9} {row['seconds'][0]:7.2f} s"]
    parts.append(f"{spread(row['step_compression'])} tokens per pass")
    parts += [f"{spread(row['speedup'])} x in time"] if "speedup" in row else []
    parts += [f"log p {row['log_probability'][0]:.3f}"] if "log_probability" in row else []
    if "chamfer_over_floor" in row:
        over = row["chamfer_over_floor"]
        parts.append("no faces" if over is None else f"{spread(over)} x floor, chamfer {row['chamfer_16k']:.4f}")
    parts += [f"faces off by {row['faces_error'][0]:.0%}"] if "faces_error" in row else []
    parts += [f"{name.replace('a_pass', 'per_pass').replace('_', ' ')} {row[name]:.3g}" for name in DRAFT_COLUMNS if name in row]
    parts += [f"by place {' '.join(f'{share:.0%}'[:-1] for share in row['accepted_by_place'])} %"] if "accepted_by_place" in row else []
    parts += [f"same tokens {row['same_tokens_as_plain']}/{row['prompts']}"] if "same_tokens_as_plain" in row else []
    parts += [
        f"{name.replace('_', ' ')} {row[name]:.1%}" for name in JUDGE_SHARES if not isnan(row.get(name, nan))
    ]  # nan: no scene has this aspect
    parts += [f"objects against plain {row['objects_more']:+.1%} \u00b1 {row['half_width']:.1%}"] if "objects_more" in row else []
    return "   ".join(parts)


JUDGE_SHARES = ("objects", "counts", "relation", "colours", "background", "all", "single", "pair", "right_kind")


def spread(values: list[float]) -> str:
    """A median with its quartiles in brackets."""
    return f"{values[0]:5.2f} ({values[1]:.2f}-{values[2]:.2f})"


# --- files ------------------------------------------------------------------------------------------------------------


def check_file(path: Path | None, option: str) -> None:
    """Raises BadOutput if `path` cannot be written; leaves an existing file unchanged. Called before anything is measured."""
    if path is None:
        return
    try:
        is_new = not path.exists()
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another file with {option}.") from e


def check_csv(path: Path | None) -> None:
    """Raises BadOutput if rows cannot be written to a CSV file, BadFile if its content is not a table."""
    check_file(path, "--csv")
    if path is not None:
        read_csv(path)


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Returns the header and rows of a CSV file, both empty without a file; raises BadFile if a row does not fit the header."""
    if not path.is_file():  # a device, or a file that does not exist yet
        return [], []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise BadFile(f"{path} cannot be read as CSV ({e}). Choose another file with --csv.") from e
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    crooked = next((i for i, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if crooked or len(set(header)) < len(header):
        where = f"row {crooked} does not fit the header" if crooked else "two columns have the same name"
        raise BadFile(f"Cannot append rows to {path}: {where}. Choose another file with --csv.")
    return header, rows


def append_csv(path: Path, rows: list[Row], whole: bool = False) -> None:
    """Appends rows to a CSV file. New columns are empty in earlier rows; lists and dicts are written as JSON.

    whole : all or none of these rows survive a kill at any time, because the file is rewritten
    Raises BadOutput if the file cannot be written, BadFile if it is not a table.
    """
    header, before = read_csv(path)
    columns = list(dict.fromkeys([*header, *(name for row in rows for name in row)]))
    added = [[_cell(row.get(name)) for name in columns] for row in rows]
    try:
        if not whole and (header == columns or not path.is_file()):
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(added if header else [columns, *added])
        else:
            path.touch()  # a new file gets the usual permissions
            wider = [row + [""] * (len(columns) - len(header)) for row in before]
            _replace(path, [columns, *wider, *added])
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another file with --csv.") from e


def _replace(path: Path, lines: list[list[str]]) -> None:
    """Writes a new file next to the old one, then replaces the old one, so a kill in between loses nothing."""
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(lines)
        os.chmod(name, target.stat().st_mode & 0o777)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _cell(value: Any) -> str:
    """Returns the text of a cell."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
