"""The rows of a benchmark: what each says of its experiment, how it is printed, and the CSV file that it is added to."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from engine.core import Backbone, Sampling
from engine.errors import BadFile, BadOutput
from engine.machine import facts

Row = dict[str, Any]


def experiment(backbone: Backbone, sampling: Sampling, **more: Any) -> Row:
    """What a row was measured on: machine, commit, weights, dtype, device and sampling, and what else is named."""
    return facts() | of_weights(backbone) | of_sampling(sampling) | more


def of_weights(backbone: Backbone) -> Row:
    """The columns that name a model: backbone, hash of its weights, dtype and device."""
    dtype = backbone.dtype
    return {
        "backbone": backbone.name,
        "weights": backbone.weights_hash,
        "dtype": dtype and str(dtype).removeprefix("torch."),
        "device": str(backbone.device),
    }


def of_sampling(sampling: Sampling) -> Row:
    """The columns that name how tokens are drawn."""
    return {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p", "guidance", "temperature_last")}


def publish(rows: Iterable[Row], readable: Callable[[Row], str], stamp: Row, path: Path | None) -> list[Row]:
    """Prints each row as soon as it is there, adds what the stamp says and the row does not, and adds all to a CSV file if there is a path;
    returns them."""
    found = []
    for row in rows:
        print(readable(row), flush=True)
        found.append(row | {name: value for name, value in stamp.items() if name not in row})
    if path:
        append_csv(path, found)
    return found


def quartiles(values: np.ndarray) -> list[float]:
    """Median, first and third quartile."""
    return [round(float(np.quantile(values, q)), 4) for q in (0.5, 0.25, 0.75)]


def bootstrap(values: np.ndarray, draws: int = 2000) -> list[float]:
    """95 % interval of the median over inputs."""
    r = np.random.default_rng(0)
    medians = np.median(r.choice(values, (draws, len(values))), axis=1)
    return [round(float(np.quantile(medians, q)), 3) for q in (0.025, 0.975)]


# --- files ------------------------------------------------------------------------------------------------------------


def check_file(path: Path | None, option: str) -> None:
    """Raises BadOutput if nothing can be written to `path`; what is there stays as it is. Asked before anything is measured."""
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
    """Raises BadOutput if rows cannot be written to a CSV file, BadFile if what it holds is not a table."""
    check_file(path, "--csv")
    if path is not None:
        read_csv(path)


def read_csv(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a CSV file, both empty where there is none yet; raises BadFile where they do not fit together."""
    if not path.is_file():  # a device, or a file that is yet to be made
        return [], []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as e:
        raise BadFile(f"{path} cannot be read as CSV ({e}). Choose another file with --csv.") from e
    header, rows = (lines[0], lines[1:]) if lines else ([], [])
    crooked = next((i for i, row in enumerate(rows, 2) if len(row) != len(header)), None)
    if crooked or len(set(header)) < len(header):
        where = f"row {crooked} does not fit the header" if crooked else "two columns have one name"
        raise BadFile(f"{path} is not a table that rows can be added to: {where}. Choose another file with --csv.")
    return header, rows


def append_csv(path: Path, rows: list[Row]) -> None:
    """Adds rows to a CSV file; columns that it lacks are added to it, empty in earlier rows. Lists and dicts are written as JSON.

    Raises BadOutput if it cannot be written, BadFile if it is not a table.
    """
    header, before = read_csv(path)
    columns = list(dict.fromkeys([*header, *(name for row in rows for name in row)]))
    added = [[_cell(row.get(name)) for name in columns] for row in rows]
    try:
        if header == columns or not path.is_file():
            with path.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(added if header else [columns, *added])
        else:
            wider = [row + [""] * (len(columns) - len(header)) for row in before]
            _replace(path, [columns, *wider, *added])
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror or e}). Choose another file with --csv.") from e


def _replace(path: Path, lines: list[list[str]]) -> None:
    """Writes the whole file beside the old one, which it then replaces: a kill in between loses nothing."""
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
    """A value as the text of a cell."""
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
