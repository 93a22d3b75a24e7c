"""Settings shared by all inputs of a batch, stored with the results so that a later start resumes with the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import BadOutput


@dataclass(frozen=True)
class BatchPlan:
    """Settings of a batch; all values can be written as JSON.

    asked    : the text of --method; method : what it resolves to here, such as "auto:sjdpp,window=16"
    knobs    : of the method, overriding its preset; sampling : overrides of the model's values
    size     : pixels, or the maximum number of faces; about : number of faces to aim at; dtype : of the passes
    weights  : hash of the model's files
    up, formats, shrinkwrap : of meshes; weight_form : see Backbone
    """

    backbone: str
    folder: str | None
    weights: str | None
    dtype: str
    asked: str
    method: str
    knobs: Mapping[str, Any]
    sampling: Mapping[str, float]
    size: int | None
    up: str
    formats: tuple[str, ...]
    shrinkwrap: bool = False
    about: int | None = None
    weight_form: str = "full"

    def row(self) -> dict[str, Any]:
        """The plan as a JSON object."""
        return asdict(self) | {"knobs": dict(self.knobs), "sampling": dict(self.sampling), "formats": list(self.formats)}


# Not compared: `auto` may choose another method on another day, and the folder of a model may have moved.
COMPARED = ("backbone", "weights", "asked", "knobs", "sampling", "size", "up", "formats", "shrinkwrap", "about", "weight_form")


def resume_plan(plan: BatchPlan, stored: Mapping[str, Any], where: str) -> BatchPlan:
    """The plan with the stored method and dtype. Raises BadOutput if other settings differ.

    where : name of the folder in messages
    """
    earlier = {"shrinkwrap": False, "about": None, "weight_form": "full"}  # earlier batches have no such entries
    own, stored = plan.row(), {**earlier, **stored}
    if missing := [each.name for each in fields(BatchPlan) if each.name not in stored]:
        raise BadOutput(f"{where} has a batch.json without '{missing[0]}'. Choose another folder with --out.")
    for name in COMPARED:
        if own[name] != stored[name]:
            raise BadOutput(
                f"{where} has a batch with {name} = {stored[name]}, but this one has {own[name]}. Give the same settings to resume, or "
                "choose another folder with --out."
            )
    return BatchPlan(**{**own, "formats": plan.formats, "method": str(stored["method"]), "dtype": str(stored["dtype"])})
