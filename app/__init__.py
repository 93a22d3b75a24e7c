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
# Spins before a waiting thread yields its core, some ten microseconds. libgomp's default of 300,000 lets it occupy the core that a late
# thread needs while another program has the other core; see docs/cpu.md.
SPINS = "10000"

os.environ.update(OFFLINE)
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
