"""The Gradio page, with the images API and the metrics on the same port."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import gradio as gr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from app.server.key import ApiKey
from app.server.metrics import MEDIA_TYPE, Metrics
from app.server.routes import ImagesApi
from app.server.turns import Turns
from app.shared import StudioState


class Page(gr.Blocks):
    """A Gradio page with further routes.

    routes   : further routes of its server, matched before the page's own paths
    answer_unrouted : answers errors 404 and 405
    example  : makes the values of the panels, by id, that a page without a race shows; {} = none
    """

    routes: tuple[BaseRoute, ...] = ()
    answer_unrouted: Callable[..., Awaitable[Response]]
    example: Callable[[], Mapping[str, Any]] = staticmethod(dict)


def add_interfaces(page: Page, studio: StudioState, forget: Callable[[str], None], key: str, any_model: bool = False) -> None:
    """Adds the images API and the metrics to a page, inside its context.

    forget    : frees the state that Gradio stores for a caller
    key       : required from requests to the API, "" = none
    any_model : the API answers to any model name
    """
    sessions = studio.sessions
    metrics = Metrics(sessions.running, sessions.waiting)
    sessions.watch(metrics)

    async def scrape(request: Request) -> Response:
        """All metrics as text."""
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    def example(request: Request) -> Response:
        """The example race of a new page."""
        return JSONResponse(page.example())

    api = ImagesApi(studio, Turns(page, sessions, forget), ApiKey(key), any_model)
    page.routes = (*api.routes(), Route("/metrics", scrape, methods=["GET"]), Route("/example", example, methods=["GET"]))
    page.answer_unrouted = api.answer_unrouted
