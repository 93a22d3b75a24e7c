"""Which layers of a caller's model attend to everything, and which to the last tokens only; and their masks.

Our cache keeps every row, so a layer that attends to a window gets a mask that hides earlier rows. A model that has both kinds
of layers takes a mask for each, by the name of the kind, as transformers' own `generate` prepares them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

from engine.errors import NotSupported

NEEDED = ("input_ids", "attention_mask", "position_ids", "past_key_values")  # of the model's forward
IMPLEMENTATIONS = ("sdpa", "eager")  # attention implementations that take a mask of any shape
CACHES = (DynamicLayer, DynamicSlidingWindowLayer)  # plain lists of keys and values
ALL, LAST, CHUNK = "full_attention", "sliding_attention", "chunked_attention"  # kinds of layers, by transformers' names


@dataclass(frozen=True)
class LayerVisibility:
    """Visibility of layers. layers : their number; window : tokens that some see, their own included; mixed : others see all."""

    layers: int
    window: int | None = None
    mixed: bool = False

    def masks(self, visible: Tensor, slots: Tensor, kept: int) -> dict[str, Tensor]:
        """The visibility for each kind of layer, from that of all rows bool [1 or branches, 1, R, kept + R]. slots : places int64 [R]"""
        if self.window is None or kept + len(slots) <= self.window:
            return {ALL: visible, LAST: visible}
        places = torch.cat([torch.arange(kept, device=slots.device), slots])
        near = slots[:, None] - places < self.window
        return {ALL: visible, LAST: visible & near}

    def reaches(self, rows: int) -> bool:
        """True if every layer sees all of this many rows."""
        return self.window is None or rows <= self.window


def check_forward(model: PreTrainedModel) -> None:
    """Raise NotSupported for a class whose forward cannot take drafts, such as a state-space model, which keeps one state per layer."""
    lacking = [each for each in NEEDED if each not in inspect.signature(model.forward).parameters]
    if lacking:
        raise NotSupported(
            f"{type(model).__name__} takes no {' and no '.join(lacking)}, so drafts cannot have their own places. Use plain generate."
        )


def attention_of(model: PreTrainedModel, length: int) -> LayerVisibility:
    """Visibility of layers in sequences of up to `length` tokens; raises NotSupported for a model that has no cache of keys
    and values, or one that attends in chunks and whose first chunk ends before."""
    name, config = type(model).__name__, model.config.get_text_config(decoder=True)
    if config._attn_implementation not in IMPLEMENTATIONS:
        raise NotSupported(
            f"{name} runs with {config._attn_implementation} attention, which takes no mask of drafts. Load it with "
            "attn_implementation='sdpa', or call model.set_attn_implementation('sdpa')."
        )
    layers = DynamicCache(config=config).layers
    strange = next((layer for layer in layers if not isinstance(layer, DynamicLayer) or type(layer) not in CACHES), None)
    if not layers or strange is not None:
        raise NotSupported(f"The cache of {name} is no plain list of keys and values ({strange}). Use plain generate.")
    windows = {layer.sliding_window for layer in layers if isinstance(layer, DynamicSlidingWindowLayer)}
    chunked = CHUNK in (getattr(config, "layer_types", None) or ()) or getattr(config, "sliding_window", None) is None
    masked = len(windows) == 1 and not chunked  # by masks of one window
    if windows and not masked and length > min(windows):
        raise NotSupported(
            f"{name} attends in chunks or windows of {min(windows):,} tokens that drafts have no masks for here, and prompt and output may "
            f"have {length:,}. Ask for fewer tokens."
        )
    if not masked:
        return LayerVisibility(len(layers))
    return LayerVisibility(len(layers), min(windows), mixed=any(type(layer) is DynamicLayer for layer in layers))
