"""Cache of compressed responses: the page's document, which contains every panel's script, and Gradio's own scripts and styles.

Gradio rebuilds the document for each visitor, the slowest step before the page can be used, and compresses each file every time.
"""

from __future__ import annotations

import gzip
from collections import OrderedDict
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DOCUMENTS = ("/", "/config")
FILES = ("/assets/", "/theme.css")  # path prefixes; these files ignore the query string
LEVEL = 6  # zlib's
# maximum cached responses per kind; a link is never cached, because its query may contain a page state
KEPT = {"document": 8, "file": 512, "link": 0}
SMALL, LARGEST = 400, 4 * 2**20  # bytes: smaller responses are not compressed, larger ones not cached
PARTLY = {"range", "if-none-match", "if-modified-since"}  # headers that ask for less than the whole file
# headers that differ between browsers without changing the document; all others are part of the cache key
HARMLESS = PARTLY | {
    "accept", "accept-encoding", "accept-language", "cache-control", "connection", "dnt", "pragma", "priority", "sec-ch-ua",
    "sec-ch-ua-mobile", "sec-ch-ua-platform", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site", "sec-fetch-user",
    "upgrade-insecure-requests", "user-agent",
}  # fmt: skip


class CacheKey(NamedTuple):
    """Everything a response depends on. kind : a key of KEPT; request : path and, for a document, headers; packed : gzip is accepted"""

    kind: str
    request: tuple[object, ...]
    packed: bool


class Compressed:
    """ASGI middleware that caches the latest responses. A page's configuration is fixed at launch, so they depend on the request alone."""

    def __init__(self, app: ASGIApp):
        self.app = app
        self._cached: dict[str, OrderedDict[CacheKey, list[Message]]] = {kind: OrderedDict() for kind in KEPT}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = key_of(scope)
        if key is None:
            await self.app(scope, receive, send)
            return
        cache = self._cached[key.kind]
        if key in cache:
            cache.move_to_end(key)
            messages = cache[key]
        else:
            messages = await self._answer(scope, receive, key.packed)
            if _is_shareable(messages):
                cache[key] = messages
                while len(cache) > KEPT[key.kind]:
                    cache.popitem(last=False)
        for message in messages:
            await send(dict(message))

    async def _answer(self, scope: Scope, receive: Receive, packed: bool) -> list[Message]:
        """The application's whole response as two messages, compressed unless it is small or already compressed."""
        messages: list[Message] = []

        async def listen(message: Message) -> None:
            messages.append(message)

        await self.app(scope, receive, listen)
        start, body = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
        headers = MutableHeaders(raw=list(start["headers"]))
        if len(body) >= SMALL and "content-encoding" not in headers:
            headers.add_vary_header("Accept-Encoding")
            if packed:
                body, headers["Content-Encoding"] = gzip.compress(body, LEVEL), "gzip"
        headers["Content-Length"] = str(len(body))
        return [{**start, "headers": headers.raw}, {"type": "http.response.body", "body": body}]


def key_of(scope: Scope) -> CacheKey | None:
    """Cache key of a request; None if its response is not cached."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path, query, headers = scope["path"], scope["query_string"], Headers(scope=scope)
    packed = "gzip" in headers.get("accept-encoding", "")
    if path in DOCUMENTS:
        relevant = sorted((name, value) for name, value in headers.items() if name not in HARMLESS)
        return CacheKey("link" if query else "document", (path, scope.get("scheme"), *relevant), packed)
    if path.startswith(FILES) and not PARTLY & set(headers):
        return CacheKey("file", (path,), packed)
    return None


def _is_shareable(messages: list[Message]) -> bool:
    """True if a response fits every request with the same key."""
    start, content = messages
    own = "set-cookie" in Headers(raw=start["headers"])
    return start["status"] == 200 and not own and len(content["body"]) <= LARGEST
