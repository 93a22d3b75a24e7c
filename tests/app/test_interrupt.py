"""Ctrl-C and signals end the studio cleanly, whatever it is doing."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from contextlib import suppress

import httpx
import pytest

from tests.app.conftest import Served, serving
from tests.app.visitor import Visitor

LAST_WORDS = 60  # seconds that nobody should need


def ended(process: subprocess.Popen, served: Served, number: signal.Signals) -> int:
    """The exit code behind a signal; nothing may be left behind, and no traceback."""
    process.send_signal(number)
    code = process.wait(LAST_WORDS)
    assert "Traceback" not in served.log.read_text(), served.log.read_text()[-3000:]
    assert list((served.home.parent / "gradio").glob("foretoken-*")) == []
    return code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_in_a_run_ends_the_studio(tmp_path, picto_folder, lowpoly_folder, number):
    with serving(tmp_path, picto_folder, lowpoly_folder) as (served, process):
        visitor = Visitor(served.address)
        run = visitor.handler("run")
        data = visitor.values(run)
        data[0] = visitor.ticket()
        body = {"fn_index": run, "session_hash": visitor.session, "data": data}
        data[5] = data[5] | {"values": data[5]["values"] | {"size": "256 px"}}
        visitor.http.post("/gradio_api/queue/join", content=json.dumps(body), headers={"Content-Type": "application/json"})
        going = threading.Event()

        def watch() -> None:
            stream = visitor.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": visitor.session})
            with suppress(httpx.TransportError), stream as answer:  # the studio goes while it speaks
                for line in answer.iter_lines():
                    if '"tokens"' in line:
                        going.set()
                    if '"process_completed"' in line:
                        return

        watcher = threading.Thread(target=watch)
        watcher.start()
        assert going.wait(LAST_WORDS)
        assert ended(process, served, number) in (0, 130)
        watcher.join(LAST_WORDS)
        visitor.http.close()
