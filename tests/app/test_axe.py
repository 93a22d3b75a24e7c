"""Serious findings of axe-core, in any state of any tab, light and dark: nothing but what is listed here, which is Gradio's own markup.

A look at a whole page takes seconds. So a state that changes only a part of the page is looked at in that part, and a phone's tabs are only
asked what a narrow page can change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.app.conftest import lacking
from tests.app.race_page import PROMPT, cancel, choose, drag, finish, start
from tests.app.test_lanes import open_lanes

pytestmark = pytest.mark.browser
WRONG = ("serious", "critical")
# The sizes of targets are not among axe's usual rules; colours are looked at again in the other theme.
ALL = {"resultTypes": ["violations"], "rules": {"target-size": {"enabled": True}}}
COLOURS = {"resultTypes": ["violations"], "runOnly": {"type": "rule", "values": ["color-contrast"]}}
NARROW = {
    "resultTypes": ["violations"],
    "runOnly": {"type": "rule", "values": ["target-size", "scrollable-region-focusable", "color-contrast"]},
}
# (rule, selector): why we cannot mend it
OF_GRADIO: dict[tuple[str, str], str] = {}
FIND = """async ([parts, options]) => (await axe.run(parts.length ? { include: parts.map((part) => [part]) } : document, options))
.violations.flatMap(({ id, impact, nodes }) => nodes.map((node) => ({
  rule: id, impact, target: node.target.flat().join(" "), html: node.html.slice(0, 160),
  why: [...node.any, ...node.all, ...node.none].map((check) => check.message).join("; ")
})))"""
STILL = "*, *::before, *::after { transition: none !important; animation: none !important; }"  # no colour transitions


@pytest.fixture(scope="session")
def script() -> str:
    """axe-core."""
    try:
        from axe_playwright_python.base import AXE_SCRIPT
    except ImportError as e:
        lacking(f"axe-core is not installed ({e}).")
    return AXE_SCRIPT


class Audit:
    """Checks a page in its states and records the findings."""

    def __init__(self, page: Any):
        self.page = page
        self.wrong: list[str] = []

    def look(self, state: str, *parts: str, rules: dict[str, Any] = ALL) -> None:
        """Checks everything in the dark theme, colours in the light one. parts : selectors of the changed parts; none: the whole page"""
        for dark, options in ((True, rules), (False, COLOURS)):
            self.page.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
            for fault in self.page.evaluate(FIND, [parts, options]):
                if fault["impact"] in WRONG and not self.is_excused(fault):
                    self.wrong.append(
                        f"{state}, {'dark' if dark else 'light'}: {fault['rule']} {fault['target']} {fault['html']} ({fault['why']})"
                    )

    def end(self) -> None:
        """Fails with all findings, one per line."""
        if self.wrong:
            pytest.fail("\n".join(self.wrong), pytrace=False)

    def is_excused(self, fault: dict[str, str]) -> bool:
        """True if a finding is listed above."""
        return any(
            fault["rule"] == rule
            and self.page.evaluate("([target, of]) => document.querySelector(target)?.matches(of)", [fault["target"], of])
            for rule, of in OF_GRADIO
        )


@pytest.fixture
def audit(open_page: Callable, script: str) -> Iterator[Callable]:
    """A function that opens the page to check; at the end the test fails with all findings."""
    audits: list[Audit] = []

    def begin(width: int = 1366, height: int = 1000) -> Audit:
        page = open_page(width, height)
        page.emulate_media(reduced_motion="reduce")
        page.add_style_tag(content=STILL)
        page.evaluate(script)
        audits.append(Audit(page))
        return audits[-1]

    yield begin
    for each in audits:
        each.end()


@contextmanager
def growing(page: Any, run: str, button: str) -> Iterator[None]:
    """Keeps a run in progress; cancels it at the end."""
    yield
    assert page.locator(run).get_attribute("data-state") == "running"
    cancel(page, button)


def open_tab(page: Any, name: str) -> None:
    """Opens a tab."""
    page.get_by_role("tab", name=name, exact=True).click()


def test_the_image_tab(audit: Callable) -> None:
    seen = audit()
    page = seen.page
    seen.look("settings")
    page.click("#method .ft-picked")
    seen.look("cards of methods", "#method")
    page.keyboard.press("Escape")
    page.click("[data-do=words]")
    seen.look("words", "#bar", "#words")
    page.click("#words [data-do=close]")
    prompt = page.locator(PROMPT)
    prompt.fill("a girafe and a pengiun on snow")
    page.wait_for_selector("#hints .ft-instead")
    seen.look("unknown words", ".ft-messages")
    prompt.fill(" ")
    page.click("#generate")
    page.wait_for_selector("#messages p[data-kind=error]")
    seen.look("an error", ".ft-messages")
    prompt.fill("two cats on snow")
    choose(page, "settings", "repeat", "5 times")
    start(page)
    with growing(page, "#verdict .ft-verdict", "#cancel"):
        seen.look("growing", ".ft-ask", ".ft-main")
    page.wait_for_selector("#generate")
    choose(page, "settings", "repeat", "once")
    start(page, "64 px")
    finish(page)
    page.click("#overlay [data-do=keep]")
    page.locator("#trace canvas").first.focus()
    page.keyboard.press("Home")
    page.wait_for_selector(".ft-runs tbody tr")
    seen.look("finished, with the map and the table of runs")
    page.click("#overlay [data-do=wipe]")
    drag(page.locator("#replay input"), 500)
    seen.look("replay and wipe", ".ft-sides", "#replay", "#overlay")
    open_lanes(page)
    seen.look("a race of chosen runs", "#lanes", "#runs")


def test_what_is_wrong_is_found(audit: Callable) -> None:
    seen = audit()
    seen.page.evaluate("document.querySelector('.ft-header').insertAdjacentHTML('beforeend', '<button id=nameless></button>')")
    seen.page.evaluate("document.querySelector('#verdict .ft-detail').style.color = 'silver'")
    seen.look("broken on purpose", ".ft-header", "#verdict")
    rules = [line.split(": ")[1].split()[0] for line in seen.wrong]
    assert rules.count("button-name") == 1 and rules.count("color-contrast") >= 1 and "nameless" in seen.wrong[0]
    seen.wrong.clear()


def test_the_first_page(browser: Any, served: Any, script: str) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(served.address)
    page.wait_for_selector("#canvas-fast .ft-card[data-state=done]")
    page.add_style_tag(content=STILL)
    page.evaluate(script)
    seen = Audit(page)
    seen.look("the first page")
    context.close()
    seen.end()


def test_the_mesh_tab(audit: Callable) -> None:
    seen = audit(1024, 768)  # without a graphics card, large views draw slowly
    page = seen.page
    open_tab(page, "Mesh")
    page.wait_for_selector("#mesh-ready i", state="attached")
    page.wait_for_selector("#mesh-notes p")
    seen.look("an example")
    choose(page, "mesh-settings", "repeat", "5 times")  # lasts on any machine
    page.click("#mesh-generate")
    page.wait_for_function("Number(document.querySelector('#mesh .ft-mesh').dataset.acceleratedFaces) > 0")
    with growing(page, "#mesh-verdict .ft-verdict", "#mesh-cancel"):
        seen.look("growing", "#mesh", "#mesh-verdict", "#mesh-cancel", "#mesh-bar")
    page.wait_for_selector("#mesh-generate")
    page.wait_for_selector("#mesh-runs tbody tr")
    seen.look("finished", ".ft-stage")
    page.locator("#mesh [data-mode=both]").click()
    page.locator("#mesh select").select_option("accepted")
    page.locator("#mesh [data-wipe]").click()
    seen.look("wireframe, map and wipe", "#mesh")


def test_the_lab(audit: Callable) -> None:
    seen = audit()
    page = seen.page
    open_tab(page, "Lab")
    page.wait_for_selector("#lab-stage .ft-lab[data-state=empty]")
    seen.look("empty")
    choose(page, "lab-settings", "size", "64 px")
    page.click("#lab-generate")
    page.wait_for_selector("#lab-stage .ft-lab[data-state=running]:not([data-settings='0'])")
    page.locator("#lab-stage [data-do=keep]:not([disabled])").first.click()
    with growing(page, "#lab-stage .ft-lab", "#lab-cancel"):
        seen.look("looping", "#lab-stage", "#lab-cancel")
    page.wait_for_selector("#lab-stage .ft-lab[data-state=stopped]")
    seen.look("stopped", "#lab-stage")


def test_the_bench_and_the_models(audit: Callable) -> None:
    seen = audit()
    page = seen.page
    open_tab(page, "Bench")
    page.wait_for_selector("#plane .ft-plane[data-state=done]")
    page.locator("#plane .ft-plot").focus()
    page.keyboard.press("End")
    seen.look("bench, a point")
    choose(page, "bench-settings", "size", "256 px")
    page.click("#bench-generate")
    page.wait_for_selector("#bench-going .ft-going[data-state=running] >> text=Run")
    with growing(page, "#bench-going .ft-going", "#bench-cancel"):
        seen.look("bench, measuring", "#bench-going", "#bench-cancel")
    page.wait_for_selector("#bench-going .ft-going[data-state=stopped]")
    open_tab(page, "Models")
    page.wait_for_selector('.ft-model[data-model="pictogram"]')
    for fold in page.locator(".ft-fold summary").all():
        fold.click()
    page.fill("#import-path textarea, #import-path input", "/nowhere")
    page.click("#import-look")
    page.wait_for_selector(".ft-import-status[data-kind=error]")
    seen.look("models")


def test_a_phone(audit: Callable) -> None:
    seen = audit(390, 844)
    page = seen.page
    seen.look("phone")
    page.click(".ft-summary[data-do=settings]")
    seen.look("phone, the sheet", ".ft-settings")
    page.click("#method .ft-picked")
    seen.look("phone, the cards", "#method")
    page.keyboard.press("Escape")
    page.click(".ft-sheet")
    page.click("#bar button[data-size='64 px']")
    page.click("#generate")
    finish(page)
    page.wait_for_selector(".ft-runs tbody tr")
    seen.look("phone, finished", rules=NARROW)
    for tab, there in (("Mesh", "#mesh-notes p"), ("Lab", "#lab-stage .ft-lab"), ("Bench", "#plane tbody tr"), ("Models", ".ft-model")):
        open_tab(page, tab)
        page.wait_for_selector(there)
        seen.look(f"phone, {tab}", rules=NARROW)
