"""Trains one thing after another: `launch.py train queue [--plan FILE] [--stale] [--preset cpu|gpu]`.

A plan is a list of commands of `launch.py train`, one a line, for instance `pictogram --minutes 600`; without one it is everything that is
trained, in the order of its dependencies, each for the minutes of its preset. The queue runs at the lowest priority. Stopped or killed at
any second, the same command goes on where it was: what is done is written down, and a checkpoint knows how much of its minutes is over.
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
from engine.train import RECIPES, loop, status
from engine.train.dependencies import THINGS, state_of
from engine.train.loop import Parser

NOT_IN_A_PLAN = ("queue", "status")
LOWEST = 19  # of the priorities of a POSIX system


@dataclass
class Options:
    """What a person asks of the queue."""

    plan: Path | None = None  # None: everything
    preset: str = "cpu"
    stale: bool = False  # True: of everything, what is missing or does not fit
    again: bool = False  # True: forget what is done
    compiled: bool = False

    @staticmethod
    def parser(name: str) -> Parser:
        """The options as arguments of `launch.py train queue`."""
        p = Parser(f"launch.py train {name}")
        p.add_argument("--plan", type=Path, metavar="FILE", help="commands of `launch.py train`, one a line (default: everything)")
        p.add_argument("--preset", choices=["cpu", "gpu"], default="cpu", help="of everything; a plan has its own")
        p.add_argument("--stale", action="store_true", help="of everything, train what is missing or was made for other weights")
        p.add_argument("--again", action="store_true", help="begin anew although the plan was done, or partly")
        p.add_argument("--compile", action="store_true", dest="compiled", help="compile every loss; a plan says so itself")
        return p


@dataclass
class Slice:
    """One line of a plan, and the recipe with its options."""

    line: str
    recipe: Any
    options: loop.Options


def everything(options: Options) -> list[str]:
    """The lines of the plan that is nobody's: each command once, bases first."""
    behind = f" --preset {options.preset}{' --compile' if options.compiled else ''}"
    return [command + behind for command in dict.fromkeys(thing.command for thing in THINGS)]


def read_plan(options: Options) -> list[Slice]:
    """The slices of the plan; raises BadKnob or BadFile for a line that cannot be run, before anything is."""
    if options.plan is None:
        lines = everything(options)
    else:
        try:
            text = options.plan.read_text(encoding="utf-8")
        except (OSError, ValueError) as e:
            raise BadFile(f"The plan {options.plan} cannot be read ({e}). Give a text file with one command a line.") from e
        lines = [line for line in (raw.split("#")[0].strip() for raw in text.splitlines()) if line]
    if not lines:
        raise BadKnob(f"The plan {options.plan} holds no command. Write one a line, for instance: pictogram --minutes 60")
    return [_slice(line) for line in lines]


def _slice(line: str) -> Slice:
    try:
        name, *arguments = shlex.split(line)
    except ValueError as e:
        raise BadKnob(f"The plan's line '{line}' cannot be read ({e}). Close its quotes.") from e
    if name not in RECIPES or name in NOT_IN_A_PLAN:
        known = ", ".join(recipe for recipe in RECIPES if recipe not in NOT_IN_A_PLAN)
        raise BadKnob(f"The plan's line '{line}' names no recipe. There are: {known}.")
    recipe = importlib.import_module(RECIPES[name])
    asked = getattr(recipe, "Options", loop.Options)
    return Slice(line, recipe, asked(**vars(asked.parser(name).parse_args(arguments))))


class Record:
    """What is done, in a file beside the checkpoints: keys of slices, which say the round, the place in the plan and the line."""

    def __init__(self, again: bool):
        self.path = loop.CHECKPOINTS / "queue.json"
        self.round, self.done = 0, set()
        if self.path.exists():
            try:
                found = json.loads(self.path.read_text(encoding="utf-8"))
                self.round, self.done = int(found["round"]), {str(key) for key in found["done"]}
            except (OSError, ValueError, KeyError, TypeError) as e:
                raise BadFile(f"{self.path} is damaged ({type(e).__name__}). Remove it; then the queue begins anew.") from e
        if again:
            self.round, self.done = self.round + 1, set()
            self._write()

    def key(self, place: int, line: str) -> str:
        """The name of a slice."""
        return f"{self.round}.{place} {line}"

    def mark(self, key: str) -> None:
        """Writes down that a slice is done."""
        self.done.add(key)
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_text(self.path, json.dumps({"round": self.round, "done": sorted(self.done)}, indent=1) + "\n")


@contextmanager
def alone() -> Iterator[None]:
    """Holds the only place of a queue; raises BadKnob if another one has it."""
    target = loop.CHECKPOINTS / "queue"
    target.parent.mkdir(parents=True, exist_ok=True)
    clean(target.parent)
    mark = part_beside(target)
    mark.touch()
    try:
        if others := writers(target):
            raise BadKnob(f"A queue runs already (process {others[0]}). Stop it first, or leave it alone.")
        yield
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def told_to_stop() -> Iterator[None]:
    """Inside, SIGTERM is what Ctrl-C is: a training saves its checkpoint and hands it on."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def fits(line: str) -> bool:
    """Whether all that a command makes is there, made for the weights that are there."""
    made = [thing for thing in THINGS if line == thing.command or line.startswith(f"{thing.command} ")]
    return bool(made) and all(state_of(thing) == "fits" for thing in made)


def main(options: Options) -> None:
    """Runs the plan, or goes on with it; prints the status at the end."""
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
                print(f"queue: stopped at {place} of {len(plan)}; the same command goes on from there", flush=True)
                return
            record.mark(key)
            gc.collect()  # a model is large, and the next one is too
    print("queue: all done; --again begins anew", flush=True)
    status.main(status.Options())
