"""Cost of passes for `doctor`: measured per model, stored, and printed as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def cost_rows(models: Iterable[str], again: bool) -> list[dict[str, Any]]:
    """Cost curves of models by dtype, at the fastest number of threads of each; measures those that are not stored.


    models : names or folders; a model that is missing or too large for memory gets a row with the error
    again  : measure all of them
    """
    from engine.errors import ForetokenError

    rows = []
    for each in models:
        try:
            rows += model_rows(each, again)
        except ForetokenError as e:  # doctor reports what is missing instead of failing
            rows.append({"model": each, "missing": str(e)})
    return rows


def model_rows(name: str, again: bool) -> list[dict[str, Any]]:
    """A row per dtype of a model."""
    import torch

    from engine.backbones import load, resolve
    from engine.tuning import auto, store
    from engine.tuning.prepare import costs_here, keep, prepare, to_stderr

    location = resolve(name)
    if again:
        store.forget(load(*location))
    backbone = prepare(*location)
    known = store.read(backbone)
    costs_here(backbone, known)
    if not auto.table_of(backbone, known) and backbone.weights_hash is not None:
        to_stderr(f"Recording the tokens per pass of {backbone.name} on a few inputs, once.")
        known.tokens = [each.row() for each in auto.record(backbone, auto.prompts(backbone))]
        keep(known, to_stderr)
    choice = auto.resolve(backbone, measured=known)
    count = torch.get_num_threads()
    return [
        {
            "model": name, "dtype": dtype, "threads": count, "auto": choice if dtype == backbone.dtype else None,
            "milliseconds": costs.curve.row(), "extra": costs.extra, "disturbed": known.disturbed,
        }
        for (threads, dtype), costs in sorted(known.costs.items())
        if threads == count
    ]  # fmt: skip


def table(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the table."""
    from engine.methods import title
    from engine.tuning.curve import WIDTHS, CostCurve
    from engine.tuning.roofline import fitted

    lines = [f"{'milliseconds per pass, by rows':31}" + "".join(f"{width:>8}" for width in WIDTHS)]
    for row in rows:
        if "missing" in row:
            lines.append(f"{row['model']:31} missing: {row['missing']}")
            continue
        label = f"{row['model']} {row['dtype']}, {row['threads']} thread{'s' if row['threads'] > 1 else ''}"
        curve = CostCurve.of(row["milliseconds"])
        roofline, deviation = fitted(curve)
        lines.append(f"{label:31}" + "".join(f"{time:8.2f}" for _, time in curve.points))
        lines.append(f"{f'  roofline, within {deviation - 1:.0%}':31}" + "".join(f"{roofline.at(width):8.2f}" for width, _ in curve.points))
        if row["extra"]:
            lines.append("  milliseconds of a method in addition to the pass, or per pass of its drafter:")
            lines += [f"    {name.replace(',', ', '):52}{cost:8.2f}" for name, cost in row["extra"].items()]
        if row["disturbed"]:
            lines.append("  other programs used the processor, so these numbers are unreliable; --again measures them again")
        if row["auto"]:
            lines.append(f"  {title(row['auto'])}")
    return lines
