"""Any value sent to a handler, with or without a page, gives an error message and no bug, and the visitor can still generate."""

from __future__ import annotations

import pytest

from app.requests import validation as asked
from app.requests.limits import LARGEST_SEED, LONGEST_PROMPT
from engine.core import Knob
from engine.errors import ForetokenError
from engine.methods import METHODS

DECLARED = (Knob("size", "", "64 px", choices=("64 px", "128 px")), Knob("heat", "", 1.0, 0, 2))
JUNK = [
    None,
    True,
    -1,
    2**70,
    10**400,
    1e99,
    "",
    "x" * 5000,
    "\x00",
    "\ud800",
    [],
    [[1]],
    {},
    {"values": None},
    {"values": {"a": []}},
    {"name": []},
]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("value", [-1, 0.5, LARGEST_SEED + 1, 1e99, 10**400, float("nan"), float("inf"), "7", True, [], {}, "\ud800"])
def test_a_wrong_seed_is_a_sentence(value):
    with pytest.raises(ForetokenError, match="Choose a whole number"):
        asked.seed(value)


def test_good_seeds_are_taken_and_an_empty_field_is_zero():
    assert [asked.seed(v) for v in (0, 7, 7.0, LARGEST_SEED, None, "")] == [0, 7, 7, LARGEST_SEED, 0, 0]


@pytest.mark.parametrize("value", ["a\x00b", "a \ud800", "\udc00", "x" * (LONGEST_PROMPT + 1), 7, ["a cat"], {}, True])
def test_a_prompt_that_is_no_text_is_a_sentence(value):
    with pytest.raises(ForetokenError) as caught:
        asked.text(value)
    str(caught.value).encode()  # it can be sent and printed


def test_prompts_of_any_language_are_text():
    for text in ("a cat 🐱", "🐱🐶", "Äpfel", "リンゴ", "", "  ", "1"):
        assert asked.text(text) == text


@pytest.mark.parametrize("value", [*JUNK, {"values": {"size": "7 px"}}, {"values": {"heat": 3}}, {"values": {"heat": float("nan")}},
                                   {"values": {"other": 1}},
                                   {"values": {"heat": True}}, {"values": {"heat": None}}, {"values": {1: 1}}])  # fmt: skip
def test_wrong_settings_are_a_sentence(value):
    with pytest.raises(ForetokenError):
        asked.knobs(value, DECLARED)


def test_settings_that_are_left_out_are_at_their_defaults():
    assert asked.knobs({"values": {"heat": 2}}, DECLARED) == {"size": "64 px", "heat": 2.0}
    assert asked.knobs({"values": {}}, DECLARED) == {"size": "64 px", "heat": 1.0}


@pytest.mark.parametrize("value", JUNK)
def test_a_wrong_method_is_a_sentence(value):
    with pytest.raises(ForetokenError) as caught:
        asked.method(value)
    assert len(str(caught.value)) < 500


def test_a_method_that_the_model_lacks_something_for_is_a_sentence(picto):
    with pytest.raises(ForetokenError, match="xspecmesh needs"):
        asked.method("xspecmesh", picto)
    assert asked.method("sjdpp", picto)[1] is METHODS["sjdpp"]


# ---------------------------------------------------------------- over HTTP


@pytest.mark.parametrize("junk", JUNK, ids=lambda v: repr(v)[:20])
def test_junk_in_any_field_of_a_run_is_a_sentence_and_the_visitor_can_still_generate(visit, served, junk):
    before = len(served.log.read_text())  # what other tests made the studio say does not count
    visitor = visit()
    for name in ("seed", "prompt", "method", "knobs", "settings", "compare"):
        came = visitor.generate(**{name: junk})
        fine = junk is True if name == "compare" else name == "seed" and junk in (None, "")
        assert ('"kind":"error"' in came) != fine, f"{name} = {junk!r}: {came[-600:]}"
    visitor.generate(ticket=junk)
    assert visitor.can_generate()
    assert "Traceback" not in served.log.read_text()[before:]


@pytest.mark.parametrize("tab", ["image", "mesh"])
def test_junk_to_any_handler_is_no_bug_and_the_visitor_can_still_generate(visit, served, tab):
    before = len(served.log.read_text())
    visitor = visit()
    if tab == "mesh":
        opening = visitor.handler("open", "mesh")
        visitor.ask(opening, visitor.values(opening))
    for number, handler in visitor.handlers.items():
        if visitor.tab_of(number) != tab or any(visitor.components[c]["type"] == "file" for c in handler["inputs"]):
            continue  # Gradio itself looks at files
        if handler["api_visibility"] == "public":
            continue  # an endpoint says with an error what is wrong
        if not handler["backend_fn"]:
            continue  # runs in the browser only, and Gradio refuses to call it
        for junk in JUNK:
            came = visitor.ask(number, [junk] * len(handler["inputs"]))
            assert '"error":' not in came and '"success":false' not in came, f"{handler['api_name']}({junk!r}): {came[-500:]}"
    assert visitor.can_generate(tab)
    assert "Traceback" not in served.log.read_text()[before:]


def test_the_look_up_of_a_book_is_short(picto):
    from types import SimpleNamespace

    from app.ui.tabs.image_tab import LOOKED_UP, ImageTab

    seen = []
    tab = SimpleNamespace(
        backbone=SimpleNamespace(name="pictogram", unknown_words=lambda text: seen.append(text) or {}, warning=lambda text: "")
    )
    for text in ("word " * 100_000, "w" * 1_000_000, None, [], 7):
        ImageTab.look_up(tab, text)
    assert [len(text.split()) for text in seen] == [LOOKED_UP, 1] and max(map(len, seen)) < 2000
