"""Menu of the methods that a model supports, their initial knobs, and the badge that says whether they are exact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.requests.sides import CLASSICAL, start_values
from app.ui import knobs as knob_panel
from engine.core import ANY_SUIT, PLAIN, Backbone, Method, Suits
from engine.methods import AUTO, find, names
from engine.methods import about as about_method
from engine.methods import title as own_title
from engine.run import Run
from engine.tuning.auto import StepHere, unmeasured_method

PLAIN_SIDE = ("Plain decoding", "One token at a time.")
CLASSICAL_SIDE = ("Classical surface (no model)", "Made of the points after the run, without the model.")
BASELINES = "Baselines"
GROUPS = {True: "Exact: the same as plain decoding", False: "Relaxed: may differ from plain decoding"}  # exactness of the initial knobs


def title_of(name: str) -> str:
    """Title of a method or preset on the page. Of auto's choice it names the knob, if it is only one."""
    own = own_title(name)
    if not name.startswith(f"{AUTO}:"):
        return own
    method, *chosen = own.removeprefix(f"{AUTO}: ").split(", ")
    return f"Fastest here ({', '.join([method, *(chosen if len(chosen) == 1 else [])])})"


def choices(backbone: Backbone) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that a backbone supports, except plain decoding."""
    return choices_for(backbone.capabilities)


def with_auto(others: list[tuple[str, str]], name: str | None, backbone: Backbone) -> list[tuple[str, str]]:
    """The choices, preceded by the one that auto makes for this model here (None: not yet measured; then the likeliest one is first)."""
    if name is not None:
        return [(title_of(name), name), *others]
    return sorted(others, key=lambda choice: choice[1] != unmeasured_method(backbone))


def choices_for(capabilities: frozenset[str]) -> list[tuple[str, str]]:
    """(title, name) of the methods and presets that these capabilities support, except plain decoding."""
    return [(title_of(name), name) for name in names() if find(name)[0].needs <= capabilities and name != PLAIN]


def cards(menu: Sequence[tuple[str, str]], suits: Suits = ANY_SUIT, speeds: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Cards of a menu of (title, name), grouped: exact, relaxed, baselines. speeds : on this machine, in words, by method"""
    listed: list[dict[str, Any]] = []
    for title, name in menu:
        method, values_at_start = start_values(name, suits)
        exact = knob_panel.badge(method, values_at_start)["exact"]
        group = BASELINES if method.baseline else GROUPS[exact]
        speed = "" if speeds is None or name == PLAIN else speeds.get(name, speed_words(None))
        facts = {"speed": speed, "scaled": "at_scale" in method.needs}  # scaled: it drafts at a smaller size
        listed.append({"name": name, "title": title, "exact": exact, "about": about(name), "group": group, **facts})
    order = (*GROUPS.values(), BASELINES)
    return sorted(listed, key=lambda card: order.index(card["group"]))


def classical_card() -> dict[str, Any]:
    """Card of the surface made without the model, for a left side."""
    about_it = "A surface through your points by geometry: no tokens, no model."
    return {
        "name": CLASSICAL,
        "title": CLASSICAL_SIDE[0],
        "exact": None,
        "about": about_it,
        "group": "Without the model",
        "speed": "",
        "scaled": False,
    }


def about(name: str) -> str:
    """Short description of a method or preset."""
    return "The fastest exact method on this machine, as measured." if name.startswith(f"{AUTO}:") else about_method(name)


def speed_words(speedup: float | None, step: StepHere | None = None) -> str:
    """A measured speed-up as text; None = not measured. Of a method that is slower than plain decoding, also what its drafter takes of a
    step, if that was measured."""
    if speedup is None:
        return "Not yet measured here"
    if speedup >= 0.95:
        return f"{speedup:.1f}× here"
    reason = "" if step is None else f", slower: {step.outside:.1f} of {step.milliseconds:.1f} ms are its drafter"
    return f"{speedup:.2f}× here{reason}"


def side_words(name: str | None, right_words: str) -> tuple[str, str]:
    """(title, text) of an empty side. name : its method, None = not compared; right_words : text for methods other than plain decoding"""
    if name is None:
        return title_of(PLAIN), "Not compared."
    if name == CLASSICAL:
        return CLASSICAL_SIDE
    return title_of(name), PLAIN_SIDE[1] if name == PLAIN else right_words


def run_badge(run: Run) -> dict[str, Any]:
    """Exactness of a run so far, with the explanation for its latest knobs."""
    return {"exact": run.exact, "why": knob_panel.badge(run.method, run.steps[-1].knobs)["why"]}


def left_badge(run: Run) -> dict[str, Any] | None:
    """Badge of the left side; None for plain decoding, which is exact by definition."""
    return None if run.method.name == PLAIN else run_badge(run)


def badge(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Badge of a method with these knobs: exactness, reason, and a short summary."""
    method = find(name)[0]
    state = knob_panel.badge(method, values)
    word, title = "exact" if state["exact"] else "not exact", title_of(name)
    return {
        "exact": state["exact"],
        "word": word,
        "why": explain(state["why"]),
        "summary": [title, word, *(each for each in first_number(method, values) if each not in title)],  # auto's title contains its knobs
    }


def first_number(method: Method, values: Mapping[str, Any]) -> list[str]:
    """A method's first numeric knob as text, such as ["window 16"]; [] if it has none."""
    first = next((knob for knob in method.knobs if not knob.choices), None)
    return [] if first is None else [f"{knob_panel.label(first).lower()} {values.get(first.name, first.default):g}"]


def explain(why: str) -> str:
    """A method's explanation without its first word, which the badge shows."""
    rest = why.split(":", 1)[-1].strip()
    return rest[:1].upper() + rest[1:]
