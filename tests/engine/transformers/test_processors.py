"""Every logits processor of transformers: called row by row as `generate` calls it on a batch with padding, or refused with the reason."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList
from transformers.generation import logits_process as known

from engine.errors import NotSupported
from engine.transformers import processors
from engine.transformers.processors import GUIDANCE, OF_PATHS, OF_SCORES, REASONS, CallerDistribution
from tests.engine.transformers import models
from tests.engine.transformers.models import PROMPT, ours, plain

IDS = torch.tensor([[0, 0, 7, 9, 11], PROMPT, [0, 21, 7, 9, 7]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 1, 1, 1, 1]])
START = IDS.shape[1]
COMMON = 7  # an id that this model gives often
WHISPER = SimpleNamespace(no_timestamps_token_id=29, eos_token_id=28, bos_token_id=28, max_initial_timestamp_index=4)


def allowed_ids(batch: int, ids: torch.Tensor) -> list[int]:
    """Ids that depend on the prompt's number in its batch."""
    return [(int(ids[-1]) + step * (batch + 1)) % 40 for step in (1, 2, 5)]


TABLE: dict[type, Callable[[], known.LogitsProcessor]] = {
    known.TemperatureLogitsWarper: lambda: known.TemperatureLogitsWarper(0.7),
    known.TopKLogitsWarper: lambda: known.TopKLogitsWarper(3),
    known.TopPLogitsWarper: lambda: known.TopPLogitsWarper(0.7),
    known.TopHLogitsWarper: lambda: known.TopHLogitsWarper(0.4),
    known.MinPLogitsWarper: lambda: known.MinPLogitsWarper(0.3),
    known.TypicalLogitsWarper: lambda: known.TypicalLogitsWarper(0.5),
    known.EpsilonLogitsWarper: lambda: known.EpsilonLogitsWarper(0.1),
    known.EtaLogitsWarper: lambda: known.EtaLogitsWarper(0.1),
    known.SuppressTokensLogitsProcessor: lambda: known.SuppressTokensLogitsProcessor([COMMON, 8, 9, 23]),
    known.InfNanRemoveLogitsProcessor: known.InfNanRemoveLogitsProcessor,
    known.LogitNormalization: known.LogitNormalization,
    known.BarkEosPrioritizerLogitsProcessor: lambda: known.BarkEosPrioritizerLogitsProcessor(COMMON, 0.05),
    known.MinLengthLogitsProcessor: lambda: known.MinLengthLogitsProcessor(START + 8, [COMMON, 23, 37]),
    known.MinNewTokensLengthLogitsProcessor: lambda: known.MinNewTokensLengthLogitsProcessor(START, 8, [COMMON, 23, 37]),
    known.RepetitionPenaltyLogitsProcessor: lambda: known.RepetitionPenaltyLogitsProcessor(
        1.5, prompt_ignore_length=torch.tensor([2, 0, 4])
    ),
    known.EncoderRepetitionPenaltyLogitsProcessor: lambda: known.EncoderRepetitionPenaltyLogitsProcessor(1.8, IDS),
    known.NoRepeatNGramLogitsProcessor: lambda: known.NoRepeatNGramLogitsProcessor(2),
    known.EncoderNoRepeatNGramLogitsProcessor: lambda: known.EncoderNoRepeatNGramLogitsProcessor(1, IDS),
    known.SequenceBiasLogitsProcessor: lambda: known.SequenceBiasLogitsProcessor([[[COMMON], 4.0], [[23, 8], -9.0], [[37, 5], 6.0]]),
    known.NoBadWordsLogitsProcessor: lambda: known.NoBadWordsLogitsProcessor([[token] for token in range(3, 20)] + [[23, 37]]),
    known.PrefixConstrainedLogitsProcessor: lambda: known.PrefixConstrainedLogitsProcessor(allowed_ids, 1),
    known.ForcedBOSTokenLogitsProcessor: lambda: known.ForcedBOSTokenLogitsProcessor(3),
    known.ForcedEOSTokenLogitsProcessor: lambda: known.ForcedEOSTokenLogitsProcessor(START + 24, 3),
    known.ExponentialDecayLengthPenalty: lambda: known.ExponentialDecayLengthPenalty((3, 1.4), 3, START),
    known.SuppressTokensAtBeginLogitsProcessor: lambda: known.SuppressTokensAtBeginLogitsProcessor(list(range(20, 40)), START),
    known.AlternatingCodebooksLogitsProcessor: lambda: known.AlternatingCodebooksLogitsProcessor(START, 10, 15),
    known.WhisperTimeStampLogitsProcessor: lambda: known.WhisperTimeStampLogitsProcessor(WHISPER, START, True),
    known.WatermarkLogitsProcessor: lambda: known.WatermarkLogitsProcessor(models.VOCABULARY, "cpu", bias=6.0),
}
CHANGES_NO_BEST_ID = OF_SCORES - {known.TypicalLogitsWarper, known.SuppressTokensLogitsProcessor, known.BarkEosPrioritizerLogitsProcessor}
ONLY_WHERE_THERE_IS_NO_PROMPT = {known.ForcedBOSTokenLogitsProcessor}


def test_every_processor_of_transformers_is_decided() -> None:
    there = {each for _, each in inspect.getmembers(known, inspect.isclass) if issubclass(each, known.LogitsProcessor)}
    assert there - {known.LogitsProcessor} == OF_SCORES | OF_PATHS | set(REASONS) | {GUIDANCE}
    assert set(TABLE) == OF_SCORES | OF_PATHS


@pytest.mark.parametrize("method", ["sjdpp", "auto"])
@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_a_batch_with_left_padding(kind: type, method: str) -> None:
    settings = {"attention_mask": MASK, "renormalize_logits": True}

    def processors() -> dict[str, Any]:
        return settings | {"logits_processor": LogitsProcessorList([TABLE[kind]()])}

    expected = plain(models.llama(), IDS, **processors())
    assert ours(models.llama(), method, IDS, **processors(), window=6) == expected
    assert (expected != plain(models.llama(), IDS, **settings)) == (kind not in CHANGES_NO_BEST_ID | ONLY_WHERE_THERE_IS_NO_PROMPT)


@pytest.mark.parametrize("kind", TABLE, ids=lambda kind: kind.__name__)
def test_probabilities_of_a_batch(kind: type) -> None:
    """The sampling distributions of a batch's rows, one by one with their own processors, equal those of the batch."""
    torch.manual_seed(3)
    scores, ids = torch.randn(3, models.VOCABULARY) * 2, torch.cat([IDS, torch.tensor([[7, 23, 30], [5, 37, 30], [9, 9, 9]])], 1)
    expected = TABLE[kind]()(ids, scores.clone())
    reading = processors.read([TABLE[kind](), known.TopKLogitsWarper(40), known.TemperatureLogitsWarper(1.0)], greedy=False)
    rows = [reading.of_row(index, 3).apply(scores[index : index + 1].clone(), [ids[index]]) for index in range(3)]
    assert torch.equal(torch.cat(rows), expected)


def test_settings_of_a_batch_whose_processors_hold_its_prompts() -> None:
    """`generate` repeats prompts: three sequences for each of two prompts, and a processor for two."""
    settings = {"attention_mask": MASK[:2], "encoder_repetition_penalty": 1.8, "encoder_no_repeat_ngram_size": 1, "repetition_penalty": 1.3}
    repeated = IDS[:2].repeat_interleave(3, 0), MASK[:2].repeat_interleave(3, 0)
    expected = plain(models.llama(), IDS[:2], **settings)
    sampled = ours(models.llama(), ids=repeated[0], **settings | {"attention_mask": repeated[1]}, window=6)
    assert sampled == [expected[index // 3] for index in range(6)]


def test_a_processor_that_is_called_with_another_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail."""
    monkeypatch.setattr(CallerDistribution, "of_row", lambda self, index, count: self)
    processor = {"logits_processor": LogitsProcessorList([TABLE[known.PrefixConstrainedLogitsProcessor]()]), "attention_mask": MASK}
    assert ours(models.llama(), ids=IDS, **processor) != plain(models.llama(), IDS, **processor)


REFUSED: dict[type, tuple[Callable[[], Any], str]] = {
    known.ClassifierFreeGuidanceLogitsProcessor: (lambda: known.ClassifierFreeGuidanceLogitsProcessor(2.0), "unconditional halves"),
    known.DiaClassifierFreeGuidanceLogitsProcessor: (lambda: known.DiaClassifierFreeGuidanceLogitsProcessor(2.0), "channels"),
    known.DiaEOSChannelFilterLogitsProcessor: (lambda: known.DiaEOSChannelFilterLogitsProcessor(9, 2), "channels"),
    known.DiaEOSDelayPatternLogitsProcessor: (lambda: known.DiaEOSDelayPatternLogitsProcessor([0, 1], 2, 9, "cpu"), "channels"),
    known.WhisperNoSpeechDetection: (lambda: known.WhisperNoSpeechDetection(2, START), "model of its own"),
    known.SynthIDTextWatermarkLogitsProcessor: (
        lambda: known.SynthIDTextWatermarkLogitsProcessor(ngram_len=2, keys=[1, 2], sampling_table_size=8, sampling_table_seed=0,
                                                          context_history_size=4, device="cpu"),
        "remembers the contexts",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", REASONS, ids=lambda kind: kind.__name__)
def test_processors_that_are_refused(kind: type) -> None:
    build, sentence = REFUSED[kind]
    with pytest.raises(NotSupported, match=f"{kind.__name__} .*{sentence}"):
        ours(models.llama(), logits_processor=LogitsProcessorList([build()]))
