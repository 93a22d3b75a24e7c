"""The routes of OpenAI's images API under /v1, and the responses to requests without a route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from app.sentences import brief
from app.server import images_reply
from app.server.drawing import DrawnPicture, draw
from app.server.fields import parse
from app.server.images_request import ImagesRequest, check_model, read
from app.server.key import ApiKey
from app.server.refusals import ClientLeft, Refused, refusal_of
from app.shared import StudioState
from engine.errors import ForetokenError

GENERATIONS, MODELS = "/v1/images/generations", "/v1/models"
NOWHERE = f"There is no {{}} {{}} here. The images API is under /v1: POST {GENERATIONS} and GET {MODELS}."
NOT_ALLOWED = "{} is not allowed on {}. Send {}."
GRADIO = ("/gradio_api/", "/assets/", "/static/", "/svelte/")  # path prefixes whose clients expect Gradio's responses
GONE = 499  # nginx's status for a disconnected client
Handler = Callable[[Request], Awaitable[Response]]


class Queue(Protocol):
    """Queue for the engine, see app/server/turns.py."""

    def follow(self, request: Request, work: Callable[[str, int], Iterator[Any]]) -> AsyncIterator[Any]:
        """Yield the work's updates, without the Nones, once it is this request's turn."""
        ...


class ImagesApi:
    """OpenAI's images API for one studio, with the page's model, runner and queue.

    any_model : accept any model name
    """

    def __init__(self, studio: StudioState, turns: Queue, key: ApiKey, any_model: bool = False):
        self.studio, self.turns, self.key, self.any_model = studio, turns, key, any_model

    def routes(self) -> list[BaseRoute]:
        """Routes of the API."""
        return [
            *(Route(path, self._answering(self.generations), methods=["POST"]) for path in (GENERATIONS, f"{GENERATIONS}/")),
            Route(MODELS, self._answering(self.models), methods=["GET"]),
            Route(f"{MODELS}/{{name:path}}", self._answering(self.model), methods=["GET"]),
        ]

    async def answer_unrouted(self, request: Request, error: HTTPException) -> Response:
        """The response to an error 404 or 405: in OpenAI's form if there is no route for the path or method, else Gradio's."""
        if request.url.path.startswith(GRADIO) or error.detail != HTTPStatus(error.status_code).phrase:
            return JSONResponse({"detail": error.detail}, error.status_code, error.headers)
        answer = await self._answering(partial(refuse, error=error))(request)
        answer.headers.update(error.headers or {})
        return answer

    def _answering(self, handler: Handler) -> Handler:
        """Wrap a handler: check the API key first, and turn refusals into responses."""

        @wraps(handler)
        async def answer(request: Request) -> Response:
            try:
                self.key.check(request.headers)
                return await handler(request)
            except (ClientLeft, ClientDisconnect):
                return Response(status_code=GONE)
            except Refused as e:
                return JSONResponse(e.body(), e.status)

        return answer

    async def models(self, request: Request) -> Response:
        """Response with the picture model."""
        return JSONResponse({"object": "list", "data": [images_reply.model_of(self.studio.backbone)]})

    async def model(self, request: Request) -> Response:
        """Response with one model by its name."""
        name = request.path_params["name"]
        if not name:
            return await self.models(request)
        check_model(name, self.studio.backbone, self.any_model)
        return JSONResponse(images_reply.model_of(self.studio.backbone, name))

    async def generations(self, request: Request) -> Response:
        """Pictures from a prompt, in one response or as a stream of events."""
        wanted = read(parse(await request.body()), self.studio.backbone, self.any_model)
        if wanted.stream:
            return await self._stream(request, wanted)
        pictures: list[DrawnPicture] = []
        for number in range(len(wanted.prompts)):  # each queues separately, so that other requests run in between
            async with aclosing(self._updates(request, wanted, number)) as updates:
                pictures += [update async for update in updates]
        return JSONResponse(images_reply.reply(pictures, wanted))

    async def _stream(self, request: Request, wanted: ImagesRequest) -> Response:
        """Response that streams the events of one picture. An error before the first event raises instead."""
        updates = self._updates(request, wanted, 0)
        first = await anext(updates)
        side = wanted.prompts[0].size or self.studio.backbone.sizes[0]

        async def events() -> AsyncIterator[bytes]:
            async with aclosing(updates):
                yield images_reply.event_of(first, side, wanted)
                try:
                    async for update in updates:
                        yield images_reply.event_of(update, side, wanted)
                except Refused as e:
                    yield images_reply.error_event(e.body())

        return EventStream(events())

    async def _updates(self, request: Request, wanted: ImagesRequest, number: int) -> AsyncIterator[Any]:
        """Yield the updates of one picture once it is its turn; a user error becomes Refused."""
        work = partial(draw, self.studio, wanted, wanted.prompts[number])
        async with aclosing(self.turns.follow(request, work)) as updates:
            try:
                async for update in updates:
                    yield update
            except Refused:
                raise
            except ForetokenError as e:
                raise refusal_of(e) from e


class EventStream(Response):
    """Server-sent events. The iterator ends by itself when the client disconnects."""

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


async def refuse(request: Request, error: HTTPException) -> Response:
    """Raises Refused with the valid paths, or with the methods that this path allows."""
    path = brief(request.url.path)
    if error.status_code == HTTPStatus.NOT_FOUND:
        raise Refused(NOWHERE.format(request.method, path), status=404, code="unknown_url")
    methods = {each.strip() for each in (error.headers or {}).get("Allow", "").split(",")} - {"", "HEAD"}
    sentence = NOT_ALLOWED.format(request.method, path, " or ".join(sorted(methods)))
    raise Refused(sentence, status=405, code="method_not_supported")
