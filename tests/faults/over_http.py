"""A studio on a free port of this process, and calls of its handlers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.server import studio
from engine.backbones import load
from tests.faults.mutate import json_text
from tests.faults.visitor import Answer, Page

PATIENCE = 60  # seconds for one answer
HOST = "127.0.0.1"


@contextmanager
def serving(pictures: Path, meshes: Path) -> Iterator[str]:
    """The address of a studio with the models of two folders."""
    page = studio.build(load("pictogram", str(pictures)), studio.mesh_model("lowpoly", str(meshes)))
    page.queue(default_concurrency_limit=4, api_open=False)
    page.launch(
        server_name=HOST, server_port=studio.free_port(HOST, 7960), prevent_thread_lock=True, quiet=True, show_error=True, share=False,
        ssr_mode=False, inbrowser=False, enable_monitoring=False, mcp_server=False, pwa=False,
    )  # fmt: skip
    try:
        yield page.local_url.rstrip("/")
    finally:
        page.close()


@dataclass
class OverHttp:
    """Requests as Gradio's page sends them."""

    client: httpx.Client

    @staticmethod
    def at(address: str) -> OverHttp:
        """The way to a studio."""
        once = httpx.Limits(max_keepalive_connections=0)  # a server that has failed at a request closes its connection
        return OverHttp(httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False, limits=once, headers={"Origin": address}))

    def page(self) -> Page:
        """The page as the server describes it."""
        return Page(self.client.get("/config").raise_for_status().json())

    def call(self, session: str, handler: dict[str, Any], data: list[Any]) -> Answer:
        """Runs a handler to its end, in the queue if it belongs there."""
        body = {"data": data, "fn_index": handler["id"], "session_hash": session, "event_data": None, "trigger_id": None}
        return self.join(body) if handler["queue"] else self.post(body)

    def post(self, body: Any) -> Answer:
        """A request that the queue does not hold."""
        try:
            response = self._send("/gradio_api/run/predict", body)
        except (httpx.RemoteProtocolError, httpx.ReadError) as e:  # Gradio cannot write some of its own errors down
            return Answer(number_of(body), 500, None, str(e))
        return answer(body, response)

    def _send(self, path: str, body: Any) -> httpx.Response:
        return self.client.post(path, content=content(body), headers={"Content-Type": "application/json"})

    def join(self, body: Any) -> Answer:
        """A request that waits in the queue; the answer is the last of its messages."""
        try:
            return self._joined(body)
        except (httpx.RemoteProtocolError, httpx.ReadError) as e:  # as above
            return Answer(number_of(body), 500, None, str(e))

    def _joined(self, body: Any) -> Answer:
        response = self._send("/gradio_api/queue/join", body)
        if response.status_code != 200:
            return answer(body, response)
        event = response.json()["event_id"]
        with self.client.stream("GET", "/gradio_api/queue/data", params={"session_hash": body["session_hash"]}) as stream:
            for line in stream.iter_lines():
                message = json.loads(line[5:]) if line.startswith("data:") else {}
                if message.get("msg") == "process_completed" and message.get("event_id") == event:
                    output = message["output"]
                    return Answer(body["fn_index"], 200, output.get("data") if message["success"] else None, output.get("error") or "")
        return Answer(body["fn_index"], 200, None, "the stream of messages ended early")


def content(body: Any) -> bytes:
    """A request's body, which may hold what JSON libraries refuse to write."""
    return json_text(body).encode("utf-8", "surrogatepass")


def answer(body: Any, response: httpx.Response) -> Answer:
    """An answer from HTTP's own."""
    number = number_of(body)
    try:
        found = response.json()
    except ValueError:
        return Answer(number, response.status_code, None, response.text)
    if response.status_code == 200 and isinstance(found, dict):
        return Answer(number, 200, found.get("data"))
    told = found.get("error") or found.get("detail") if isinstance(found, dict) else found
    return Answer(number, response.status_code, None, told if isinstance(told, str) else json.dumps(told))


def number_of(body: Any) -> int:
    """The handler that a request names, -1 if it names none."""
    return body.get("fn_index", -1) if isinstance(body, dict) else -1
