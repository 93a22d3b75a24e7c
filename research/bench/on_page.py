"""A benchmark on the page: the runs of `launch.py bench image` or `bench mesh`, one after another, with progress; it can stop at any time.

It alternates in the same order, and its rows have the same columns. The page finds this module by name and loads it when a
benchmark starts, because the benchmarks import transformers.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar

from app.live.worker import LocalRunner, RemoteRunner
from engine.core import Backbone, Prompt
from engine.methods import find
from engine.run import Run
from engine.tuning.alternate import Turn, turns
from research.bench import meshes
from research.bench.mesh_inputs import MeshDistances, mesh_distances, subjects
from research.bench.rows import append_csv, experiment
from research.bench.speed import drafting, likelihood, pixels, plausibility_columns, summary
from research.worlds.emoji_scenes import held_out_prompts, lessons_of

PLAIN = "ar"
PERIOD = 0.25  # seconds between two reports of progress


@dataclass
class Benchmark(ABC):
    """Methods against plain decoding on held-out prompts, each prompt twice. Subclasses define the prompts and how results are judged.

    names : of methods and presets, without plain decoding; begin : called with every run before its first step, which may stop it
    size  : of the results, None = the model's own; runner : where it decodes
    runs  : finished runs by method and prompt; rows : of the complete prompts; done, of : numbers of runs
    """

    backbone: Backbone
    names: Sequence[str]
    count: int
    size: int | None
    begin: Callable[[list[Run]], None]
    runner: LocalRunner | RemoteRunner = field(default_factory=LocalRunner)
    clock: Callable[[], float] = time.perf_counter
    rows: list[dict[str, Any]] = field(default_factory=list)
    done: int = 0
    complete: int = 0
    stopped: bool = False
    thing: ClassVar[str]  # the word for a prompt

    def __post_init__(self) -> None:
        """Raises BadPrompt for a size that the model lacks."""
        self.sampling = self.backbone.sampling
        self.prompts = self._read_prompts()
        self.count = len(self.prompts)  # a model trained on few kinds of shapes has few held-out ones
        self.turns = turns([PLAIN, *self.names], len(self.prompts))
        self.runs: dict[str, list[list[Run]]] = {name: [[] for _ in self.prompts] for name in (PLAIN, *self.names)}
        self._spent: dict[str, list[float]] = {name: [] for name in self.runs}

    @abstractmethod
    def _read_prompts(self) -> list[Prompt]:
        """The prompts, in their order."""

    @abstractmethod
    def _judge(self, name: str, which: int) -> None:
        """Measures the result of a method on a complete prompt."""

    @abstractmethod
    def _summary(self) -> list[dict[str, Any]]:
        """The rows of the complete prompts, plain decoding first."""

    @property
    @abstractmethod
    def command(self) -> str:
        """The equivalent command."""

    @property
    def of(self) -> int:
        """The number of runs."""
        return len(self.turns)

    def __iter__(self) -> Iterator[Turn]:
        """Measures; yields the current turn every `PERIOD` seconds and after its run."""
        for turn in self.turns:
            (run,) = self.runner.start(self.backbone, self.prompts[turn.input], [(turn.kind, find(turn.kind)[1])])
            self.begin([run])
            began = reported = self.clock()
            for _ in self.runner.race([run]):
                if self.clock() - reported > PERIOD:
                    reported = self.clock()
                    yield turn
            if not run.finished:
                self.stopped = True
                return
            self._take(turn, run, self.clock() - began)
            yield turn

    def _take(self, turn: Turn, run: Run, seconds: float) -> None:
        self.done += 1
        self._spent[turn.kind].append(seconds)
        if not turn.counted:
            return
        self.runs[turn.kind][turn.input].append(run)
        if all(len(of[turn.input]) == 2 for of in self.runs.values()):
            self.complete = turn.input + 1
            for name in self.runs:
                self._judge(name, turn.input)
            self.rows = self._summary()

    def _complete_runs(self) -> dict[str, list[list[Run]]]:
        """The runs of the complete prompts."""
        return {name: of[: self.complete] for name, of in self.runs.items()}

    @property
    def seconds_left(self) -> float | None:
        """The expected seconds until the end, None while no run has ended."""
        known = [seconds for seconds_of_kind in self._spent.values() for seconds in seconds_of_kind]
        if not known:
            return None
        return sum(mean(self._spent[turn.kind] or known) for turn in self.turns[self.done :])

    def write(self, path: Path) -> Path:
        """Writes the rows as the command does with --csv; raises BadOutput if the disk refuses."""
        path.unlink(missing_ok=True)
        append_csv(path, self.rows)
        return path


@dataclass
class PictureBenchmark(Benchmark):
    """Pictures of held-out prompts, judged by how plausible they are to the model."""

    thing = "prompt"

    def _read_prompts(self) -> list[Prompt]:
        self._likely: dict[str, list[tuple[float, float]]] = {name: [] for name in (PLAIN, *self.names)}
        texts = held_out_prompts(self.count, lessons_of(self.backbone.card))
        return [Prompt(text, seed=i, size=self.size, sampling=self.sampling) for i, text in enumerate(texts)]

    def _judge(self, name: str, which: int) -> None:
        self._likely[name].append(likelihood(self.backbone, self.prompts[which], self.runs[name][which][0]))

    def _summary(self) -> list[dict[str, Any]]:
        runs = self._complete_runs()
        columns: Mapping[str, Any] = {
            "size": self.size or pixels(runs[PLAIN][0][0]), "seeds": f"0..{self.complete - 1}", "repeats": 1, "prompts_from": "held out",
        }  # fmt: skip
        stamp = experiment(self.backbone, self.sampling, **columns)
        rows = [summary(name, runs) | drafting([of[0] for of in runs[name]]) | plausibility_columns(self._likely[name]) for name in runs]
        return [row | {name: value for name, value in stamp.items() if name not in row} for row in rows]

    @property
    def command(self) -> str:
        """The equivalent command."""
        size = f" --size {self.size}" if self.size else ""
        return f"python launch.py bench image --methods {','.join(self.names)} --count {self.count}{size}"


@dataclass
class MeshBenchmark(Benchmark):
    """Meshes of held-out point clouds, judged by their distance from the sampled shape."""

    thing = "cloud"

    def _read_prompts(self) -> list[Prompt]:
        self._near: dict[str, list[MeshDistances | None]] = {name: [] for name in (PLAIN, *self.names)}
        self.subjects = subjects(self.count, "boxes", self.backbone.card["families"])
        return [Prompt(points=each.points, seed=0, size=self.size, sampling=self.sampling) for each in self.subjects]

    def _judge(self, name: str, which: int) -> None:
        self._near[name].append(mesh_distances(self.runs[name][which][0], self.subjects[which]))

    def _summary(self) -> list[dict[str, Any]]:
        runs, inputs = self._complete_runs(), self.subjects[: self.complete]
        columns = {"inputs": self.complete, "seeds": "0..0", "repeats": 1, "faces_allowed": self.size}
        stamp = experiment(self.backbone, self.sampling, **columns)
        rows = [meshes.summary(name, runs, inputs, PLAIN, self._near[name]) | drafting([of[0] for of in runs[name]]) for name in runs]
        return [row | {name: value for name, value in stamp.items() if name not in row} for row in rows]

    @property
    def command(self) -> str:
        """The equivalent command."""
        faces = f" --faces {self.size}" if self.size else ""
        return f"python launch.py bench mesh --methods {','.join(self.names)} --count {self.count}{faces}"
