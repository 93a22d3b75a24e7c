"""The methods and presets, by name. A new method needs one file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from engine.core import PLAIN, KnobArray, Method
from engine.errors import NotSupported
from engine.methods import (
    adt_tree,
    ar,
    cross_regression,
    eagle,
    gsd,
    jacobi,
    lookahead,
    lookup,
    medusa,
    mulo,
    sjd,
    sjdpp,
    spatial,
    surface,
    xspecmesh,
    zipar,
)

METHODS: dict[str, Method] = {
    PLAIN: ar.METHOD,
    "jacobi": jacobi.METHOD,
    "sjd": sjd.METHOD,
    "sjdpp": sjdpp.METHOD,
    "gsd": gsd.METHOD,
    "xspecmesh": xspecmesh.METHOD,
    "lookup": lookup.METHOD,
    "surface": surface.METHOD,
    "lookahead": lookahead.METHOD,
    "medusa": medusa.METHOD,
    "eagle": eagle.METHOD,
    "adt_tree": adt_tree.METHOD,
    "zipar": zipar.METHOD,
    "mulo": mulo.METHOD,
    "cross_regression": cross_regression.METHOD,
    "spatial": spatial.METHOD,
}

PRESETS: dict[str, tuple[str, Mapping[str, float | str]]] = {  # name: method, knobs
    preset.name: (method.name, preset.knobs) for method in METHODS.values() for preset in method.presets
}
AUTO = "auto"  # resolved by engine/tuning/auto.py, to a name of the form "auto:NAME,KNOB=VALUE,..."


def names() -> list[str]:
    """The names of all methods, then of all presets."""
    return [*METHODS, *(preset.name for method in METHODS.values() for preset in method.presets)]


def find(name: str) -> tuple[Method, dict[str, float | str]]:
    """The method of a name or preset, with the preset's knobs; raises NotSupported with the closest name.

    A resolved `auto` has a name such as "auto:sjdpp,window=16": sjdpp with this knob.
    """
    if name.startswith(f"{AUTO}:"):
        return _resolve(name)
    if name in METHODS:
        return METHODS[name], {}
    for method in METHODS.values():
        for preset in method.presets:
            if preset.name == name:
                return replace(method, needs=method.needs | preset.needs) if preset.needs else method, dict(preset.knobs)
    known = names()
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise NotSupported(f"There is no method '{name}'.{hint} There are: {', '.join(known)}.")


def _parts(name: str) -> tuple[str, dict[str, str]]:
    """Splits a resolved `auto` into the method or preset, and its knobs."""
    own, *pairs = name.removeprefix(f"{AUTO}:").split(",")
    return own, dict(pair.partition("=")[::2] for pair in pairs)


def _resolve(name: str) -> tuple[Method, dict[str, float | str]]:
    """The method and all knobs of a resolved `auto`; raises NotSupported or BadKnob."""
    own, knobs = _parts(name)
    if own.startswith(f"{AUTO}:"):
        raise NotSupported(f"'{name[:40]}' is not a method. Write {AUTO} or the name of a method.")
    method, preset = find(own)
    KnobArray(method.knobs, knobs)
    return method, preset | {k.name: k.to_value(k.to_number(knobs[k.name])) for k in method.knobs if k.name in knobs}


def title(name: str) -> str:
    """The title of a method, a preset or a resolved `auto`: "SJD++ (published)", "auto: SJD++, window 16"."""
    if name.startswith(f"{AUTO}:"):
        method, knobs = find(name)[0], _parts(name)[1]
        named = {k.name: k for k in method.knobs}
        chosen = [value if named[knob].choices else f"{knob.replace('_', ' ')} {value}" for knob, value in knobs.items()]
        return ", ".join([f"{AUTO}: {method.title}", *chosen])
    method = find(name)[0]
    preset = next((each for each in method.presets if each.name == name), None)
    if preset is None:
        return method.title
    return preset.title or f"{method.title} ({name.removeprefix(method.name).strip('_').replace('_', ' ')})"


def about(name: str) -> str:
    """One sentence on a method or preset, for a person who does not know the paper."""
    method = find(name)[0]
    return next((preset.about for preset in method.presets if preset.name == name), method.about)
