"""Serving on Hugging Face Spaces: on the processor, or on ZeroGPU where the Space has it, with the limits for strangers.

`serve` imports the package `spaces` first, because it must come before anything that touches CUDA.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

PORT = 7860  # the port of a Space


def serve() -> None:
    """Serves the page until the Space stops."""
    gpu = zero_gpu(os.environ)
    from app.limits import STRANGERS
    from app.server.studio import launch

    port = int(os.environ.get("GRADIO_SERVER_PORT", PORT))
    launch(port=port, host="0.0.0.0", open_browser=False, limits=STRANGERS, gpu=gpu)


def zero_gpu(environment: Mapping[str, str]) -> Callable[..., Any] | None:
    """The decorator for functions that need ZeroGPU; None on other hardware."""
    if environment.get("SPACES_ZERO_GPU", "").lower() not in ("1", "t", "true"):
        return None
    try:
        return importlib.import_module("spaces").GPU
    except ModuleNotFoundError:  # the folder was made for a processor
        return None
