"""The page without a mouse, with reduced motion and for colour-blind users: focus, order, motion, marks besides colours."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.race_page import choose, finish
from tests.app.test_lanes import open_lanes

pytestmark = pytest.mark.browser
# Focuses every control in turn; reports those without a visible focus, too small, or out of order.
ROUND = """() => {
  const words = (e) => (e.getAttribute("aria-label") || e.textContent).trim().slice(0, 30);
  const named = (e) => `${e.tagName.toLowerCase()}#${e.id || e.closest("[id]")?.id}.${e.className} ${words(e)}`;
  const shown = (e) => e.checkVisibility({ visibilityProperty: true }) && e.getBoundingClientRect().width > 0;
  const seen = (e) => shown(e) && !e.disabled && e.tabIndex >= 0;
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")].filter(seen);
  const rings = (e) => [e, e.parentElement, e.parentElement?.parentElement].some((each) => {
    const { outlineStyle, outlineWidth, outlineColor } = getComputedStyle(each);
    return outlineStyle === "solid" && parseFloat(outlineWidth) >= 2 && !outlineColor.endsWith(", 0)");
  });
  const found = { count: all.length, hidden: [], small: [], skipped: [], ahead: [] };
  for (const each of all) {
    if (each.tabIndex > 0) found.ahead.push(named(each));
    each.focus({ preventScroll: true });
    if (document.activeElement !== each) { found.skipped.push(named(each)); continue; }
    if (!each.matches(":focus-visible") || !rings(each)) found.hidden.push(named(each));
    const target = each.matches("[type=checkbox], [type=radio]") ? each.closest("label") : each, box = target.getBoundingClientRect();
    if (Math.min(box.width, box.height) < 23.5) found.small.push(`${named(each)} ${box.width.toFixed(0)} x ${box.height.toFixed(0)}`);
  }
  return found;
}"""


# The colours of a corner and of the middle of every token of a picture of 64 pixels.
CELLS = """(canvas) => {
  const pen = canvas.getContext("2d"), cell = canvas.width / 8, at = (x, y) => [...pen.getImageData(x, y, 1, 1).data.slice(0, 3)];
  return Array.from({ length: 64 }, (_, i) => [i % 8, Math.floor(i / 8)]).map(([column, row]) =>
    [at(column * cell + 2, row * cell + 2), at((column + 0.5) * cell, (row + 0.5) * cell)]);
}"""


def round_of(page: Any) -> dict[str, Any]:
    """All elements that the keyboard can focus."""
    page.keyboard.press("Tab")  # from now on the browser shows the focus
    return page.evaluate(ROUND)


def test_focus_is_seen_and_targets_are_large_in_every_tab(open_page) -> None:
    page = open_page()
    choose(page, "settings", "size", "64 px")
    page.click("#generate")
    finish(page)
    page.wait_for_selector(".ft-runs tbody tr")
    tabs = {
        "Image": ".ft-runs tbody tr",
        "Mesh": "#mesh-ready i",
        "Lab": "#lab-stage .ft-lab",
        "Bench": "#plane tbody tr",
        "Models": ".ft-model",
    }
    focus = {}
    for tab, there in tabs.items():
        page.get_by_role("tab", name=tab, exact=True).click()
        page.wait_for_selector(there, state="attached")
        focus[tab] = round_of(page)
    page.get_by_role("tab", name="Image", exact=True).click()
    open_lanes(page)
    focus["a race of chosen runs"] = round_of(page)
    assert all(each.pop("count") >= 12 for each in focus.values()), focus
    assert [f"{tab}, {kind}: {each}" for tab, wrong in focus.items() for kind, some in wrong.items() for each in some] == []


def test_the_keyboard_goes_through_the_page_from_the_top(open_page) -> None:
    """Order: tabs, prompt, Generate, the line of controls, examples."""
    page = open_page()
    page.locator("#tabs [role=tab]").last.focus()
    order = []
    for _ in range(16):
        page.keyboard.press("Tab")
        order.append(page.evaluate("(e => e.id || e.dataset.do || e.dataset.size || e.closest('[id]').id)(document.activeElement)"))
    wanted = ["prompt", "generate", "64 px", "128 px", "256 px", "words", "settings", "seed", "dice", "keep"]
    assert [each for each in order if each in wanted] == wanted


def test_escape_closes_a_drawer_and_the_focus_comes_back(open_page) -> None:
    page = open_page(390, 844)
    for name, inside in (("words", "#words input"), ("settings", ".ft-sheet")):
        button = f".ft-summary[data-do={name}]"
        page.focus(button)
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{inside}:focus")
        page.keyboard.press("Escape")
        page.wait_for_selector(f"{button}[aria-expanded=false]:focus")


def test_a_rejected_token_differs_from_an_accepted_one_without_colours(raced) -> None:
    page = raced
    page.select_option("#overlay select", "accepted")
    page.click("#overlay [data-do=keep]")
    assert "rejected" in page.inner_text("#overlay .ft-legend") and page.locator("#overlay .ft-crossed").count() == 1
    cells = page.locator("#canvas-fast .ft-overlay").evaluate(CELLS)
    marked = {(tuple(corner), middle != corner) for corner, middle in cells}
    assert ((213, 94, 0), True) in marked and ((0, 158, 115), False) in marked
    assert ((213, 94, 0), False) not in marked and ((0, 158, 115), True) not in marked
    page.click("#overlay [data-do=keep]")


def test_who_declines_motion_gets_none(browser, served) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(served.address)
    page.wait_for_selector("#canvas-fast .ft-card[data-state=done]")
    page.wait_for_selector("#replay .ft-replay:not([hidden])")
    moving = page.evaluate("""() => [...document.querySelectorAll(".gradio-container *")].filter((e) => {
      const { transitionDuration, animationDuration } = getComputedStyle(e);
      return [transitionDuration, animationDuration].some((all) => all.split(", ").some((each) => parseFloat(each) > 0));
    }).map((e) => e.className)""")
    assert moving == []
    page.click("#replay [data-do=play]")  # one step instead of a playing race
    page.wait_for_selector("#canvas-fast .ft-card[data-replayed]:not([data-replayed=''])")
    assert page.locator("#replay .ft-replay").get_attribute("data-playing") == "false"
    page.get_by_role("tab", name="Lab", exact=True).click()  # a page with examples has one here too
    page.wait_for_selector("#lab-stage .ft-lab[data-state=stopped][data-example=true][data-pictures='6']")
    context.close()
