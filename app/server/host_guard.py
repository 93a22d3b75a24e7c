"""Refuses requests for another host, requests from another site, and bodies that are too large.

A web page can point its own host name at this machine (DNS rebinding); the browser would then treat it as the same origin as the studio.
The Host header reveals the name, so it must be one that nobody else can redirect: loopback, the host that the studio was started with,
or an allowed host.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.server.refusals import Refused
from engine.mesh.formats.source import printable

EVERYWHERE = ("", "0.0.0.0", "::")  # hosts that mean all addresses of this machine
UPLOAD = "/upload"  # end of the upload path
BODY = 2**20  # maximum bytes of any other request
ENVELOPE = 2**16  # bytes of an upload request besides the file
ABROAD = ("/proxy=", "/file=http:", "/file=https:")  # paths that make Gradio fetch other URLs
WRONG_HOST = "'{}' is not a host of this studio. Open it by its own address, or start it with --allow-host {}."
WRONG_ORIGIN = "Requests from {} are refused. Open the studio by its own address."
TOO_LARGE = "A request can have at most {:,} bytes. Send a smaller file."


class HostGuard:
    """ASGI middleware.

    host    : the host that the studio listens on
    allowed : other host names that requests may use; "*" allows all
    largest : maximum bytes of an uploaded file
    public  : anybody may use the page, under any name and from any site; there are no accounts to abuse
    """

    def __init__(self, app: ASGIApp, host: str, allowed: Iterable[str], largest: int, public: bool = False):
        self.app, self.largest, self.public = app, largest, public
        self.everywhere = host in EVERYWHERE
        self.names = {name.lower().strip("[]") for name in (host, "localhost", *allowed)} - {""}
        if self.everywhere:
            self.names.add(socket.gethostname().lower())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if sentence := not self.public and self.refusal(headers.get("host", ""), headers.get("origin")):
            await answer(scope, sentence, 403)(scope, receive, send)
        elif any(way in scope["path"] for way in ABROAD):
            await PlainTextResponse("This studio fetches nothing from elsewhere.", 403)(scope, receive, send)
        else:
            await self._let_in(scope, headers, receive, send)

    def refusal(self, host: str, origin: str | None) -> str:
        """One-sentence refusal of a request with these headers; "" if it is allowed."""
        name = hostname(f"//{host}")
        if not self.knows(name):
            label = printable(name or host)
            return WRONG_HOST.format(label, label or "NAME")
        if origin is not None and address(origin) != address(f"//{host}", origin):
            return WRONG_ORIGIN.format(printable(origin))
        return ""

    def knows(self, name: str) -> bool:
        """True for a host name that requests may use. A studio on all addresses accepts any IP address: DNS cannot redirect one."""
        if "*" in self.names or name in self.names:
            return True
        try:
            number = ipaddress.ip_address(name)
        except ValueError:
            return False
        return number.is_loopback or self.everywhere

    async def _let_in(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        """Passes a request on unless its body is too large."""
        limit = self.largest + ENVELOPE if scope["path"].endswith(UPLOAD) else BODY
        claimed = headers.get("content-length", "0")
        if not claimed.isdecimal() or int(claimed) > limit:
            await answer(scope, TOO_LARGE.format(limit), 413)(scope, receive, send)
            return
        received = 0

        async def receive_limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            # a client that sends more than it declared is treated as disconnected
            return message if received <= limit else {"type": "http.disconnect"}

        await self.app(scope, receive_limited, send)


def answer(scope: Scope, sentence: str, status: int) -> Response:
    """The response for a refusal, in OpenAI's form under /v1/."""
    if scope["path"].startswith("/v1/"):
        return JSONResponse(Refused(sentence).body(), status)
    return PlainTextResponse(sentence, status)


def hostname(url: str) -> str:
    """The host of a URL in lower case, without brackets and port; "" if there is none."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


def address(url: str, scheme_of: str = "") -> tuple[str, int | None]:
    """Host and port of a URL; a missing port is the default of its scheme, or of the scheme of another URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "", None
    scheme = parts.scheme or urlsplit(scheme_of).scheme
    return hostname(url), port or {"http": 80, "https": 443}.get(scheme)
