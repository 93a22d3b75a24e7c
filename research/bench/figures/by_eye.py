"""`launch.py bench image --judge --eye FILE`: the judge against human answers about the same pictures.

The pictures are those of the contact sheet (`--sheet`, with the same --size). FILE is a CSV with a row for each inspected picture: its
number on the sheet (from 0), the hash of the weights that made it, and for objects, counts, relation and background 1 (correct), 0 (wrong)
or nothing (not in the prompt). A row of the result is the confusion table of one of these aspects.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.core import Prompt
from engine.errors import BadFile
from engine.methods import METHODS
from engine.recognition.picture_judge import Verdict, compare
from engine.run import generate
from engine.words.emoji_scenes import held_out_pairs, lessons_of
from research.bench.figures import sheet
from research.bench.judged import judge_of
from research.bench.plan import EyeBench
from research.bench.rows import check_csv, experiment, publish

ASPECTS = ("objects", "counts", "relation", "background")


@dataclass(frozen=True)
class Seen:
    """Human answers about a picture; None: the prompt does not ask for the aspect."""

    number: int
    said: dict[str, bool | None]


def read(path: Path, weights: str | None) -> list[Seen]:
    """Returns the answers of a file; raises BadFile if it cannot be read, or if other weights made the pictures."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found = [Seen(_number(row["number"]), {aspect: _answer(row[aspect]) for aspect in ASPECTS}) for row in rows]
        others = {row["weights"] for row in rows} - {str(weights)}
    except (OSError, UnicodeDecodeError, KeyError, ValueError) as e:
        columns = ", ".join(("number", "weights", *ASPECTS))
        raise BadFile(
            f"{path} cannot be read ({type(e).__name__}: {e}). It needs the columns {columns}; see research/bench/figures/by_eye.py."
        ) from e
    if not rows:
        raise BadFile(f"{path} has no answer. Write a row for each inspected picture.")
    if others:
        raise BadFile(
            f"{path} is about pictures of other weights ({', '.join(sorted(others))}; these are {weights}). Inspect the new pictures."
        )
    return found


def _number(text: str) -> int:
    """Returns a picture's number, 0 or more; raises ValueError."""
    if int(text) < 0:
        raise ValueError(f"{text} is not a picture's number")
    return int(text)


def _answer(text: str) -> bool | None:
    """Returns True for 1, False for 0, None for nothing; raises ValueError."""
    if text not in ("1", "0", ""):
        raise ValueError(f"'{text}' is not 1, 0 or empty")
    return None if text == "" else text == "1"


def bench(plan: EyeBench) -> list[dict[str, Any]]:
    """Returns the rows of the table; raises MissingWeights if there is no judge, BadFile for a file of answers that cannot be used."""
    check_csv(plan.csv)
    backbone = plan.load()
    sampling = plan.sampling_of(backbone)
    lessons = lessons_of(backbone.card)
    reader = judge_of(lessons)
    seen = read(plan.answers, backbone.weights_hash)
    pairs = held_out_pairs(max((s.number for s in seen), default=0) + 1, lessons)
    prompts = [Prompt(pairs[s.number][1], seed=s.number, size=plan.size, sampling=sampling) for s in seen]
    runs = [generate(backbone, METHODS[sheet.METHOD], prompt).finish() for prompt in prompts]
    pictures = [run.result() for run in runs]
    verdicts = [compare(reading, pairs[s.number][0]) for reading, s in zip(reader.read(pictures), seen, strict=True)]
    rows = [confusion(aspect, seen, verdicts) for aspect in ASPECTS]
    told = {"method": sheet.METHOD, "knobs": runs[0].steps[-1].knobs, "size": pictures[0].shape[1], "answers": plan.answers.name}
    return publish(rows, readable, experiment(backbone, sampling, **told), plan.csv)


def confusion(aspect: str, seen: list[Seen], verdicts: list[Verdict]) -> dict[str, Any]:
    """Returns how often the judge and the human answers agree on an aspect, among the pictures where both have an answer."""
    answers = [(getattr(v, aspect), s.said[aspect]) for v, s in zip(verdicts, seen, strict=True)]
    both = [(theirs, ours) for theirs, ours in answers if theirs is not None and ours is not None]
    counts = {
        "both_right": both.count((True, True)),
        "both_wrong": both.count((False, False)),
        "only_judge_right": both.count((True, False)),
        "only_eye_right": both.count((False, True)),
    }
    return {
        "aspect": aspect,
        "pictures": len(both),
        "agree": round((counts["both_right"] + counts["both_wrong"]) / max(1, len(both)), 4),
    } | counts


def readable(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    said = "  ".join(f"{name.replace('_', ' ')} {row[name]}" for name in ("both_right", "both_wrong", "only_judge_right", "only_eye_right"))
    return f"{row['aspect']:<11} {row['pictures']:3} pictures, agree {row['agree']:.0%}:  {said}"
