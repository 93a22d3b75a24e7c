"""Queues requests that do not come through the page.

Gradio's queue decides the order of runs, so such a request pushes its own event into it, and does its work inside that event. No other
module of app/server touches Gradio's queue, except for its length.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any

import gradio as gr
from gradio.data_classes import PredictBodyInternal
from starlette.requests import Request

from app.live.session import Sessions
from app.server.refusals import BUG, OURS, OVERLOADED, ClientLeft, Refused
from engine.errors import ForetokenError

JOIN = "/gradio_api/queue/join"  # the path that Gradio's queue expects of a request
TAB = "api"
BUSY = "Too many requests are waiting for this machine. Try again later."
NOT_BEGUN = "The request waited too long and lost its place. Send it again."
END = object()


class Order:
    """A request's work and its updates.

    work : called with the caller's name and the ticket's number; yields updates, and None between them
    """

    def __init__(self, work: Callable[[str, int], Iterator[Any]]):
        self.caller = f"v1-{secrets.token_hex(16)}"
        self.work, self.number = work, 0
        self.updates: asyncio.Queue[Any] = asyncio.Queue()
        self.left = threading.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, update: Any) -> None:
        """Sends an update to the request, from another thread."""
        with suppress(RuntimeError):  # the server's loop is closed: nobody is waiting
            self._loop.call_soon_threadsafe(self.updates.put_nowait, update)


class Turns:
    """Runs orders one at a time in the page's queue, together with the runs of its visitors."""

    def __init__(self, page: gr.Blocks, sessions: Sessions, forget: Callable[[str], None]):
        """forget : frees the state that Gradio stores for a caller. Call this inside the page's context, because it adds an event."""
        self.page, self.sessions, self._forget = page, sessions, forget
        self._orders: dict[str, Order] = {}

        def turn(request: gr.Request = None) -> str:
            self._take(request.session_hash)
            return ""

        turn.__annotations__ = {"request": gr.Request, "return": str}  # Gradio reads types here
        self._event = gr.api(turn, api_visibility="private", concurrency_id="engine", concurrency_limit=1)["id"]

    async def follow(self, request: Request, work: Callable[[str, int], Iterator[Any]]) -> AsyncIterator[Any]:
        """Yield the work's updates, without the Nones, once it is this request's turn. Raises the work's errors, Refused if the queue is
        full, and ClientLeft if the connection is closed, which ends the run."""
        order = Order(work)
        self._orders[order.caller] = order
        gone = asyncio.create_task(wait_until_closed(request))
        try:
            order.number = self.sessions.enter(order.caller, TAB) or 0
            await self._join(request, order)
            while (update := await self._next(order, gone)) is not END:
                if isinstance(update, Exception):
                    raise update
                yield update
        finally:
            gone.cancel()
            await self._leave(order)

    async def _join(self, request: Request, order: Order) -> None:
        """Puts an order's event at the end of the queue."""
        queue = self.page._queue
        if queue.server_app is None:
            queue.set_server_app(request.app)
        scope = {**request.scope, "path": JOIN, "raw_path": JOIN.encode(), "query_string": b""}
        body = PredictBodyInternal(fn_index=self._event, session_hash=order.caller, data=[], request=Request(scope))
        joined, _, state = await queue.push(body=body, request=Request(scope), username=None)
        if not joined:
            raise Refused(BUSY, status=429, code="queue_full", kind=OVERLOADED) if state == "queue_full" else RuntimeError(state)

    async def _next(self, order: Order, gone: asyncio.Task[None]) -> Any:
        update = asyncio.create_task(order.updates.get())
        await asyncio.wait({update, gone}, return_when=asyncio.FIRST_COMPLETED)
        if update.done():
            return update.result()
        update.cancel()
        raise ClientLeft

    async def _leave(self, order: Order) -> None:
        """Releases the order's place, run and files."""
        order.left.set()
        self._orders.pop(order.caller, None)
        await self.page._queue.clean_events(session_hash=order.caller)  # its place, and messages that nobody would read
        self.page._queue.pending_messages_per_session.pop(order.caller, None)
        await asyncio.to_thread(self.sessions.leave, order.caller)
        self._forget(order.caller)

    def _take(self, caller: str) -> None:
        """Does the work of a caller's order, in one of Gradio's threads."""
        order = self._orders.pop(caller, None)
        if order is None:  # its client has left
            return
        try:
            self._work(order)
        except ForetokenError as e:
            order.put(e)
        except Exception:
            order.put(Refused(BUG, status=500, kind=OURS))
            raise  # Gradio prints the traceback
        finally:
            self.sessions.end(caller, order.number)
            order.put(END)

    def _work(self, order: Order) -> None:
        if not self.sessions.begin(order.caller, order.number):
            raise Refused(NOT_BEGUN, status=503, code="place_lost", kind=OVERLOADED)
        for update in order.work(order.caller, order.number):
            if order.left.is_set():
                return
            self.sessions.renew(order.caller, order.number)
            if update is not None:
                order.put(update)


def arrival(page: gr.Blocks, caller: str) -> float | None:
    """Arrival time of the caller's active call, by `time.monotonic`; None if it has none."""
    turns = [event for job in page._queue.active_jobs for event in job or ()]
    times = [event.enqueue_time for event in turns if (event.session_hash, event.concurrency_id) == (caller, "engine")]
    return times[0] if times else None


async def wait_until_closed(request: Request) -> None:
    """Returns when the client closes the connection. The body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
