"""Serves a studio under a proxy's path, such as https://example.org/foretoken/."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

PREFIX = re.compile(r"(/[\w.~-]+)+", re.ASCII)


class Prefix:
    """ASGI middleware that removes the outer path from requests, for proxies that pass it on, and passes a path from the header
    X-Forwarded-Prefix to Gradio.

    root_path : the outer path that the studio was started with, or a URL with it; "" = the header's path is used
    """

    def __init__(self, app: ASGIApp, root_path: str = ""):
        self.app, self.root = app, urlsplit(root_path).path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        header = headers.get("x-forwarded-prefix", "").split(",")[0].strip().rstrip("/")
        prefix = self.root or (header if PREFIX.fullmatch(header) else "")
        scope = strip_prefix(scope, prefix)
        if prefix and not self.root:
            scope["headers"] = [*scope["headers"]]
            # Gradio builds all URLs from this header, and reads no header with a path
            host = headers.get("x-forwarded-host", headers.get("host", "")).split(",")[0].strip()
            MutableHeaders(scope=scope)["x-forwarded-host"] = f"{host}{prefix}"
        await self.app(scope, receive, send)


def strip_prefix(scope: Scope, prefix: str) -> Scope:
    """Copy of a scope without the prefix of its path."""
    path, raw = scope["path"], scope.get("raw_path")
    if not prefix or not f"{path}/".startswith(f"{prefix}/"):
        return dict(scope)
    changed = {"path": path[len(prefix) :] or "/"}
    if raw is not None:
        changed["raw_path"] = raw[len(prefix) :] or b"/"
    return {**scope, **changed}
