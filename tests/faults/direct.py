"""Calls a page's handlers without HTTP, in the threads of the test, as Gradio's queue would call them."""

from __future__ import annotations

import inspect
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gradio as gr
from gradio.blocks import Block
from gradio.utils import get_type_hints

from engine.errors import ForetokenError
from tests.faults.visitor import Answer


@dataclass
class Direct:
    """Calls handlers. A generator holds the place that its kind has; one whose visitor has gone is closed or just never continued.

    bugs : tracebacks of what was no sentence
    """

    page: gr.Blocks
    bugs: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    places: dict[str, threading.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.places = {str(fn.concurrency_id): threading.Lock() for fn in self.page.fns.values() if fn.queue}

    def call(self, session: str, handler: dict[str, Any], data: list[Any]) -> Answer:
        """Runs a handler to its end."""
        block = self.page.fns[handler["id"]]
        request = SimpleNamespace(session_hash=session, headers={})
        try:
            if not block.queue:
                return Answer(handler["id"], 200, shown(called(block.fn, data, request), len(handler["outputs"])))
            with self.places[str(block.concurrency_id)]:
                return Answer(handler["id"], 200, self._drained(session, called(block.fn, data, request), len(handler["outputs"])))
        except (gr.Error, ForetokenError) as e:
            return Answer(handler["id"], 500, None, str(e))
        except Exception:
            self.bugs.append(traceback.format_exc(limit=-8))
            return Answer(handler["id"], 500, None, "a bug")

    def _drained(self, session: str, found: Any, count: int) -> list[Any]:
        """The last values of a generator; of a handler that is none, what it returned."""
        if not isinstance(found, Iterator):
            return shown(found, count)
        last: list[Any] = []
        for update in found:
            last = shown(update, count)
            if session in self.gone:
                if len(session) % 2:  # Gradio closes most generators of a page that is gone, and drops some
                    found.close()
                break
        return last


def called(fn: Callable[..., Any], data: list[Any], request: SimpleNamespace) -> Any:
    """Calls a handler with the values of its inputs, and with the request where it asks for it, as Gradio does."""
    wanted = [p.name for p in inspect.signature(fn).parameters.values() if p.kind is not p.VAR_POSITIONAL]
    hints = get_type_hints(fn)
    given = list(data)
    for place in (at for at, name in enumerate(wanted) if hints.get(name) is gr.Request):
        given.insert(place, request)
    return fn(*given)


def shown(returned: Any, count: int) -> list[Any]:
    """What a handler returns as the page gets it: a value for each output, updates as dictionaries."""
    values = [] if not count else [returned] if count == 1 and not isinstance(returned, tuple) else list(returned)
    return [{"__type__": "update", **v.constructor_args} if isinstance(v, Block) else v for v in values]
