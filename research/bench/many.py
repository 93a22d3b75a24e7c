"""`launch.py bench many`: results a second of runs at once, beside the same runs one after another, and the passes that explain it.

Runs one after another and so many at once take turns: in order, then in reverse order. The tokens of both are compared. A pass that several
runs share is timed beside their own passes in the middle of a generation, each with the usual rows of the method.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch

from engine.backbones import load
from engine.core import Backbone, Method, Prompt
from engine.loading import model_columns
from engine.machine import facts
from engine.many import generate_many
from engine.methods import find
from engine.networks.sequence import TransformerSequence
from engine.networks.trunk import Asked
from engine.run import Run, generate
from engine.tuning.alternate import turns
from engine.tuning.bound import begun, pass_of, timed
from engine.words.emoji_scenes import held_out_prompts, lessons_of
from research.bench.mesh_inputs import subjects
from research.bench.rows import Row, check_csv, publish

METHODS = {"pictogram": ("ar", "sjdpp"), "lowpoly": ("ar", "xspecmesh_exact")}  # plain and accelerated, by model
AT_ONCE = (1, 2, 4, 8, 16)
ALONE = "alone"


@dataclass(frozen=True)
class ManyBench:
    """What is measured.

    models : of METHODS; at_once : numbers of runs; inputs : runs of a measurement; size : of pictures, in pixels; faces : of meshes
    """

    models: Sequence[str] = tuple(METHODS)
    at_once: Sequence[int] = AT_ONCE
    inputs: int = 16
    repeats: int = 1
    size: int = 128
    faces: int | None = None
    tries: int = 15


@dataclass(frozen=True)
class Turn:
    """One measurement: the tokens of all runs, and seconds of the wall clock and of the processor."""

    tokens: list[list[int]]
    seconds: float
    processor: float


def bench(plan: ManyBench, path: Path | None) -> list[Row]:
    """Returns the rows and prints them."""
    check_csv(path)
    rows = (row for name in plan.models for row in of_model(plan, name))
    stamp = facts() | {"threads": torch.get_num_threads(), "inputs": plan.inputs, "repeats": plan.repeats}
    return publish(rows, readable, stamp, path)


def of_model(plan: ManyBench, name: str) -> Iterator[Row]:
    """The rows of a model: for each method its throughput, then its passes."""
    backbone = load(name, device="cpu")
    prompts = prompts_of(plan, backbone)
    for method in METHODS[name]:
        stamp = model_columns(backbone) | {"method": method, "size": plan.faces if "mesh" in backbone.capabilities else plan.size}
        found = throughput(plan, backbone, method, prompts)
        for at_once in plan.at_once:
            yield stamp | compared(at_once, found)
        rows = usual_rows(backbone, method, prompts[0])
        for at_once in plan.at_once:
            yield stamp | of_pass(backbone, rows, at_once, plan.tries)


def prompts_of(plan: ManyBench, backbone: Backbone) -> list[Prompt]:
    """The inputs: captions or shapes that were held out."""
    if "points" not in backbone.capabilities:
        captions = held_out_prompts(plan.inputs, lessons_of(backbone.card))
        return [Prompt(text, seed=i, size=plan.size) for i, text in enumerate(captions)]
    shapes = subjects(plan.inputs, "boxes", backbone.card["families"])
    return [Prompt(points=each.points, seed=i, size=plan.faces) for i, each in enumerate(shapes)]


def throughput(plan: ManyBench, backbone: Backbone, name: str, prompts: list[Prompt]) -> dict[str, list[Turn]]:
    """The measurements by kind: ALONE, and each number at once."""
    method, knobs = find(name)
    kinds: dict[str, Callable[[], list[Run]]] = {ALONE: lambda: [generate(backbone, method, p, knobs).finish() for p in prompts]}
    for at_once in plan.at_once:
        kinds[str(at_once)] = lambda n=at_once: together(backbone, method, prompts, knobs, n)
    generate(backbone, method, prompts[0], knobs).finish()  # allocates memory and touches the weights
    found: dict[str, list[Turn]] = {kind: [] for kind in kinds}
    for turn in turns(kinds, 1, plan.repeats):
        if turn.counted:
            found[turn.kind].append(measured(kinds[turn.kind]))
    return found


def together(backbone: Backbone, method: Method, prompts: list[Prompt], knobs: dict, at_once: int) -> list[Run]:
    """The finished runs of all prompts in their order. Raises what went wrong in one."""
    ended = sorted(generate_many(backbone, method, prompts, knobs, at_once), key=lambda each: each.index)
    for each in ended:
        if each.error is not None:
            raise each.error
    return [each.run for each in ended]


def measured(make: Callable[[], list[Run]]) -> Turn:
    """Makes runs and times them."""
    start, processor = time.perf_counter(), time.process_time()
    runs = make()
    return Turn([run.tokens for run in runs], time.perf_counter() - start, time.process_time() - processor)


def compared(at_once: int, found: dict[str, list[Turn]]) -> Row:
    """The throughput of so many at once, over that of one after another."""
    alone, many = found[ALONE], found[str(at_once)]
    count, tokens = len(alone[0].tokens), sum(map(len, alone[0].tokens))
    wall, processor = ([median(getattr(turn, name) for turn in of) for of in (alone, many)] for name in ("seconds", "processor"))
    return {
        "what": "runs",
        "at_once": at_once,
        "alone_per_second": round(count / wall[0], 3),
        "together_per_second": round(count / wall[1], 3),
        "tokens_per_second": round(tokens / wall[1], 1),
        "times": round(wall[0] / wall[1], 3),
        "processor_times": round(processor[0] / processor[1], 3),
        "equal": all(turn.tokens == alone[0].tokens for turn in (*alone, *many)),
    }


# --- passes -----------------------------------------------------------------------------------------------------------


def usual_rows(backbone: Backbone, name: str, prompt: Prompt) -> int:
    """The median of the rows of a method's passes, of one branch."""
    method, knobs = find(name)
    run, rows = generate(backbone, method, prompt, knobs), []

    def listen(sequence: object) -> None:
        def counted(asked: Asked) -> tuple[torch.Tensor, torch.Tensor]:
            rows.append(asked.x.shape[1])
            return asked.alone()

        assert isinstance(sequence, TransformerSequence)
        sequence.together = counted

    run.began = listen
    run.finish()
    return int(median(rows))


@torch.inference_mode()
def of_pass(backbone: Backbone, rows: int, at_once: int, tries: int) -> Row:
    """Milliseconds, the best of several, of the passes of so many runs, each on its own and as one."""
    asked = [asked_by(backbone, rows) for _ in range(at_once)]
    best = {"alone": float("inf"), "together": float("inf")}
    for _ in range(tries):
        best["alone"] = min(best["alone"], timed(lambda: [each.alone() for each in asked]))
        best["together"] = min(best["together"], timed(lambda: asked[0].trunk.together(asked)))
    branches = asked[0].x.shape[0]
    return {
        "what": "pass",
        "at_once": at_once,
        "rows": at_once * rows * branches,
        **{f"{kind}_ms": round(1000 * seconds, 3) for kind, seconds in best.items()},
        "times": round(best["alone"] / best["together"], 3),
    }


def asked_by(backbone: Backbone, rows: int) -> Asked:
    """The pass that a run in the middle of its generation asks for."""
    sequence, heard = begun(backbone), []

    def hear(asked: Asked) -> tuple[torch.Tensor, torch.Tensor]:
        heard.append(asked)
        return asked.alone()

    sequence.together = hear
    pass_of(sequence, rows)()
    return heard[-1]


def readable(row: Row) -> str:
    """One line of a row."""
    start = f"{row['backbone']:10} {row['method']:16} {row['at_once']:3} at once"
    if row["what"] == "pass":
        return f"{start}: pass of {row['rows']:4} rows {row['alone_ms']:7.2f} -> {row['together_ms']:7.2f} ms ({row['times']:.2f}x)"
    line = f"{start}: {row['alone_per_second']:6.2f} -> {row['together_per_second']:6.2f} results/s ({row['times']:.2f}x"
    return f"{line}; processor {row['processor_times']:.2f}x){'' if row['equal'] else ' OTHER TOKENS'}"
