"""Both race tabs in a real browser: Cancel, the table of runs, a reload, dropped files and links, the queue of visitors."""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.app.conftest import MESH_TOKENS, settle
from tests.app.race_page import RacePage, drop, drop_path

pytestmark = pytest.mark.browser
LIMITS = {"image": 1024, "mesh": MESH_TOKENS}  # tokens of a run
DRAWN = 180_000  # milliseconds until a race is drawn, at low priority
MANY = 250  # files in a folder


@pytest.fixture(params=LIMITS)
def open_tab(open_page: Callable, request: pytest.FixtureRequest) -> Callable[[], RacePage]:
    """A function that opens a tab as a new visitor."""
    return lambda: RacePage(open_page(1024, 768), request.param).open()  # without a graphics card, views draw slowly


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
    headline, size, count = tab.part("verdict", ".ft-headline").inner_text(), tab.size_readout().evaluate("e => e.value"), tab.count()
    tab.resize()
    tab.give(later)
    tab.rows.last.get_by_role("button", name="Compare with").click()
    expect(tab.part("other", ".ft-picked b")).to_have_text("Plain decoding")
    tab.rows.first.get_by_role("button", name="Restore").click()
    tab.sees(own)
    expect(tab.size_readout()).to_have_js_property("value", size)
    tab.wait_for_knob()
    if tab.kind == "mesh":  # drawing in progress would be cut off
        page.wait_for_selector("#mesh-download-race:not([disabled]), #mesh-messages p:has-text('no pictures')", timeout=DRAWN)
    settle(page)
    page.reload()  # the tab that was open
    expect(tab.rows).to_have_count(2)
    tab.sees(own)
    expect(tab.part("seed", "input")).to_have_value("3")
    expect(tab.size_readout()).to_have_js_property("value", size)
    expect(tab.part("verdict", ".ft-headline")).to_have_text(headline)
    expect(tab.part("replay", ".ft-replay")).to_be_visible()
    assert tab.count() == count


def test_a_dropped_file_a_folder_and_a_link_bring_the_settings_back(open_tab, open_page, served, tmp_path):
    tab = open_tab()
    tab.give(tab.things[0])
    tab.seed(5)
    tab.move()
    tab.small()
    folder, size = served.runs()[-1], tab.size_readout().evaluate("e => e.value")
    saved = json.loads((folder / "run.json").read_text())
    page = open_page()  # on the Image tab
    other = RacePage(page, tab.kind)

    def comes(seed: int = 5) -> None:
        other.sees(tab.things[0])
        expect(other.part("seed", "input")).to_have_value(str(seed))

    def expect_refusal() -> None:
        other.part("messages", "p[data-kind=error]:has-text('does not contain the settings of a run')").wait_for()

    (result,) = folder.glob("result.*")
    drop(page, result.name, result.read_bytes())
    comes()
    expect(other.size_readout()).to_have_js_property("value", size)
    other.wait_for_knob()
    drop(page, "run.json", json.dumps(saved | {"seed": 6}).encode())
    comes(6)
    drop(page, "run.json", json.dumps(saved | {"seed": 7}).encode())  # a drop during the previous one's response is not lost
    drop(page, "x.png", b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    expect_refusal()
    crowded = Path(shutil.copytree(folder, tmp_path / "crowded"))
    (crowded / "run.json").write_text(json.dumps(saved | {"seed": 8}))
    for number in range(MANY):
        (crowded / f"a{number:03d}.txt").touch()  # a browser lists a folder in parts
    drop_path(page, crowded)
    comes(8)
    expect(page.locator("body")).not_to_have_class(re.compile("ft-dropping"))
    (tmp_path / "empty").mkdir()
    drop_path(page, tmp_path / "empty")
    expect_refusal()
    linked = {name: value for name, value in saved.items() if name != "machine"} | {"seed": 9}
    coded = base64.urlsafe_b64encode(json.dumps(linked).encode()).decode()
    tab.page.close()  # both visitors share one database, which the other can only then replace by an empty one
    page.goto(f"{served.address}?run={coded.rstrip('=')}")
    comes(9)
    other.wait_for_knob()
    assert "run=" not in page.url
    other.finish()  # a link opens with its result
    assert other.state() == "done"
    check_links(other, served.address)


def check_links(tab, address: str) -> None:
    """A link carries the tokens of a run and the one under the lens; the run made again is compared with them."""
    page = tab.page
    tab.rows.first.wait_for()
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.evaluate("window.dispatchEvent(new CustomEvent('foretoken:point', { detail: 5 }))")
    tab.rows.first.get_by_role("button", name="Copy a link to this run").click()
    query = parse_qs(urlsplit(page.evaluate("window.copied")).query)
    tokens = np.frombuffer(base64.urlsafe_b64decode(query["tokens"][0] + "=="), np.uint16).copy()
    assert query["at"] == ["5"] and len(tokens) > 16
    for change, words in ((0, "This is the run of the link, token for token."), (1, "another run than the link's, from token 3 on.")):
        tokens[2] += change
        query["tokens"] = [base64.urlsafe_b64encode(tokens.tobytes()).decode().rstrip("=")]
        page.close()
        page = page.context.new_page()
        page.add_init_script("sessionStorage.setItem('foretoken-tab', 'Models')")  # remembered, but a link overrides it
        page.goto(f"{address}?{urlencode(query, doseq=True)}")
        linked = RacePage(page, tab.kind)
        linked.part("runs", f'.ft-runs-status:has-text("{words}")').wait_for(timeout=DRAWN)
        linked.part("lens", ".ft-lens[data-at='5']").wait_for()
    page.close()


def test_visitors_share_the_engine(open_tab):
    """The second sees their place, cancels the wait, and gets the engine once when the first cancels, once when the first leaves."""
    first = open_tab()
    first.begin()
    second = open_tab()
    waits = second.part("line", "p:has-text('You are number 1 in line')")
    if second.kind == "mesh":  # a tab that is opened during a run
        second.part("line", "p:has-text('Yours would be number 1 in line')").wait_for()
    second.give(second.things[1])  # another visitor's run has a different input
    second.part("generate").click()
    waits.wait_for()
    second.cancel()
    second.part("generate").wait_for()
    second.part("compare", "input").uncheck()
    second.resize()
    second.part("generate").click()
    waits.wait_for()
    first.page.bring_to_front()  # Chromium draws a background page about once per second
    first.cancel()
    first.finish()
    expect(second.part("line", "p")).to_have_count(0)
    second.finish()
    assert second.state() == "done" and (second.kind == "mesh" or second.count() == 256)  # the last request
    first.begin()
    second.part("generate").click()
    waits.wait_for()
    first.page.close()
    second.part("cancel").wait_for()
    second.finish()
    assert second.state() == "done"
