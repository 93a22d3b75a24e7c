"""`launch.py bench expected`: tokens per pass of the methods that `auto` chooses among, on held-out inputs, for a model's card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.backbones import resolve
from engine.backbones.lowpoly import Lowpoly
from engine.core import Backbone, Prompt
from engine.networks.card import write_entry
from engine.networks.weights import MODELS
from engine.tuning.auto import candidates, record
from engine.tuning.expected import ENTRY
from research.bench.mesh_inputs import subjects
from research.bench.plan import MOST_INPUTS, Model, check_count
from research.bench.rows import experiment, publish
from research.worlds.emoji_scenes import held_out_prompts, lessons_of


@dataclass(frozen=True, kw_only=True)
class ExpectedBench(Model):
    """`bench expected`: `count` held-out inputs; write : store the rows in the model's card."""

    count: int = 8
    write: bool = False

    def __post_init__(self) -> None:
        """Raises BadPrompt or NotSupported for a plan that cannot be measured."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)


def bench(plan: ExpectedBench) -> list[dict[str, Any]]:
    """Returns the rows and prints each as soon as it is measured; with `write`, stores them in the card. Raises BadOutput."""
    backbone = plan.load()
    prompts = inputs(backbone, plan.count)
    stamp = experiment(backbone, backbone.sampling, inputs=len(prompts), seeds=f"0..{len(prompts) - 1}")
    rows = publish(measure_candidates(backbone, prompts), row_text, stamp, None)
    if plan.write:
        store(folder_of(plan), backbone, plan.count, rows)
    return rows


def inputs(backbone: Backbone, count: int) -> list[Prompt]:
    """Returns held-out prompts, or point clouds of held-out shapes."""
    if "points" in backbone.capabilities:
        families = backbone.card.get("families", ())  # none: not one of ours
        clouds = [Prompt(points=s.points, seed=i) for i, s in enumerate(subjects(count, "boxes" if families else "families", families))]
        return [backbone.guided(each) for each in clouds] if isinstance(backbone, Lowpoly) else clouds
    return [Prompt(text, seed=i) for i, text in enumerate(held_out_prompts(count, lessons_of(backbone.card)))]


def measure_candidates(backbone: Backbone, prompts: list[Prompt]) -> Iterator[dict[str, Any]]:
    """Yields a row for each candidate."""
    for candidate in candidates(backbone):
        yield from (each.row() for each in record(backbone, prompts, [candidate]))


def folder_of(plan: ExpectedBench) -> Path:
    """Returns the folder of the model's card."""
    name, path = resolve(plan.backbone)
    return Path(path) if path else MODELS / name


def store(folder: Path, backbone: Backbone, count: int, rows: list[dict[str, Any]]) -> None:
    """Writes the rows into a folder's card; raises MissingWeights without a card, BadOutput if it cannot be written."""
    stored = [{name: row[name] for name in ("method", "knobs", "tokens", "rows", "draft_passes")} for row in rows]
    command = f"python launch.py bench expected --backbone {backbone.name} --count {count} --write"
    about = {"command": command, "weights": backbone.weights_hash, "dtype": backbone.dtype, "inputs": count, "rows": stored}
    write_entry(folder, ENTRY, about)


def row_text(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    knobs = " ".join(f"{name}={value}" for name, value in row["knobs"].items())
    cost = f"{row['tokens']:6.2f} tokens per pass of {row['rows']:5.1f} rows, {row['draft_passes']:5.2f} other passes"
    return f"{row['method']:18} {knobs:32} {cost}"
