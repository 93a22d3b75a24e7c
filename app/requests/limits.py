"""Limits on the values of a request. This module imports nothing, so that option parsers can load it quickly."""

from __future__ import annotations

LARGEST_SEED = 2**31 - 1  # on the page and in the API; a browser's number field holds it exactly
LARGEST_SEED_HERE = 2**63 - 1  # on the command line and in a batch
LARGEST_SIDE = 4096  # pixels; models also refuse smaller sides that they do not support
MOST_FACES = 10_000
MOST_SEEDS = 64  # seeds for the nearest mesh; engine/nearest.py has the same limit, but needs PyTorch
LONGEST_PROMPT = 1000  # characters
SAMPLING = ("temperature", "top_k", "top_p", "guidance", "guide")
