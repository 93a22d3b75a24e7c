"""Ctrl-C ends the studio cleanly during a run."""

from __future__ import annotations

import signal
import threading
from contextlib import suppress

import httpx
import pytest

from tests.app.conftest import FRESH, PATIENCE, serving
from tests.app.race_page import start
from tests.app.visitor import Visitor

LAST_WORDS = 60  # seconds, never needed in full


def test_ctrl_c_in_a_run_ends_the_studio(tmp_path, picto_folder, lowpoly_folder):
    with serving(tmp_path, picto_folder, lowpoly_folder) as (served, process):
        visitor = Visitor(served.address)
        going = threading.Event()

        def watch() -> None:
            with suppress(httpx.TransportError):  # the studio ends during the response
                for line in visitor.follow(visitor.handler("run"), visitor.inputs_for("image", {"size": "256 px"})):
                    if '"tokens"' in line:
                        going.set()

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert going.wait(LAST_WORDS)
        process.send_signal(signal.SIGINT)
        assert process.wait(LAST_WORDS) in (0, 130)
        watcher.join(LAST_WORDS)
        visitor.http.close()
        assert "Traceback" not in served.log.read_text(), served.log.read_text()[-3000:]
        assert list((tmp_path / "gradio").glob("foretoken-*")) == [], "a visitor's folder was left behind"


@pytest.mark.browser
def test_a_page_says_that_its_studio_has_stopped(tmp_path, picto_folder, lowpoly_folder, browser):
    with serving(tmp_path, picto_folder, lowpoly_folder) as (served, process):
        page = browser.new_context(viewport={"width": 1366, "height": 768}).new_page()
        page.add_init_script(FRESH)
        page.goto(served.address)
        page.wait_for_selector("#knobs .ft-knob", state="attached")
        start(page)
        process.kill()
        page.wait_for_selector(".ft-lost:visible", timeout=PATIENCE)
        page.wait_for_selector("#canvas-fast .ft-card[data-state=stopped]")
        assert page.inner_text("#verdict .ft-headline") == "Stopped"
        assert page.locator(".toast-wrap:visible").count() == 0  # it would cover Generate
        page.context.close()
