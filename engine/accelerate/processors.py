"""Reads the logits processors that `generate` prepared: what the engine applies itself, and what it must call row by row.

The engine knows guidance, temperature, top-k and top-p, in this order. Every other processor of transformers that is a function of the
ids and the scores alone is called as it is, once for each row of a pass, with the ids of that row's own path. So the distribution stays
the caller's, whatever it is. A processor with a memory (a watermark, a processor that calls a model) would be confused by rows that are
never committed, and is refused.

Where the engine's top-p differs: it keeps all tokens that tie with the last one kept; transformers keeps some of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor
from transformers.generation import logits_process as known

from engine.core import Sampling
from engine.errors import NotSupported

OF_SCORES: frozenset[type] = frozenset({  # functions of a row's scores
    known.TemperatureLogitsWarper, known.TopKLogitsWarper, known.TopPLogitsWarper, known.TopHLogitsWarper, known.MinPLogitsWarper,
    known.TypicalLogitsWarper, known.EpsilonLogitsWarper, known.EtaLogitsWarper, known.SuppressTokensLogitsProcessor,
    known.InfNanRemoveLogitsProcessor, known.LogitNormalization,
})  # fmt: skip
OF_PATHS: frozenset[type] = frozenset({  # functions of the ids so far and the scores
    known.MinLengthLogitsProcessor, known.MinNewTokensLengthLogitsProcessor, known.RepetitionPenaltyLogitsProcessor,
    known.EncoderRepetitionPenaltyLogitsProcessor, known.NoRepeatNGramLogitsProcessor, known.EncoderNoRepeatNGramLogitsProcessor,
    known.SequenceBiasLogitsProcessor, known.NoBadWordsLogitsProcessor, known.PrefixConstrainedLogitsProcessor,
    known.ForcedBOSTokenLogitsProcessor, known.ForcedEOSTokenLogitsProcessor, known.ExponentialDecayLengthPenalty,
    known.SuppressTokensAtBeginLogitsProcessor,
})  # fmt: skip
GUIDANCE = known.UnbatchedClassifierFreeGuidanceLogitsProcessor
LAST = ("temperature", "top_k", "top_p")  # what the engine applies itself, in its order


@dataclass(frozen=True)
class Reading:
    """The caller's distribution.

    sampling : guidance first, then `called` in order, then temperature, top-k and top-p; temperature 0 is greedy
    called   : processors that are called for every row
    guidance : the caller's guidance processor, which holds the ids of the unconditional prompt; None without guidance
    paths    : types of the caller's own that depend on the ids so far, beside OF_PATHS
    """

    sampling: Sampling
    called: tuple[known.LogitsProcessor, ...] = ()
    guidance: known.LogitsProcessor | None = None
    paths: frozenset[type] = frozenset()

    @property
    def needs_paths(self) -> bool:
        """Whether a distribution depends on the ids so far in another way than through the model."""
        return any(self.of_path(each) for each in self.called)

    def of_path(self, processor: known.LogitsProcessor) -> bool:
        """Whether a processor looks at the ids so far."""
        return type(processor) in OF_PATHS or type(processor) in self.paths

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


def read(processors: Sequence[known.LogitsProcessor], greedy: bool, own: Sequence[type] = ()) -> Reading:
    """The distribution that a list of processors describes. own : types of the caller that depend on nothing but ids and scores.

    Raises NotSupported for a processor that is not known, or for guidance that does not come first.
    """
    found, guidance, scale = list(processors), None, 1.0
    if found and type(found[0]) is GUIDANCE:
        guidance = found.pop(0)
        scale = float(guidance.guidance_scale)
    for each in found:
        _check(each, frozenset(own))
    if found and type(found[-1]) is known.LogitNormalization:
        found.pop()  # changes no distribution
    sampling = Sampling(guidance=scale)
    for name in reversed(LAST):
        if found and (value := _value_of(found[-1], name)) is not None:
            sampling = replace(sampling, **{name: value})
            found.pop()
    if greedy:
        sampling = Sampling(temperature=0.0, guidance=scale)  # none of the three moves the largest score
    return Reading(sampling, tuple(found), guidance, frozenset(own))


def _check(processor: known.LogitsProcessor, own: frozenset[type]) -> None:
    kind = type(processor)
    if kind is GUIDANCE:
        raise NotSupported("Guidance must be the first logits processor. Pass guidance_scale to generate instead of a processor.")
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
