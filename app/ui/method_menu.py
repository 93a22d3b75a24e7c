"""The menu of methods: those that a model supports, their initial knobs, and the badge that says whether they are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.requests.sides import start_values
from app.ui import knobs as knob_panel
from engine.core import ANY_SUIT, PLAIN, Backbone, Method, Suits
from engine.methods import AUTO, find, names
from engine.methods import about as about_method
from engine.methods import title as own_title
from engine.run import Run
from engine.tuning.auto import resolve
from engine.tuning.prepare import to_stderr_once

PLAIN_SIDE = ("Plain decoding", "One token at a time.")
BASELINES = "Baselines"
GROUPS = {True: "Exact: the same as plain decoding", False: "Relaxed: may differ from plain decoding"}  # by exactness of the initial knobs


def title_of(name: str) -> str:
    """The title of a method or preset as the page shows it."""
    own = own_title(name)
    return f"Fastest here ({own.removeprefix(f'{AUTO}: ')})" if name.startswith(f"{AUTO}:") else own


def choices(backbone: Backbone) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that a backbone supports, without plain decoding, which is the other side."""
    return choices_for(backbone.capabilities)


def with_auto(others: list[tuple[str, str]], backbone: Backbone) -> list[tuple[str, str]]:
    """The choices behind what auto takes for this model on this machine; measures the machine if that was not done yet."""
    name = resolve(backbone, to_stderr_once)  # every visitor's page asks again
    return [(title_of(name), name), *others]


def choices_for(capabilities: frozenset[str]) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that these capabilities support, without plain decoding."""
    return [(title_of(name), name) for name in names() if find(name)[0].needs <= capabilities and name != PLAIN]


def cards(menu: Sequence[tuple[str, str]], suits: Suits = ANY_SUIT, speedups: Mapping[str, float] | None = None) -> list[dict[str, Any]]:
    """The cards of these (title, name), group by group: exact ones, relaxed ones, baselines. speedups: by method, over plain decoding, as
    measured on this machine"""
    listed: list[dict[str, Any]] = []
    for title, name in menu:
        method, values_at_start = start_values(name, suits)
        exact = knob_panel.badge(method, values_at_start)["exact"]
        group = BASELINES if method.baseline else GROUPS[exact]
        speed = (speedups or {}).get(name)
        listed.append({"name": name, "title": title, "exact": exact, "about": about(name), "group": group, "speed": speed_words(speed)})
    order = (*GROUPS.values(), BASELINES)
    return sorted(listed, key=lambda card: order.index(card["group"]))


def about(name: str) -> str:
    """A method or preset in a few words, or what auto is."""
    return "The fastest exact method on this machine, as measured." if name.startswith(f"{AUTO}:") else about_method(name)


def speed_words(speedup: float | None) -> str:
    """A measured speed-up in words; "" without one."""
    if speedup is None:
        return ""
    return f"{speedup:.1f}× here" if speedup >= 0.95 else f"{speedup:.2f}× here"


def side_words(name: str | None, right_words: str) -> tuple[str, str]:
    """(title, words) of an empty side. name : its method, None = not compared; right_words : of a method that is not plain decoding"""
    if name is None:
        return title_of(PLAIN), "Not compared."
    return title_of(name), PLAIN_SIDE[1] if name == PLAIN else right_words


def run_badge(run: Run) -> dict[str, Any]:
    """Exactness of all steps of a run so far, with the explanation for its newest knobs."""
    return {"exact": run.exact, "why": knob_panel.badge(run.method, run.steps[-1].knobs)["why"]}


def left_badge(run: Run) -> dict[str, Any] | None:
    """The badge of the left side; plain decoding is what exact means, so it has none."""
    return None if run.method.name == PLAIN else run_badge(run)


def badge(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Badge of a method with these knobs: exact or not, why, and a short summary."""
    method = find(name)[0]
    state = knob_panel.badge(method, values)
    word, title = "exact" if state["exact"] else "not exact", title_of(name)
    return {
        "exact": state["exact"],
        "word": word,
        "why": explain(state["why"]),
        "summary": [title, word, *(each for each in first_number(method, values) if each not in title)],  # auto's title has its knobs
    }


def first_number(method: Method, values: Mapping[str, Any]) -> list[str]:
    """The first number of a method, in words: ["window 16"]; [] if it has none."""
    first = next((knob for knob in method.knobs if not knob.choices), None)
    return [] if first is None else [f"{knob_panel.label(first).lower()} {values.get(first.name, first.default):g}"]


def explain(why: str) -> str:
    """A method's explanation without the word that the badge shows already."""
    rest = why.split(":", 1)[-1].strip()
    return rest[:1].upper() + rest[1:]
