"""`launch.py bench image --judge`: how often pictures match their prompts, by method, against plain decoding on the same prompts and seeds.

The judge (`engine/recognition/picture_judge.py`) reads a picture of every held-out scene. Rows give the share of correct objects, counts,
relations, colours and backgrounds. The difference from plain decoding is paired by prompt and has a 95 % interval.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import Backbone, Prompt
from engine.errors import NotSupported
from engine.methods import find
from engine.networks.weights import read_card
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import Judge, Verdict, compare
from engine.run import generate
from engine.words.emoji_scenes import LESSONS, Lessons, Scene, caption, held_out_scenes, lessons_of
from research.bench.plan import Entry, JudgeBench
from research.bench.rows import check_csv, experiment, of_sampling, publish

ASPECTS = ("objects", "counts", "relation", "colours", "background", "all")


def bench(plan: JudgeBench) -> list[dict[str, Any]]:
    """Returns the rows of the table, plain decoding first; raises MissingWeights if there is no judge."""
    check_csv(plan.csv)
    backbone = plan.load()
    lessons = lessons_of(backbone.card)
    reader = judge_of(lessons)
    scenes = held_out_scenes(plan.count, lessons)
    rows = [row for label, part in plan.parts().items() for row in judged_rows(part, backbone, reader, scenes, label)]
    seeds, held_out = f"0..{len(scenes) - 1}", read_card(judge.FOLDER)["judge"]["held_out"]
    stamp = experiment(backbone, plan.sampling_of(backbone), prompts_from="held out", seeds=seeds, judge=held_out)
    return publish(rows, readable, stamp, plan.csv)


def judged_rows(plan: JudgeBench, backbone: Backbone, reader: Judge, scenes: list[Scene], label: str) -> list[dict[str, Any]]:
    """Returns the rows at one value of every swept setting, which `label` names; plain decoding first."""
    sampling, verdicts = plan.sampling_of(backbone), {}
    rows = []
    for name, entry in ({"ar": Entry("ar", {})} | plan.resolved(backbone).entries(backbone.capabilities)).items():
        method, knobs = find(entry.name)[0], entry.knobs
        runs = [
            generate(backbone, method, Prompt(caption(s, i), seed=i, size=plan.size, sampling=sampling), knobs).finish()
            for i, s in enumerate(scenes)
        ]
        pictures = [run.result() for run in runs]
        verdicts[name] = [compare(r, s) for r, s in zip(reader.read(pictures), scenes, strict=True)]
        told = {"method": f"{name} {label}".strip(), "exact": runs[0].exact, "prompts": len(scenes), "knobs": runs[0].steps[-1].knobs}
        told |= of_sampling(sampling) | {"size": pictures[0].shape[1]}
        rows.append(told | shares(verdicts[name], scenes) | difference(verdicts, name))
    return rows


def judge_of(lessons: Lessons) -> Judge:
    """Returns the shipped judge; raises MissingWeights if there is none, NotSupported if it does not know all objects of the lessons."""
    reader = judge.load()
    unknown = [name for name in lessons.objects if name not in reader.names]
    if unknown:
        taught = next((name for name, each in LESSONS.items() if each == lessons), "world")
        raise NotSupported(
            f"The judge does not know {len(unknown)} of the objects that these weights were trained on ({', '.join(unknown[:3])}, ...). "
            f"Train it: python launch.py train judge --lessons {taught}."
        )
    return reader


def shares(verdicts: list[Verdict], scenes: list[Scene]) -> dict[str, float]:
    """Returns the share of correct answers by aspect, among the scenes that ask for it. "single" is the share of correct objects in scenes
    with one object, "pair" that of correct objects and relations in scenes with two groups."""
    found = {}
    for aspect in ASPECTS:
        found[aspect] = share([getattr(verdict, aspect) for verdict in verdicts])
    found["single"] = share([v.objects for v, s in zip(verdicts, scenes, strict=True) if len(s.boxes) == 1])
    found["pair"] = share([v.objects and v.relation is not False for v, s in zip(verdicts, scenes, strict=True) if len(s.groups) == 2])
    return found


def share(answers: list[bool | None]) -> float:
    """Returns the share of True among the answers that are not None; NaN if there are none."""
    asked = [a for a in answers if a is not None]
    return round(sum(asked) / len(asked), 4) if asked else float("nan")


def difference(verdicts: dict[str, list[Verdict]], name: str) -> dict[str, float]:
    """Returns how much more often the objects are correct than with plain decoding (paired), and the half width of its 95 % interval."""
    paired = np.array([a.objects - b.objects for a, b in zip(verdicts[name], verdicts["ar"], strict=True)], float)
    return {"objects_more": round(float(paired.mean()), 4), "half_width": round(float(1.96 * paired.std() / np.sqrt(len(paired))), 4)}


def readable(row: dict[str, Any]) -> str:
    """Formats one line of the table."""
    said = "  ".join(f"{aspect} {row[aspect]:.1%}" for aspect in (*ASPECTS, "single", "pair"))
    return f"{row['method']:<18} {said}  against plain {row['objects_more']:+.1%} ± {row['half_width']:.1%}"
