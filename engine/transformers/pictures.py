"""Pictures of multimodal models, whose own `generate` has a loop of its own for them: our adapters around the caller's instance.

`model.generate(generation_mode="image")` of these classes takes no custom_generate. The way round is GenerationMixin's own:
`GenerationMixin.generate(model, **inputs, generation_mode="image", guidance_scale=5.0, custom_generate=foretoken("sjdpp"))`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import JanusForConditionalGeneration, PreTrainedModel

from engine.backbones.janus import Janus
from engine.core import Backbone
from engine.errors import NotSupported
from engine.transformers.processors import CallerDistribution
from engine.transformers.request import BatchRow


@contextmanager
def keep_attention(model: PreTrainedModel) -> Iterator[None]:
    """Gives the caller's decoder its own attention back at the end, because an adapter gives it ours."""
    decoder = model.model.language_model if isinstance(model, JanusForConditionalGeneration) else model
    before = decoder.config._attn_implementation
    try:
        yield
    finally:
        if decoder.config._attn_implementation != before:
            decoder.set_attn_implementation(before)


def backbone(model: PreTrainedModel, row: BatchRow, reading: CallerDistribution, settings: Any) -> Backbone:
    """The adapter around the caller's model, with one prompt of ids; it makes whole pictures. Raises NotSupported for a class without one,
    and for settings that the class's own loop does not read."""
    if not isinstance(model, JanusForConditionalGeneration):
        raise NotSupported(f"{type(model).__name__} has no pictures here. Leave generation_mode='image' out.")
    if reading.called:
        names = ", ".join(type(each).__name__ for each in reading.called)
        raise NotSupported(f"A picture of {type(model).__name__} is drawn without {names}. Leave it out.")
    if reading.guidance is not None and reading.guidance.unconditional_context["input_ids"] is not None:
        raise NotSupported(f"{type(model).__name__} makes its unconditional prompt itself. Leave negative_prompt_ids out.")
    ids = row.branches[0].ids.tolist()
    return Janus(model, lambda text: ids)
