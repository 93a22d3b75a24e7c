"""Folds, maps, views and the column of settings stay as a visitor left them, in their browser alone."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.app.conftest import Served, Watched
from tests.app.race_page import drag

COLUMN = """window.column = [];
  window.addEventListener("DOMContentLoaded", () => new MutationObserver((all) => all.forEach(({ target }) =>
    window.column.push(target.dataset.settings))).observe(document.body, { subtree: true, attributeFilter: ["data-settings"] }))"""

# states of folds, in the order in which they were first moved
KEPT = "(states) => Object.values(JSON.parse(localStorage['foretoken-header'] || '{}')).join() === states"


def wait_for_folds(page: Any, states: str) -> None:
    """Opens the tab with the models and waits until the first folds of the first one are in these states."""
    page.get_by_role("tab", name="Models", exact=True).click()
    folds = "[...document.querySelectorAll('#models [data-model]:first-of-type details')].slice(0, 3)"
    page.wait_for_function(f"(states) => String({folds}.map((fold) => fold.open)) === states", arg=states)


@pytest.mark.browser
def test_panels_stay_as_a_visitor_left_them(browser, served: Served) -> None:
    own, other = browser.new_context(color_scheme="dark"), browser.new_context(color_scheme="dark")
    visit = Watched(own, served.address, 1366, 1000, COLUMN)
    page = visit.page
    page.click("#bar .ft-summary[data-do=settings]")
    page.locator("#overlay select").select_option("entropy")
    drag(page.locator("#overlay input"), 60)
    page.click("#overlay [data-do=wipe]")
    wait_for_folds(page, "false,false,false")
    page.locator("#models details summary").nth(1).click()
    page.wait_for_function(KEPT, arg="true")
    page.reload()  # a fold of a page that is loaded anew is a new one
    wait_for_folds(page, "false,true,false")
    page.locator("#models details summary").nth(1).click()
    page.locator("#models details summary").nth(0).click()
    page.wait_for_function(KEPT, arg="false,true")
    page.get_by_role("tab", name="Mesh", exact=True).click()
    page.wait_for_selector("#mesh-notes p")
    page.click("#mesh [data-mode=both]")
    page.locator("#mesh select").select_option("step")
    page.close()

    visits = [visit, Watched(own, served.address, 1366, 1000, COLUMN), Watched(other, served.address, 1366, 1000, COLUMN)]
    for page, kept in ((visits[1].page, True), (visits[2].page, False)):
        expect(page.locator("#overlay [data-do=keep]")).to_have_attribute("aria-pressed", str(kept).lower())
        expect(page.locator("#overlay [data-do=wipe]")).to_have_attribute("aria-pressed", str(kept).lower())
        assert page.locator("#overlay select").input_value() == ("entropy" if kept else "accepted")
        assert page.locator("#overlay input").input_value() == ("60" if kept else "35")
        expect(page.locator(".ft-settings").first).to_be_visible(visible=kept)
        assert set(page.evaluate("column")) == ({"open"} if kept else {"closed"})  # the page does not move
        wait_for_folds(page, f"{str(kept).lower()},false,false")
        page.get_by_role("tab", name="Mesh", exact=True).click()
        expect(page.locator("#mesh .ft-mesh")).to_have_attribute("data-mode", "both" if kept else "shaded")
        expect(page.locator("#mesh .ft-mesh")).to_have_attribute("data-map", "step" if kept else "plain")
    assert [line for each in visits for line in each.wrong] == []
    own.close()
    other.close()
