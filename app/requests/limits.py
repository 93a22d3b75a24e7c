"""The largest values that a request may hold. Nothing is imported here, so that a parser of options can read them at once."""

from __future__ import annotations

LARGEST_SEED = 2**31 - 1  # of a page or the API: what a field of a browser holds exactly
LARGEST_SEED_HERE = 2**63 - 1  # of the command line and of a batch
LARGEST_SIDE = 4096  # pixels; a model refuses smaller ones that it does not make
MOST_FACES = 10_000
MOST_SEEDS = 64  # of which the nearest mesh is taken; engine/nearest.py has the same limit, but needs PyTorch
LONGEST_PROMPT = 1000  # characters
SAMPLING = ("temperature", "top_k", "top_p", "guidance", "adherence")
