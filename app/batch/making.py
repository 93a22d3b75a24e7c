"""Makes the result of one input, in this process: reads, decodes, renders and keeps it. The other modules only see its row."""

from __future__ import annotations

import os
import platform
import sys
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from app.batch.folder import BatchFolder, Row, failed, with_entry
from app.batch.inputs import Entry
from app.batch.plan import Plan
from app.history import placed, write_run
from engine.core import Backbone, Prompt
from engine.errors import ForetokenError
from engine.mesh.distance import distance
from engine.mesh.quality import quality
from engine.mesh.read import Input
from engine.methods import find
from engine.recognition.up import read_standing
from engine.run import Run, generate
from engine.sampling import changed
from engine.tuning.prepare import prepared

MESH, PICTURE = "result.{}", "result.png"


class Maker:
    """Makes results with one loaded model. It knows no other input than the one it is given."""

    def __init__(self, plan: Plan, folder: BatchFolder, backbone: Backbone | None = None):
        """backbone : loaded already; None: it is loaded here"""
        self.plan, self.folder = plan, folder
        self.backbone = backbone or prepared(plan.backbone, plan.folder, "auto", plan.dtype)
        self.method, preset = find(plan.method)
        self.knobs = {**preset, **plan.knobs}

    def row(self, entry: Entry) -> Row:
        """The row of an input: its result, which may be there already, or what went wrong. A bug leaves its traceback on stderr."""
        try:
            return with_entry(self.folder.done(entry) or self.make(entry), entry)
        except ForetokenError as e:
            error = str(e)
        except Exception as e:  # one input must not end the others; the row names it and the traceback is kept
            traceback.print_exc(file=sys.stderr)
            error = f"{type(e).__name__}: {e} (a bug: its traceback is on stderr)"
        return with_entry(failed(entry, error), entry)

    def make(self, entry: Entry) -> Row:
        """Decodes an input and keeps its result."""
        given = None if entry.path is None else read_standing(entry.path, self.plan.up)
        run = generate(self.backbone, self.method, self.prompt(entry, given), self.knobs, name=self.plan.method).finish()
        return self.folder.keep(entry, lambda part: self.write(run, part, entry, given))

    def prompt(self, entry: Entry, given: Input | None) -> Prompt:
        """What the model gets: the input with its own settings over those of the batch."""
        own = dict(entry.changes)
        size = own.pop("size" if given is None else "faces", self.plan.size)
        own.pop("faces" if given is None else "size", None)
        sampling = changed(self.backbone.sampling, {**self.plan.sampling, **own})
        if given is None:
            return Prompt(entry.text, seed=entry.seed, size=size, sampling=sampling)
        return Prompt(points=torch.from_numpy(given.points), seed=entry.seed, size=size, sampling=sampling)

    def write(self, run: Run, part: Path, entry: Entry, given: Input | None) -> Row:
        """Fills the folder of a result; returns its row."""
        write_run(run, part, given, self.plan.formats)
        name = PICTURE if given is None else MESH.format(self.plan.formats[0])
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
        return row | (self.of_mesh(run, given) if given is not None else self.of_words(entry.text))

    def of_words(self, text: str) -> Row:
        """What the model does not know of a prompt."""
        return {"unknown_words": " ".join(self.backbone.unknown_words(text))}

    def of_mesh(self, run: Run, given: Input) -> Row:
        """Size and fit of a mesh."""
        result: Any = run.result()
        found = quality(result.vertices, result.faces)
        apart = distance((placed(result.vertices, given), result.faces), given.reference)
        numbers = {name: found[name] for name in ("faces", "vertices", "watertight")}
        return numbers | {name: round(float(apart[name]), 5) for name in ("chamfer", "hausdorff")}


def planned(entry: Entry, plan: Plan) -> Entry:
    """The entry, with a problem if it names a size of the other kind of input."""
    wrong = "faces" if entry.path is None else "size"
    if wrong in entry.changes:
        return replace(entry, problem=f"It names {wrong}, which {plan.backbone} does not have for it. Delete that value.")
    return entry
