"""How fast the page is for one visitor, measured in a browser: until it can be used, until something grows, how often it changes, how much
longer a run takes than its clocks, and how many bytes come.

The times are the browser's. A picture or a mesh counts as shown when the browser has painted it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

WIDTH, HEIGHT = 1366, 1000
PATIENCE = 120_000  # milliseconds until a run must have ended
DRAWN, ALIVE = "#canvas-fast .ft-card[data-side]", "#knobs .ft-knob"  # made by the panels' own scripts: the page answers
COSTS = re.compile(
    r"On the page [\d.]+ s: (?P<clocks>[\d.]+) s on the clocks, (?P<drawing>[\d.]+) s of drawing, (?P<sending>[\d.]+) s of sending, "
    r"(?P<bookkeeping>[\d.]+) s of bookkeeping"
)
LAST_FILE = {"": "#folders", "mesh-": "#mesh-download-folders"}  # of a run, by the prefix of the tab's ids
WATCH = Path(__file__).with_suffix(".js").read_text(encoding="utf-8").replace("__DRAWN__", repr(DRAWN)).replace("__ALIVE__", repr(ALIVE))


class Shown(NamedTuple):
    """A run on the page, times in seconds.

    first : from the click to the first pixels; whole : to the result; updates : of the screen, a second; received : bytes
    clocks : of both sides; drawing, sending, bookkeeping : the rest of the server's time, as the page says
    """

    first: float
    whole: float
    updates: float
    received: int
    clocks: float
    drawing: float
    sending: float
    bookkeeping: float

    def numbers(self) -> dict[str, float]:
        """What a row holds."""
        return {
            "first_pixels_seconds": self.first,
            "updates_per_second": self.updates,
            "wall_seconds": self.whole,
            "clock_seconds": self.clocks,
            "wall_over_clocks": self.whole / self.clocks,
            "drawing_seconds": self.drawing,
            "sending_seconds": self.sending,
            "bookkeeping_seconds": self.bookkeeping,
            "kilobytes": self.received / 1000,
        }


@contextmanager
def visit(browser: Browser, address: str, again: bool = False) -> Iterator[tuple[Page, float, int]]:
    """A page of a new visitor, the seconds until it was ready, and the bytes that came. again : the browser has been here before"""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    try:
        if again:
            before = context.new_page()
            before.goto(address)
            before.wait_for_selector(ALIVE, state="attached")
            before.close()
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.add_init_script(WATCH)
        with counted(page) as traffic:
            document = page.goto(address)
            page.wait_for_function("foretokenSeen.ready !== null")
            if document is not None:
                document.finished()  # until the browser says so its bytes count as read, not as sent
        yield page, page.evaluate("foretokenSeen.ready") / 1000, traffic.received
    finally:
        context.close()


class Traffic:
    """What comes to a page over the network, by request: bytes as they are sent; of a stream in progress, as they are read."""

    def __init__(self) -> None:
        self.sent: dict[str, int] = {}
        self.finished: dict[str, int] = {}
        self.cached: set[str] = set()

    def watch(self, session: CDPSession) -> None:
        """Listens to a session of the browser's protocol."""
        session.on("Network.responseReceived", lambda event: self.answers(event["requestId"], event["response"]))
        session.on("Network.requestServedFromCache", lambda event: self.cached.add(event["requestId"]))
        session.on("Network.dataReceived", lambda event: self.came(event["requestId"], event["dataLength"]))
        session.on("Network.loadingFinished", lambda event: self.finished.update({event["requestId"]: int(event["encodedDataLength"])}))

    def answers(self, request: str, response: Mapping[str, Any]) -> None:
        """Notes whether an answer comes from the cache."""
        if response.get("fromDiskCache"):
            self.cached.add(request)

    def came(self, request: str, size: int) -> None:
        """Notes a part of an answer."""
        self.sent[request] = self.sent.get(request, 0) + size

    @property
    def received(self) -> int:
        """Bytes so far."""
        return sum(self.finished.get(request) or size for request, size in self.sent.items() if request not in self.cached)


@contextmanager
def counted(page: Page) -> Iterator[Traffic]:
    """What comes to a page while this is open."""
    traffic, session = Traffic(), page.context.new_cdp_session(page)
    traffic.watch(session)
    session.send("Network.enable")
    try:
        yield traffic
    finally:
        session.send("Network.disable")  # answered after everything that came before it was told
        session.detach()


def picture(page: Page, size: str) -> Callable[[], Shown]:
    """A function that races a picture of this size on an open page, and says how that went."""
    page.evaluate("size => document.querySelector(`#bar button[data-size='${size}']`).click()", size)
    return lambda: race(page, "")


def mesh(page: Page) -> Callable[[], Shown]:
    """The same for a mesh of the first example."""
    page.get_by_role("tab", name="Mesh", exact=True).click()
    page.wait_for_selector("#mesh-ready i", state="attached")
    page.wait_for_selector("#mesh .ft-mesh[data-points]:not([data-points='0'])")
    return lambda: race(page, "mesh-")


def race(page: Page, prefix: str) -> Shown:
    """Presses Generate and waits for the result and its files. prefix : of the tab's ids"""
    with counted(page) as traffic:
        page.click(f"#{prefix}generate")
        page.wait_for_function("foretokenSeen.ended !== null")
        page.wait_for_selector(f"#{prefix}generate")
        page.wait_for_selector(f"{LAST_FILE[prefix]}:not([disabled])")  # what is still written would slow the next run
    seen = page.evaluate("foretokenSeen")
    split = COSTS.search(page.inner_text(f"#{prefix}verdict .ft-costs"))
    assert split and seen["first"], f"the page does not say where the time went: {seen}"
    times = sorted(set(seen["updates"]))  # two updates in one frame are seen as one
    return Shown(
        first=(seen["first"] - seen["clicked"]) / 1000,
        whole=(seen["ended"] - seen["clicked"]) / 1000,
        updates=1000 * (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0,
        received=traffic.received,
        **{name: float(value) for name, value in split.groupdict().items()},
    )


def measured(browser: Browser, address: str, runs: int) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """What was measured, and its numbers for each of `runs`: the page itself, then each kind of run."""
    for what, again in (("page, first visit", False), ("page, again", True)):
        found = []
        for _ in range(runs):
            with visit(browser, address, again) as (_, ready, received):
                found.append({"ready_seconds": ready, "kilobytes": received / 1000})
        yield what, found
    for what, prepare in KINDS.items():
        with visit(browser, address) as (page, _, _):
            once = prepare(page)
            once()  # the first one of these settings has unmeasured steps before it
            yield what, [once().numbers() for _ in range(runs)]


KINDS: dict[str, Callable[[Page], Callable[[], Shown]]] = {
    "picture, 128 px": lambda page: picture(page, "128 px"),
    "picture, 256 px": lambda page: picture(page, "256 px"),
    "mesh": mesh,
}
