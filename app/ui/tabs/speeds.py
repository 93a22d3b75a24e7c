"""Speeds of the models on this machine, from its saved runs; nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from app.runs.finished import read_settings
from app.runs.history import SETTINGS
from app.ui.method_menu import speed_words
from engine.core import PLAIN, Backbone
from engine.errors import BadFile
from engine.machine import processor
from engine.tuning.auto import steps_here

NEWEST = 200  # number of runs read; older ones say little about the current speed


@dataclass(frozen=True)
class SavedRun:
    """A saved run: folder, model, method, tokens per second, and those of plain decoding in the same race (None: not raced)."""

    folder: Path
    backbone: str
    weights: str | None
    method: str
    tokens_per_second: float
    plain: float | None = None


@dataclass(frozen=True)
class Speed:
    """Median tokens per second of a model on this machine: of plain decoding (None = not run), and of its fastest method."""

    runs: int
    plain: float | None
    method: str = ""
    fast: float | None = None


def saved_runs(runs: Path) -> list[SavedRun]:
    """Finished runs made on this processor, newest first, without damaged ones."""
    if not runs.is_dir():
        return []
    newest = sorted((path for path in runs.iterdir() if (path / SETTINGS).is_file()), key=lambda path: path.name, reverse=True)
    summaries = (read_run(path) for path in newest[:NEWEST])
    return [each for each in summaries if each is not None]


def read_run(folder: Path) -> SavedRun | None:
    """Summary of a saved run; None if it is damaged, was stopped, or was made on another processor."""
    try:
        settings = read_settings(folder)
        machine: Mapping[str, Any] = settings["machine"]
        if not settings["finished"] or machine["processor"] != processor():
            return None
        speed = float(settings["totals"]["tokens_per_second"])
        other = settings.get("other") or {}
        plain = float(other["tokens_per_second"]) if other.get("method") == PLAIN else None
        return SavedRun(folder, str(settings["backbone"]), settings["weights"], str(settings["preset"] or settings["method"]), speed, plain)
    except (BadFile, KeyError, TypeError, ValueError, AttributeError):
        return None


def runs_of_model(runs: Iterable[SavedRun], name: str, weights: str | None = None) -> list[SavedRun]:
    """Runs of a model. weights : its hash, None = any"""
    return [each for each in runs if each.backbone == name and (weights is None or each.weights == weights)]


def medians(runs: Iterable[SavedRun]) -> dict[str, float]:
    """Median tokens per second by method, over runs of one model."""
    by_method: dict[str, list[float]] = {}
    for each in runs:
        by_method.setdefault(each.method, []).append(each.tokens_per_second)
    return {method: median(values) for method, values in by_method.items()}


def speed(runs: Sequence[SavedRun]) -> Speed | None:
    """Speed of a model, given its runs; None without runs."""
    rates = medians(runs)
    if not rates:
        return None
    plain = rates.pop(PLAIN, None) or median([each.plain for each in runs if each.plain] or [0]) or None
    best = max(rates, key=lambda method: rates[method], default="")
    return Speed(len(runs), plain, best, rates.get(best))


def speedups(runs: Path, name: str, weights: str | None) -> dict[str, float]:
    """Speed-ups over plain decoding on this machine, by method: the median over races against it; else over runs of plain decoding."""
    own = runs_of_model(saved_runs(runs), name, weights)
    rates = medians(own)
    plain = rates.pop(PLAIN, None)
    raced = medians(replace(each, tokens_per_second=each.tokens_per_second / each.plain) for each in own if each.plain)
    return ({method: value / plain for method, value in rates.items()} if plain else {}) | raced


def speeds_here(runs: Path, backbone: Backbone) -> dict[str, str]:
    """Speeds on this machine in words, by method: of saved runs, or, of methods with a drafter, what the measurements of `auto` predict."""
    steps = steps_here(backbone)
    ratios = {name: step.speedup for name, step in steps.items()} | speedups(runs, backbone.name, backbone.weights_hash)
    return {name: speed_words(ratio, steps.get(name)) for name, ratio in ratios.items()}
