"""What is true of both race tabs in a real browser: Cancel, the table of runs, a reload."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.app.conftest import MESH_TOKENS, settle
from tests.app.race_page import RacePage

pytestmark = pytest.mark.browser
LIMITS = {"image": 1024, "mesh": MESH_TOKENS}  # tokens of a run
DRAWN = 180_000  # milliseconds until a race is drawn, behind everything else on the machine


@pytest.fixture(params=LIMITS)
def open_tab(open_page: Callable, request: pytest.FixtureRequest) -> Callable[[], RacePage]:
    """A function that opens a tab as a new visitor."""
    return lambda: RacePage(open_page(1024, 768), request.param).open()  # without a graphics card every pixel of a view is dear


def test_cancel_keeps_the_part_that_is_there_and_the_other_tab_does_not_notice(open_tab, served):
    tab = open_tab()
    tab.begin(lasting=False)
    if tab.kind == "mesh":
        other = RacePage(tab.page, "image")
        other.show()
        expect(other.part("generate")).to_be_visible()
        expect(other.part("knobs", "select").first).to_be_enabled()
        tab.show()
    tab.cancel()
    tab.finish()
    assert tab.state() == "stopped" and tab.count() > 0
    assert "Stopped" in tab.part("verdict").inner_text()
    folder = served.runs()[-1]
    tokens = json.loads((folder / "run.json").read_text())["totals"]["tokens"]
    assert 0 < tokens < LIMITS[tab.kind]
    assert tokens == tab.count() if tab.kind == "image" else (folder / "result.glb").exists()


def test_a_row_brings_its_settings_back_or_to_the_left_and_a_reload_loses_nothing(open_tab):
    tab = open_tab()
    page, (own, later) = tab.page, tab.things
    tab.give(own)
    tab.seed(3)
    tab.move()
    tab.small()
    expect(tab.rows).to_have_count(2)
    headline, size, count = tab.part("verdict", ".ft-headline").inner_text(), tab.sized().evaluate("e => e.value"), tab.count()
    tab.resize()
    tab.give(later)
    tab.rows.last.get_by_role("button", name="Compare with").click()
    expect(tab.part("other", ".ft-picked b")).to_have_text("Plain decoding")
    tab.rows.first.get_by_role("button", name="Restore").click()
    tab.sees(own)
    expect(tab.sized()).to_have_js_property("value", size)
    tab.moved()
    if tab.kind == "mesh":  # what is still drawn would be cut off
        page.wait_for_selector("#mesh-download-race:not([disabled]), #mesh-messages p:has-text('no pictures')", timeout=DRAWN)
    settle(page)
    page.reload()  # the tab that was open
    expect(tab.rows).to_have_count(2)
    tab.sees(own)
    expect(tab.part("seed", "input")).to_have_value("3")
    expect(tab.sized()).to_have_js_property("value", size)
    expect(tab.part("verdict", ".ft-headline")).to_have_text(headline)
    expect(tab.part("replay", ".ft-replay")).to_be_visible()
    assert tab.count() == count
