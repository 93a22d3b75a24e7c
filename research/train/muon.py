"""Muon (Jordan et al. 2024), with matrices of one shape optimised together.

PyTorch's Muon makes matrices orthogonal one at a time: for small ones that is mostly the overhead of its thousand products. Here they are
stacked, so that a product serves all matrices of a shape. Steps and states equal PyTorch's.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

from engine.machine import has_fast_bfloat16


class StackedMuon(torch.optim.Muon):
    """PyTorch's Muon with adjust_lr_fn="match_rms_adamw", its default coefficients, and Nesterov momentum."""

    def __init__(self, parameters: list[torch.nn.Parameter], lr: float, weight_decay: float, momentum: float):
        super().__init__(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum, adjust_lr_fn="match_rms_adamw")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Makes one step."""
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for p in group["params"]:
                if p.grad is not None:
                    by_shape[p.shape].append(p)
            for shape, parameters in by_shape.items():
                update = orthogonal(self._momenta(parameters, group["momentum"]), group["ns_coefficients"], group["ns_steps"], group["eps"])
                torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(parameters, list(update.float().unbind()), alpha=-0.2 * group["lr"] * max(shape) ** 0.5)

    def _momenta(self, parameters: list[Tensor], momentum: float) -> Tensor:
        """Updates the momenta of matrices of one shape; returns their Nesterov momenta [N, rows, columns], in bfloat16 where it is fast."""
        grads = [p.grad for p in parameters]
        for p in parameters:
            if "momentum_buffer" not in self.state[p]:
                self.state[p]["momentum_buffer"] = torch.zeros_like(p.grad)
        buffers = [self.state[p]["momentum_buffer"] for p in parameters]
        torch._foreach_lerp_(buffers, grads, 1 - momentum)
        dtype = torch.bfloat16 if grads[0].is_cuda or has_fast_bfloat16() else torch.float32  # emulated, bfloat16 is forty times slower
        return torch.stack([grad.lerp(buffer, momentum).to(dtype) for grad, buffer in zip(grads, buffers, strict=True)])


def orthogonal(matrices: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Returns matrices [N, rows, columns] with their singular values brought near 1, by the Newton-Schulz iteration."""
    a, b, c = coefficients
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.transpose(1, 2) if tall else matrices
    x = (x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=eps)).contiguous()
    for _ in range(steps):
        gram = torch.bmm(x, x.transpose(1, 2))
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.transpose(1, 2) if tall else x
