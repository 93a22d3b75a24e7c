"""The command line and the studio. Both work offline: libraries that would use the network are configured before they are imported."""

from __future__ import annotations

import os

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "GRADIO_ANALYTICS_ENABLED": "False",
}

os.environ.update(OFFLINE)
