"""Scripted visitors of a studio in a process of its own: whether every run they ask for comes to its end, what it costs in memory, and
how much one visitor's upload slows another's run.

Visitors come, ask for pictures and meshes, send files, cancel, close the page during a run, and go, several at a time.
"""

from __future__ import annotations

import io
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx
import numpy as np

from app.ui.tabs.mesh_input import EXAMPLES, ORDER
from engine.errors import NotSupported
from research.bench.client import Visitor

START_LIMIT = 300.0  # seconds until the studio must answer
SETTLES = 60.0  # seconds that the server has to notice closed pages
PROMPTS = ("a red apple", "two cats under a green balloon", "one fire above a heart at sunset", "three bears on a grey background")
SIZES = ("64 px", "128 px")
FACES = 64  # most faces of a mesh
LATER = 5  # updates of a run before it is cancelled or its page closed
POINTS = 150_000  # of a large upload; a few MB as text
ROOT = Path(__file__).resolve().parents[2]


class Server(NamedTuple):
    """A studio in another process."""

    address: str
    process: int
    log: Path

    def resident(self) -> int | None:
        """Bytes of its memory that are in use; None where the system does not say."""
        with suppress(OSError):
            return int(Path(f"/proc/{self.process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return None


@contextmanager
def studio() -> Iterator[Server]:
    """A studio with the shipped models on a free port, whose files go with it. Raises NotSupported if it does not start."""
    with tempfile.TemporaryDirectory(prefix=f"foretoken-{os.getpid()}-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log.txt"
        own = {"FORETOKEN_HOME": f"{folder}/home", "GRADIO_TEMP_DIR": f"{folder}/gradio"}
        with log.open("w") as file:
            port = 20_000 + os.getpid() % 20_000  # what else runs here begins its search for a free port elsewhere
            command = [sys.executable, "-c", f"from app.server.studio import launch; launch(port={port}, open_browser=False)"]
            process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=os.environ | own)
        try:
            yield Server(answering(process, log), process.pid, log)
        finally:
            process.terminate()
            process.wait(SETTLES)


def answering(process: subprocess.Popen, log: Path) -> str:
    """The studio's address once it answers."""
    until = time.monotonic() + START_LIMIT
    while time.monotonic() < until and process.poll() is None:
        if found := re.search(r"http://\S+", log.read_text(errors="replace")):
            with suppress(httpx.HTTPError):
                if httpx.get(f"{found[0]}/config", timeout=30).status_code == 200:
                    return found[0]
        time.sleep(0.2)
    raise NotSupported(f"The studio did not start. Its last words: {log.read_text(errors='replace')[-300:].strip()}")


# --- visits -----------------------------------------------------------------------------------------------------------


@dataclass
class Tally:
    """What became of the visits. count: by outcome; seconds: from asking to the end, of runs that were waited for; wrong: what was lost"""

    count: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, outcome: str, seconds: float | None = None, wrong: str = "") -> None:
        """Records a run."""
        with self.lock:
            self.count[outcome] += 1
            self.seconds += [] if seconds is None else [seconds]
            self.wrong += [wrong] if wrong else []


@contextmanager
def page(address: str) -> Iterator[Visitor]:
    """A visitor with an open page; closing it tells the server that they left."""
    visitor = Visitor(address)
    try:
        with visitor.http.stream("GET", f"/gradio_api/heartbeat/{visitor.session}") as beat:
            lines = beat.iter_lines()  # the connection lasts as long as this is kept
            next(lines)
            opening = visitor.handler("open", "mesh")
            visitor.ask(opening, visitor.values(opening))
            yield visitor
    finally:
        visitor.http.close()


def picture(visitor: Visitor, dice: random.Random, tally: Tally) -> None:
    """A picture, waited for."""
    settings = {"size": dice.choice(SIZES)}
    waited(visitor, "image", settings, tally, prompt=dice.choice(PROMPTS), seed=dice.randrange(1000))


def mesh(visitor: Visitor, dice: random.Random, tally: Tally) -> None:
    """A mesh of a file that the visitor sends, waited for."""
    name = dice.choice(ORDER)
    visitor.upload(f"{name}.ply", (EXAMPLES / f"{name}.ply").read_bytes())
    waited(visitor, "mesh", {"face_budget": FACES}, tally, seed=dice.randrange(1000))


def cancelled(visitor: Visitor, dice: random.Random, tally: Tally) -> None:
    """A picture that the visitor cancels after some updates."""
    lines = []
    run = visitor.handler("run", "image")
    for line in visitor.follow(run, visitor.filled("image", {"size": SIZES[-1]}, seed=dice.randrange(1000))):
        lines.append(line)
        if sum('"process_generating"' in each for each in lines) == LATER and '"process_generating"' in line:
            visitor.ask(visitor.handler("stop", "image"), [])
    ended = bool(lines) and '"success":true' in lines[-1]
    tally.add("cancelled" if ended else "lost", wrong="" if ended else f"a cancelled picture: {lines[-1:]}")


def abandoned(visitor: Visitor, dice: random.Random, tally: Tally) -> None:
    """A picture whose page is closed after some updates, or while it waits."""
    run = visitor.handler("run", "image")
    following = visitor.follow(run, visitor.filled("image", {"size": SIZES[-1]}, seed=dice.randrange(1000)))
    for _ in zip(range(LATER), following, strict=False):
        pass
    following.close()
    tally.add("abandoned")


SCRIPTS: tuple[Callable[[Visitor, random.Random, Tally], None], ...] = (picture, mesh, cancelled, abandoned)
LIKELY = (5, 3, 1, 1)  # how often each is chosen


def waited(visitor: Visitor, tab: str, settings: dict[str, Any], tally: Tally, **changed: Any) -> None:
    """A run of which a download must come."""
    started = time.monotonic()
    run = visitor.handler("run", tab)
    said = visitor.ask(run, visitor.filled(tab, settings, **changed))
    offered = visitor.ask(visitor.handler("deliver", tab), [])
    came = '"success":true' in said.splitlines()[-1] and '"gradio.FileData"' in offered
    tally.add("finished" if came else "lost", time.monotonic() - started, "" if came else f"{tab}: {said[-200:]} {offered[-200:]}")


def visit(address: str, dice: random.Random, tally: Tally) -> None:
    """One visitor: one to three runs on one page."""
    tally.add("visits")
    try:
        with page(address) as visitor:
            for script in dice.choices(SCRIPTS, LIKELY, k=dice.randint(1, 3)):
                script(visitor, dice, tally)
                if script is abandoned:
                    return
    except (httpx.HTTPError, AssertionError, ValueError) as e:
        tally.add("lost", wrong=f"{type(e).__name__}: {e}")


def crowd(address: str, visitors: int, seconds: float, tally: Tally, seed: int = 0) -> None:
    """Visitors one after the other, in as many lines at a time, until the time is over; returns when the last has left."""
    until = time.monotonic() + seconds

    def line(number: int) -> None:
        dice = random.Random(1000 * seed + number)
        while time.monotonic() < until:
            visit(address, dice, tally)

    lines = [threading.Thread(target=line, args=(number,)) for number in range(visitors)]
    for each in lines:
        each.start()
    for each in lines:
        each.join()


def everything_once(address: str, visitors: int, tally: Tally) -> None:
    """Each script by as many visitors at a time as the measurement has, so that its memory is compared with a server that has done all."""

    def line(number: int) -> None:
        for script in SCRIPTS:
            with page(address) as visitor:
                script(visitor, random.Random(number), tally)

    lines = [threading.Thread(target=line, args=(number,)) for number in range(visitors)]
    for each in lines:
        each.start()
    for each in lines:
        each.join()


def settled(server: Server) -> int | None:
    """Bytes in use once the pages that were closed are forgotten: the least of some seconds."""
    found = []
    for _ in range(10):
        time.sleep(1.0)
        found.append(server.resident())
    return None if None in found else min(found)


# --- one visitor's upload and another's run ---------------------------------------------------------------------------


def large_cloud() -> bytes:
    """A cloud whose reading takes a while."""
    points = np.random.default_rng(0).standard_normal((POINTS, 3))
    text = io.StringIO()
    np.savetxt(text, points / np.linalg.norm(points, axis=1, keepdims=True), "%.6f")
    return text.getvalue().encode()


def run_seconds(address: str) -> float:
    """How long a picture takes on a page, by the wall clock."""
    with page(address) as visitor:
        data = visitor.filled("image", {"size": SIZES[-1]}, compare=False)
        started = time.monotonic()
        visitor.ask(visitor.handler("run", "image"), data)
        return time.monotonic() - started


def beside_uploads(address: str, pairs: int) -> tuple[list[float], list[float]]:
    """Seconds of a visitor's runs, alone and while another visitor sends file after file and has them read; in turns."""
    alone, beside = [], []
    cloud = large_cloud()
    run_seconds(address)
    for _ in range(pairs):
        alone.append(run_seconds(address))
        over = threading.Event()
        with page(address) as other:

            def send(other: Visitor = other, over: threading.Event = over) -> None:
                while not over.is_set():
                    other.upload("large.xyz", cloud)

            sending = threading.Thread(target=send)
            sending.start()
            beside.append(run_seconds(address))
            over.set()
            sending.join()
    return alone, beside


def slowdown(alone: list[float], beside: list[float]) -> float:
    """How many times as long a run takes beside uploads: the median of the pairs' ratios."""
    return median(b / a for a, b in zip(alone, beside, strict=True))
