"""Knobs become controls that reach every useful value and show the real one."""

from __future__ import annotations

import json
import re

import pytest

from app.requests import meshes, pictures
from app.ui import knobs
from app.ui.method_menu import title_of
from app.ui.tabs import image_tab
from engine.core import Knob, Sampling
from engine.decoding.initializers import WINDOW
from engine.methods import METHODS, PRESETS, find

ALL = [(m.name, k) for m in METHODS.values() for k in m.knobs if not k.choices]


@pytest.mark.parametrize(("method", "knob"), ALL, ids=lambda v: v if isinstance(v, str) else v.name)
def test_stops_cover_the_range_and_are_accepted_by_the_engine(method, knob):
    stops = knobs.stops(knob)
    assert stops == sorted(set(stops))
    assert (stops[0], stops[-1]) == (knob.low, knob.high)
    assert knob.default in stops
    for stop in stops:
        assert knob.to_value(knob.to_number(stop)) == stop


def test_a_logarithmic_slider_gives_small_values_their_room():
    stops = knobs.stops(Knob("window", "W", 32, 1, 256, 1, "log"))
    assert stops[:8] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all(isinstance(s, int) for s in stops)
    assert stops.index(16) > len(stops) / 5  # a linear slider would reserve a sixteenth for it
    assert {2**i for i in range(9)} <= set(stops)  # the bucket sizes of passes
    assert knobs.stops(Knob("beam", "", 0, 0, 100, 1, "log"))[0] == 0


def test_the_papers_letter_and_the_knobs_nature_reach_the_page():
    value = knobs.encode("sjdpp", find("sjdpp")[0].knobs, {"refresh": "reuse published"})
    json.dumps(value)
    by_name = {d["name"]: d for d in json.loads(value["declarations"])}
    assert (by_name["reuse_ratio"]["symbol"], by_name["reuse_ratio"]["label"]) == ("τ", "Keep a guess above")
    assert by_name["reuse_ratio"]["help"].endswith("Also called reuse_ratio.")
    assert by_name["refresh"]["live"] is False
    assert value["values"]["refresh"] == "reuse published"
    assert value["values"]["window"] == WINDOW.default


def test_words_come_before_the_engines_names():
    """Menus need no knowledge of a paper, but contain its terms; there are no words for removed choices or presets."""
    declared = [*(k for m in METHODS.values() for k in m.knobs), *meshes.settings(Sampling())]
    assert all(knob.words.keys() <= set(knob.choices) for knob in declared)
    assert all(not re.search("coupled|gumbel|residual|init", word) for k in declared for word in (k.label, *k.words.values()))
    refresh = next(knobs.declare(knob) for knob in METHODS["sjdpp"].knobs if knob.name == "refresh")
    assert dict(zip(refresh["choices"], refresh["choice_labels"], strict=True))["coupled gumbel"] == "same dice again (coupled gumbel)"
    longest = max((words for m in METHODS.values() for k in m.knobs for words in knobs.declare(k)["choice_labels"]), key=len)
    assert len(longest) <= 38, longest  # the width of the menus
    titles = [title_of(name) for name in PRESETS]
    assert len(set(titles)) == len(titles) and "LANTERN++" in titles


def test_the_badge_is_a_function_of_the_knobs():
    method, _ = find("sjdpp")
    assert knobs.badge(method, {})["exact"]
    relaxed = knobs.badge(method, {"refresh": "reuse published"})
    assert not relaxed["exact"] and relaxed["why"].startswith("Not exact")
    assert knobs.badge(method, {"refresh": "reuse published", "verify": "match seed"})["exact"]


def test_every_method_and_preset_that_fits_is_offered(picto):
    offered = {name for _, name in image_tab.choices(picto)}
    fitting = {n for n, m in METHODS.items() if m.needs <= picto.capabilities} - {"ar"}
    assert offered == fitting | {p for p in PRESETS if find(p)[0].needs <= picto.capabilities}
    assert "SJD++ (published)" in {title for title, _ in image_tab.choices(picto)}


def test_what_stands_on_the_page_becomes_a_prompt(picto):
    sent = knobs.encode("settings", pictures.settings(picto))
    changed = sent | {"values": sent["values"] | {"size": "256 px", "guidance": 2}}
    prompt = pictures.read_prompt("a cat", 7, changed, picto)
    assert (prompt.size, prompt.seed, prompt.sampling.guidance, prompt.sampling.top_p) == (256, 7, 2.0, 1.0)
    assert pictures.read_prompt("a cat", 7, sent, picto).size == pictures.USUAL_SIZE == 256


@pytest.mark.parametrize("name", METHODS)
def test_a_knob_that_acts_at_times_names_an_earlier_knob_and_its_choices(name: str) -> None:
    above: dict[str, Knob] = {}
    for knob in METHODS[name].knobs:
        if knob.when:
            assert set(knob.when[1:]) <= set(above[knob.when[0]].choices) and len(knob.when) > 1
        above[knob.name] = knob
