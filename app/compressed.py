"""The page's own document is made once and comes compressed: it holds every panel's script and is large. Gradio makes it anew for each
visitor, which takes longer than anything else before the page can be used, and compresses only files.
"""

from __future__ import annotations

from collections import OrderedDict

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DOCUMENTS = ("/", "/config")  # streams must not wait for a compressor, and Gradio compresses its scripts and styles itself
LEVEL = 5  # zlib's: a tenth larger than its best, in a third of the time
KEPT = 8  # answers; visitors of one address differ in no header that a document depends on
LARGEST = 4 * 2**20  # bytes of one that is kept
# headers that no document depends on, and that differ between browsers; an answer is kept for all others as they are
HARMLESS = {
    b"accept", b"accept-language", b"cache-control", b"connection", b"dnt", b"if-modified-since", b"if-none-match", b"pragma", b"priority",
    b"sec-ch-ua", b"sec-ch-ua-mobile", b"sec-ch-ua-platform", b"sec-fetch-dest", b"sec-fetch-mode", b"sec-fetch-site", b"sec-fetch-user",
    b"upgrade-insecure-requests", b"user-agent",
}  # fmt: skip

Key = tuple[str, str, tuple[tuple[bytes, bytes], ...]]


class Compressed:
    """ASGI middleware: gzip for the documents of a page, for clients that take it. The latest answers are kept; they depend on nothing but
    the request, as long as a page's configuration stays what it was when it was launched."""

    def __init__(self, app: ASGIApp):
        self.app, self.compressing = app, GZipMiddleware(app, compresslevel=LEVEL)
        self._kept: OrderedDict[Key, list[Message]] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in DOCUMENTS:
            await self.app(scope, receive, send)
        elif scope["method"] != "GET" or scope["query_string"]:  # a link may hold a state that was kept for it
            await self.compressing(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = tuple(sorted((name, value) for name, value in scope["headers"] if name not in HARMLESS))
        key = (scope["path"], scope.get("scheme", ""), headers)
        if key in self._kept:
            self._kept.move_to_end(key)
            for message in self._kept[key]:
                await send(dict(message))
            return
        said: list[Message] = []

        async def listen(message: Message) -> None:
            said.append(dict(message))
            await send(message)

        await self.compressing(scope, receive, listen)
        if _for_all(said):
            self._kept[key] = said
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)


def _for_all(said: list[Message]) -> bool:
    """Whether an answer is good for every request like the one that it answered."""
    own = any(name.lower() == b"set-cookie" for name, _ in said[0].get("headers", ()))
    return said[0].get("status") == 200 and not own and sum(len(message.get("body", b"")) for message in said) <= LARGEST
