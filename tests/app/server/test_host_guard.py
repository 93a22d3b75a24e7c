"""The studio refuses wrong hosts, wrong origins, large bodies and paths that would fetch other URLs, tested with real requests."""

from __future__ import annotations

import asyncio
import http.client
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.responses import PlainTextResponse

from app.server.host_guard import BODY, HostGuard
from tests.app.conftest import ROOT, Served

EVIL = "evil.example"


def ask(served: Served, method: str = "GET", path: str = "/config", body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """(status, text) of a response to a request with any headers, including Host."""
    port = int(served.address.rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host=True)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"Host": f"127.0.0.1:{port}", "Content-Length": str(len(body or b"")), **sent}.items():
            connection.putheader(name, value.replace("PORT", str(port)))
        connection.endheaders(body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


@pytest.mark.parametrize("host", ["127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "LOCALHOST", "127.1.2.3"])
def test_this_machine_is_let_in(served, host):
    assert ask(served, Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", [EVIL, f"{EVIL}:PORT", "127.0.0.1.evil.example", "localhost.evil.example", "203.0.113.9", "", "[::1", "a b"]
)
def test_another_host_is_refused_with_a_sentence(served, host):
    status, text = ask(served, Host=host)
    assert status == 403 and "is not a host of this studio" in text and "--allow-host" in text and "\n" not in text


@pytest.mark.parametrize("origin", [f"http://{EVIL}", "null", "http://127.0.0.1:1", "https://127.0.0.1:1", "http://localhost:PORT", "x"])
def test_another_origin_is_refused_with_a_sentence(served, origin):
    status, text = ask(served, "POST", "/gradio_api/queue/join", b"{}", Origin=origin, Content_Type="application/json")
    assert status == 403 and "Requests from" in text and "\n" not in text


def test_the_page_itself_is_let_in(served):
    assert ask(served, Origin="http://127.0.0.1:PORT")[0] == 200


def door(host: str, *allowed: str) -> HostGuard:
    return HostGuard(lambda *_: None, host, allowed, 1)


def test_names_of_a_list_are_let_in_and_behind_a_proxy_too():
    assert door("127.0.0.1", "studio.example").refusal("studio.example", "https://studio.example") == ""
    assert door("127.0.0.1", "studio.example").refusal("Studio.Example.:7860", "http://studio.example:7860") == ""
    assert EVIL in door("127.0.0.1", "studio.example").refusal(EVIL, None)
    assert door("127.0.0.1", "*").refusal(EVIL, f"http://{EVIL}") == ""
    assert door("127.0.0.1", "*").refusal(EVIL, "http://other.example") != ""


def test_the_host_that_was_asked_for_is_let_in_and_on_all_addresses_any_number():
    assert door("192.0.2.7").refusal("192.0.2.7:7860", None) == ""
    assert door("192.0.2.7").refusal("192.0.2.8:7860", None) != ""
    for host in ("0.0.0.0", "::"):
        assert door(host).refusal("192.0.2.8:7860", None) == door(host).refusal("[2001:db8::1]:7860", None) == ""
        assert door(host).refusal(EVIL, None) != "", "a name may be pointed anywhere"


def test_a_body_that_is_too_large_is_refused_before_it_is_sent(served):
    status, text = ask(served, "POST", "/gradio_api/queue/join", Content_Length=str(BODY + 1), Content_Type="application/json")
    assert status == 413 and "at most" in text
    status, text = ask(served, "POST", "/gradio_api/upload", Content_Length=str(2**30), Content_Type="multipart/form-data; boundary=x")
    assert status == 413 and "Send a smaller file" in text


@pytest.mark.parametrize("path", ["/gradio_api/file=http://evil.example/x", "/gradio_api/proxy=https://evil.example/x"])
def test_nothing_is_fetched_from_elsewhere(served, path):
    assert ask(served, path=path)[0] == 403


def test_libraries_are_told_to_stay_at_home_before_they_are_loaded():
    code = "import app, os, huggingface_hub.constants as c; print(c.HF_HUB_OFFLINE, os.environ['TRANSFORMERS_OFFLINE'])"
    environment = {k: v for k, v in os.environ.items() if "OFFLINE" not in k}
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["True", "1"]


def test_no_folder_of_this_machine_stands_on_the_page(served):
    page = ask(served)[1]
    for folder in (str(served.home), str(ROOT), str(served.home.parent)):
        assert folder not in page


@pytest.mark.parametrize("public", [True, False])
def test_a_public_page_is_open_to_every_host_and_site_but_not_to_large_bodies_or_other_addresses(public):
    """A Space is requested under names that it does not know, and has no accounts that another site could abuse."""
    came: list[int] = []

    async def app(scope, receive, send) -> None:
        came.append(200)
        await PlainTextResponse("in")(scope, receive, send)

    def status(path: str = "/gradio_api/queue/join", length: int = 10) -> int:
        headers = {"host": "owner-name.hf.example", "origin": f"https://{EVIL}", "content-length": str(length)}
        scope = {
            "type": "http", "method": "POST", "path": path, "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        }  # fmt: skip
        sent: list[int] = []

        async def send(message) -> None:
            if message["type"] == "http.response.start":
                sent.append(message["status"])

        async def receive():
            return {"type": "http.request", "body": b"", "more_body": False}

        answered = HostGuard(app, "0.0.0.0", (), largest=1000, public=public)(scope, receive, send)
        with ThreadPoolExecutor() as own:  # the browser tests leave a loop in this thread
            own.submit(asyncio.run, answered).result()
        return sent[0]

    assert status() == (200 if public else 403)
    assert status(length=BODY + 1) == (413 if public else 403)
    assert status("/gradio_api/upload", 2000 + 2**16) == (413 if public else 403)
    assert status("/gradio_api/file=http://evil.example/x") == 403
    assert came == [200] * public
