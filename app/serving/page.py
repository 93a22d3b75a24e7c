"""The page with what stands beside it on the same port."""

from __future__ import annotations

from collections.abc import Callable

import gradio as gr
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from app.serving.exposition import MEDIA_TYPE
from app.serving.key import Key
from app.serving.metrics import Metrics
from app.serving.routes import ImagesApi
from app.serving.turns import Turns
from app.ui.place import Place


class Page(gr.Blocks):
    """A page of Gradio's. routes : what its server answers besides, before the page's own paths"""

    routes: tuple[BaseRoute, ...] = ()


def beside(place: Place, forget: Callable[[str], None], key: str) -> tuple[BaseRoute, ...]:
    """The routes of the API and of the metrics, inside the page's context.

    forget : frees what Gradio keeps of a caller; key : that requests to the API must carry, "" = none
    """
    sessions = place.sessions
    metrics = Metrics(sessions.running, sessions.waiting)
    sessions.watch(metrics)

    async def scrape(request: Request) -> Response:
        """All metrics as text."""
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    api = ImagesApi(place, Turns(place.page, sessions, forget), Key(key))
    return (*api.routes(), Route("/metrics", scrape, methods=["GET"]))
