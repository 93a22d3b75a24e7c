"""The page is made once and comes compressed to those who take it, unchanged; streams do not."""

from __future__ import annotations

import asyncio
import gzip

import httpx
import pytest

from app.compressed import KEPT, Compressed
from tests.app.conftest import Served
from tests.app.visitor import Visitor


@pytest.mark.parametrize("path", ["/", "/config"])
def test_the_document_is_the_same_and_a_quarter_as_large(served: Served, path: str) -> None:
    with httpx.stream("GET", served.address + path, headers={"Accept-Encoding": "gzip"}) as answer:
        packed = b"".join(answer.iter_raw())
    plain = httpx.get(served.address + path, headers={"Accept-Encoding": "identity"})
    assert answer.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert "accept-encoding" in answer.headers["vary"].lower()
    assert len(gzip.decompress(packed)) == len(plain.content) > 4 * len(packed)


class Made:
    """An application that counts what it was asked, and answers with a number."""

    def __init__(self, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None):
        self.count, self.status, self.headers = 0, status, headers or []

    async def __call__(self, scope, receive, send) -> None:
        self.count += 1
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": str(self.count).encode()})


def asked(app: Compressed, path: str = "/", method: str = "GET", query: bytes = b"", **headers: str) -> bytes:
    """The body of an answer."""
    said = []

    async def send(message) -> None:
        said.append(message)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    asyncio.run(app({"type": "http", "path": path, "method": method, "query_string": query, "headers": named}, None, send))
    return b"".join(message.get("body", b"") for message in said)


def test_a_document_is_made_once_for_requests_that_it_cannot_tell_apart() -> None:
    app = Compressed(Made())
    assert asked(app, host="here", user_agent="one") == asked(app, host="here", user_agent="another", sec_fetch_mode="navigate") == b"1"
    assert asked(app, host="there") == b"2", "the address is in the document"
    assert asked(app, host="here", cookie="a=b") == b"3"
    assert asked(app, "/config", host="here") == b"4"
    assert asked(app, host="here") == b"1"


def test_a_link_another_path_and_an_error_are_answered_anew() -> None:
    for case in ({"query": b"deep_link=a"}, {"path": "/gradio_api/info"}, {"method": "HEAD"}):
        app = Compressed(Made())
        assert [asked(app, **case), asked(app, **case)] == [b"1", b"2"], case
    for made in (Made(500), Made(headers=[(b"Set-Cookie", b"visitor=1")])):
        app = Compressed(made)
        assert [asked(app), asked(app)] == [b"1", b"2"]


def test_only_the_latest_answers_are_kept() -> None:
    app = Compressed(Made())
    for number in range(KEPT + 1):
        asked(app, host=f"host{number}")
    assert asked(app, host=f"host{KEPT}") == str(KEPT + 1).encode()
    assert asked(app, host="host0") == str(KEPT + 2).encode()


def test_a_stream_is_not_kept_back(served: Served) -> None:
    visitor = Visitor(served.address)
    beat = f"/gradio_api/heartbeat/{visitor.session}"
    with visitor.http.stream("GET", beat, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers and "ALIVE" in next(answer.iter_lines())
    visitor.http.close()
