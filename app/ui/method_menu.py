"""The menu of methods: which ones fit a model, the knobs they start with, and the badge that says whether they are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.ui import knobs as knob_panel
from engine.core import ANY_SUIT, Backbone, Knobs, Method, Suits
from engine.methods import METHODS, PRESETS, find
from engine.run import Run

PLAIN = "ar"


def choices(backbone: Backbone) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that work on a backbone, plain decoding left out: it is the other side."""
    return choices_for(backbone.capabilities)


def choices_for(capabilities: frozenset[str]) -> list[tuple[str, str]]:
    """The same for what a backbone can do."""
    methods = {n: m for n, m in METHODS.items() if m.needs <= capabilities and n != PLAIN}
    presets = [(preset_title(name), name) for name in PRESETS if find(name)[0].needs <= capabilities]
    return [(m.title, n) for n, m in methods.items()] + presets


def preset_title(name: str) -> str:
    """A preset's name behind its method's title: "SJD++ (published)"."""
    method = PRESETS[name][0]
    return f"{METHODS[method].title} ({name.removeprefix(method).strip('_').replace('_', ' ')})"


def title_of(name: str) -> str:
    """The title of a method, or that of a preset, which names both."""
    return preset_title(name) if name in PRESETS else METHODS[name].title


def start_values(name: str, suits: Suits = ANY_SUIT) -> tuple[Method, dict[str, Any]]:
    """A method and the knobs it starts with here: what suits the model, a preset's own, and where the method is exact, verified by the
    seed, so that both sides are the same."""
    method, preset = find(name)
    given = {**suits.get(method.name, {}), **preset}
    if name in METHODS and any(k.name == "verify" for k in method.knobs):
        seeded = {k.name: k.default for k in method.knobs} | {"verify": "match seed"}
        if method.exact(Knobs(seeded)):
            given["verify"] = "match seed"
    return method, given


def run_badge(run: Run) -> dict[str, Any]:
    """Exact or not, of all the steps that a run has made, with the sentence of its newest knobs."""
    return {"exact": run.exact, "why": knob_panel.badge(run.method, run.steps[-1].knobs)["why"]}


def badge_html(method: Method, values: Mapping[str, Any]) -> str:
    """The badge below the method. Method sentences are ours, so they may stand in a template."""
    found = knob_panel.badge(method, values)
    word = "exact" if found["exact"] else "not exact"
    mark = f'<span class="ft-badge" data-exact="{str(found["exact"]).lower()}">{word}</span>'
    return f'<p class="ft-exact">{mark} {explain(found["why"])}</p>'


def explain(why: str) -> str:
    """A method's sentence without the word that the badge has said already."""
    rest = why.split(":", 1)[-1].strip()
    return rest[:1].upper() + rest[1:]
