"""A Chromium that nobody watches: for what is measured of the page, for its screenshots, and for its tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine.errors import NotSupported

if TYPE_CHECKING:
    from playwright.sync_api import Browser

INSTALLED = ("chromium-headless-shell", "chromium", "google-chrome")  # the first draws no window, and takes a seventh less time
FLAGS = (
    "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync",
)  # fmt: skip


def chromium() -> str | None:
    """The browser's path: $FORETOKEN_CHROMIUM, then the system's; None = Playwright's own."""
    given = os.environ.get("FORETOKEN_CHROMIUM")
    return given or next(filter(None, map(shutil.which, INSTALLED)), None)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser, closed at the end. Raises NotSupported without Playwright or a Chromium that starts."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as e:
        raise NotSupported(f"Playwright is not installed ({e}). It comes with what the tests need: python launch.py test --version") from e
    with sync_playwright() as playwright:
        try:
            found = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        except Error as e:
            first = str(e).splitlines()[0]
            raise NotSupported(f"No Chromium starts ({first}). Install one, or set FORETOKEN_CHROMIUM to its path.") from e
        try:
            yield found
        finally:
            found.close()
