"""Wrong values to every handler of the page over HTTP: the server keeps working, and the same visitor can still generate."""

from __future__ import annotations

import re
import time
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
from tests.faults.tally import Tally
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


def tried(studio: Studio, name: str, tab: str, told: list[Answer], visitor: Visitor, log: str, start: float) -> Outcome:
    """The outcome of a wrong value: what was answered, and whether the visitor can still generate."""
    wrong = complaint(told, log) or can_generate(studio, visitor, tab)
    end = "bug" if wrong else "value" if all(a.ok for a in told) else "sentence"
    text = wrong or (f"refused: {len(told)} answers." if end == "sentence" else "")
    return Outcome("wrong values over HTTP", name, end, text, time.process_time() - start)


def test_a_visitor_can_generate_on_both_tabs(studio: Studio) -> None:
    for tab in ("", "mesh-"):
        visitor = opened(studio, tab)
        for _ in range(2):
            assert not can_generate(studio, visitor, tab)


def wrong_values(page: Page) -> Iterator[tuple[int, int, int]]:
    """(handler, which input, which value): some for every input of every handler, the same on every machine."""
    for number, handler in page.handlers.items():
        if not ends(page, handler):
            continue
        for k in range(len(handler["inputs"])):
            random = Random(f"{handler['api_name']} {k}")
            yield from ((number, k, value) for value in sorted(random.sample(range(len(VALUES)), EACH)))


def test_wrong_values_to_every_handler(studio: Studio, capfd: pytest.CaptureFixture, tally: Tally) -> None:
    """Each in its place: a handler that follows others is reached through them, as by the page."""
    outcomes, visitors = [], {tab: opened(studio, tab) for tab in ("", "mesh-")}
    for number, k, value in wrong_values(studio.page):
        handler = studio.page.handlers[number]
        tab, first = tab_of(studio.page, handler), studio.page.handlers[studio.page.chain(handler)[0]]
        visitor, start = visitors[tab], time.process_time()
        kept = dict(visitor.values)
        capfd.readouterr()
        told = visitor.fire(first, {(number, k): VALUES[value]})
        name = f"{studio.page.title(handler)}: {studio.page.name(handler['inputs'][k])} = {VALUES[value]!r:.40}"
        visitor.values = kept
        outcomes.append(tried(studio, name, tab, told, visitor, capfd.readouterr().err, start))
        if outcomes[-1].end == "bug":
            visitors[tab] = opened(studio, tab)  # one who is locked out would fail at everything else as well
    tally.add(outcomes)
    assert len(outcomes) > 60
    hold(outcomes)


def test_wrong_numbers_of_values_and_wrong_requests(studio: Studio, capfd: pytest.CaptureFixture, tally: Tally) -> None:
    """Requests that no page sends."""
    outcomes, visitor = [], opened(studio, "")
    session = visitor.session
    for handler in (each for each in studio.page.handlers.values() if ends(studio.page, each)):
        good = visitor.data(handler)
        for data in ([], [*good, None, None]):
            start = time.process_time()
            capfd.readouterr()
            told = [studio.way.call(session, handler, data)]
            name = f"{studio.page.title(handler)}: {len(data)} values instead of {len(good)}"
            outcomes.append(tried(studio, name, "", told, visitor, capfd.readouterr().err, start))
    body = {"data": [], "fn_index": 0, "session_hash": session, "event_data": None, "trigger_id": None}
    changes: list[dict[str, Any]] = [
        {"fn_index": -1}, {"fn_index": 10**6}, {"fn_index": "x"}, {"data": None}, {"data": "x"}, {"session_hash": None},
        {"session_hash": "../../x"}, {"session_hash": "x" * 10_000}, {"event_data": "x"}, {"event_data": {"a": []}}, {"trigger_id": -5},
        {"trigger_id": "x"},
    ]  # fmt: skip
    bodies = [body | change for change in changes]
    for broken in [*bodies, [], None, "DEEP"]:
        start = time.process_time()
        capfd.readouterr()
        told = [studio.way.post(broken)]
        outcomes.append(tried(studio, f"a request {broken!r:.90}", "", told, visitor, capfd.readouterr().err, start))
    tally.add(outcomes)
    hold(outcomes)
