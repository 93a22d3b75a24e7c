"""Takes the screenshots of docs/studio.md: `python docs/shots.py`.

Writes docs/screens/ and docs/studio.png. Needs Playwright, a Chromium and Pillow; starts a studio with the shipped models.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout, whichever one is installed

from tests.app.shipped import browser, studio  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FOLDER = ROOT / "docs/screens"
LARGEST = 70_000  # bytes of a picture
QUALITIES = (82, 76, 70, 62, 54)  # of WebP: the first that is small enough counts
PATIENCE = 120_000  # milliseconds
STILL = "*, *::before, *::after { transition: none !important; animation: none !important; caret-color: transparent !important; }"


class Screen(NamedTuple):
    """A kind of window. scale : pixels of the picture for one of the page"""

    width: int
    height: int
    scale: float


SCREENS = {"wide": Screen(1440, 1000, 1), "phone": Screen(390, 844, 1.5)}
README = Screen(1280, 860, 1)


def open_tab(page: Page, name: str, there: str) -> None:
    """Opens a tab and waits until its panels are drawn."""
    page.get_by_role("tab", name=name, exact=True).click()
    page.wait_for_selector(there, state="attached")


def wait_for_race(page: Page, prefix: str = "") -> None:
    """Presses Generate and waits until the result and its files are there."""
    page.click(f"#{prefix}generate")
    page.wait_for_selector(f"#{prefix}cancel")
    page.wait_for_selector(f"#{prefix}generate")
    page.wait_for_selector(f"#{prefix}verdict .ft-verdict[data-state=done]")
    page.wait_for_selector(f"#{prefix}runs tbody tr")


def first(page: Page) -> None:
    """The finished example of a new page."""
    page.wait_for_selector("#canvas-fast .ft-card[data-state=done]")


def image(page: Page) -> None:
    """A finished race with the map of drafts."""
    page.fill("#prompt textarea, #prompt input", "a penguin beside a pumpkin")
    wait_for_race(page)
    page.wait_for_selector("#gif:not([disabled])")
    page.click("#overlay [data-do=keep]")


def methods(page: Page) -> None:
    """The settings with the cards of methods: on a phone the sheet."""
    page.click("#overlay [data-do=keep]")
    page.click(".ft-summary[data-do=settings]")
    page.click("#method .ft-picked")


def mesh(page: Page) -> None:
    """A finished race of meshes."""
    open_tab(page, "Mesh", "#mesh-ready i")
    page.wait_for_selector("#mesh-notes p")
    wait_for_race(page, "mesh-")
    page.click("#mesh [data-mode=both]")
    page.locator("#mesh select").select_option("accepted")


def lab(page: Page) -> None:
    """A loop in which a knob was moved several times."""
    open_tab(page, "Lab", "#lab-stage .ft-lab")
    page.click("#lab-generate")
    page.wait_for_selector("#lab-stage .ft-lab[data-state=running]:not([data-pictures='0'])")
    page.locator("#lab-stage [data-snapshot=A] [data-do=keep]").click()
    page.locator("#lab-knobs [data-knob=relax] select").select_option("additive")
    for stop in (3, 8, 14, 20):
        before = page.locator("#lab-stage .ft-lab").get_attribute("data-pictures")
        page.locator("#lab-knobs [data-knob=added_mass] input").evaluate(
            "(input, stop) => { input.value = stop; input.dispatchEvent(new Event('input', { bubbles: true })); }", stop
        )
        page.wait_for_function(f"Number(document.querySelector('#lab-stage .ft-lab').dataset.pictures) > {int(before or 0) + 1}")
    page.locator("#lab-stage [data-snapshot=B] [data-do=keep]").click()
    page.click("#lab-cancel")
    page.wait_for_selector("#lab-stage .ft-lab[data-state=stopped]")


def bench(page: Page) -> None:
    """A point of the plane of speed and fidelity."""
    open_tab(page, "Bench", "#plane tbody tr")
    page.locator("#plane .ft-plot").focus()
    for key in ("End", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)


STATES: dict[str, Callable[[Page], None]] = {"image": image, "methods": methods, "mesh": mesh, "lab": lab, "bench": bench}
SHOWN = {  # window: state: theme of the picture
    "wide": {"image": "dark", "mesh": "dark", "lab": "light", "bench": "light"},
    "phone": {"image": "light", "methods": "dark", "mesh": "dark"},
}


def begin(chromium: Browser, address: str, screen: Screen) -> Page:
    """The page of a new visitor."""
    context = chromium.new_context(
        viewport={"width": screen.width, "height": screen.height}, device_scale_factor=screen.scale, color_scheme="dark"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(address)
    page.add_style_tag(content=STILL)
    first(page)
    return page


def take(page: Page, name: str, theme: str) -> None:
    """Writes a picture of the page in a theme; the page begins dark and ends dark."""
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 0)")
    if theme == "light":
        page.evaluate("document.querySelector('.ft-theme').click()")
    page.evaluate("() => new Promise((done) => setTimeout(done, 1000))")  # charts take their new colours
    write(Image.open(io.BytesIO(page.screenshot())).convert("RGB"), FOLDER / f"{name}-{theme}.webp")
    if theme == "light":
        page.evaluate("document.querySelector('.ft-theme').click()")


def write(picture: Image.Image, file: Path) -> None:
    """Writes a picture as WebP, as well as LARGEST allows."""
    for quality in QUALITIES:
        picture.save(file, "webp", quality=quality, method=6)
        if file.stat().st_size <= LARGEST:
            break
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1000:.0f} kB, quality {quality}", flush=True)


def main() -> None:
    """Takes the pictures; states follow one another on one page per window."""
    FOLDER.mkdir(exist_ok=True)
    with browser() as chromium, studio() as server:
        page = begin(chromium, server.address, README)
        wait_for_race(page)
        Image.open(io.BytesIO(page.screenshot())).convert("RGB").save(ROOT / "docs/studio.png", optimize=True)
        for window, themes in SHOWN.items():
            page = begin(chromium, server.address, SCREENS[window])
            for name, theme in themes.items():
                STATES[name](page)
                take(page, f"{name}-{window}", theme)
                if name == "methods":
                    page.keyboard.press("Escape")
                    page.click(".ft-summary[data-do=settings]")


if __name__ == "__main__":
    main()
