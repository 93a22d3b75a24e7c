"""Those who wait for long on a shared page see a recorded race, once, and never in place of something of their own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from app import recorded, studio
from app.boards.picture import Board
from app.limits import STRANGERS, Limits
from app.session import Sessions
from app.ui import image_tab
from app.ui.place import Place
from engine.core import Prompt

WAITING = SimpleNamespace(session_hash="b")


def made(picto, sessions: Sessions, limits: Limits) -> tuple[image_tab.ImageTab, gr.Blocks]:
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Image") as where:
        tab = image_tab.ImageTab(Place(page, where, picto, studio.mesh_model(), sessions, limits=limits))
        tab.wire()
    return tab, page


@pytest.fixture
def tab(picto, tmp_path) -> image_tab.ImageTab:
    """A tab whose engine somebody has, and which is known to take 20 seconds a run."""
    sessions = Sessions(folder=tmp_path)
    sessions._lasted.append(20.0)
    assert sessions.begin("a", sessions.enter("a"))
    return made(picto, sessions, STRANGERS)[0]


def shown(tab: image_tab.ImageTab) -> dict | None:
    """What a tick of the clock shows; None: nothing new."""
    update = tab.entertain(WAITING)
    return None if update == gr.skip() else {name: part["value"] for name, part in update.items()}


def test_who_waits_for_long_sees_it_once(tab):
    assert shown(tab) is None, "a visitor who does not wait"
    tab.sessions.enter("b")
    assert shown(tab) == recorded.race()
    assert shown(tab) is None


def test_a_short_wait_shows_nothing(tab):
    tab.sessions._lasted.extend([1.0] * 9)
    tab.sessions.enter("b")
    assert shown(tab) is None


def test_a_result_of_their_own_is_not_replaced(tab):
    tab.sessions.end("a", 1)
    ticket = tab.enter(True, WAITING)[0]
    settings = {"values": {"size": "64 px"}}
    assert list(tab.run(ticket, "a cat", 7, "ar", {"values": {}}, settings, False, "ar", {"values": {}}, WAITING))
    assert tab.sessions.begin("a", tab.sessions.enter("a"))
    tab.sessions._lasted.extend([20.0] * 9)
    tab.sessions.enter("b")
    assert tab.sessions.wait("b") > recorded.LONG and shown(tab) is None


def test_only_a_shared_page_shows_it(picto, tmp_path):
    for limits, count in ((Limits(), 0), (STRANGERS, 1)):
        _, page = made(picto, Sessions(folder=tmp_path), limits)
        assert len([f for f in page.fns.values() if f.name == "entertain"]) == count


def test_what_is_recorded_is_what_the_panels_take_today(picto, tab):
    (run,) = tab.runner.start(picto, Prompt("a cat", size=64), [("sjdpp", {})])
    board = Board(run)
    for step in run:
        board.add(step)
    today, kept = tab.draw([board], {0}), recorded.race()
    for name in ("right", "trace", "tree"):
        assert set(kept[name]) == set(today[name]), name
    assert kept["right"]["state"] == kept["left"]["state"] == "done" and kept["right"]["course"] and kept["left"]["course"]
    assert kept["verdict"]["headline"] == recorded.HEADLINE and "recorded on one thread of" in kept["verdict"]["detail"]


def test_without_a_recording_nothing_is_shown(tmp_path):
    assert recorded.race(tmp_path / "none.gz") == {}
    recorded.write({"verdict": {"headline": "2× faster"}}, "a cat", "a slow one", Path(tmp_path / "one.gz"))
    assert "2× faster: 'a cat', recorded on a slow one" in recorded.race(tmp_path / "one.gz")["verdict"]["detail"]
