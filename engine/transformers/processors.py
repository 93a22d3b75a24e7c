"""Reads the logits processors that `generate` prepared: what the engine applies itself, and what it must call row by row.

The engine knows guidance, temperature, top-k and top-p, in this order. Every other processor of transformers that is a function of the
ids and the scores alone is called as it is, once for each row of a pass, with the ids of that row's own path. So the distribution stays
the caller's, whatever it is. In a batch each prompt has its own copy of a processor that holds something of every prompt. A processor that
remembers what it was called with, or works on several rows together, would be confused by rows that are never committed, and is refused.

Where the engine's top-p differs: it keeps all tokens that tie with the last one kept; transformers keeps some of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import groupby
from types import MappingProxyType

import torch
from torch import Tensor
from transformers.generation import logits_process as known

from engine.core import Sampling
from engine.errors import NotSupported

OF_SCORES: frozenset[type] = frozenset({  # functions of a row's scores
    known.TemperatureLogitsWarper, known.TopKLogitsWarper, known.TopPLogitsWarper, known.TopHLogitsWarper, known.MinPLogitsWarper,
    known.TypicalLogitsWarper, known.EpsilonLogitsWarper, known.EtaLogitsWarper, known.SuppressTokensLogitsProcessor,
    known.InfNanRemoveLogitsProcessor, known.LogitNormalization, known.BarkEosPrioritizerLogitsProcessor,
})  # fmt: skip
OF_PATHS: frozenset[type] = frozenset({  # functions of the ids so far and the scores
    known.MinLengthLogitsProcessor, known.MinNewTokensLengthLogitsProcessor, known.RepetitionPenaltyLogitsProcessor,
    known.EncoderRepetitionPenaltyLogitsProcessor, known.NoRepeatNGramLogitsProcessor, known.EncoderNoRepeatNGramLogitsProcessor,
    known.SequenceBiasLogitsProcessor, known.NoBadWordsLogitsProcessor, known.PrefixConstrainedLogitsProcessor,
    known.ForcedBOSTokenLogitsProcessor, known.ForcedEOSTokenLogitsProcessor, known.ExponentialDecayLengthPenalty,
    known.SuppressTokensAtBeginLogitsProcessor, known.AlternatingCodebooksLogitsProcessor, known.WhisperTimeStampLogitsProcessor,
    known.WatermarkLogitsProcessor,
})  # fmt: skip
_CHANNELS = "works on the channels of a sequence together, and foretoken decodes one row of ids."
REASONS: MappingProxyType[type, str] = MappingProxyType({  # why a processor of transformers is refused
    known.ClassifierFreeGuidanceLogitsProcessor: "takes a batch of conditional and unconditional halves, which foretoken does not decode "
    "as one. Pass guidance_scale to generate instead.",
    known.DiaClassifierFreeGuidanceLogitsProcessor: _CHANNELS,
    known.DiaEOSChannelFilterLogitsProcessor: _CHANNELS,
    known.DiaEOSDelayPatternLogitsProcessor: _CHANNELS,
    known.WhisperNoSpeechDetection: "calls a model of its own. Leave it out.",
    known.SynthIDTextWatermarkLogitsProcessor: "remembers the contexts that it was called with, and a draft may never be committed. "
    "Leave it out.",
})  # fmt: skip
GUIDANCE = known.UnbatchedClassifierFreeGuidanceLogitsProcessor
LAST = ("temperature", "top_k", "top_p")  # what the engine applies itself, in its order


@dataclass(frozen=True)
class CallerDistribution:
    """The caller's distribution.

    sampling : guidance first, then `called` in order, then temperature, top-k and top-p; temperature 0 is greedy
    called   : processors that are called for every row
    guidance : the caller's guidance processor, which holds the ids of the unconditional prompt; None without guidance
    paths    : types of the caller's own that depend on the ids so far, in addition to OF_PATHS
    """

    sampling: Sampling
    called: tuple[known.LogitsProcessor, ...] = ()
    guidance: known.LogitsProcessor | None = None
    paths: frozenset[type] = frozenset()

    @property
    def needs_paths(self) -> bool:
        """True if a distribution depends on the ids so far other than through the model."""
        return any(self.of_path(each) for each in self.called)

    def of_path(self, processor: known.LogitsProcessor) -> bool:
        """True if a processor reads the ids so far."""
        return type(processor) in OF_PATHS or type(processor) in self.paths

    def of_row(self, index: int, count: int) -> CallerDistribution:
        """The distribution of one row of a batch of `count` sequences."""
        return replace(self, called=tuple(processor_of_row(each, index, count) for each in self.called))

    def apply(self, scores: Tensor, paths: Sequence[Tensor]) -> Tensor:
        """The scores [N, V] after the processors that are called. paths : int64 [n] for each row, all its ids; used if `needs_paths`"""
        unused = torch.zeros(len(scores), 1, dtype=torch.int64, device=scores.device)
        for looks, some in groupby(self.called, self.of_path):
            for processor in some:
                if looks:
                    scores = torch.cat([processor(path[None], row[None]) for path, row in zip(paths, scores, strict=True)])
                else:
                    scores = processor(unused, scores)
        return scores


def processor_of_row(processor: known.LogitsProcessor, index: int, count: int) -> known.LogitsProcessor:
    """A processor as it acts on one row of a batch: a copy with what it holds of that row, where it holds something of each.

    A batch may have several sequences of each prompt, next to each other, while the processor holds one entry per prompt."""
    kind, own = type(processor), copy(processor)
    if kind is known.EncoderRepetitionPenaltyLogitsProcessor:
        prompt = index * len(processor.encoder_input_ids) // count
        own.encoder_input_ids = processor.encoder_input_ids[prompt : prompt + 1]
    elif kind is known.EncoderNoRepeatNGramLogitsProcessor:
        own.generated_ngrams, own.batch_size = [processor.generated_ngrams[index * processor.batch_size // count]], 1
    elif kind is known.RepetitionPenaltyLogitsProcessor and isinstance(processor.prompt_ignore_length, Tensor):
        own.prompt_ignore_length = processor.prompt_ignore_length[index : index + 1]
    elif kind is known.PrefixConstrainedLogitsProcessor:
        allowed, prompt = processor._prefix_allowed_tokens_fn, index // processor._num_beams
        own = known.PrefixConstrainedLogitsProcessor(lambda _, ids: allowed(prompt, ids), 1)
    return own


def read(processors: Sequence[known.LogitsProcessor], greedy: bool, own: Sequence[type] = ()) -> CallerDistribution:
    """The distribution that a list of processors describes. own : types of the caller that depend on nothing but ids and scores.

    Raises NotSupported for a processor that is not known, or for guidance that does not come first.
    """
    left, guidance, scale = list(processors), None, 1.0
    if left and type(left[0]) is GUIDANCE:
        guidance = left.pop(0)
        scale = float(guidance.guidance_scale)
    for each in left:
        _check(each, frozenset(own))
    if left and type(left[-1]) is known.LogitNormalization:
        left.pop()  # changes no distribution
    sampling = Sampling(guidance=scale)
    for name in reversed(LAST):
        if left and (value := _value_of(left[-1], name)) is not None:
            sampling = replace(sampling, **{name: value})
            left.pop()
    if greedy:
        sampling = Sampling(temperature=0.0, guidance=scale)  # none of the three moves the largest score
    return CallerDistribution(sampling, tuple(left), guidance, frozenset(own))


def _check(processor: known.LogitsProcessor, own: frozenset[type]) -> None:
    kind = type(processor)
    if kind is GUIDANCE:
        raise NotSupported("Guidance must be the first logits processor. Pass guidance_scale to generate instead of a processor.")
    if kind in REASONS:
        raise NotSupported(f"{kind.__name__} {REASONS[kind]}")
    if kind not in OF_SCORES | OF_PATHS | own:
        raise NotSupported(
            f"foretoken does not know the logits processor {kind.__name__}, so it cannot keep its distribution. Leave it out; or, if "
            f"it depends on nothing but the ids and scores it is given, say so: foretoken(..., processors=({kind.__name__},))."
        )


def _value_of(processor: known.LogitsProcessor, name: str) -> float | int | None:
    """The value of a processor that the engine's own setting of this name equals; None for any other."""
    kind = type(processor)
    if name == "temperature" and kind is known.TemperatureLogitsWarper:
        return float(processor.temperature)
    if getattr(processor, "filter_value", None) != -math.inf:
        return None
    if name == "top_k" and kind is known.TopKLogitsWarper:
        return int(processor.top_k)
    if name == "top_p" and kind is known.TopPLogitsWarper and processor.min_tokens_to_keep == 1:
        return float(processor.top_p)
    return None
