"""The page is built once and sent compressed to clients that accept it; streams are not compressed."""

from __future__ import annotations

import asyncio
import gzip
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from starlette.datastructures import Headers

from app.server.compressed import KEPT, SMALL, Compressed
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
    """An application that counts its requests and responds with a number and many blanks."""

    def __init__(self, status: int = 200, headers: list[tuple[bytes, bytes]] | None = None):
        self.count, self.status, self.headers = 0, status, headers or []

    async def __call__(self, scope, receive, send) -> None:
        self.count += 1
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        for part in (str(self.count).encode(), b" " * SMALL):
            await send({"type": "http.response.body", "body": part, "more_body": part[:1] != b" "})


def fetch(app: Compressed, path: str = "/", method: str = "GET", query: bytes = b"", **headers: str) -> tuple[int, Headers]:
    """(number in a response, its headers)."""
    messages = []

    async def send(message) -> None:
        messages.append(message)

    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "path": path, "method": method, "query_string": query, "headers": named}
    with ThreadPoolExecutor(1) as thread:  # other tests' browser leaves a running loop in this thread
        thread.submit(asyncio.run, app(scope, None, send)).result()
    headers, body = Headers(raw=messages[0]["headers"]), b"".join(message.get("body", b"") for message in messages[1:])
    opened = gzip.decompress(body) if "content-encoding" in headers else body
    assert int(headers.get("content-length", len(body))) == len(body)
    return int(opened), headers


def test_a_document_is_made_once_for_requests_that_it_cannot_tell_apart() -> None:
    app = Compressed(Made())
    assert fetch(app, host="here", user_agent="one")[0] == fetch(app, host="here", user_agent="another", sec_fetch_mode="navigate")[0] == 1
    assert fetch(app, host="there")[0] == 2, "the address is in the document"
    assert fetch(app, host="here", cookie="a=b")[0] == 3
    assert fetch(app, "/config", host="here")[0] == 4
    assert fetch(app, host="here")[0] == 1


def test_a_file_is_made_once_for_all() -> None:
    app = Compressed(Made())
    assert fetch(app, "/assets/a.js", host="here")[0] == fetch(app, "/assets/a.js", host="there", cookie="a=b")[0] == 1
    assert fetch(app, "/theme.css", query=b"v=1")[0] == fetch(app, "/theme.css", query=b"v=2")[0] == 2, "else queries would fill the memory"


@pytest.mark.parametrize(("accepted", "encoding"), [("gzip, deflate, br, zstd", "gzip"), ("deflate", None), ("", None)])
def test_it_is_compressed_for_those_who_take_it(accepted: str, encoding: str | None) -> None:
    for path in ("/", "/assets/a.js"):
        app = Compressed(Made())
        for _ in range(2):
            number, headers = fetch(app, path, accept_encoding=accepted)
            assert number == 1 and headers.get("content-encoding") == encoding and "Accept-Encoding" in headers["vary"]


@pytest.mark.parametrize(
    "case",
    [{"query": b"deep_link=a"}, {"path": "/gradio_api/info"}, {"method": "HEAD"}, {"path": "/assets/a.js", "if_none_match": "tag"},
     {"path": "/assets/a.js", "range": "bytes=0-9"}],
)  # fmt: skip
def test_what_is_for_one_request_is_made_for_it(case: dict) -> None:
    app = Compressed(Made())
    assert [fetch(app, **case)[0], fetch(app, **case)[0]] == [1, 2]


@pytest.mark.parametrize("inner", [Made(500), Made(headers=[(b"set-cookie", b"visitor=1")])])
def test_an_error_and_a_visitors_own_answer_are_not_kept(inner: Made) -> None:
    app = Compressed(inner)
    assert [fetch(app)[0], fetch(app)[0]] == [1, 2]


def test_only_the_latest_answers_are_kept() -> None:
    app, most = Compressed(Made()), KEPT["document"]
    for number in range(most + 1):
        fetch(app, host=f"host{number}")
    assert fetch(app, host=f"host{most}")[0] == most + 1
    assert fetch(app, host="host0")[0] == most + 2


def test_a_stream_is_not_kept_back(served: Served) -> None:
    visitor = Visitor(served.address)
    beat = f"/gradio_api/heartbeat/{visitor.session}"
    with visitor.http.stream("GET", beat, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers and "ALIVE" in next(answer.iter_lines())
    visitor.http.close()
