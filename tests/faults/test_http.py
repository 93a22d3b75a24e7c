"""Wrong values to every handler of the page over HTTP: the server keeps working, and the same visitor can still generate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.ui.tabs import mesh_tab
from engine.errors import NotSupported
from tests.faults import folders
from tests.faults.outcome import Outcome
from tests.faults.over_http import OverHttp, serving
from tests.faults.sentences import LONGEST, hold
from tests.faults.visitor import Answer, Page, Visitor
from tests.faults.visits import Studio, can_generate, ends, home, opened

pytestmark = pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")  # of Gradio's threads
ROOT = Path(__file__).resolve().parents[2]
EACH = 5  # wrong values of each input of each handler
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 2**31, 2**63, 10**400, 1e308, float("nan"), float("inf"), "", "text", "-1", "\ud800", "a\x00b", "x" * 100_000,
    "\U0001f600" * 40, [], [None], ["a", 1], {}, {"values": {}}, {"values": None, "name": 3}, {"name": "sjdpp"}, "DEEP", "../../etc/passwd",
    {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}, {"__type__": "update"},
)  # fmt: skip
OURS = re.compile(r'File ".*/(app|engine)/[^"]*\.py", line \d+')


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    """A studio with tiny models that is served on this machine. It draws no pictures of meshes: each would start a process."""
    folder = tmp_path_factory.mktemp("http")

    def refuse(*_: object) -> None:
        raise NotSupported("Nothing is drawn here.")

    with pytest.MonkeyPatch.context() as patch, home(folder / "home") as runs:
        patch.setattr(mesh_tab, "draw_race", refuse)
        with serving(folders.pictogram(folder / "pictures"), folders.lowpoly(folder / "meshes")) as address:
            way = OverHttp.at(address)
            yield Studio(way, way.page(), runs)


def tab_of(page: Page, handler: dict[str, Any]) -> str:
    """The tab of a handler, as its components' ids begin."""
    first = page.handlers[page.chain(handler)[0]]
    near = [*first["inputs"], *first["outputs"], *(target[0] for target in first["targets"])]
    return "mesh-" if any(i in page.components and page.name(i).startswith("mesh-") for i in near) else ""


def complaint(told: list[Answer], log: str) -> str:
    """What is wrong with answers to wrong values and with what the server printed meanwhile; "" if nothing."""
    frames = OURS.findall(log)
    if "Traceback" in log and frames and OURS.search(log[log.rfind("Traceback") :]):
        return f"a bug: {log[-3000:]}"
    for answer in told:
        if str(ROOT) in answer.error or "Traceback" in answer.error or "/home/" in answer.error:
            return f"the page is told of the server's insides: {answer.error[:LONGEST]}"
        if answer.status not in (200, 400, 404, 422, 500):
            return f"status {answer.status}: {answer.error[:LONGEST]}"
    return ""


def outcome(name: str, told: list[Answer], log: str) -> Outcome:
    """The outcome of a wrong value by what was answered and printed."""
    wrong = complaint(told, log)
    end = "bug" if wrong else "value" if all(a.ok for a in told) else "sentence"
    return Outcome(name, end, wrong or (f"refused: {len(told)} answers." if end == "sentence" else ""))


def still(studio: Studio, name: str, visitor: Visitor, tab: str) -> Outcome:
    """Whether a visitor can generate after all the wrong values of a handler."""
    wrong = can_generate(studio, visitor, tab)
    return Outcome(f"Generate after {name}", "bug" if wrong else "value", wrong)


def test_a_visitor_can_generate_on_both_tabs(studio: Studio) -> None:
    for tab in ("", "mesh-"):
        visitor = opened(studio, tab)
        for _ in range(2):
            assert not can_generate(studio, visitor, tab)


def wrong_values(handler: dict[str, Any]) -> Iterator[tuple[int, int]]:
    """(which input, which value): some for every input of a handler, the same on every machine."""
    for k in range(len(handler["inputs"])):
        random = Random(f"{handler['api_name']} {k}")
        yield from ((k, value) for value in sorted(random.sample(range(len(VALUES)), EACH)))


def test_wrong_values_to_every_handler(studio: Studio, capfd: pytest.CaptureFixture) -> None:
    """Each in its place: a handler that follows others is reached through them, as by the page."""
    outcomes, visitors, page = [], {tab: opened(studio, tab) for tab in ("", "mesh-")}, studio.page
    for number, handler in page.handlers.items():
        if not ends(page, handler) or not handler["inputs"]:
            continue
        tab, first, title = tab_of(page, handler), page.handlers[page.chain(handler)[0]], page.title(handler)
        for k, value in wrong_values(handler):
            visitor = visitors[tab]
            kept = dict(visitor.values)
            capfd.readouterr()
            told = visitor.fire(first, {(number, k): VALUES[value]})
            outcomes.append(outcome(f"{title}: {page.name(handler['inputs'][k])} = {VALUES[value]!r:.40}", told, capfd.readouterr().err))
            visitor.values = kept
        outcomes.append(still(studio, title, visitors[tab], tab))
        if outcomes[-1].end == "bug":
            visitors[tab] = opened(studio, tab)  # one who is locked out would fail at everything else as well
    assert len(outcomes) > 60
    hold(outcomes)


def test_wrong_numbers_of_values_and_wrong_requests(studio: Studio, capfd: pytest.CaptureFixture) -> None:
    """Requests that no page sends."""
    outcomes, visitor = [], opened(studio, "")
    session = visitor.session
    for handler in (each for each in studio.page.handlers.values() if ends(studio.page, each)):
        good = visitor.data(handler)
        for data in ([], [*good, None, None]):
            capfd.readouterr()
            told = [studio.way.call(session, handler, data)]
            name = f"{studio.page.title(handler)}: {len(data)} values instead of {len(good)}"
            outcomes.append(outcome(name, told, capfd.readouterr().err))
    outcomes.append(still(studio, "wrong numbers of values", visitor, ""))
    body = {"data": [], "fn_index": 0, "session_hash": session, "event_data": None, "trigger_id": None}
    changes: list[dict[str, Any]] = [
        {"fn_index": -1}, {"fn_index": 10**6}, {"fn_index": "x"}, {"data": None}, {"data": "x"}, {"session_hash": None},
        {"session_hash": "../../x"}, {"session_hash": "x" * 10_000}, {"event_data": "x"}, {"event_data": {"a": []}}, {"trigger_id": -5},
        {"trigger_id": "x"},
    ]  # fmt: skip
    for broken in [*(body | change for change in changes), [], None, "DEEP"]:
        capfd.readouterr()
        told = [studio.way.post(broken)]
        outcomes.append(outcome(f"a request {broken!r:.90}", told, capfd.readouterr().err))
    outcomes.append(still(studio, "wrong requests", visitor, ""))
    hold(outcomes)
