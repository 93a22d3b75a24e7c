"""Plans of benchmarks: options as values, checked on creation, before a model is loaded or anything is measured."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self

from engine.backbones import resolve
from engine.backbones.lowpoly import MOST_FACES
from engine.core import Backbone, KnobArray, Prompt, Sampling
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.machine import device_of
from engine.mesh.frame import UP
from engine.methods import AUTO, METHODS, PLAIN, find, names
from engine.sampling import RANGES, with_values
from engine.tuning.auto import resolve as resolve_auto
from engine.tuning.prepare import prepare

MOST_INPUTS, MOST_REPEATS = 10_000, 1_000
MOST_NAMED, MOST_LISTED = 5, 30  # methods and knobs in a sentence
PROMPT_BYTES = 10_000_000  # of a file of prompts
MESHES = ("lowpoly", "lowpoly:lora")  # the backbones of `bench mesh`

Sweep = tuple[str, tuple[str, ...]]  # a knob or a setting, and its values
SIZE = "size"  # the setting of a sweep that is not a sampling setting


@dataclass(frozen=True)
class BenchEntry:
    """Method or preset of a row, and its knobs."""

    name: str
    knobs: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    """The weights and the sampling.

    backbone : a name of BACKBONES or a folder; sampling : overrides of the backbone's own (temperature, top_k, top_p, guidance)
    """

    backbone: str
    device: str = "auto"
    dtype: str = "auto"
    weights: str = "auto"
    sampling: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises NotSupported for an unknown backbone or a missing device, BadPrompt for sampling out of range."""
        resolve(self.backbone)
        device_of(self.device)
        with_values(Sampling(), self.sampling)

    def load(self, dtype: str | None = None) -> Backbone:
        """Loads the backbone, in `dtype` if there is one, with its fastest number of threads."""
        return prepare(*resolve(self.backbone), self.device, dtype or self.dtype, weights=self.weights)

    def sampling_of(self, backbone: Backbone) -> Sampling:
        """Returns the backbone's sampling with the plan's overrides."""
        return with_values(backbone.sampling, self.sampling)


@dataclass(frozen=True, kw_only=True)
class MethodChoice(Model):
    """The methods and their knobs.

    methods : names of methods and presets, measured in addition to plain decoding; () = all that the backbone supports
    knobs   : values by name, for the methods that have the knob
    verify  : the verification mode, for the methods that have one
    sweep   : knobs with values; one row per value, for the methods that have the knob. A sampling setting or `size` with
              values: all rows at each value, plain decoding too
    grid    : one row per combination of the sweeps' values instead
    """

    methods: tuple[str, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)
    verify: str | None = None
    sweep: tuple[Sweep, ...] = ()
    grid: bool = False

    def __post_init__(self) -> None:
        """Raises NotSupported for an unknown method, BadKnob for a knob or value that no method can use."""
        super().__post_init__()
        if self.grid and not self.sweep:
            raise BadKnob("--grid combines the values of sweeps, but there is no sweep. Add --sweep NAME=A,B.")
        if self.settings:
            self.parts()  # each is checked as it is made
            return
        self.without_auto().entries(frozenset().union(*(find(name)[0].needs for name in names())))

    @property
    def settings(self) -> tuple[Sweep, ...]:
        """The sweeps of settings, which are measured for plain decoding too."""
        return tuple(sweep for sweep in self.sweep if sweep[0] in (*RANGES, SIZE))

    def parts(self) -> dict[str, Self]:
        """Returns the plans to measure, each with one value per setting, by the label of their rows ("" without swept settings). Raises
        BadKnob for a value that is no number, BadPrompt for a value out of range."""
        settings = self.settings
        if not settings:
            return {"": self}
        knobs = tuple(sweep for sweep in self.sweep if sweep not in settings)
        choices = [[(name, setting_of(name, text)) for text in values] for name, values in settings]
        groups = [*itertools.product(*choices)] if self.grid else [(setting,) for values in choices for setting in values]
        swept = replace(self, sweep=knobs, grid=bool(self.grid and knobs))
        plans = {"": swept} if knobs and not self.grid else {}
        rest = swept if self.grid else replace(self, sweep=())
        return plans | {" ".join(f"{name}={value:g}" for name, value in group): rest.at(dict(group)) for group in groups}

    def at(self, values: Mapping[str, float]) -> Self:
        """Returns the plan with these values of settings."""
        sampling = {name: value for name, value in values.items() if name != SIZE}
        size = {SIZE: values[SIZE]} if SIZE in values else {}
        return replace(self, sampling=dict(self.sampling) | sampling, **size)

    def without_auto(self) -> Self:
        """Returns the plan without `auto`, which cannot be resolved before a model is loaded."""
        return with_methods(self, tuple(name for name in self.methods if name != AUTO) or ((PLAIN,) if self.methods else ()))

    def with_auto_resolved(self, backbone: Backbone) -> Self:
        """Returns the plan with `auto` replaced by its choice for a model on this machine."""
        return with_methods(self, tuple(resolve_auto(backbone) if name == AUTO else name for name in self.methods))

    def entries(self, capabilities: frozenset[str]) -> dict[str, BenchEntry]:
        """Returns the planned rows by label. Without a sweep: each method once. With a sweep: each method with the knob, once per value.
        With `grid`: each method that has all the knobs, once per combination. auto's choice has its own knobs and one row. Raises BadKnob
        for a knob or value that no method can use."""
        usable = [name for name in names() if find(name)[0].needs <= capabilities]
        requested = {name: self._entry(name) for name in dict.fromkeys(self.methods or usable) if name != PLAIN}
        auto_entries = {name: entry for name, entry in requested.items() if name.startswith(f"{AUTO}:")}
        plain = {name: entry for name, entry in requested.items() if name not in auto_entries}
        self._check_knobs([find(name)[0].name for name in plain])
        swept = [[(knob, value) for value in values] for knob, values in self.sweep]
        groups = itertools.product(*swept) if self.grid else ([setting] for settings in swept for setting in settings)
        rows = {
            " ".join([name, *(f"{knob}={value}" for knob, value in group)]): BenchEntry(name, entry.knobs | dict(group))
            for group in groups
            for name, entry in plain.items()
            if {knob for knob, _ in group} <= {k.name for k in find(name)[0].knobs}
        }
        for (knob, values), settings in zip(self.sweep, swept, strict=True):
            if not any(setting in entry.knobs.items() for entry in rows.values() for setting in settings):
                text = f"{knob}={','.join(values)}"
                raise BadKnob(f"--sweep {text} has no effect: none of {', '.join(plain)} has this knob, or it has no values.")
        entries = auto_entries | (rows if swept else plain)
        for entry in entries.values():
            KnobArray(find(entry.name)[0].knobs, entry.knobs)
        return entries

    def _entry(self, name: str) -> BenchEntry:
        """Returns the preset's knobs, overridden by the plan's knobs that the method has."""
        method, preset = find(name)
        own = {k.name for k in method.knobs}
        known = {k: v for k, v in self.knobs.items() if k in own and not name.startswith(f"{AUTO}:")}
        if self.verify and "verify" in own:
            known["verify"] = self.verify
        return BenchEntry(name, preset | known)

    def _check_knobs(self, methods: list[str]) -> None:
        """Raises BadKnob for a planned knob that none of the methods has."""
        own = {knob.name for name in methods for knob in METHODS[name].knobs}
        unknown = [name for name in (*self.knobs, *(["verify"] if self.verify else [])) if name not in own]
        if unknown:
            names = list(dict.fromkeys(methods))
            where = f"any of the {len(names)} methods" if len(names) > MOST_NAMED else ", ".join(names) or "plain decoding"
            raise BadKnob(f"There is no knob '{unknown[0]}' in {where}. {_suggestion(unknown[0], sorted(own))}")


def _suggestion(name: str, known: list[str]) -> str:
    """Returns a sentence with the knobs to choose from; if there are many, with similarly spelled ones."""
    if len(known) <= MOST_LISTED:
        return f"Choose from: {', '.join(known) or 'none'}."
    near = get_close_matches(name, known)
    return f"Did you mean {', '.join(near)}?" if near else "Name one method with --methods to see its knobs."


def setting_of(name: str, text: str) -> float:
    """Returns a setting's value; raises BadKnob for text that is not a number, or not whole for an integer setting."""
    kind = int if name in (SIZE, "top_k") else float
    try:
        return kind(text)
    except ValueError:
        whole = "whole number" if kind is int else "number"
        raise BadKnob(f"--sweep {name} needs {whole}s, not '{text}'.") from None


def with_methods(plan: MethodChoice, methods: tuple[str, ...]) -> Any:
    """Returns a copy of a plan with other methods, without checking it again."""
    copy_of_plan = copy(plan)
    object.__setattr__(copy_of_plan, "methods", methods)
    return copy_of_plan


@dataclass(frozen=True, kw_only=True)
class Bench(MethodChoice):
    """Methods against plain decoding on some inputs.

    count   : inputs; repeats : of each input by each row, two runs each; 0: one run, rough times
    size    : pixels of a picture, or the most faces of a mesh (None: the model's own)
    judge   : also count how often results match their prompts
    csv, sheet, figure : files to write: rows, results of the last row, and speed over quality
    """

    count: int = 20
    repeats: int = 1
    size: int | None = None
    judge: bool = False
    csv: Path | None = None
    sheet: Path | None = None
    figure: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for a plan that cannot be measured."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)
        if self.repeats != 0:
            check_count("repeats", self.repeats, MOST_REPEATS)
        if self.size is not None:
            check_count("size", self.size, MOST_FACES)


@dataclass(frozen=True, kw_only=True)
class ImageBench(Bench):
    """`bench image`. prompts : texts (None: `count` held-out ones); prompts_from : their source, for the rows"""

    prompts: tuple[str, ...] | None = None
    prompts_from: str = "held out"

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for a plan that cannot be measured."""
        super().__post_init__()
        for text in self.prompts or ():
            Prompt(text)
        if self.prompts and self.judge:
            raise BadPrompt("--judge compares pictures with held-out scenes, so --prompts cannot replace them. Leave one of them out.")


@dataclass(frozen=True, kw_only=True)
class MeshBench(Bench):
    """`bench mesh`: point clouds of held-out shapes, or of files; without methods and sweeps, the rows of XSpecMesh's table.

    seeds : of each cloud; packs : folders of files; up : the files' axis that is up, or auto
    about : number of faces to aim at, "own": the input's
    """

    count: int = 40
    seeds: int = 1
    packs: tuple[Path, ...] = ()
    up: str = "auto"
    about: int | Literal["own"] | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for a plan that cannot be measured."""
        super().__post_init__()
        if self.is_table and (self.knobs or self.verify):
            raise BadKnob("The rows of the table have their own knobs. Name the methods that --set or --verify applies to with --methods.")
        name = resolve(self.backbone)[0]
        if name not in MESHES:
            raise NotSupported(f"bench mesh measures {' and '.join(MESHES)}, not {name}. Choose one of them with --backbone.")
        if "guidance" in self.sampling:
            raise NotSupported(f"{name} has no guidance: it was not trained without a point cloud. Leave guidance out.")
        check_count("seeds", self.seeds, MOST_REPEATS)
        if isinstance(self.about, int):
            check_count("about", self.about, MOST_FACES)
        if self.up not in ("auto", *UP):
            raise BadPrompt(f"The axis that is up cannot be '{self.up}'. Choose one of: auto, {', '.join(UP)}.")
        for folder in self.packs:
            if not folder.is_dir():
                raise BadPrompt(f"{folder} is not a folder. Give folders of OBJ, GLB, PLY or STL files with --packs.")

    @property
    def is_table(self) -> bool:
        """True for XSpecMesh's table."""
        return not self.methods and not self.sweep


def check_count(name: str, value: int, most: int) -> None:
    """Raises BadPrompt if the value is not 1 to `most`."""
    if not 1 <= value <= most:
        raise BadPrompt(f"{name} = {value} is out of range. Choose 1 to {most:,}.")


def read_prompts(path: Path, count: int) -> tuple[tuple[str, ...], str]:
    """Returns the first `count` prompts of a file (one per line) and their source for the rows: file name and hash. Raises BadPrompt."""
    try:
        with path.open("rb") as file:
            content = file.read(PROMPT_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise BadPrompt(f"The prompts file {path} cannot be read ({e}). Give another file with --prompts.") from e
    if len(content) > PROMPT_BYTES:
        raise BadPrompt(f"The prompts file {path} has more than {PROMPT_BYTES:,} bytes. Give a smaller one with --prompts.")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadPrompt(f"The prompts file {path} has no prompt. Write one prompt per line.")
    return tuple(lines[:count]), f"{path.name} {sha256(content).hexdigest()[:12]}"
