"""Times of the page in a browser, and many visitors at a time, with the shipped models: `pytest -s tests/app/test_speed.py` prints them.

How large the times are is not tested: they depend on what else the machine does.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

import httpx
import pytest

from app.requests.meshes import EXAMPLES
from tests.app.race_page import drag
from tests.app.shipped import Server, studio
from tests.app.visitor import QUICK, STRANGE, Visitor, bug_in

PATIENCE = 120_000  # maximum milliseconds of a run
RUNS = 3  # runs of each kind; the first is not counted
VISITORS, ROUNDS = 3, 2
CLOCK = Path(__file__).with_name("page_clock.js").read_text(encoding="utf-8")
COSTS = re.compile(r"Total [\d.]+ s: ([\d.]+) s on the clocks, ([\d.]+) s of drawing, ([\d.]+) s of sending, ([\d.]+) s of bookkeeping")
RECEIVED = """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .reduce((sum, each) => sum + each.transferSize, 0)"""
LAST_FILE = {"": "#folders", "mesh-": "#mesh-download-folders"}  # by the prefix of the tab's ids


@pytest.fixture(scope="module")
def shipped() -> Iterator[Server]:
    """A studio with the shipped models."""
    with studio() as server:
        yield server


@contextmanager
def timed_page(context, address: str) -> Iterator:
    """A page that records when it is ready, when a run is first visible, and when it ends."""
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(CLOCK)
    page.goto(address)
    page.wait_for_function("foretokenSeen.ready !== null")
    yield page
    page.close()


def visit(page) -> dict[str, float]:
    """Seconds until the page is ready and until its example moves, and the kilobytes that it received."""
    page.wait_for_function("foretokenSeen.moving !== null")
    return {name: page.evaluate(f"foretokenSeen.{name}") / 1000 for name in ("ready", "moving")} | {
        "kilobytes": page.evaluate(RECEIVED) / 1000
    }


def fork(page, seed: int) -> dict[str, float]:
    """Forks the picture in its middle; returns the seconds to the first new pixels, and to the result."""
    page.click("#forks [data-do=fork]")
    drag(page.locator("#forks [name=at]"), 512)
    page.fill("#forks [name=seed]", str(seed))
    page.wait_for_selector("#forks .ft-fork-go:not([disabled])")
    times = race(page, press="#forks .ft-fork-go")
    return {name: times[name] for name in ("first", "whole")}


def race(page, prefix: str = "", press: str = "") -> dict[str, float]:
    """Presses Generate or another button; returns the seconds to the first pixels, to the result, and of the parts that the page says."""
    page.click(press or f"#{prefix}generate")
    page.wait_for_function("foretokenSeen.ended !== null")
    page.wait_for_selector(f"#{prefix}generate")
    page.wait_for_selector(f"{LAST_FILE[prefix]}:not([disabled])", timeout=4 * PATIENCE)  # encoded at low priority; would slow the next run
    seen = page.evaluate("foretokenSeen")
    parts = COSTS.search(page.get_attribute(f"#{prefix}verdict .ft-detail", "title"))
    assert parts, f"the page does not say where the time went: {seen}"
    seen["first"] = min(seen["first"] or seen["ended"], seen["ended"])  # a busy machine may draw nothing before the end
    clocks, drawing, sending, bookkeeping = map(float, parts.groups())
    first, whole = ((seen[name] - seen["clicked"]) / 1000 for name in ("first", "ended"))
    assert 0 < first <= whole and 0 < clocks < whole and drawing + sending + bookkeeping < whole
    return {"first": first, "whole": whole, "clocks": clocks, "over clocks": whole / clocks, "updates": len(set(seen["updates"])) / whole}


def print_medians(title: str, rows: list[dict[str, float]]) -> None:
    """Prints the median of each number."""
    print(f"\n{title}: " + ", ".join(f"{name} {median(row[name] for row in rows):.2f}" for name in rows[0]), end="")


@pytest.mark.browser
@pytest.mark.panel
def test_the_times_of_the_page(browser, shipped):
    visits = []
    for _ in range(RUNS + 1):  # of visitors whose browser knows nothing yet; for the first one the server builds the document
        context = browser.new_context(viewport={"width": 1366, "height": 1000})
        with timed_page(context, shipped.address) as page:
            visits.append(visit(page))
        if len(visits) <= RUNS:
            context.close()
    first = visits[-1]
    with timed_page(context, shipped.address) as page:
        later = visit(page)
        print_medians("page, first visit", visits[1:])
        print_medians("page, again", [later])
        assert first["ready"] > 0 and 100 < first["kilobytes"] > later["kilobytes"]  # the browser cache is not filled again
        page.evaluate("document.querySelector(`#bar button[data-size='128 px']`).click()")
        print_medians("picture, 128 px", [race(page) for _ in range(RUNS + 1)][1:])
        page.evaluate("document.querySelector(`#bar button[data-size='256 px']`).click()")
        race(page)
        print_medians("fork of 256 px", [fork(page, seed) for seed in range(RUNS + 1)][1:])
        page.get_by_role("tab", name="Mesh", exact=True).click()
        page.wait_for_selector("#mesh-ready i", state="attached")
        page.wait_for_selector("#mesh .ft-mesh[data-points]:not([data-points='0'])")
        print_medians("mesh", [race(page, "mesh-") for _ in range(RUNS + 1)][1:])
    context.close()


def updates(visitor: Visitor, dice: random.Random) -> Iterator[str]:
    """Yield the lines of a picture's run."""
    return visitor.follow(visitor.handler("run"), visitor.inputs_for("image", QUICK["image"], seed=dice.randrange(1000)))


def picture(visitor: Visitor, dice: random.Random) -> bool:
    """Makes a picture and waits for it."""
    return visitor.can_generate("image")


def mesh(visitor: Visitor, dice: random.Random) -> bool:
    """Makes a mesh of an uploaded file and waits for it."""
    visitor.upload("chair.ply", (EXAMPLES / "chair.ply").read_bytes())
    return visitor.can_generate("mesh")


def cancel_run(visitor: Visitor, dice: random.Random) -> bool:
    """Starts a picture and cancels it at its first update."""
    lines, stopped = [], False
    for line in updates(visitor, dice):
        lines.append(line)
        if not stopped and '"process_generating"' in line:
            stopped = bool(visitor.ask(visitor.handler("stop"), []))
    return '"success":true' in lines[-1]


def close_page(visitor: Visitor, dice: random.Random) -> bool:
    """Starts a picture and closes the page during the run."""
    following = updates(visitor, dice)
    for _ in zip(range(3), following, strict=False):
        pass
    following.close()
    return True


def disturb(visitor: Visitor, dice: random.Random) -> bool:
    """Sends random requests during a picture, with values of all kinds; afterwards the visitor can generate on both tabs."""
    quick = [i for i, h in visitor.handlers.items() if h["backend_fn"] and not h["queue"] and visitor.ends(i)]
    for _ in updates(visitor, dice):
        handler = dice.choice(quick)
        values = [dice.choice((value, value, dice.choice(STRANGE))) for value in visitor.values(handler)]
        with suppress(httpx.RemoteProtocolError, httpx.ReadError):  # Gradio cannot write some of its own errors down
            visitor.ask(handler, values)
    return visitor.can_generate("image") and visitor.can_generate("mesh")


def test_runs_of_several_visitors_all_end(shipped):
    count, seconds, lock = Counter(), [], threading.Lock()

    def line(number: int) -> None:
        dice = random.Random(number)
        for script in (picture, mesh, cancel_run, close_page, disturb) * ROUNDS:
            started = time.monotonic()
            with Visitor(shipped.address).present() as visitor:
                ended = script(visitor.open_tab("mesh"), dice)
            with lock:
                count[script.__name__ if ended else "lost"] += 1
                seconds.extend([time.monotonic() - started] * (script in (picture, mesh)))

    before = shipped.resident()
    threads = [threading.Thread(target=line, args=(number,)) for number in range(VISITORS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = f"{before / 2**20:.0f} to {shipped.resident() / 2**20:.0f} MiB"
    print(f"\n{VISITORS} visitors at a time: {dict(count)}, a visit {median(seconds):.2f} s, longest {max(seconds):.2f} s, memory {memory}")
    assert count == dict.fromkeys(("picture", "mesh", "cancel_run", "close_page", "disturb"), VISITORS * ROUNDS)
    assert not bug_in(shipped.log.read_text(errors="replace"))
