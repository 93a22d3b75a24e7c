"""What all inputs of a batch share. It is written beside the results, so that a later start goes on with the same settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from engine.errors import BadOutput


@dataclass(frozen=True)
class BatchPlan:
    """The settings of a batch; all values are those of JSON.

    asked    : --method as it was given; method : what it means here, such as "auto:sjdpp,window=16"
    knobs    : of the method, over those of its preset; sampling : what differs from the model's own
    size     : pixels, or the most faces; dtype : of the passes
    weights  : hash of the model's files
    up, formats : of meshes
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

    def row(self) -> dict[str, Any]:
        """The plan as JSON holds it."""
        return asdict(self) | {"knobs": dict(self.knobs), "sampling": dict(self.sampling), "formats": list(self.formats)}


# Not compared: `auto` may take another method on another day, and the folder of a model may have moved.
COMPARED = ("backbone", "weights", "asked", "knobs", "sampling", "size", "up", "formats")


def going_on(plan: BatchPlan, stored: Mapping[str, Any], where: str) -> BatchPlan:
    """The plan with the method and the dtype that the stored one began with. Raises BadOutput if the two differ.

    where : how the message calls the folder
    """
    own = plan.row()
    if missing := [each.name for each in fields(BatchPlan) if each.name not in stored]:
        raise BadOutput(f"{where} has a batch.json without '{missing[0]}'. Choose another folder with --out.")
    for name in COMPARED:
        if own[name] != stored[name]:
            raise BadOutput(
                f"{where} holds a batch with {name} = {stored[name]}, and this one has {own[name]}. Give the same settings to go on, or "
                "choose another folder with --out."
            )
    return BatchPlan(**{**own, "formats": plan.formats, "method": str(stored["method"]), "dtype": str(stored["dtype"])})
