"""Reads what `generate` hands to a decoding method: prompts, padding, length, criteria. Raises for what the engine cannot keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.generation import GenerationMode
from transformers.generation import stopping_criteria as known

from engine.errors import BadPrompt, NotSupported
from engine.transformers.attention import check_forward
from engine.transformers.host import Branch, Stop
from engine.transformers.processors import CallerDistribution

KEPT = ("attention_mask", "position_ids", "past_key_values", "use_cache", "logits_to_keep")  # model arguments that are read here
PLAIN = (GenerationMode.GREEDY_SEARCH, GenerationMode.SAMPLE)
OTHER_MODES = (  # settings that select another decoding mode
    "penalty_alpha", "dola_layers", "prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp", "constraints", "force_words_ids",
)  # fmt: skip
UNFILLED = ("output_scores", "output_logits", "output_attentions", "output_hidden_states")


@dataclass(frozen=True)
class BatchRow:
    """One prompt of the batch. input_ids : int64 [n], padding included; branches : without padding, with guidance two."""

    input_ids: Tensor
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Ending:
    """When a sequence ends: after `limit` new tokens, at one of the ids `ends`, or where one of `criteria` says so."""

    limit: int
    ends: frozenset[int]
    criteria: tuple[Stop, ...]


def check(model: PreTrainedModel, settings: Any, arguments: Mapping[str, Any]) -> None:
    """Raises NotSupported for a class, a generation configuration, or arguments of the model's forward that this decoding cannot keep."""
    if model.config.is_encoder_decoder:
        raise NotSupported(f"{type(model).__name__} has an encoder; foretoken accelerates decoder-only models. Use plain generate.")
    check_forward(model)
    if settings.num_beams not in (None, 1):
        raise NotSupported(f"foretoken decodes greedily or by sampling, not with num_beams={settings.num_beams}. Set num_beams=1.")
    mode = settings.get_generation_mode()
    if mode not in PLAIN:
        unsupported = ", ".join(name for name in OTHER_MODES if getattr(settings, name, None)) or "the setting"
        raise NotSupported(
            f"The settings ask for {mode.value.replace('_', ' ')}, which foretoken takes the place of. Leave {unsupported} out."
        )
    if arguments.get("use_cache") is False:
        raise NotSupported("foretoken needs the cache. Leave use_cache=False out.")
    unsupported = next((name for name in UNFILLED if getattr(settings, name, None)), None)
    if unsupported:
        raise NotSupported(f"foretoken returns no {unsupported.removeprefix('output_')}. Leave {unsupported} out.")
    strange = next((name for name, value in arguments.items() if name not in KEPT and value is not None and value != {}), None)
    if strange:
        raise NotSupported(f"foretoken passes ids on to the model, not '{strange}'. Leave it out, or use plain generate.")
    cache = arguments.get("past_key_values")
    if cache is not None and cache.get_seq_length() > 0:
        raise NotSupported("foretoken begins with an empty cache. Leave past_key_values out.")


def rows_of(ids: Tensor, arguments: Mapping[str, Any], reading: CallerDistribution) -> list[BatchRow]:
    """The prompts of a batch, without padding.

    ids : int64 [B, n]. Raises BadPrompt for a mask that is no padding on the left, for positions of the caller's own, or for an empty
    prompt.
    """
    if ids.ndim != 2 or ids.shape[1] == 0:
        raise BadPrompt("foretoken begins with input_ids [batch, tokens]. Give at least one token, and no inputs_embeds.")
    mask = arguments.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    starts = [_start(row, "attention_mask") for row in mask]
    _check_positions(arguments.get("position_ids"), starts, ids.shape[1])
    if reading.guidance is None:
        return [BatchRow(row, (Branch(row[start:]),)) for row, start in zip(ids, starts, strict=True)]
    others = _unconditional(reading.guidance, ids)
    return [BatchRow(row, (Branch(row[start:]), other)) for row, start, other in zip(ids, starts, others, strict=True)]


def _start(mask: Tensor, name: str) -> int:
    """The first place that a mask [n] does not hide; raises BadPrompt if it hides a later one."""
    start = int((mask != 0).long().argmax()) if bool((mask != 0).any()) else len(mask)
    if start == len(mask):
        raise BadPrompt(f"{name} hides a whole prompt. Give at least one token.")
    if bool((mask[start:] == 0).any()):
        raise BadPrompt(f"{name} hides tokens after the first one. Pad on the left: tokenizer.padding_side = 'left'.")
    return start


def _check_positions(positions: Tensor | None, starts: Sequence[int], length: int) -> None:
    """Raises NotSupported unless positions [1 or B, n] count 0, 1, ... from the first token that is no padding."""
    if positions is None:
        return
    steps = torch.arange(length, device=positions.device)
    expected = torch.stack([(steps - start).clamp(min=0) for start in starts])
    if positions.shape[-1] != length or positions.ndim != 2 or bool((positions != expected).any()):
        raise NotSupported("foretoken counts positions from 0 along each prompt, and these are others. Use plain generate.")


def _unconditional(guidance: Any, ids: Tensor) -> list[Branch]:
    """The other half of each guidance pair: the caller's negative prompts, or the last token of each prompt."""
    context = guidance.unconditional_context
    others, mask = context["input_ids"], context["attention_mask"]
    if others is None:
        return [Branch(row[-1:]) for row in ids]
    if len(others) != len(ids):
        raise BadPrompt(f"There are {len(others)} negative prompts for {len(ids)} prompts. Give one for each.")
    others = others.to(ids.device)
    starts = [0] * len(others) if mask is None else [_start(row, "negative_prompt_attention_mask") for row in mask]
    return [Branch(row[start:], start) for row, start in zip(others, starts, strict=True)]  # padded places count, as in transformers


def ending_of(criteria: Sequence[Stop], length: int) -> Ending:
    """When sequences end. length : of the prompts, padding included. Raises NotSupported for a criterion that reads scores, or without a
    largest length."""
    ends: set[int] = set()
    limit: int | None = None
    others = []
    for each in criteria:
        if type(each) is known.MaxLengthCriteria:
            limit = min(each.max_length - length, limit if limit is not None else each.max_length)
        elif type(each) is known.EosTokenCriteria:
            ends |= {int(token) for token in each.eos_token_id.flatten()}
        elif type(each) is known.ConfidenceCriteria:
            raise NotSupported("foretoken has no scores for ConfidenceCriteria. Leave it out.")
        else:
            others.append(each)
    if limit is None:
        raise NotSupported("foretoken needs a largest length. Give max_new_tokens.")
    return Ending(max(0, limit), frozenset(ends), tuple(others))
