"""The page comes compressed to those who take it, unchanged; streams do not."""

from __future__ import annotations

import gzip

import httpx
import pytest

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


def test_a_stream_is_not_kept_back(served: Served) -> None:
    visitor = Visitor(served.address)
    beat = f"/gradio_api/heartbeat/{visitor.session}"
    with visitor.http.stream("GET", beat, headers={"Accept-Encoding": "gzip"}) as answer:
        assert "content-encoding" not in answer.headers and "ALIVE" in next(answer.iter_lines())
    visitor.http.close()
