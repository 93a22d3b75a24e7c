"""Cross-Regression's test of a prefix in one small kernel: energies, their moving average, thresholds and verdicts.

Mathematics, for drafts k = 1..m: E_k = max(log p_k(x_k) - log q_k(x_k), -30); the bias-corrected average is
sum_j β^(k-j) E_j / sum_j β^(k-j), j = 1..k. The draft is accepted if it reaches log u_k - Θ sqrt(k/γ) (consistent), or
max(-Θ sqrt(k/γ), -Θ u_k) (the paper's text), and p_k(x_k) > 0.

Fewest bytes: two numbers a draft, about 1 kB in all; the launch is the whole cost. All in float64, as the reference.
"""

from __future__ import annotations

import torch
from torch import Tensor

from engine.dispatch.choice import choose
from engine.dispatch.language import LAUNCH, power_of_two, tl, triton
from engine.rules import LITERAL, EnergyRule, energy

MOST = 64  # drafts: γ is at most this


def energy_scan_reference(
    p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, smoothing: float, tolerance: float, horizon: int, rule: EnergyRule
) -> tuple[Tensor, Tensor, Tensor]:
    """The engine's own rule, `rules.energy`."""
    return energy(p, q, tokens, u, smoothing, tolerance, horizon, rule)


@triton.jit(do_not_specialize=["count"])
def _energy_kernel(
    p_at, q_at, tokens_at, u_at, out_at, accepted_at, count, vocabulary, p_stride, q_stride,
    smoothing: tl.float64, tolerance: tl.float64, horizon: tl.float64,
    LITERAL: tl.constexpr, SMOOTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, BLOCK)
    inside = k < count
    smoothing, tolerance = tl.full([], smoothing, tl.float64), tl.full([], tolerance, tl.float64)  # the interpreter passes plain numbers
    x = tl.load(tokens_at + k, inside, 0)
    p = tl.load(p_at + k.to(tl.int64) * p_stride + x, inside, 1.0).to(tl.float64)
    q = tl.load(q_at + k.to(tl.int64) * q_stride + x, inside, 1.0).to(tl.float64)
    levels = tl.maximum(tl.log(tl.where(p > 0, p, 1e-300)) - tl.log(q), -30.0)
    if SMOOTH:
        lag = k[:, None] - k[None, :]
        weights = tl.where(lag >= 0, tl.exp(tl.maximum(lag, 0).to(tl.float64) * tl.log(smoothing)), 0.0)
        levels = tl.sum(weights * levels[None, :], 1) / tl.sum(weights, 1)
    slope = tl.sqrt((k + 1).to(tl.float64) / horizon)
    u = tl.load(u_at + k, inside, 0.5)
    if LITERAL:
        least = tl.maximum(-tolerance * slope, -tolerance * u)
    else:
        least = tl.log(u) - tolerance * slope
    tl.store(out_at + k, levels, inside)
    tl.store(out_at + count + k, least, inside)
    tl.store(accepted_at + k, ((levels >= least) & (p > 0)).to(tl.uint8), inside)


def energy_scan_triton(
    p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, smoothing: float, tolerance: float, horizon: int, rule: EnergyRule
) -> tuple[Tensor, Tensor, Tensor]:
    """The same by the kernel."""
    count, device = len(tokens), p.device
    out = torch.empty(2, count, dtype=torch.float64, device=device)
    accepted = torch.empty(count, dtype=torch.uint8, device=device)
    if count:
        _energy_kernel[(1,)](
            p, q, tokens, u.to(device), out, accepted, count, p.shape[-1], p.stride(0), q.stride(0),
            float(smoothing), float(tolerance), float(horizon),
            rule is LITERAL, smoothing > 0, max(16, power_of_two(count)), num_warps=4, **LAUNCH,
        )  # fmt: skip
    return accepted.bool(), out[0], out[1]


def energy_scan(
    p: Tensor, q: Tensor, tokens: Tensor, u: Tensor, smoothing: float, tolerance: float, horizon: int, rule: EnergyRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Verdicts bool [m], smoothed energies [m] and their thresholds [m], float64; arguments as in `rules.energy`."""
    fits = choose(p.device, p.dtype).is_triton and q.dtype == p.dtype and len(tokens) <= MOST and p.stride(-1) == q.stride(-1) == 1
    return (energy_scan_triton if fits else energy_scan_reference)(p, q, tokens, u, smoothing, tolerance, horizon, rule)
