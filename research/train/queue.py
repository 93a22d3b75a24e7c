"""Runs several trainings in a row: `launch.py train queue [--plan FILE] [--stale] [--preset cpu|gpu]`.

A plan is a list of commands of `launch.py train`, one a line, for instance `pictogram --minutes 600`. The default plan trains everything in
the order of its dependencies, each for the minutes of its preset. The queue runs at the lowest priority. It can be stopped or killed at any
time, and the same command continues it: a file records the finished commands, and each checkpoint records the minutes that it has used.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import BadFile, BadKnob
from engine.files import clean, part_beside, write_text, writers
from research.train import RECIPES, loop, status
from research.train.dependencies import THINGS, state_of
from research.train.loop import Parser

NOT_IN_A_PLAN = ("queue", "status", "keep")
LOWEST = 19  # the lowest POSIX priority


@dataclass
class Options:
    """The options of the queue."""

    plan: Path | None = None  # None: everything
    preset: str = "cpu"
    stale: bool = False  # True: skip what exists and fits its base
    again: bool = False  # True: start over
    compiled: bool = False

    @staticmethod
    def parser(name: str) -> Parser:
        """Returns the parser of `launch.py train queue`."""
        p = Parser(f"launch.py train {name}")
        p.add_argument("--plan", type=Path, metavar="FILE", help="commands of `launch.py train`, one a line (default: everything)")
        p.add_argument("--preset", choices=["cpu", "gpu"], default="cpu", help="for the default plan; a plan's commands have their own")
        p.add_argument("--stale", action="store_true", help="train only what is missing or was made for other weights")
        p.add_argument("--again", action="store_true", help="start over, even if the plan is finished or in progress")
        p.add_argument("--compile", action="store_true", dest="compiled", help="compile every loss; for the default plan")
        return p


@dataclass
class Slice:
    """One line of a plan, with its recipe and options."""

    line: str
    recipe: Any
    options: loop.Options


def everything(options: Options) -> list[str]:
    """Returns the lines of the default plan: each command once, bases first."""
    behind = f" --preset {options.preset}{' --compile' if options.compiled else ''}"
    return [command + behind for command in dict.fromkeys(thing.command for thing in THINGS)]


def read_plan(options: Options) -> list[Slice]:
    """Returns the slices of the plan; raises BadKnob or BadFile for a line that cannot be run, before anything runs."""
    if options.plan is None:
        lines = everything(options)
    else:
        try:
            text = options.plan.read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            raise BadFile(f"The plan {options.plan} cannot be read ({e}). Give a text file with one command a line.") from e
        lines = [line for line in (raw.split("#")[0].strip() for raw in text.splitlines()) if line]
    if not lines:
        raise BadKnob(f"The plan {options.plan} has no command. Write one command a line, for instance: pictogram --minutes 60")
    return [_slice(line) for line in lines]


def _slice(line: str) -> Slice:
    try:
        name, *arguments = shlex.split(line)
    except ValueError as e:
        raise BadKnob(f"The plan's line '{line}' cannot be read ({e}). Close its quotes.") from e
    if name not in RECIPES or name in NOT_IN_A_PLAN:
        known = ", ".join(recipe for recipe in RECIPES if recipe not in NOT_IN_A_PLAN)
        raise BadKnob(f"The plan's line '{line}' names no recipe. Choose from: {known}.")
    recipe = importlib.import_module(RECIPES[name])
    asked = getattr(recipe, "Options", loop.Options)
    return Slice(line, recipe, asked(**vars(asked.parser(name).parse_args(arguments))))


class Record:
    """The finished slices, in a file beside the checkpoints. The key of a slice is the round, the place in the plan and the line."""

    def __init__(self, again: bool):
        self.path = loop.CHECKPOINTS / "queue.json"
        self.round, self.done = 0, set()
        if self.path.exists():
            try:
                found = json.loads(self.path.read_text(encoding="utf-8"))
                self.round, self.done = int(found["round"]), {str(key) for key in found["done"]}
            except (OSError, ValueError, KeyError, TypeError) as e:
                raise BadFile(f"{self.path} is damaged ({type(e).__name__}). Remove it; then the queue starts over.") from e
        if again:
            self.round, self.done = self.round + 1, set()
            self._write()

    def key(self, place: int, line: str) -> str:
        """Returns the key of a slice."""
        return f"{self.round}.{place} {line}"

    def mark(self, key: str) -> None:
        """Records that a slice is finished."""
        self.done.add(key)
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps({"round": self.round, "done": sorted(self.done)}, indent=1) + "\n")


@contextmanager
def alone() -> Iterator[None]:
    """Makes sure that only one queue runs; raises BadKnob if another one is running."""
    target = loop.CHECKPOINTS / "queue"
    target.parent.mkdir(parents=True, exist_ok=True)
    clean(target.parent)
    mark = part_beside(target)
    mark.touch()
    try:
        if others := writers(target):
            raise BadKnob(f"A queue is already running (process {others[0]}). Stop it first, or let it finish.")
        yield
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def told_to_stop() -> Iterator[None]:
    """Inside the block, SIGTERM acts as Ctrl-C does: a training saves its checkpoint and raises it again."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fits(line: str) -> bool:
    """Returns whether everything that a command makes exists and fits the present weights."""
    made = [thing for thing in THINGS if line == thing.command or line.startswith(f"{thing.command} ")]
    return bool(made) and all(state_of(thing) == "fits" for thing in made)


def main(options: Options) -> None:
    """Runs or continues the plan; prints the status at the end."""
    plan, record = read_plan(options), Record(options.again)
    if hasattr(os, "nice"):
        os.nice(LOWEST)
    with alone(), told_to_stop():
        for place, each in enumerate(plan, start=1):
            key = record.key(place, each.line)
            if key in record.done or (options.stale and fits(each.line)):
                continue
            print(f"queue: {place} of {len(plan)}, {each.line}", flush=True)
            each.options.slice = key
            try:
                each.recipe.main(each.options)
            except KeyboardInterrupt:
                print(f"queue: stopped at {place} of {len(plan)}; run the same command to continue", flush=True)
                return
            record.mark(key)
            gc.collect()  # free this model's memory before the next one is loaded
    print("queue: all done; --again starts over", flush=True)
    status.main(status.Options())
