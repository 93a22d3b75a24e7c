"""The two race tabs of a page in a browser: a user's actions and views. Every wait is for something on the page."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import expect

PROMPT = "#prompt textarea, #prompt input"
TOKENS = "Number(document.querySelector('#canvas-{} .ft-card').dataset.tokens)"
STATE = "document.querySelector('#canvas-fast .ft-card').dataset.state"
VIEW = "document.querySelector('#mesh .ft-mesh').dataset"
FACES = "Number(" + VIEW + ".{}Faces)"
SLIDE = "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', { bubbles: true })); }"
ROWS = "#runs tbody tr"
LONG = "5 times"  # repeats, so that a race lasts on any machine


def drag(slider: Any, value: float) -> None:
    """Moves a slider to a value, like a drag."""
    slider.evaluate(SLIDE, value)


def move(page: Any, panel: str, knob: str, stop: int) -> None:
    """Moves the slider of a knob to one of its stops."""
    drag(page.locator(f"#{panel} .ft-knob[data-knob={knob}] input"), stop)


def choose(page: Any, panel: str, knob: str, choice: str) -> None:
    """Selects an option of a menu."""
    page.locator(f"#{panel} .ft-knob[data-knob={knob}] select").select_option(choice)


def take(page: Any, name: str, menu: str = "method") -> None:
    """Selects the card of a method or preset and waits for its knobs; on a phone the cards for meshes are in the sheet."""
    in_a_sheet = menu.startswith("mesh-") and page.viewport_size["width"] < 768
    if in_a_sheet:
        page.click("#mesh-bar .ft-summary")
    page.click(f"#{menu} .ft-picked")
    page.click(f"#{menu} .ft-method-card[data-name='{name}']")
    if in_a_sheet:
        page.locator(".ft-sheet:visible").click()
    knobs = menu.replace("method", "knobs").replace("other", "other-knobs")
    page.wait_for_selector(f"#{knobs} .ft-knobs[data-name='{name}']", state="attached")


def start(page: Any, size: str = "256 px", sides: tuple[str, ...] = ("fast", "plain")) -> None:
    """Presses Generate and waits until the sides have tokens; 256 pixels last long enough to be watched."""
    choose(page, "settings", "size", size)
    page.click("#generate")
    page.wait_for_function(" && ".join(f"{TOKENS.format(side)} > 0" for side in sides))


def cancel(page: Any, button: str = "#cancel") -> None:
    """Clicks Cancel without waiting for the page to settle: the page grows, so that wait would last for seconds."""
    page.locator(button).click(force=True, no_wait_after=True)


def finish(page: Any, prefix: str = "") -> None:
    """Waits for the end of a run and for its measurements and files."""
    page.wait_for_selector(f"#{prefix}generate")
    page.wait_for_selector(f"#{prefix}download{'-glb' if prefix else ''}:not([disabled])")


def small(page: Any, prefix: str = "") -> None:
    """Does a run of 64 pixels or of a few faces to its end. It may end before Cancel appears."""
    if prefix:
        move(page, "mesh-settings", "face_budget", 2)
    else:
        choose(page, "settings", "size", "64 px")
    rows = f"#{prefix}runs tbody tr"
    before = page.locator(rows).count()
    page.click(f"#{prefix}generate")
    page.wait_for_function("([rows, before]) => document.querySelectorAll(rows).length > before", arg=[rows, before])
    finish(page, prefix)


def drop(page: Any, name: str, content: bytes) -> None:
    """Drops a file on the page."""
    text = base64.b64encode(content).decode("ascii")
    page.evaluate(
        """([name, text]) => {
        const data = new DataTransfer();
        data.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""",
        [name, text],
    )


def drop_path(page: Any, path: Path) -> None:
    """Drops a file or folder on the page, as the system does."""
    system = page.context.new_cdp_session(page)
    carried = {"items": [], "files": [str(path)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        system.send("Input.dispatchDragEvent", {"type": kind, "x": 300, "y": 400, "data": carried})
    system.detach()


def pixels(page: Any, side: str, layer: str) -> np.ndarray:
    """Pixels of a canvas, [rows, columns, 4]."""
    values = page.locator(f"#canvas-{side} {layer}").evaluate(
        "c => [c.height, c.width, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    return np.array(values[2:]).reshape(values[0], values[1], 4)


class RacePage:
    """One of the two race tabs, for tests of both.

    things : prompts or examples of clouds; knob : a live one of the method that is taken, with a stop and what the page then shows
    """

    def __init__(self, page: Any, kind: str):
        self.page, self.kind, self.prefix = page, kind, {"image": "", "mesh": "mesh-"}[kind]
        self.things = {"image": ("drei Bären 🐻 <b> three bears", "a red apple"), "mesh": ("table", "bottle")}[kind]
        self.method, self.knob = {"image": ("sjdpp", ("window", 4, "5")), "mesh": ("xspecmesh", ("depth", 1, "2"))}[kind]
        self.size = {"image": "size", "mesh": "face_budget"}[kind]

    def open(self) -> RacePage:
        """Opens the tab with a method that does not depend on the machine; returns self."""
        self.show()
        if self.kind == "mesh":
            self.page.wait_for_selector("#mesh-notes p:has-text('chair.ply: a point cloud of 2,048 points')")
            self.page.wait_for_function(f"Number({VIEW}.points) === 2048")
            self.page.wait_for_selector("#mesh-ready i", state="attached")  # the model is loaded, and the form is not reset
        take(self.page, self.method, f"{self.prefix}method")
        return self

    def show(self) -> None:
        """Clicks the tab."""
        self.page.get_by_role("tab", name=self.kind.title(), exact=True).click()

    def part(self, name: str, inside: str = "") -> Any:
        """A component by its id, or something in it."""
        return self.page.locator(f"#{self.prefix}{name} {inside}".strip())

    @property
    def rows(self) -> Any:
        """Rows of the table of runs."""
        return self.part("runs", "tbody tr")

    def give(self, thing: str) -> None:
        """Types a prompt, or selects an example."""
        if self.kind == "image":
            self.page.fill(PROMPT, thing)
        else:
            self.page.click(f"[data-cloud={thing}]")
        self.sees(thing)

    def sees(self, thing: str) -> None:
        """Waits for a prompt, or for the loaded example."""
        if self.kind == "image":
            expect(self.page.locator(PROMPT)).to_have_value(thing)
        else:
            self.page.wait_for_selector(f"#mesh-notes p:has-text('{thing}.ply')")

    def seed(self, seed: int) -> None:
        """Enters the seed."""
        self.page.fill(f"#{self.prefix}seed input", str(seed))
        self.page.press(f"#{self.prefix}seed input", "Tab")

    def size_readout(self) -> Any:
        """Locator of the readout of a picture's size or of a mesh's maximum faces."""
        knob = self.part("settings", f".ft-knob[data-knob={self.size}]")
        return knob.locator("select") if self.kind == "image" else knob.locator("output")

    def resize(self) -> None:
        """Selects another size than a small run's."""
        if self.kind == "image":
            choose(self.page, "settings", "size", "128 px")
        else:
            move(self.page, "mesh-settings", "face_budget", 9)

    def move(self) -> None:
        """Moves the live knob."""
        name, stop, _ = self.knob
        move(self.page, f"{self.prefix}knobs", name, stop)

    def wait_for_knob(self) -> None:
        """Waits until the page shows the live knob where `move` puts it."""
        name, _, shown = self.knob
        expect(self.part("knobs", f".ft-knob[data-knob={name}] output")).to_have_text(shown)

    def wait_for_both(self) -> None:
        """Waits until both sides show tokens or faces."""
        count = {"image": (TOKENS, "plain", "fast"), "mesh": (FACES, "plain", "accelerated")}[self.kind]
        self.page.wait_for_function(" && ".join(f"{count[0].format(side)} > 0" for side in count[1:]))

    def begin(self, lasting: bool = True) -> None:
        """Starts a race and waits until both sides show something. lasting : repeat it, so that it lasts on any machine"""
        if self.kind == "image":
            choose(self.page, "settings", "size", "256 px")
        if lasting:
            choose(self.page, f"{self.prefix}settings", "repeat", LONG)
        self.part("generate").click()
        self.page.wait_for_function(f"{STATE if self.kind == 'image' else VIEW + '.state'} === 'running'")
        self.wait_for_both()

    def count(self) -> int:
        """Number of tokens or faces on the right side."""
        return self.page.evaluate(TOKENS.format("fast") if self.kind == "image" else FACES.format("accelerated"))

    def state(self) -> str:
        """The state of the right side."""
        return self.page.evaluate(STATE if self.kind == "image" else f"{VIEW}.state")

    def small(self) -> None:
        """Does a short run to its end."""
        small(self.page, self.prefix)

    def cancel(self) -> None:
        """Cancels the run."""
        cancel(self.page, f"#{self.prefix}cancel")

    def finish(self) -> None:
        """Waits for the end of the run."""
        finish(self.page, self.prefix)
