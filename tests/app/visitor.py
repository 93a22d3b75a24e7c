"""A visitor without a browser: sends the page's requests over HTTP, with any values."""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

QUICK = {"image": {"size": "64 px"}, "mesh": {"face_budget": 8}}  # settings of a short run
JUNK = [  # values that no field accepts
    None, True, -1, 2**70, 10**400, 1e99, "", "x" * 5000, "\x00", "\ud800", [], [[1]], {}, {"values": None}, {"values": {"a": []}},
    {"name": []},
]  # fmt: skip
STRANGE = [  # values that some fields accept
    *JUNK, 0, 1.5, 1e308, float("nan"), float("inf"), "-1", "\U0001f600" * 40, ["a", 1], {"name": "sjdpp"}, "../../etc/passwd",
    {"path": "/etc/hostname", "meta": {"_type": "gradio.FileData"}}, {"__type__": "update"},
]  # fmt: skip
OURS = re.compile(r'File ".*/(app/(?!server/)|engine/)[^"]*\.py", line \d+')  # the server's middleware sees every request


def wait_until(holds: Callable[[], Any], seconds: float = 60) -> bool:
    """True as soon as a condition is true; False if it is not within these seconds."""
    pause, deadline = threading.Event(), time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.05)
    return True


def bug_in(log: str) -> str:
    """The first error of ours that a studio has printed, or "". Gradio prints its own for invalid requests."""
    return next((error[-3000:] for error in log.split("Traceback")[1:] if OURS.search(error)), "")


class Visitor:
    """One session. Handlers are identified by the function names in the page's config."""

    def __init__(self, address: str):
        self.http = httpx.Client(base_url=address, timeout=120)
        self.session = secrets.token_hex(6)
        self.config = self.http.get("/config").json()
        self.components = {c["id"]: c for c in self.config["components"]}
        self.handlers = {d["id"]: d for d in self.config["dependencies"]}

    @contextmanager
    def present(self) -> Iterator[Visitor]:
        """Keeps a page open; at the end it is closed, which the server notices by itself."""
        with self.http.stream("GET", f"/gradio_api/heartbeat/{self.session}") as beat:
            lines = beat.iter_lines()  # the connection stays open until the end of the block
            next(lines)
            yield self
        self.http.close()

    def handler(self, name: str, tab: str = "image") -> int:
        """Number of a tab's handler; the tabs are built in order."""
        handlers = [i for i, d in sorted(self.handlers.items()) if str(d["api_name"]).rsplit("_", 1)[0] == name or d["api_name"] == name]
        handlers = [i for i in handlers if self.tab_of(i) in (tab, "")]
        assert handlers, f"{name} of {tab} is not among {[d['api_name'] for d in self.handlers.values()]}"
        return handlers[0]

    def tab_of(self, handler: int) -> str:
        """Tab of a handler's components; "" if unknown."""
        named = [
            self.components[c]["props"].get("elem_id") or ""
            for c in (*self.handlers[handler]["inputs"], *self.handlers[handler]["outputs"])
        ]
        return "" if not named else "mesh" if any(n.startswith("mesh-") for n in named) else "image"

    def open_tab(self, tab: str) -> Visitor:
        """Opens a tab; returns self."""
        if tab == "mesh":
            self.ask(self.handler("open", "mesh"), self.values(self.handler("open", "mesh")))
        return self

    def ends(self, number: int) -> bool:
        """True if a handler ends soon; the Lab's loop runs until it is stopped, and a benchmark takes minutes."""
        handler = self.handlers[number]
        near = [*handler["inputs"], *handler["outputs"], *(target[0] for target in handler["targets"])]
        names = [self.components[i]["props"].get("elem_id") or "" for i in near if i in self.components]
        after = handler["trigger_after"]
        return not any(name.startswith(("lab-", "bench-")) for name in names) and (after is None or self.ends(after))

    def values(self, handler: int) -> list[Any]:
        """Values that an unchanged page sends to a handler."""
        return [self.components[c]["props"].get("value") for c in self.handlers[handler]["inputs"]]

    def ask(self, handler: int, data: list[Any]) -> str:
        """Calls a handler; returns its whole response as text."""
        if self.handlers[handler]["queue"]:
            return "\n".join(self.follow(handler, data))
        return self._post("/gradio_api/run/predict", handler, data).text

    def follow(self, handler: int, data: list[Any]) -> Iterator[str]:
        """Yield the response lines of a queued handler as they arrive."""
        joined = self._post("/gradio_api/queue/join", handler, data)
        if joined.status_code != 200:
            yield joined.text
            return
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": self.session}) as answer:
            for line in answer.iter_lines():
                yield line
                if '"process_completed"' in line:
                    return

    def _post(self, path: str, handler: int, data: list[Any]) -> httpx.Response:
        body = {"fn_index": handler, "session_hash": self.session, "data": data}
        content = json.dumps(body).encode()  # lone surrogates stay unchanged: \\ud800
        return self.http.post(path, content=content, headers={"Content-Type": "application/json"})

    def upload(self, name: str, content: bytes) -> str:
        """Uploads a file and lets the Mesh tab read it; returns the response."""
        sent = self.http.post("/gradio_api/upload", files={"files": (name, content)})
        if sent.status_code != 200:
            return sent.text
        file = {"path": sent.json()[0], "orig_name": name, "meta": {"_type": "gradio.FileData"}}
        announced = self.ask(self.handler("announce", "mesh"), [file])
        reading = self.handler("drop", "mesh")
        return announced + self.ask(reading, [file, *self.values(reading)[1:]])

    def ticket(self, tab: str = "image", chosen: Mapping[str, Any] | None = None, /, **changed: Any) -> Any:
        """The number of a ticket for the engine.

        chosen: settings that differ from the page's; changed: other values, by the ids of their components
        """
        handler = self.handler("enter", tab)
        data = self.values(handler)
        for place, component in enumerate(self.handlers[handler]["inputs"]):
            name = (self.components[component]["props"].get("elem_id") or "").removeprefix("mesh-")
            if name == "settings":
                data[place] = data[place] | {"values": data[place]["values"] | (chosen or {})}
            if name in changed:
                data[place] = changed[name]
        reply = json.loads(self.ask(handler, data))
        return reply["data"][0] if "data" in reply else 0

    def inputs_for(self, tab: str, chosen: Mapping[str, Any], /, **changed: Any) -> list[Any]:
        """Values that the page sends for a run; `changed` may contain a ticket, else see `ticket`."""
        return [changed["ticket"] if "ticket" in changed else self.ticket(tab, chosen, **changed)]

    def generate(self, tab: str = "image", **changed: Any) -> str:
        """Does a short run with only the method; returns its response and results."""
        response = self.ask(self.handler("run", tab), self.inputs_for(tab, QUICK[tab], **{"compare": False, **changed}))
        return response + self.ask(self.handler("deliver", tab), [])

    def can_generate(self, tab: str = "image") -> bool:
        """True if a run finishes."""
        return '"gradio.FileData"' in self.generate(tab)  # a download is offered
