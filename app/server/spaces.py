"""Serving on Hugging Face Spaces, with the limits for strangers."""

from __future__ import annotations

import os

from app.limits import STRANGERS
from app.server.studio import launch

PORT = 7860  # where a Space must answer


def serve() -> None:
    """Serves the page until the Space stops."""
    launch(port=int(os.environ.get("GRADIO_SERVER_PORT", PORT)), host="0.0.0.0", open_browser=False, limits=STRANGERS)
