"""Initial weights of networks, and construction without them where weights are read from files.

Networks are first built on the meta device, to compare their shapes with a file's. Arithmetic there makes PyTorch import its compiler,
which takes 1.5 s at every start. So constructors do no arithmetic: they fill weights in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

SMALL = 0.02  # standard deviation
DRAWN = frozenset((Tensor.normal_, Tensor.uniform_, nn.init.normal_, nn.init.uniform_, nn.init.kaiming_uniform_))


def small_normal(*shape: int) -> nn.Parameter:
    """A parameter [*shape] of normal numbers with standard deviation 0.02."""
    return nn.Parameter(nn.init.normal_(torch.empty(*shape), std=SMALL))


def become_identity(weight: Tensor) -> None:
    """Writes the identity into a square weight."""
    nn.init.zeros_(weight)
    nn.init.ones_(weight.diagonal())


class SkipInit(TorchFunctionMode):
    """Context in which networks are built without drawing initial weights, because weights from files replace all of them."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if function in DRAWN:
            return args[0] if args else named["tensor"]
        return function(*args, **named)
