"""Makes results in this process: reads, decodes, renders and stores each input. Other modules see only rows."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from app.batch.folder import BatchFolder, Row, failed_row, with_entry
from app.batch.inputs import BatchInput
from app.batch.plan import BatchPlan
from app.requests.meshes import guided
from app.runs.history import to_input_frame, write_run
from app.runs.mesh_files import save_shrinkwrapped
from engine.core import Backbone, Prompt
from engine.errors import ForetokenError
from engine.many import EndedRun, generate_many
from engine.mesh.distance import distance
from engine.mesh.quality import quality
from engine.mesh.read import Input
from engine.methods import find
from engine.recognition.up import read_standing
from engine.run import Run
from engine.sampling import with_values
from engine.tuning.prepare import prepare

MESH, PICTURE = "result.{}", "result.png"


class Maker:
    """Makes results with one loaded model."""

    def __init__(self, plan: BatchPlan, folder: BatchFolder, backbone: Backbone | None = None):
        """backbone : None: loaded here"""
        self.plan, self.folder = plan, folder
        self.backbone = backbone or prepare(plan.backbone, plan.folder, "auto", plan.dtype, weights=plan.weight_form)
        self.method, preset = find(plan.method)
        self.knobs = {**preset, **plan.knobs}

    def rows(self, entries: Iterable[BatchInput], at_once: int | None = None) -> Iterator[Row]:
        """Yield rows as inputs finish. at_once : inputs decoded together; None: the fastest number"""
        sources: list[tuple[BatchInput, Input | None] | None] = []  # None: the run has ended
        ready: list[Row] = []  # of inputs that need no run

        def prompts() -> Iterator[Prompt]:
            for entry in entries:
                try:
                    if (row := self.folder.finished_row(entry)) is not None:
                        ready.append(with_entry(row, entry))
                        continue
                    shape = self.read_shape(entry)
                    prompt = self.prompt(entry, shape)
                except Exception as e:  # one input must not end the others
                    ready.append(row_of_error(entry, e))
                    continue
                sources.append((entry, shape))
                yield prompt

        for ended in generate_many(self.backbone, self.method, prompts(), self.knobs, at_once, name=self.plan.method):
            yield from _drain(ready)
            entry, shape = sources[ended.index]
            sources[ended.index] = None  # frees the cloud
            yield self.store(ended, entry, shape)
        yield from _drain(ready)

    def store(self, ended: EndedRun, entry: BatchInput, shape: Input | None) -> Row:
        """Stores the result of a finished run; returns its row."""
        try:
            if ended.error is not None:
                raise ended.error
            return with_entry(self.folder.keep(entry, lambda part: self.write(ended.run, part, entry, shape)), entry)
        except Exception as e:  # as in `rows`
            return row_of_error(entry, e)

    def read_shape(self, entry: BatchInput) -> Input | None:
        """Reads the cloud or mesh of an input; None for a prompt."""
        return None if entry.path is None else read_standing(entry.path, self.plan.up)

    def prompt(self, entry: BatchInput, shape: Input | None) -> Prompt:
        """The model's prompt; the input's settings override the batch's."""
        own = dict(entry.changes)
        size, about = own.pop("size" if shape is None else "faces", self.plan.size), own.pop("about", self.plan.about)
        own.pop("faces" if shape is None else "size", None)
        sampling = with_values(self.backbone.sampling, {**self.plan.sampling, **own})
        if shape is None:
            return Prompt(entry.text, seed=entry.seed, size=size, sampling=sampling)
        prompt = Prompt(points=torch.from_numpy(shape.points), seed=entry.seed, size=size, about=about, sampling=sampling)
        return guided(self.backbone, prompt)

    def write(self, run: Run, part: Path, entry: BatchInput, shape: Input | None) -> Row:
        """Writes all files of a result; returns its row."""
        write_run(run, part, shape, self.plan.formats)
        name = PICTURE if shape is None else MESH.format(self.plan.formats[0])
        totals = run.totals
        row = {
            "status": "done",
            "file": self.folder.reference(self.folder.place(entry) / name) if (part / name).exists() else "",
            "method": run.name,
            "exact": run.exact,
            "tokens": totals["tokens"],
            "passes": totals["forwards"],
            "draft_passes": totals["draft_forwards"],
            "tokens_per_pass": round(totals["step_compression"], 3),
            "seconds": round(run.seconds, 4),
            "process": f"{platform.node()}:{os.getpid()}",
        }
        if shape is None:
            return row | self.word_columns(entry.text)
        row |= self.mesh_columns(run, shape)
        row["guide_faces"] = "" if run.prompt.guide is None else len(run.prompt.guide[1])
        if self.plan.shrinkwrap and row["faces"]:
            chamfer = save_shrinkwrapped(run, shape, part, self.plan.formats)
            row["shrinkwrapped_chamfer"] = chamfer and round(chamfer, 5)
        return row

    def word_columns(self, text: str) -> Row:
        """Column with the words of a prompt that the model does not know."""
        return {"unknown_words": " ".join(self.backbone.unknown_words(text))}

    def mesh_columns(self, run: Run, shape: Input) -> Row:
        """Columns with a mesh's size and its distance from the input."""
        result: Any = run.result()
        report = quality(result.vertices, result.faces)
        distances = distance((to_input_frame(result.vertices, shape), result.faces), shape.reference)
        numbers = {name: report[name] for name in ("faces", "vertices", "watertight")}
        return numbers | {name: round(float(distances[name]), 5) for name in ("chamfer", "hausdorff")}


def row_of_error(entry: BatchInput, error: Exception) -> Row:
    """Row of a failed input; the traceback of a bug goes to stderr."""
    if isinstance(error, ForetokenError):
        return with_entry(failed_row(entry, str(error)), entry)
    traceback.print_exception(error, file=sys.stderr)
    return with_entry(failed_row(entry, f"{type(error).__name__}: {error} (a bug: its traceback is on stderr)"), entry)


def _drain(rows: list[Row]) -> list[Row]:
    """Empties the list; returns its rows."""
    copy = list(rows)
    rows.clear()
    return copy


def check_sizes(entry: BatchInput, plan: BatchPlan) -> BatchInput:
    """The entry, marked with a problem if it sets the size of the other kind of input."""
    wrong = ("faces", "about") if entry.path is None else ("size",)
    for name in wrong:
        if name in entry.changes:
            return replace(entry, problem=f"It sets {name}, which {plan.backbone} does not use for it. Delete that value.")
    return entry
