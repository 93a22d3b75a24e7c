"""What a benchmark is asked for, as values that are checked when they are made: before a model is loaded, and long before a row is lost."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from engine.backbones import check_device, load, resolve
from engine.core import Backbone, KnobArray, Prompt, Sampling
from engine.errors import BadKnob, BadPrompt, NotSupported
from engine.methods import METHODS, PRESETS, find
from engine.sampling import changed

MOST_INPUTS, MOST_REPEATS = 10_000, 1_000
PROMPT_BYTES = 10_000_000  # of a file of prompts
MESHES = ("lowpoly", "lowpoly_lora")  # the backbones of `bench mesh`

Sweep = tuple[str, tuple[str, ...]]  # a knob and its values


@dataclass(frozen=True)
class Entry:
    """What a row measures: a method or preset, and the knobs that it runs with."""

    name: str
    knobs: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Model:
    """Which weights, and how tokens are drawn.

    backbone : a name of BACKBONES or a folder; sampling : what differs from the backbone's own (temperature, top_k, top_p, guidance)
    """

    backbone: str
    device: str = "cpu"
    dtype: str = "auto"
    sampling: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises NotSupported for an unknown backbone or a device that is not there, BadPrompt for sampling out of range."""
        resolve(self.backbone)
        check_device(self.device)
        changed(Sampling(), self.sampling)

    def load(self, dtype: str | None = None) -> Backbone:
        """The backbone, in another dtype if one is given."""
        return load(self.backbone, None, self.device, dtype or self.dtype)

    def sampling_of(self, backbone: Backbone) -> Sampling:
        """The backbone's sampling with what differs."""
        return changed(backbone.sampling, self.sampling)


@dataclass(frozen=True, kw_only=True)
class Choice(Model):
    """Which methods, with which knobs.

    methods : names of methods and presets, plain decoding besides; () = all that the backbone can serve
    knobs   : by name, for the methods that have them; verify : the verification mode, for the methods that have one
    sweep   : rows for each value of a knob, for the methods that have it; grid : a row for each combination of several
    """

    methods: tuple[str, ...] = ()
    knobs: Mapping[str, str] = field(default_factory=dict)
    verify: str | None = None
    sweep: tuple[Sweep, ...] = ()
    grid: bool = False

    def __post_init__(self) -> None:
        """Raises NotSupported for an unknown method, BadKnob for a knob or value that no method could use."""
        super().__post_init__()
        if self.grid and not self.sweep:
            raise BadKnob("--grid combines the values of sweeps, and there is none. Add --sweep NAME=A,B.")
        self.entries(frozenset().union(*(find(name)[0].needs for name in (*METHODS, *PRESETS))))

    def entries(self, capabilities: frozenset[str]) -> dict[str, Entry]:
        """The rows asked for, by what they are called: each method once, or with a sweep once a value for those that have the knob; with
        `grid` once a combination of values for those that have all the knobs. Raises BadKnob for what no method could use."""
        usable = [name for name in (*METHODS, *PRESETS) if find(name)[0].needs <= capabilities]
        plain = {name: self._entry(name) for name in dict.fromkeys(self.methods or usable) if name != "ar"}
        self._check_given([find(name)[0].name for name in plain])
        swept = [[(knob, value) for value in values] for knob, values in self.sweep]
        groups = itertools.product(*swept) if self.grid else ([setting] for settings in swept for setting in settings)
        found = {
            " ".join([name, *(f"{knob}={value}" for knob, value in group)]): Entry(name, entry.knobs | dict(group))
            for group in groups
            for name, entry in plain.items()
            if {knob for knob, _ in group} <= {k.name for k in find(name)[0].knobs}
        }
        for (knob, values), settings in zip(self.sweep, swept, strict=True):
            if not any(setting in entry.knobs.items() for entry in found.values() for setting in settings):
                text = f"{knob}={','.join(values)}"
                raise BadKnob(f"--sweep {text} sweeps nothing: none of {', '.join(plain)} has this knob, or no value is given.")
        chosen = found if swept else plain
        for entry in chosen.values():
            KnobArray(find(entry.name)[0].knobs, entry.knobs)
        return chosen

    def _entry(self, name: str) -> Entry:
        """A preset's knobs and those given that the method has."""
        method, preset = find(name)
        own = {k.name for k in method.knobs}
        known = {k: v for k, v in self.knobs.items() if k in own}
        if self.verify and "verify" in own:
            known["verify"] = self.verify
        return Entry(name, preset | known)

    def _check_given(self, methods: list[str]) -> None:
        """Raises BadKnob if what was given belongs to none of the methods."""
        own = {knob.name for name in methods for knob in METHODS[name].knobs}
        unknown = [name for name in (*self.knobs, *(["verify"] if self.verify else [])) if name not in own]
        if unknown:
            asked = ", ".join(dict.fromkeys(methods)) or "plain decoding"
            raise BadKnob(f"There is no knob '{unknown[0]}' in {asked}. There are: {', '.join(sorted(own)) or 'none'}.")


@dataclass(frozen=True, kw_only=True)
class ImageBench(Choice):
    """`bench image`: the time of methods against plain decoding.

    prompts : texts (None: `count` held-out ones); prompts_from : what the rows say of where they come from
    size    : pixels (None: the backbone's own); csv, figure : files to write
    """

    prompts: tuple[str, ...] | None = None
    prompts_from: str = "held out"
    count: int = 20
    repeats: int = 1
    size: int | None = None
    csv: Path | None = None
    figure: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for what cannot be measured."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)
        check_count("repeats", self.repeats, MOST_REPEATS)
        check_size(self.size)
        for text in self.prompts or ():
            Prompt(text)


@dataclass(frozen=True, kw_only=True)
class JudgeBench(Choice):
    """`bench image --judge`: how often pictures of `count` held-out scenes show what was asked for."""

    count: int = 20
    size: int | None = None
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for what cannot be measured."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)
        check_size(self.size)


@dataclass(frozen=True, kw_only=True)
class EyeBench(Model):
    """`bench image --judge --eye FILE`: the judge beside a person's answers in a CSV file."""

    answers: Path
    size: int | None = None
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt for what cannot be measured."""
        super().__post_init__()
        check_size(self.size)


@dataclass(frozen=True, kw_only=True)
class ImageSheet(Model):
    """`bench image --sheet FILE`: the pictures of some prompts (None: `count` held-out ones) on one sheet."""

    path: Path
    prompts: tuple[str, ...] | None = None
    count: int = 20
    size: int | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt for what cannot be drawn."""
        super().__post_init__()
        check_count("count", self.count, MOST_INPUTS)
        check_size(self.size)
        for text in self.prompts or ():
            Prompt(text)


@dataclass(frozen=True, kw_only=True)
class MeshBench(Choice):
    """`bench mesh`: methods on clouds of `count` held-out shapes with `seeds` seeds each; without methods and sweep, XSpecMesh's table.

    faces : the most faces of a mesh (None: no budget)
    """

    count: int = 40
    seeds: int = 1
    repeats: int = 1
    faces: int | None = None
    csv: Path | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt, BadKnob or NotSupported for what cannot be measured."""
        super().__post_init__()
        if not self.methods and not self.sweep and (self.knobs or self.verify):
            raise BadKnob("The rows of the table have knobs of their own. Name the methods that --set or --verify is for with --methods.")
        check_mesh(self)
        check_count("count", self.count, MOST_INPUTS)
        check_count("seeds", self.seeds, MOST_REPEATS)
        check_count("repeats", self.repeats, MOST_REPEATS)

    @property
    def is_table(self) -> bool:
        """Whether the table of XSpecMesh is asked for."""
        return not self.methods and not self.sweep


@dataclass(frozen=True, kw_only=True)
class MeshSheet(Model):
    """`bench mesh --sheet FILE`: clouds of `count` held-out shapes and the meshes that plain decoding makes of them, on one sheet."""

    path: Path
    count: int = 24
    faces: int | None = None

    def __post_init__(self) -> None:
        """Raises BadPrompt or NotSupported for what cannot be drawn."""
        super().__post_init__()
        check_mesh(self)
        check_count("count", self.count, MOST_INPUTS)


def check_mesh(plan: MeshBench | MeshSheet) -> None:
    """Raises NotSupported for a backbone that makes no meshes and for guidance, which they do not have; BadPrompt for an odd budget."""
    name = resolve(plan.backbone)[0]
    if name not in MESHES:
        raise NotSupported(f"bench mesh measures {' and '.join(MESHES)}, not {name}. Choose one of them with --backbone.")
    if "guidance" in plan.sampling:
        raise NotSupported(f"{name} has no guidance: it knows no empty cloud. Leave guidance out.")
    if plan.faces is not None:
        check_count("faces", plan.faces, 10_000)


def check_count(name: str, value: int, most: int) -> None:
    """Raises BadPrompt for what is not 1 to `most`."""
    if not 1 <= value <= most:
        raise BadPrompt(f"{name} = {value} is out of range. Choose 1 to {most:,}.")


def check_size(size: int | None) -> None:
    """Raises BadPrompt for a size that no picture has."""
    if size is not None:
        check_count("size", size, 4096)


def read_prompts(path: Path, count: int) -> tuple[tuple[str, ...], str]:
    """The first `count` prompts of a file, a line each, and what rows say of where they come from; raises BadPrompt."""
    try:
        with path.open("rb") as file:
            content = file.read(PROMPT_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise BadPrompt(f"The prompts file {path} cannot be read ({e}). Give another with --prompts.") from e
    if len(content) > PROMPT_BYTES:
        raise BadPrompt(f"The prompts file {path} holds more than {PROMPT_BYTES:,} bytes. Give a smaller one with --prompts.")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise BadPrompt(f"The prompts file {path} holds no prompt. Write one a line.")
    return tuple(lines[:count]), f"{path.name} {sha256(content).hexdigest()[:12]}"
