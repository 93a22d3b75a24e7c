"""Measures a declared experiment with the loops of `bench` and stores a CSV row per input and row as soon as it is measured.

Inputs are measured in chunks; the rows of a chunk alternate. Stored rows are not measured again, so an experiment that was killed, or
that reached its time limit, continues when it is run again. Experiments with the same declared rows share stored rows.
A file of another declaration, other weights or another machine is refused. Each row records how busy other programs kept the processor.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine.core import Backbone, Prompt
from engine.errors import BadFile, MissingWeights, NotSupported
from engine.methods import find
from engine.recognition.picture_judge import compare
from engine.run import Run, drafter_for
from engine.tuning.load_monitor import used_elsewhere
from engine.words.world import Scene
from research.bench import meshes, speed
from research.bench.judging import judge_of
from research.bench.mesh_inputs import subjects
from research.bench.plan import SIZE, BenchEntry, ImageBench, MeshBench, Model
from research.bench.rows import append_csv, check_csv, experiment
from research.papers.declaration import Arm, Experiment, Meshes, Pictures
from research.worlds.emoji_scenes import held_out_pairs, lessons_of

CHUNK = 4  # inputs that are measured and stored together
OTHERS = "others"  # the column of cores that other programs used during the measurement
REPEATS = "repeats"  # the column of repeats per input: 0 = decoded once, else twice that often, after a warm-up
PLAIN = "plain"  # the label of plain decoding where no arm is plain decoding
Row = dict[str, Any]
Pair = tuple[Scene, str]  # the scene that a picture should show, and its prompt
Groups = dict[tuple[tuple[str, float], ...], list[Arm]]


def run(
    declared: Experiment, path: Path, count: int, seconds: float, backbone: str = "", device: str = "auto", once: bool = False
) -> list[Row]:
    """Measures until `count` inputs are done or `seconds` have passed, at least one chunk. Returns the stored rows of complete inputs.

    backbone : replaces the declared one; once : each row decodes each input once, so times are rough
    Raises BadFile if the rows at `path` belong to another experiment.
    """
    assert declared.runs is not None
    check_csv(path)
    started = time.monotonic()
    borrow(path, digest(declared.runs), once)
    measure = measure_meshes if isinstance(declared.runs, Meshes) else measure_pictures
    before = started, used_elsewhere()
    for done, rows in measure(declared.runs, path, count, backbone or declared.backbone, device, 0 if once else 1):
        now = time.monotonic(), used_elsewhere()
        if rows:
            append_csv(path, [row | {OTHERS: cores_between(before, now), REPEATS: 0 if once else 1} for row in rows], whole=True)
        before, spent = now, now[0] - started
        print(f"{done} of {count} inputs, {spent / 60:.1f} of {seconds / 60:.0f} minutes", file=sys.stderr, flush=True)
        if spent > seconds:
            break
    return [row for row in read(path) if int(row["input"]) < count]


def cores_between(before: tuple[float, float | None], now: tuple[float, float | None]) -> float | None:
    """Returns the cores used by other programs between two readings (seconds, `used_elsewhere()`), None if the system cannot count them."""
    if before[1] is None or now[1] is None:
        return None
    return round(max(0.0, now[1] - before[1]) / max(now[0] - before[0], 1e-9), 2)


def measure_pictures(runs: Pictures, path: Path, count: int, name: str, device: str, repeats: int) -> Iterator[tuple[int, list[Row]]]:
    """Yields the number of finished prompts and the new rows, per chunk."""
    backbone = Model(backbone=name, device=device, dtype="float32").load()
    groups = group_arms(runs, backbone)
    pairs = held_out_pairs(count, lessons_of(backbone.card))
    reader = judge_of(lessons_of(backbone.card)) if name == "pictogram" else None
    stamp = experiment(backbone, backbone.sampling, declared=digest(runs))
    start = resume_index(path, stamp)
    yield start, []
    for first in range(start, count, CHUNK):
        rows: list[Row] = []
        chunk = pairs[first : first + CHUNK]
        for settings, arms in groups.items():
            prompts = prompts_at(name, dict(settings), backbone, chunk, first)
            entries = {arm.label: BenchEntry(arm.method, find(arm.method)[1] | dict(arm.knobs)) for arm in arms if arm.method != "ar"}
            runs_by_label = speed.measure(backbone, backbone, entries, prompts, repeats)
            plain = next((arm.label for arm in arms if arm.method == "ar"), None)
            for i, prompt in enumerate(prompts):
                each = {label: [of[i]] for label, of in runs_by_label.items()}
                for row in speed.summaries(backbone, [prompt], each):
                    label = row["method"]
                    run, scene = each[label][0][0], chunk[i][0]
                    columns = verdict(reader, run, scene) if reader else {}
                    columns |= {"plain": plain or f"{PLAIN} {settings_text(settings)}".strip()}
                    row_label = (plain or f"{PLAIN} {settings_text(settings)}".strip()) if label == "ar" else label
                    own = columns | {"label": row_label, "input": first + i, "prompt": chunk[i][1]}
                    rows.append(row | own | stamp_of(stamp, row))
        yield first + len(chunk), rows


def group_arms(runs: Pictures, backbone: Backbone) -> Groups:
    """Returns the arms that the model can run, grouped by settings; raises NotSupported if there are none."""
    groups: Groups = {}
    for arm in runs.arms:
        if why := hindrance(arm, backbone):
            print(f"{arm.label} is left out: {why}", file=sys.stderr)
            continue
        groups.setdefault(tuple(sorted({**runs.settings, **arm.settings}.items())), []).append(arm)
    if not groups:
        raise NotSupported(f"{backbone.name} can run no row of this experiment. Choose another model with --backbone.")
    return groups


def hindrance(arm: Arm, backbone: Backbone) -> str:
    """Returns why the model cannot run an arm (a missing capability, a drafter of other weights), "" if it can."""
    method = find(arm.method)[0]
    if missing := method.needs - backbone.capabilities:
        return f"{backbone.name} has no {', '.join(sorted(missing))}."
    try:
        drafter_for(method, backbone)
    except MissingWeights as e:
        return str(e)
    return ""


def prompts_at(name: str, settings: dict[str, float], backbone: Backbone, chunk: Sequence[Pair], first: int) -> list[Prompt]:
    """Returns the prompts of a chunk at these settings; a prompt's seed is its index."""
    plan = ImageBench(backbone=name, prompts=tuple(text for _, text in chunk)).at(settings)
    return [replace(prompt, seed=first + i) for i, prompt in enumerate(speed.prompts_of(plan, backbone))]


def verdict(reader: Any, run: Run, scene: Scene) -> Row:
    """Returns the judge's verdicts on a run's picture."""
    answers = compare(reader.read([run.result()])[0], scene)
    return {name: getattr(answers, name) for name in ("objects", "counts", "colours", "relation", "all")}


def measure_meshes(runs: Meshes, path: Path, count: int, name: str, device: str, repeats: int) -> Iterator[tuple[int, list[Row]]]:
    """Yields the number of finished clouds and the new rows, per chunk."""
    models = meshes.Models(
        MeshBench(backbone=name, device=device, dtype="float32", sampling={"temperature": runs.temperature, "guide": 0.0})
    )
    table = {label: row for label, row in runs.rows.items() if models.can_run(row)}
    for label in [label for label in runs.rows if label not in table]:
        print(f"{label} is left out: its heads or its adapter are missing.", file=sys.stderr)
    own = models.model(models.own)
    inputs = subjects(count, "boxes", own.card["families"])
    stamp = experiment(own, models.sampling, declared=digest(runs))
    start = resume_index(path, stamp)
    yield start, []
    plain = next(iter(table))
    for first in range(start, count, CHUNK):
        chunk = inputs[first : first + CHUNK]
        runs_by_label = models.measure(table, chunk, repeats=repeats)
        rows = []
        for i, subject in enumerate(chunk):
            each = {label: [of[i]] for label, of in runs_by_label.items()}
            summaries = {label: meshes.summary(label, each, [subject], plain) | speed.drafting([of[0][0]]) for label, of in each.items()}
            named = {"input": first + i, "family": subject.name}
            rows += [row | {"label": label} | named | stamp_of(stamp, row) for label, row in summaries.items()]
        yield first + len(chunk), rows


# --- stored rows ------------------------------------------------------------------------------------------------------


def settings_text(settings: tuple[tuple[str, float], ...]) -> str:
    """Returns settings as text."""
    return " ".join(f"{'size' if name == SIZE else name}={value:g}" for name, value in settings)


def stamp_of(stamp: Row, row: Row) -> Row:
    """Returns the columns of the stamp that the row lacks."""
    return {name: value for name, value in stamp.items() if name not in row}


def digest(runs: Pictures | Meshes) -> str:
    """Returns a hash of the declared rows; it does not depend on the number of inputs."""
    return hashlib.sha256(repr(replace(runs, count=1)).encode()).hexdigest()[:12]


def read(path: Path) -> list[Row]:
    """Returns the stored rows, [] without a file."""
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return [*csv.DictReader(file)]


def count_stored(path: Path) -> int:
    """Returns the number of inputs that have rows."""
    return len({row["input"] for row in read(path)})


def borrow(path: Path, declared: str, once: bool) -> None:
    """Copies another experiment's file in the same folder if it has the same measurement of more inputs than the file at `path`."""
    wanted = {(declared, str(0 if once else 1))}

    def fits(rows: list[Row]) -> bool:
        return {(row.get("declared"), row.get(REPEATS)) for row in rows} == wanted

    own = read(path)
    others = [(len(rows), other) for other in sorted(path.parent.glob("*.csv")) if fits(rows := read(other)) and len(rows) > len(own)]
    if others and (not own or fits(own)):
        source = max(others)[1]
        part = path.with_name(f".{path.name}-part")
        shutil.copyfile(source, part)
        os.replace(part, path)  # a kill in between leaves the file as it was
        print(f"{source.name} has the same rows, so they are not measured again.", file=sys.stderr, flush=True)


def resume_index(path: Path, stamp: Row) -> int:
    """Returns the number of stored inputs. Raises BadFile if the file belongs to another declaration, model or machine."""
    rows = read(path)
    for name in ("declared", "weights", "device", "processor", "threads"):
        if rows and rows[0].get(name) != ("" if stamp[name] is None else str(stamp[name])):
            difference = f"{name.replace('_', ' ')} {rows[0].get(name)}, and now it is {stamp[name]}"
            raise BadFile(f"{path} was measured with {difference}. Move it away, or choose another folder with --out.")
    return 1 + max((int(row["input"]) for row in rows), default=-1)


def number(cell: str) -> float | None:
    """Returns a cell as a number: a list's first entry (the median), 1 for True, None if empty."""
    if cell in ("True", "False"):
        return float(cell == "True")
    try:
        value = json.loads(cell) if cell else None
    except json.JSONDecodeError:
        return None
    value = value[0] if isinstance(value, list) and value else value
    return float(value) if isinstance(value, int | float) else None
