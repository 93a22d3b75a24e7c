"""The choice of the implementation that verifies a pass: Triton on a GPU, numpy on a processor, else the reference.

No other file imports more than one of them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.core import Sampling
from engine.dispatch.choice import COMPUTED, NATIVE, choose, requested_kernel
from engine.sampling import guide, warp
from engine.verify.host import HostRows, allowed_by
from engine.verify.reference import settle_reference, verify_reference
from engine.verify.request import Verdict, VerifyRequest
from engine.verify.triton import settle_triton, verify_triton


def is_host(device: torch.device, dtype: torch.dtype) -> bool:
    """True if numpy verifies logits of a device and type."""
    return device.type == "cpu" and dtype in COMPUTED and requested_kernel() in ("", NATIVE)


def is_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """True if Triton's kernel verifies logits of a device and type."""
    return choose(device, dtype).is_triton


def verify(request: VerifyRequest) -> Verdict:
    """Verdicts and draws of a pass. On a GPU the host reads nothing."""
    return (verify_triton if is_kernel(request.logits.device, request.logits.dtype) else verify_reference)(request)


def settle(verdict: Verdict, accepted: Tensor, seeded: bool, drafts: Tensor | None = None) -> Tensor:
    """The first refusal a and the token after it, int64 [2] on the device.

    accepted : bool [m], the verdicts, or another rule's verdicts; seeded : the token is the answer of row a
    drafts   : int64 [], the number of the m verdicts that belong to drafts, in a pass in fixed shapes; None: all
    """
    return (settle_triton if choose(accepted.device).is_triton else settle_reference)(verdict, accepted, seeded, drafts)


def warped_scores(logits: Tensor, sampling: Sampling, allowed: Tensor | None) -> Tensor:
    """Scores [R, V] of raw logits [C, R, V], as `sampling.warp` gives them. allowed : bool [V] or [R, V], or None = all"""
    if not is_host(logits.device, logits.dtype) or not logits.numel():
        return warp(guide(logits.float(), sampling.guidance), sampling, allowed)
    count = logits.shape[1]
    possible = None if allowed is None else allowed_by(allowed) if allowed.ndim == 2 else allowed_by(allowed[None]) * count
    return HostRows(logits, sampling, possible).scores(count)
