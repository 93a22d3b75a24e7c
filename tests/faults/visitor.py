"""A visitor of the studio without a browser: has the page's components and handlers, and calls them as Gradio's page does.

The transport reaches a handler over HTTP, or by a call in this process.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

Wrong = Mapping[tuple[int, int], Any]  # (handler, which input): the value that is sent instead of the page's


@dataclass(frozen=True)
class Answer:
    """What came back from a handler. status: of HTTP; error: what a person is told, "" if nothing is wrong."""

    handler: int
    status: int
    data: list[Any] | None
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the handler did what it was asked for."""
        return self.data is not None


class Transport(Protocol):
    """A way to a page's handlers."""

    def call(self, session: str, handler: dict[str, Any], data: list[Any]) -> Answer:
        """Runs a handler to its end."""


class Page:
    """What a page's configuration says of its components and handlers."""

    def __init__(self, config: Mapping[str, Any]):
        self.components = {c["id"]: c for c in config["components"]}
        self.handlers: dict[int, dict[str, Any]] = {
            d["id"]: d for d in config["dependencies"] if d.get("backend_fn", True)
        }  # others are JavaScript
        self._ids = {c["props"]["elem_id"]: c["id"] for c in config["components"] if c["props"].get("elem_id")}

    def of(self, name: str, event: str) -> dict[str, Any]:
        """The handler of an event of the component with an id."""
        return next(h for h in self.handlers.values() if [self._ids[name], event] in [list(t) for t in h["targets"]])

    def opening(self, tab: str) -> dict[str, Any]:
        """The handler of the opening of a tab, by the tab's label."""
        ids = {i for i, c in self.components.items() if c["props"].get("label") == tab}
        return next(h for h in self.handlers.values() if any(t[1] == "select" and t[0] in ids for t in h["targets"]))

    def with_event(self, event: str) -> dict[str, Any]:
        """The only handler of an event."""
        (found,) = (h for h in self.handlers.values() if any(t[1] == event for t in h["targets"]))
        return found

    def name(self, component: int) -> str:
        """A component's id in the page, or its kind."""
        found = self.components[component]
        return found["props"].get("elem_id") or found["type"]

    def title(self, handler: dict[str, Any]) -> str:
        """A handler in words: its function, and what starts it."""
        causes = [f"{self.name(t[0])}.{t[1]}" if t[0] in self.components else t[1] for t in handler["targets"]]
        return f"{handler['api_name'] or handler['id']} ({', '.join(causes[:2])})"

    def after(self, answer: Answer) -> Iterator[dict[str, Any]]:
        """The handlers that the page calls next."""
        for handler in self.handlers.values():
            if handler["trigger_after"] == answer.handler:
                wanted = {True: handler["trigger_only_on_success"], False: handler.get("trigger_only_on_failure")}
                if not any(wanted.values()) or wanted[answer.ok]:
                    yield handler

    def chain(self, handler: dict[str, Any]) -> list[int]:
        """The handlers that lead to one, from the event on."""
        above = [] if handler["trigger_after"] is None else self.chain(self.handlers[handler["trigger_after"]])
        return [*above, handler["id"]]


@dataclass
class Visitor:
    """One browser's tab: a session, and the values of the components as they stand there."""

    page: Page
    transport: Transport
    session: str = field(default_factory=lambda: secrets.token_hex(5))
    values: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = {i: c["props"].get("value") for i, c in self.page.components.items()}

    def data(self, handler: dict[str, Any], wrong: Wrong | None = None) -> list[Any]:
        """What the page sends to a handler."""
        return [(wrong or {}).get((handler["id"], k), self.values[i]) for k, i in enumerate(handler["inputs"])]

    def call(self, handler: dict[str, Any], data: list[Any]) -> Answer:
        """Sends some data to one handler; what comes back stands on the page."""
        answer = self.transport.call(self.session, handler, data)
        for i, value in zip(handler["outputs"], answer.data or [], strict=False):
            if not isinstance(value, dict) or value.get("__type__") != "update":
                self.values[i] = value
            elif "value" in value:
                self.values[i] = value["value"]
        return answer

    def fire(self, handler: dict[str, Any], wrong: Wrong | None = None) -> list[Answer]:
        """An event: its handler, and those that follow."""
        answers = [self.call(handler, self.data(handler, wrong))]
        for following in self.page.after(answers[0]):
            answers += self.fire(following, wrong)
        return answers
