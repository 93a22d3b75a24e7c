"""The number of nodes in the graph of a pass, counted on the meta device: shapes and operations of a published model, without weights.

Each node is a kernel that the GPU starts, and a small one takes about two microseconds whatever it computes.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModel, ChameleonConfig, Emu3TextConfig, LlamaConfig, PreTrainedConfig, Qwen3Config
from transformers.models.emu3.modeling_emu3 import Emu3TextModel

from engine.networks.hosted import Hosted, HostedTrunk, head_width
from engine.networks.static_step import LEAST_SPAN, NAMED, fixed_pass, words

WITHOUT_KERNEL = {"empty", "empty_like", "empty_strided", "new_empty"}  # operations that write nothing
ROWS, SPAN = 32, 8 * LEAST_SPAN


class NodeCount(TorchDispatchMode):
    """Counts the operations that start a kernel, by name. Views start none."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Runs an operation, and counts it if it writes: its result has a storage of its own, or it changes an input."""
        out = func(*args, **(kwargs or {}))
        inputs = {_storage(each) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        is_new = any(_storage(each) not in inputs for each in tree_leaves(out) if isinstance(each, Tensor))
        if (is_new or func._schema.is_mutable) and func.overloadpacket.__name__ not in WITHOUT_KERNEL:
            self.counts[func.overloadpacket.__name__] += 1
        return out


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata
