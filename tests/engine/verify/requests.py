"""Requests on odd shapes and with every setting of the sampling, and the verdict by numpy on one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from engine.core import Sampling
from engine.noise import Noise
from engine.verify.host import HostRows, HostVerdict, allowed_by
from engine.verify.request import VerifyRequest
from research.bench.kernel_cases import window

BPT = Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)
LEAST = 1e-30  # below, e^x is 0 here and a denormal number there
CASES = {
    "R63-V1000-guided-grammar": window(63, 1000, Sampling(0.9, guidance=3.0), masked=True),
    "R1-V1000": window(1, 1000),
    "R7-V5": window(7, 5),
    "R7-V17-top-k": window(7, 17, Sampling(top_k=3)),
    "R7-V1000-float16": window(7, 1000, Sampling(0.8, guidance=7.5), dtype=torch.float16),
    "R7-V1000-bfloat16-top-k": window(7, 1000, Sampling(top_k=100), dtype=torch.bfloat16),
    "R7-V1000-top-p": window(7, 1000, Sampling(1.3, top_p=0.9)),
    "R7-V1000-blocked": window(7, 1000, blocked=0.9),
    "R7-V1000-blocked-top-k": window(7, 1000, Sampling(top_k=300), blocked=0.9),
    "R7-V1000-weak-guidance": window(7, 1000, Sampling(guidance=0.3)),
    "R7-V1000-greedy": window(7, 1000, Sampling(0.0, top_k=3)),
    "R7-V1000-match-seed": window(7, 1000, drawn=False, seeded=True, store=False),
    "R7-V1000-match-seed-with-distributions": window(7, 1000, seeded=True, store=False),
    "R7-V5121-BPT": window(7, 5121, BPT),
    "R7-V5121-BPT-grammar": window(7, 5121, BPT, masked=True),
    "R7-V5121-temperature-last-alone": window(7, 5121, replace(BPT, top_k=0, top_p=1.0)),
    "R1-V16384-top-k-float16": window(1, 16384, Sampling(top_k=2000, guidance=3.0), dtype=torch.float16),
    "R2-V65537-top-k-grammar": window(2, 65537, Sampling(top_k=2000), masked=True),
    "R1-V131072-float16": window(1, 131072, Sampling(0.7, guidance=3.0), dtype=torch.float16),
}
START, ITERATION = 11, 3


def rows_of(request: VerifyRequest) -> HostRows:
    """The rows of a request."""
    return HostRows(request.logits, request.sampling, None if request.allowed is None else allowed_by(request.allowed))


def host_verdict(request: VerifyRequest, draft_probs: Any = None) -> HostVerdict:
    """The verdict by numpy on a request from a run."""
    noise = Noise(5, request.logits.shape[-1])
    return HostVerdict(rows_of(request), request.tokens, draft_probs or request.draft_probs, noise, START, ITERATION, request.seeded)
