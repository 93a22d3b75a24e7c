"""Records measured experiments for the pages in docs/: of each a small CSV and a small figure, and what a page says of them.

A recorded CSV has the numbers that tables and claims need, to four digits. Machine, commit, weights and declaration stand in the first row
only. Of the judge's features it has the coordinates that the distance between sets of pictures looks at.
"""

from __future__ import annotations

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine.errors import BadOutput
from research.papers import PAPERS
from research.papers.declaration import NAMED, Experiment, Paper
from research.papers.frechet import FEWEST, Axes
from research.papers.report import answers_of, measured_on, paragraph, tables_of
from research.papers.running import OTHERS, REPEATS, digest, number, read

STAMP = ("backbone", "weights", "processor", "threads", "torch", "commit", "declared")  # in the first row only
ROW = ("label", "input", "plain", "family", "features", OTHERS, REPEATS)
WIDEST, QUALITY = 1200, 50  # pixels of a recorded figure, and of its compression
VERDICTS = ("agrees", "contradicts", "undecided", "not measured")
Row = dict[str, Any]


def stem_of(paper: Paper, asked: Experiment) -> str:
    """Returns the name of an experiment's files without their endings."""
    return f"{paper.name}-{asked.key}"


# --- files ------------------------------------------------------------------------------------------------------------


def record(source: Path, folder: Path) -> dict[str, str]:
    """Records all experiments measured in `source` that are declared now. Returns for every one that runs "" if it was recorded, else why
    not; one that cannot be recorded does not stop the others. Raises BadOutput if the folder cannot be written."""
    return {stem_of(paper, asked): record_one(stem_of(paper, asked), asked, source, folder) for paper, asked in every()}


def record_one(stem: str, asked: Experiment, source: Path, folder: Path) -> str:
    """Records one experiment. Returns "", or why it was not recorded; raises BadOutput."""
    assert asked.runs is not None
    rows = [row for row in read(source / f"{stem}.csv") if int(row["input"]) < asked.runs.count]
    if not rows:
        return "it was not measured"
    if rows[0]["declared"] != digest(asked.runs):
        return "its rows belong to an older declaration"
    try:
        figure = small_figure(source / f"{stem}.png")
    except OSError:
        return "its figure cannot be read; run it again to draw it"
    try:
        write_rows(folder / f"{stem}.csv", small(rows))
        figure.save(folder / f"{stem}.webp", quality=QUALITY, method=6)
    except OSError as e:
        raise BadOutput(f"Cannot write {folder / stem} ({e.strerror or e}). Choose another folder.") from e
    return ""


def every() -> list[tuple[Paper, Experiment]]:
    """Returns the experiments of all papers that run here."""
    return [(paper, each) for paper in PAPERS.values() for each in paper.experiments if each.runs]


def small(rows: Sequence[Row]) -> list[Row]:
    """Returns stored rows as they are recorded."""
    axes = axes_of(rows)
    found = []
    for n, row in enumerate(rows):
        numbers = {name: number(row.get(name) or "") for name in NAMED}
        told = {name: f"{value:.4g}" for name, value in numbers.items() if value is not None}
        kept = {name: row[name] for name in ROW if row.get(name) and name != "features"}
        stamp = {name: row[name] for name in STAMP} if n == 0 else {}
        own = axes.get(row.get("plain") or "")
        placed = own.place(np.array(json.loads(row["features"]))) if own and row.get("features") else None
        found.append(kept | told | ({} if placed is None else {"features": json.dumps(placed.round(3).tolist())}) | stamp)
    return found


def axes_of(rows: Sequence[Row]) -> dict[str, Axes]:
    """Returns by label of plain decoding the axes of its pictures' features, of rows with enough pictures."""
    features: dict[str, list[list[float]]] = {}
    for row in rows:
        if row.get("features") and row["label"] == row["plain"]:
            features.setdefault(row["label"], []).append(json.loads(row["features"]))
    return {label: Axes.of(np.array(of)) for label, of in features.items() if len(of) >= FEWEST}


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as a CSV file, a column for everything that a row has; raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        written = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
        written.writeheader()
        written.writerows(rows)


def small_figure(path: Path) -> Image.Image:
    """Returns a figure at most WIDEST pixels wide."""
    with Image.open(path) as opened:
        figure = opened.convert("RGB")
    if figure.width <= WIDEST:
        return figure
    return figure.resize((WIDEST, round(figure.height * WIDEST / figure.width)), Image.LANCZOS)


def recorded(path: Path) -> list[Row]:
    """Returns recorded rows, each with what stands in the first one only; [] without a file."""
    rows = read(path)
    return [row | {name: rows[0][name] for name in STAMP} for row in rows]


# --- pages ------------------------------------------------------------------------------------------------------------


def page_of(paper: Paper, folder: Path) -> str:
    """Returns a page about all experiments of a paper, those that do not run here with the reason."""
    found = {each.key: recorded(folder / f"{stem_of(paper, each)}.csv") for each in paper.experiments}
    parts = [counted(paper, found)]
    for each in paper.experiments:
        parts.append(f"## {each.title}")
        parts += section(paper, each, found[each.key], "") if each.runs else [unrun(each)]
    shown = [f"- {key.replace('-', ' ').capitalize()} shows {what}." for key, what in paper.illustrations.items()]
    return "\n\n".join([*parts, "## Not experiments", "\n".join(shown)]) + "\n"


def section(paper: Paper, asked: Experiment, rows: list[Row], at: str, brief: bool = False) -> list[str]:
    """Returns the parts of a page about one experiment: paragraph, figure and tables. at : the folder of figures as seen from the page

    brief : without tables
    """
    assert asked.runs is not None
    command = f"`python launch.py papers {paper.name} {asked.key}`"
    if not rows:
        return [f"{asked.asks} The paper: {asked.reports} Not recorded yet: {command}."]
    stem, done = stem_of(paper, asked), len({row["input"] for row in rows})
    older = "" if rows[0]["declared"] == digest(asked.runs) else "The rows were measured before the experiment was last changed. "
    figure = f"![{asked.title}]({at}{stem}.webp)"
    said = [older + paragraph(asked, rows), figure]
    return said if brief else [*said, *tables_of(asked, rows), measured_on(paper, asked, rows, done, done)]


def unrun(asked: Experiment) -> str:
    """Returns why an experiment does not run here."""
    nearest = f" Nearest: {asked.nearest}." if asked.nearest else ""
    return f"{asked.asks} The paper: {asked.reports} It does not run here: {asked.reason}.{nearest}"


def counted(paper: Paper, found: dict[str, list[Row]]) -> str:
    """Returns a table of a paper's experiments: inputs measured, and how many claims hold here."""
    lines = ["| | inputs | " + " | ".join(VERDICTS[:3]) + " |", "|---" * 5 + "|"]
    for each in paper.experiments:
        rows = found[each.key]
        inputs = len({row["input"] for row in rows}) if rows else "does not run" if not each.runs else "not recorded"
        verdicts = Counter(a.verdict for a in answers_of(each, rows)) if rows else Counter[str]()
        cells = " | ".join(str(verdicts[name]) if verdicts[name] else "" for name in VERDICTS[:3])
        lines.append(f"| {each.title} | {inputs} | {cells} |")
    return "\n".join(lines)


def summary(folder: Path) -> str:
    """Returns a table of the papers: experiments that are listed, run and recorded, and how many claims hold here."""
    lines = ["| paper | listed | run here | recorded | claims: " + " | ".join(VERDICTS[:3]) + " |", "|---" * 7 + "|"]
    for paper in PAPERS.values():
        rows = {each.key: recorded(folder / f"{stem_of(paper, each)}.csv") for each in paper.experiments}
        verdicts = Counter(a.verdict for each in paper.experiments for a in answers_of(each, rows[each.key]) if rows[each.key])
        run = sum(each.runs is not None for each in paper.experiments)
        cells = (len(paper.experiments), run, sum(map(bool, rows.values())), *(verdicts[name] for name in VERDICTS[:3]))
        lines.append(f"| [{paper.title}](papers/{paper.name}.md) | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def chosen(paper: Paper, keys: Iterable[str], folder: Path, at: str) -> str:
    """Returns some experiments of a paper for a page on its method, without tables. at : the folder as seen from the page

    Raises KeyError for an experiment that does not run.
    """
    parts = []
    for key in keys:
        asked = paper.find(key)
        if asked is None or asked.runs is None:
            raise KeyError(f"{paper.name} {key} is no experiment that runs")
        parts += [f"**{asked.title}**", *section(paper, asked, recorded(folder / f"{stem_of(paper, asked)}.csv"), at, brief=True)]
    return "\n\n".join([*parts, f"All tables and figures of the paper: [{paper.title}]({at}{paper.name}.md)."]) + "\n"
