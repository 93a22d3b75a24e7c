"""Serving on Hugging Face Spaces: the processor by default, ZeroGPU where the Space has it, and the limits for strangers.

Only the standard library is imported here before `serve` has imported the package `spaces`, which must come before anything that touches
CUDA.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

PORT = 7860  # where a Space must answer


def serve() -> None:
    """Serves the page until the Space stops."""
    gpu = zero_gpu(os.environ)
    from app.limits import STRANGERS
    from app.server.studio import launch

    port = int(os.environ.get("GRADIO_SERVER_PORT", PORT))
    launch(port=port, host="0.0.0.0", open_browser=False, limits=STRANGERS, gpu=gpu)


def zero_gpu(environment: Mapping[str, str]) -> Callable[..., Any] | None:
    """The decorator of functions that need ZeroGPU; None on any other hardware, where the package `spaces` would do nothing."""
    if environment.get("SPACES_ZERO_GPU", "").lower() not in ("1", "t", "true"):
        return None
    try:
        return importlib.import_module("spaces").GPU
    except ModuleNotFoundError:  # a folder that was made for a processor
        return None
