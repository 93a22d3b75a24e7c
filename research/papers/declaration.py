"""The vocabulary of an experiment's declaration: its question, the paper's answer, the runs here and the claims.

A declaration contains no code. `running.py` measures it with the loops of `bench`, `results.py` sums it up, `drawing.py` draws it and
`page.py` describes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.methods import find
from research.bench.meshes import MeshBenchRow

NAMED = {  # the metrics that a declaration may name
    "step_compression": "tokens per pass",
    "forwards": "passes",
    "seconds": "seconds",
    "speedup": "times as fast as plain decoding",
    "milliseconds_per_step": "ms per step",
    "log_probability": "mean log p of a token",
    "log_probability_deviation": "deviation of log p over a picture's tokens",
    "accepted_a_pass": "drafts accepted per pass",
    "depth": "levels of the draft tree",
    "nodes": "nodes of the draft tree",
    "mean_deviation": "total variation from the model's distribution",
    "objects": "pictures with the right objects",
    "counts": "right objects and numbers",
    "colours": "right colours",
    "relation": "right places",
    "all": "pictures that are right in all",
    "chamfer_published": "Chamfer distance, published protocol",
    "hausdorff_published": "Hausdorff distance, published protocol",
    "chamfer_16k": "Chamfer distance, 16,384 points",
}
YES_OR_NO = ("objects", "counts", "colours", "relation", "all")  # metrics that are 0 or 1 of an input
RELATIONS = ("more", "less", "alike")
KINDS = ("dots", "curve", "plane")  # of a figure
DECIDES = 6  # inputs that a claim needs: 6 differences have one sign by chance in 2 of 64 cases, fewer in more than 5 %


@dataclass(frozen=True)
class Arm:
    """One row of an experiment on pictures.

    line   : the method as the paper calls it; rows that share it form a line of a figure
    method : a method or preset; knobs : its values; settings : temperature, top_k, top_p, guidance or size
    x      : the position on the axis, if the experiment has one
    """

    line: str
    method: str
    knobs: Mapping[str, float | str] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)
    x: float | str | None = None

    def __post_init__(self) -> None:
        """Raises NotSupported for an unknown method, BadKnob for an unknown knob; checks that integer settings are integers."""
        assert all(isinstance(value, int) for name, value in self.settings.items() if name in ("top_k", "size")), self
        from engine.core import KnobArray

        KnobArray(find(self.method)[0].knobs, find(self.method)[1] | dict(self.knobs))

    @property
    def label(self) -> str:
        """The row's name, unique in the experiment."""
        return self.line if self.x is None else f"{self.line}, {self.x}"


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Rows measured on held-out prompts, each relative to plain decoding with the same settings.

    count : prompts; backbone : the default model; settings : of all rows; an arm's own settings take precedence
    """

    arms: tuple[Arm, ...]
    count: int = 20
    backbone: str = "pictogram"
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(arm.label for arm in self.arms)


@dataclass(frozen=True, kw_only=True)
class Meshes:
    """Rows measured on point clouds of held-out shapes, as `bench mesh` measures its table.

    rows  : by label, plain decoding first
    temperature : the paper's, from BPT's script
    """

    rows: Mapping[str, MeshBenchRow]
    count: int = 20
    backbone: str = "lowpoly"
    temperature: float = 0.5

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows."""
        return tuple(self.rows)


@dataclass(frozen=True)
class Claim:
    """The paper's statement about two rows: `left` has more or less of a metric than `right`, or equally much within a margin.

    The difference is paired by prompt or cloud; its 95 % interval decides.
    """

    text: str
    left: str
    relation: str
    right: str
    metric: str
    margin: float = 0.0

    def __post_init__(self) -> None:
        """Checks relation, metric and margin; a failure is a mistake in a declaration."""
        assert self.relation in RELATIONS and self.metric in NAMED, self
        assert (self.relation == "alike") == (self.margin > 0), self

    @property
    def least(self) -> int:
        """Fewest inputs that can decide it. n equal answers allow 3 in n to differ, which must lie within the margin."""
        return max(DECIDES, math.ceil(3 / self.margin - 1e-9)) if self.metric in YES_OR_NO and self.margin else DECIDES


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Form of the figure. kind : dots, curve or plane; x, y : metrics; for a curve x is the label of the arms' axis"""

    kind: str = "dots"
    y: str = "step_compression"
    x: str = ""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of a paper.

    key      : as on the command line: table-5, figure-12
    asks     : its question, one sentence; reports : the paper's answer, one sentence
    runs     : the rows measured here; None: `reason` says why not, and `nearest` names the closest alternative, if any
    reported : the paper's numbers, by row and metric; reported_on : the model, data or machine behind them
    differs  : how this measurement differs from the paper's
    """

    key: str
    title: str
    asks: str
    reports: str
    runs: Pictures | Meshes | None = None
    reason: str = ""
    nearest: str = ""
    reported: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    reported_on: str = ""
    differs: str = ""
    drawing: Drawing = field(default_factory=Drawing)
    claims: tuple[Claim, ...] = ()

    def __post_init__(self) -> None:
        """Checks that the declaration is complete and consistent."""
        kind, _, number = self.key.partition("-")
        assert kind in ("table", "figure") and number.isdigit(), self.key
        assert (self.runs is None) == bool(self.reason), f"{self.key} runs or has a reason"
        if self.runs is None:
            return
        labels = self.runs.labels
        assert len(set(labels)) == len(labels), f"{self.key}: two rows have one name"
        named = {*self.reported, *(name for claim in self.claims for name in (claim.left, claim.right))}
        few = [claim.text for claim in self.claims if claim.least > self.runs.count]
        assert not few, f"{self.key}: {self.runs.count} inputs cannot decide {few}"
        assert named <= {*labels}, f"{self.key} names rows that it does not have: {named - {*labels}}"
        assert {name for row in self.reported.values() for name in row} <= {*NAMED}, self.key
        assert self.drawing.kind in KINDS, f"{self.key}: {self.drawing.kind}"

    @property
    def backbone(self) -> str:
        """The declared model, "" if the experiment does not run."""
        return self.runs.backbone if self.runs else ""

    @property
    def generations(self) -> int:
        """Number of decoded pictures or meshes without warm-up runs: two per row and input, and two per input for plain decoding."""
        if self.runs is None:
            return 0
        plain = len({tuple(sorted(arm.settings.items())) for arm in self.runs.arms}) if isinstance(self.runs, Pictures) else 0
        own = [arm for arm in self.runs.arms if arm.method != "ar"] if isinstance(self.runs, Pictures) else self.runs.labels
        return 2 * self.runs.count * (len(own) + plain)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """A paper and its experiments.

    name : as on the command line; method : our method or preset that implements it
    tables, figures : the first and the last number
    illustrations : figures and tables that measure nothing, by key, with their subjects
    """

    name: str
    title: str
    method: str
    experiments: tuple[Experiment, ...]
    illustrations: Mapping[str, str]
    tables: tuple[int, int]
    figures: tuple[int, int]

    def __post_init__(self) -> None:
        """Checks that each numbered table and figure is exactly one experiment or illustration."""
        find(self.method)
        numbered = [f"{kind}-{i}" for kind in ("table", "figure") for i in range(*bounds(getattr(self, f"{kind}s")))]
        have = [*(e.key for e in self.experiments), *self.illustrations]
        assert sorted(have) == sorted(numbered), f"{self.name}: {set(have) ^ set(numbered)}"

    def find(self, key: str) -> Experiment | None:
        """Returns the experiment of a key, None if there is none."""
        return next((e for e in self.experiments if e.key == key), None)


def bounds(numbers: tuple[int, int]) -> tuple[int, int]:
    """Returns the arguments of `range` for numbers from the first to the last."""
    return numbers[0], numbers[1] + 1


def knob_arms(line: str, method: str, name: str, values: tuple[float, ...] | tuple[str, ...], **knobs: Any) -> tuple[Arm, ...]:
    """Returns an arm of a line for each value of a knob."""
    return tuple(Arm(line, method, knobs | {name: value}, x=value) for value in values)


def setting_arms(line: str, method: str, name: str, values: tuple[float, ...], **knobs: Any) -> tuple[Arm, ...]:
    """Returns an arm of a line for each value of a sampling setting, or of the size."""
    return tuple(Arm(line, method, knobs, {name: value}, x=value) for value in values)


def not_run(key: str, title: str, asks: str, reports: str, reason: str, nearest: str = "") -> Experiment:
    """Returns an experiment that does not run, with the reason and the closest alternative."""
    return Experiment(key=key, title=title, asks=asks, reports=reports, reason=reason, nearest=nearest)
