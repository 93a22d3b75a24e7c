"""A reverse proxy that serves a studio under a path, and passes requests on with or without that path."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

METHODS = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]
OWN_HEADERS = {"connection", "content-length", "transfer-encoding"}
LIMIT = 30.0  # seconds until it must listen


@contextmanager
def serve_proxy(address: str, prefix: str, strips: bool, headers: Mapping[str, str], port: int) -> Iterator[str]:
    """Yield the outer address. strips : remove the prefix from requests; headers : added to them"""
    client = httpx.AsyncClient(timeout=120)

    async def forward(request: Request) -> Response:
        path = request.url.path
        if not f"{path}/".startswith(f"{prefix}/"):
            return PlainTextResponse(f"{path} is outside of {prefix}", 404)
        inner = (path[len(prefix) :] or "/") if strips else path
        url = httpx.URL(address).copy_with(path=inner, query=request.url.query.encode())
        sent = {name: value for name, value in request.headers.items() if name not in OWN_HEADERS} | dict(headers)
        answer = await client.send(client.build_request(request.method, url, headers=sent, content=await request.body()), stream=True)
        passed_on = {name: value for name, value in answer.headers.items() if name not in OWN_HEADERS}
        return StreamingResponse(answer.aiter_raw(), answer.status_code, passed_on, background=BackgroundTask(answer.aclose))

    app = Starlette(routes=[Route("/{path:path}", forward, methods=METHODS)])
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + LIMIT
    while not server.started:
        assert time.monotonic() < deadline and thread.is_alive(), "The proxy does not listen."
        time.sleep(0.02)
    yield f"http://127.0.0.1:{port}{prefix}"
    server.should_exit = server.force_exit = True
    thread.join(LIMIT)
