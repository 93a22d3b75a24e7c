"""A studio with the shipped models in a separate process, and a headless Chromium, for tests and docs/shots.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.request import urlopen

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALLED = ("chromium-headless-shell", "chromium", "google-chrome")  # headless shell: opens no window, 14 % faster
FLAGS = (
    "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip
START_LIMIT = 600  # seconds until a studio must answer: a busy machine is slow, not wrong
ROOT = Path(__file__).resolve().parents[2]


class Server(NamedTuple):
    """A studio in another process."""

    address: str
    process: int
    log: Path

    def resident(self) -> int:
        """Bytes of memory that it uses; 0 without /proc."""
        file = Path(f"/proc/{self.process}/statm")
        return int(file.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if file.exists() else 0


def chromium() -> str | None:
    """The path of the system's browser; None = Playwright's own."""
    return next(filter(None, map(shutil.which, INSTALLED)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, closed at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chrome = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        try:
            yield chrome
        finally:
            chrome.close()


@contextmanager
def studio() -> Iterator[Server]:
    """A studio with the shipped models on a free port; its files are deleted with it."""
    with tempfile.TemporaryDirectory(prefix="foretoken-", ignore_cleanup_errors=True) as folder:
        log = Path(folder) / "log.txt"
        own = {"FORETOKEN_HOME": f"{folder}/home", "GRADIO_TEMP_DIR": f"{folder}/gradio"}
        port = 40_000 + os.getpid() % 20_000  # the studio of the other tests starts at another port
        code = f"from app.server.studio import launch; launch(port={port}, open_browser=False, dtype='float32')"
        with log.open("w") as file:
            process = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=file, stderr=file, env=os.environ | own)
        try:
            yield Server(wait_for(process, log), process.pid, log)
        finally:
            process.terminate()
            process.wait(START_LIMIT)


def wait_for(process: subprocess.Popen, log: Path) -> str:
    """The studio's address once it responds; fails with its last output if it does not."""
    deadline = time.monotonic() + START_LIMIT
    while time.monotonic() < deadline and process.poll() is None:
        address = re.search(r"http://\S+", log.read_text())
        if address and answers(address[0]):
            return address[0]
        time.sleep(0.1)
    raise AssertionError(f"The studio did not start:\n{log.read_text()[-3000:]}")


def answers(address: str) -> bool:
    """True if the studio responds to a request."""
    try:
        with urlopen(f"{address}/config", timeout=5) as response:
            return response.status == 200
    except OSError:
        return False
