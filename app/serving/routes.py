"""The routes beside the page: OpenAI's images API under /v1, and /metrics."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial, wraps
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from app.serving import images_reply
from app.serving.drawing import Drawn, draw
from app.serving.images_request import NO_MODEL, NOT_AN_OBJECT, ImagesRequest, read
from app.serving.key import Key
from app.serving.refusals import Refused, refusal_of
from app.serving.turns import ClientLeft, Turns
from app.ui import asked as values
from app.ui.place import Place
from engine.errors import ForetokenError

NOWHERE = "There is no {} {} here. There are POST /v1/images/generations and GET /v1/models."
GONE = 499  # nginx's status for a client that left; nobody reads it
Handler = Callable[[Request], Awaitable[Response]]


class ImagesApi:
    """OpenAI's images API for one studio. It draws with the page's model, runner and queue."""

    def __init__(self, place: Place, turns: Turns, key: Key):
        self.place, self.turns, self.key = place, turns, key

    def routes(self) -> list[BaseRoute]:
        """What the server needs to know."""
        return [
            Route("/v1/images/generations", self._answering(self.generations), methods=["POST"]),
            Route("/v1/models", self._answering(self.models), methods=["GET"]),
            Route("/v1/models/{name}", self._answering(self.model), methods=["GET"]),
            Route("/v1/{rest:path}", self._answering(nowhere), methods=["GET", "POST", "PUT", "PATCH", "DELETE"]),
        ]

    def _answering(self, handler: Handler) -> Handler:
        """The handler behind the key; its refusals become answers."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                self.key.check(request.headers)
                return await handler(request)
            except (ClientLeft, ClientDisconnect):
                return Response(status_code=GONE)
            except Refused as e:
                return JSONResponse(e.told(), e.status)

        return answer

    async def models(self, request: Request) -> Response:
        """All models that make pictures."""
        return JSONResponse({"object": "list", "data": [images_reply.model_of(self.place.backbone)]})

    async def model(self, request: Request) -> Response:
        """One of them."""
        name, own = request.path_params["name"], self.place.backbone.name
        if name != own:
            raise Refused(NO_MODEL.format(values.brief(name), own), status=404, param="model", code="model_not_found")
        return JSONResponse(images_reply.model_of(self.place.backbone))

    async def generations(self, request: Request) -> Response:
        """Pictures from a prompt, in one answer or as a stream of events."""
        asked = read(await body_of(request), self.place.backbone)
        words = len((asked.prompts[0].text or "").split())
        if asked.stream:
            return await self._stream(request, asked, words)
        drawn: list[Drawn] = []
        for number in range(len(asked.prompts)):  # each takes its own turn, so that others come between
            async with aclosing(self._updates(request, asked, number)) as updates:
                drawn += [update async for update in updates]
        return JSONResponse(images_reply.reply(drawn, words))

    async def _stream(self, request: Request, asked: ImagesRequest, words: int) -> Response:
        """The events of one picture. What is wrong before the first is an answer of its own."""
        updates = self._updates(request, asked, 0)
        first = await anext(updates)
        side = asked.prompts[0].size or self.place.backbone.sizes[0]

        async def events() -> AsyncIterator[bytes]:
            async with aclosing(updates):
                yield images_reply.event_of(first, side, words)
                try:
                    async for update in updates:
                        yield images_reply.event_of(update, side, words)
                except Refused as e:
                    yield images_reply.error_event(e.told())

        return EventStream(events())

    async def _updates(self, request: Request, asked: ImagesRequest, number: int) -> AsyncIterator[Any]:
        """What is drawn of one picture, in its turn; an error of the caller is a refusal."""
        work = partial(draw, self.place, asked, asked.prompts[number])
        async with aclosing(self.turns.follow(request, work)) as updates:
            try:
                async for update in updates:
                    yield update
            except Refused:
                raise
            except ForetokenError as e:
                raise refusal_of(e) from e


class EventStream(Response):
    """Server-sent events. The iterator learns itself that the client has left, and ends."""

    def __init__(self, events: AsyncIterator[bytes]):
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}, media_type="text/event-stream")
        self.events = events
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with aclosing(self.events) as events:
                async for event in events:
                    await send({"type": "http.response.body", "body": event, "more_body": True})
        except ClientLeft:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def nowhere(request: Request) -> Response:
    """Says which paths there are."""
    raise Refused(NOWHERE.format(request.method, values.brief(request.url.path)), status=404, code="unknown_url")


async def body_of(request: Request) -> Any:
    """The JSON that came with a request."""
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError) as e:
        raise Refused(NOT_AN_OBJECT) from e
