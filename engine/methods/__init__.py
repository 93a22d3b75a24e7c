"""The table of methods and presets. A new method needs one file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from engine.core import KnobArray, Method
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
    "ar": ar.METHOD,
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
    "sjdpp_published": ("sjdpp", {"refresh": "reuse published", "reuse_ratio": 0.5}),
    "xspecmesh_exact": ("xspecmesh", {"accept": "residual", "drafts": "most probable"}),
    "lantern": ("eagle", {"relax": "additive"}),
    "lantern_static": ("eagle", {"relax": "multiplicative", "children": "sampled"}),
    "adt_tree_published": ("adt_tree", {"controller": "adjacent"}),
    "adt_tree_lantern": ("adt_tree", {"controller": "adjacent", "relax": "additive", "added_mass": 0.4}),
    "zipar_verified": ("zipar", {"mode": "verified", "window": 4, "rows": 2, "growth": 8}),
    "mulo_jacobi": ("sjdpp", {"init": "up-sampled", "window": 32}),
    "spatial_published": ("spatial", {"mode": "published", "foresee": "columns"}),
}

ABOUT: dict[str, str] = {  # of every method and preset: one sentence for a person who does not know the paper
    "ar": "One token at a time: the speed that all others are compared with.",
    "jacobi": "Guesses a window of tokens, and keeps those that the model then gives itself.",
    "sjd": "Draws a window of tokens at once, and keeps a draw as often as the model would have made it.",
    "sjdpp": "Like SJD, but tokens after a refused one stay in the window wherever they can.",
    "gsd": "Accepts a token if the model finds a group of similar ones likely enough.",
    "xspecmesh": "Small extra heads guess the next tokens of a mesh; the model keeps the likely ones.",
    "lookup": "Copies what followed the last time the same tokens occurred; the model checks the copy.",
    "surface": "Foresees the vertices that close the surface, and parts that repeat; the model checks them.",
    "lookahead": "Guesses ahead in several columns, and checks the runs that begin with the newest token.",
    "medusa": "Small heads guess one token each, independently; the model checks the tree of their guesses.",
    "eagle": "A small drafter grows a tree of guesses; the model checks the whole tree at once.",
    "adt_tree": "A tree of guesses that is wide where the picture is hard, and deep where it is easy.",
    "zipar": "Starts the next row of the picture before the one above is finished.",
    "mulo": "Draws the picture small, enlarges it, and repairs what the model refuses.",
    "cross_regression": "The model itself predicts tokens further ahead; an energy decides how many to keep.",
    "spatial": "Small heads foresee the row from the row above; the model checks the window.",
    "sjdpp_published": "SJD++ with the paper's own rule, which keeps some tokens too often.",
    "xspecmesh_exact": "The same heads, checked so that every mesh is as likely as with plain decoding.",
    "lantern": "A tree of guesses that accepts a token if similar ones are likely.",
    "lantern_static": "LANTERN++: a tree of fixed shape, and a milder exchange of similar tokens.",
    "adt_tree_published": "ADT-Tree as in its paper, with trees of up to 60 guesses.",
    "adt_tree_lantern": "ADT-Tree as in its paper, with LANTERN's exchange of similar tokens.",
    "zipar_verified": "The rows begin early as in ZipAR, and the model checks what they hold.",
    "spatial_published": "A whole row is foreseen from the row above, corrected in two passes, and final.",
    "mulo_jacobi": "The window of SJD++ starts from a small picture, enlarged; the model checks every token.",
}

BASELINES = ("ar", "jacobi", "lookup", "lookahead", "medusa")  # methods that no paper here proposes

NEEDS: dict[str, frozenset[str]] = {"mulo_jacobi": frozenset({"raster", "at_scale"})}  # of presets, beyond those of their method


AUTO = "auto"  # the choice that engine/tuning/auto.py resolves; "auto:NAME,KNOB=VALUE,..." is what it was resolved to


def find(name: str) -> tuple[Method, dict[str, float | str]]:
    """The method of a name or preset, with the preset's knobs; raises NotSupported with the closest name.

    "auto:sjdpp,window=16" is sjdpp with this knob: what `auto` was resolved to.
    """
    if name.startswith(f"{AUTO}:"):
        return _resolved(name)
    if name in METHODS:
        return METHODS[name], {}
    if name in PRESETS:
        method, knobs = METHODS[PRESETS[name][0]], dict(PRESETS[name][1])
        return (replace(method, needs=method.needs | NEEDS[name]) if name in NEEDS else method), knobs
    known = [*METHODS, *PRESETS]
    near = difflib.get_close_matches(name, known, 1)
    hint = f" Did you mean '{near[0]}'?" if near else ""
    raise NotSupported(f"There is no method '{name}'.{hint} There are: {', '.join(known)}.")


def _parts(name: str) -> tuple[str, dict[str, str]]:
    """The method or preset, and the knobs, of a name that auto was resolved to."""
    own, *pairs = name.removeprefix(f"{AUTO}:").split(",")
    return own, dict(pair.partition("=")[::2] for pair in pairs)


def _resolved(name: str) -> tuple[Method, dict[str, float | str]]:
    """The method and all knobs of a name that auto was resolved to; raises NotSupported or BadKnob."""
    own, knobs = _parts(name)
    if own.startswith(f"{AUTO}:"):
        raise NotSupported(f"'{name[:40]}' names no method. Write {AUTO}, or the name of a method.")
    method, preset = find(own)
    KnobArray(method.knobs, knobs)
    return method, preset | {k.name: k.to_value(k.to_number(knobs[k.name])) for k in method.knobs if k.name in knobs}


def auto_title(name: str) -> str:
    """The title of a name that auto was resolved to: "auto: SJD++, window 16". Choices stand for themselves."""
    method, knobs = find(name)[0], _parts(name)[1]
    named = {k.name: k for k in method.knobs}
    said = [value if named[knob].choices else f"{knob.replace('_', ' ')} {value}" for knob, value in knobs.items()]
    return ", ".join([f"{AUTO}: {method.title}", *said])
