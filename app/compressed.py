"""The page's own document comes compressed: it holds every panel's script and is large, and Gradio compresses only files."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

DOCUMENTS = ("/", "/config")  # streams must not wait for a compressor, and Gradio compresses its scripts and styles itself
LEVEL = 5  # zlib's: a tenth larger than its best, in a third of the time


class Compressed:
    """ASGI middleware: gzip for the documents of a page, for clients that take it."""

    def __init__(self, app: ASGIApp):
        self.app, self.compressing = app, GZipMiddleware(app, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        document = scope["type"] == "http" and scope["path"] in DOCUMENTS
        await (self.compressing if document else self.app)(scope, receive, send)
