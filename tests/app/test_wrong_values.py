"""Any value sent to a handler, with or without a page, gives an error message and no bug, and the visitor can still generate."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from random import Random

import httpx
import pytest

from app.requests import validation
from app.requests.limits import LARGEST_SEED, LONGEST_PROMPT
from engine.core import Knob
from engine.errors import ForetokenError
from engine.methods import METHODS
from tests.app.visitor import JUNK, STRANGE, bug_in

DECLARED = (Knob("size", "", "64 px", choices=("64 px", "128 px")), Knob("heat", "", 1.0, 0, 2))
EACH = 3  # strange values for each value of the page
REQUESTS = [  # changes to a request that no page makes
    {"fn_index": -1}, {"fn_index": 10**6}, {"fn_index": "x"}, {"data": None}, {"data": "x"}, {"session_hash": None},
    {"session_hash": "../../x"}, {"session_hash": "x" * 10_000}, {"event_data": "x"}, {"event_data": {"a": []}}, {"trigger_id": -5},
    {"trigger_id": "x"},
]  # fmt: skip
ROOT = str(Path(__file__).resolve().parents[2])


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("value", [-1, 0.5, LARGEST_SEED + 1, 1e99, 10**400, float("nan"), float("inf"), "7", True, [], {}, "\ud800"])
def test_a_wrong_seed_is_a_sentence(value):
    with pytest.raises(ForetokenError, match="Choose a whole number"):
        validation.seed(value)


def test_good_seeds_are_taken_and_an_empty_field_is_zero():
    assert [validation.seed(v) for v in (0, 7, 7.0, LARGEST_SEED, None, "")] == [0, 7, 7, LARGEST_SEED, 0, 0]


@pytest.mark.parametrize("value", ["a\x00b", "a \ud800", "\udc00", "x" * (LONGEST_PROMPT + 1), 7, ["a cat"], {}, True])
def test_a_prompt_that_is_no_text_is_a_sentence(value):
    with pytest.raises(ForetokenError) as caught:
        validation.text(value)
    str(caught.value).encode()  # it can be sent and printed


def test_prompts_of_any_language_are_text():
    for text in ("a cat 🐱", "🐱🐶", "Äpfel", "リンゴ", "", "  ", "1"):
        assert validation.text(text) == text


@pytest.mark.parametrize("value", [*JUNK, {"values": {"size": "7 px"}}, {"values": {"heat": 3}}, {"values": {"heat": float("nan")}},
                                   {"values": {"other": 1}},
                                   {"values": {"heat": True}}, {"values": {"heat": None}}, {"values": {1: 1}}])  # fmt: skip
def test_wrong_settings_are_a_sentence(value):
    with pytest.raises(ForetokenError):
        validation.knobs(value, DECLARED)


def test_settings_that_are_left_out_are_at_their_defaults():
    assert validation.knobs({"values": {"heat": 2}}, DECLARED) == {"size": "64 px", "heat": 2.0}
    assert validation.knobs({"values": {}}, DECLARED) == {"size": "64 px", "heat": 1.0}


@pytest.mark.parametrize("value", JUNK)
def test_a_wrong_method_is_a_sentence(value):
    with pytest.raises(ForetokenError) as caught:
        validation.method(value)
    assert len(str(caught.value)) < 500


def test_a_method_that_the_model_lacks_something_for_is_a_sentence(picto):
    with pytest.raises(ForetokenError, match="xspecmesh needs"):
        validation.method("xspecmesh", picto)
    assert validation.method("sjdpp", picto)[1] is METHODS["sjdpp"]


# ---------------------------------------------------------------- over HTTP


@pytest.mark.parametrize("junk", JUNK, ids=lambda v: repr(v)[:20])
def test_junk_in_any_field_of_a_run_is_a_sentence_and_the_visitor_can_still_generate(visit, served, junk):
    before = len(served.log.read_text())  # ignore the output of other tests
    visitor = visit()
    for name in ("seed", "prompt", "method", "knobs", "settings", "compare"):
        response = visitor.generate(**{name: junk})
        fine = junk is True if name == "compare" else name == "seed" and junk in (None, "")
        assert ('"kind":"error"' in response) != fine, f"{name} = {junk!r}: {response[-600:]}"
    visitor.generate(ticket=junk)
    assert visitor.can_generate()
    assert "Traceback" not in served.log.read_text()[before:]


@pytest.mark.parametrize("tab", ["image", "mesh"])
def test_junk_to_any_handler_is_no_bug_and_the_visitor_can_still_generate(visit, served, tab):
    before = len(served.log.read_text())
    visitor = visit().open_tab(tab)
    for number, handler in visitor.handlers.items():
        if visitor.tab_of(number) != tab or any(visitor.components[c]["type"] == "file" for c in handler["inputs"]):
            continue  # Gradio itself checks files
        if handler["api_visibility"] == "public":
            continue  # an endpoint reports what is wrong
        if not handler["backend_fn"]:
            continue  # runs only in the browser; Gradio refuses to call it
        for junk in JUNK:
            response = visitor.ask(number, [junk] * len(handler["inputs"]))
            assert '"error":' not in response and '"success":false' not in response, f"{handler['api_name']}({junk!r}): {response[-500:]}"
    assert visitor.can_generate(tab)
    assert "Traceback" not in served.log.read_text()[before:]


def check(response: str, served, before: int) -> None:
    """The response contains no server internals and no error of ours was printed; Gradio prints its own for invalid requests."""
    assert ROOT not in response and "Traceback" not in response, response[-1000:]
    assert not bug_in(served.log.read_text()[before:])


@pytest.mark.parametrize("tab", ["image", "mesh"])
def test_a_strange_value_in_any_place_is_no_bug_and_the_visitor_can_still_generate(visit, served, tab):
    """The other values are the page's own. Also sends too few values, and too many."""
    before = len(served.log.read_text())
    visitor, sent = visit().open_tab(tab), 0
    for number, handler in visitor.handlers.items():
        if visitor.tab_of(number) != tab or not handler["backend_fn"] or not visitor.ends(number):
            continue
        good = visitor.values(number)
        places = [(k, value) for k in range(len(good)) for value in Random(f"{handler['api_name']} {k}").sample(STRANGE, EACH)]
        for data in (*([*good[:k], value, *good[k + 1 :]] for k, value in places), [], [*good, None, None]):
            with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):  # Gradio cannot write some of its own errors down
                check(visitor.ask(number, data), served, before)
            sent += 1
    assert sent > 30 and visitor.can_generate(tab)


def test_requests_that_no_page_sends_are_no_bug(visit, served):
    before, visitor = len(served.log.read_text()), visit()
    whole = {"data": [], "fn_index": 0, "session_hash": visitor.session, "event_data": None, "trigger_id": None}
    bodies = [*(json.dumps(whole | change) for change in REQUESTS), "[]", "null", "[" * 50_000 + "]" * 50_000]
    for body in bodies:
        with contextlib.suppress(httpx.RemoteProtocolError, httpx.ReadError):
            answer = visitor.http.post("/gradio_api/run/predict", content=body, headers={"Content-Type": "application/json"})
            assert answer.status_code in (200, 400, 404, 422, 500)
            check(answer.text, served, before)
    assert visitor.can_generate()


def test_the_look_up_of_a_book_is_short(picto):
    from types import SimpleNamespace

    from app.ui.tabs.image_tab import LOOKED_UP, understood_notice
    from engine.core import Understood

    seen = []
    backbone = SimpleNamespace(name="pictogram", understand=lambda text, kept: seen.append(text) or Understood(text))
    for text in ("word " * 100_000, "w" * 1_000_000, None, [], 7):
        assert understood_notice(backbone, text, [{"kept": ["a", 7]}, None, {"kept": 3}]) == []
    assert [len(text.split()) for text in seen] == [LOOKED_UP, 1] and max(map(len, seen)) < 2000
