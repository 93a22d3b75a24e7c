"""`foretoken()` without a name: the tokens of `generate`, drafts only where they pay, and little lost where they do not."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, PreTrainedModel, TemperatureLogitsWarper, TopKLogitsWarper

from engine.core import Sampling
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import NotSupported
from engine.transformers import adaptive, foretoken
from engine.transformers.costs import PassCosts
from engine.transformers.host import Branch, CallerModel
from engine.transformers.processors import CallerDistribution
from research.exactness.mutants import MUTANTS
from research.exactness.mutation import Mutant
from research.exactness.power import Distribution, detectable, statistic
from tests.engine.transformers import models
from tests.engine.transformers.models import PROMPT, plain
from tests.engine.transformers.test_requests import Forgetful

LONG = 240
FREE: Callable[[int], float] = lambda rows: 1.0  # noqa: E731
DEAR: Callable[[int], float] = lambda rows: float(rows)  # noqa: E731
STEP: Callable[[int], float] = lambda rows: 1.0 if rows == 1 else 2.0  # noqa: E731


PLAIN = 0.25  # seconds of a plain pass: not 1, so that seconds and plain passes differ


class Machine:
    """A clock that a model's passes advance by the cost of their rows."""

    def __init__(self, model: PreTrainedModel, cost: Callable[[int], float]):
        self.seconds, self.cost = 0.0, cost
        self.handle = model.register_forward_hook(self._advance, with_kwargs=True)

    def __call__(self) -> float:
        """The time."""
        return self.seconds

    def _advance(self, model: PreTrainedModel, args: Any, inputs: dict[str, Any], output: Any) -> None:
        rows = inputs["input_ids"].shape[1]
        self.seconds += PLAIN * (1.0 if self.seconds == 0 else self.cost(rows))  # the prompt's pass counts as one


@pytest.fixture(autouse=True)
def nothing_known() -> Iterator[None]:
    """Forgets the measurements of other tests that use the same models."""
    adaptive.KNOWN.clear()
    yield
    adaptive.KNOWN.clear()


def time_generation(
    monkeypatch: pytest.MonkeyPatch, model: PreTrainedModel, cost: Callable[[int], float], **settings: Any
) -> tuple[Any, float]:
    """A generation by default, and its time in plain passes."""
    machine = Machine(model, cost)
    monkeypatch.setattr(adaptive.Pilot, "clock", staticmethod(machine))
    options = {"do_sample": False, "max_new_tokens": LONG, "return_dict_in_generate": True, "custom_generate": foretoken()}
    output = model.generate(torch.tensor([PROMPT]), **options | settings)
    machine.handle.remove()
    return output, machine.seconds / PLAIN


def cyclic_model() -> PreTrainedModel:
    """A model that cycles through six tokens, whatever came before."""
    model = models.random_model(models.LlamaForCausalLM, models.LlamaConfig(**models.SHAPE | {"max_position_embeddings": 512}))
    table = torch.zeros(models.VOCABULARY, 32)
    table[torch.arange(models.VOCABULARY), torch.arange(models.VOCABULARY) % 32] = 1.0
    model.model.embed_tokens.weight.copy_(table)
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    following = torch.tensor([token + 1 if token % 6 < 5 else token - 5 for token in range(models.VOCABULARY)])
    model.lm_head.weight.zero_()
    for token in range(30):
        model.lm_head.weight[following[token]] += 10 * table[token]
    return model


def position_model() -> PreTrainedModel:
    """A model whose tokens depend only on their positions: a window is right once its positions have been seen."""
    shape = {"n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 512, "tie_word_embeddings": False}
    config = models.GPT2Config(vocab_size=models.VOCABULARY, pad_token_id=0, bos_token_id=1, eos_token_id=None, **shape)
    model = models.random_model(models.GPT2LMHeadModel, config)
    model.transformer.wte.weight.zero_()
    model.transformer.h[0].attn.c_proj.weight.zero_()
    return model


def wandering_model() -> PreTrainedModel:
    """A model of random weights, whose text hardly repeats."""
    return models.llama(max_position_embeddings=512)


PAYS: dict[str, tuple[Callable[[], PreTrainedModel], Callable[[int], float], float, set[str]]] = {
    # a model; the cost of a pass by its rows; the least speed; kinds of passes with drafts
    "text that repeats, free rows": (cyclic_model, FREE, 1.5, {"lookup"}),
    "text that repeats, a step": (cyclic_model, STEP, 1.5, {"lookup"}),
    "text that repeats, dear rows": (cyclic_model, DEAR, 0.95, set()),
    "other text, dear rows": (wandering_model, DEAR, 0.95, set()),
    "other text, a step": (wandering_model, STEP, 0.95, set()),
    "other text, free rows": (wandering_model, FREE, 1.0, {"lookup"}),
    "places, free rows": (position_model, FREE, 1.3, {"window"}),
    "places, dear rows": (position_model, DEAR, 0.95, set()),
}


@pytest.mark.parametrize("build, cost, least, kinds", PAYS.values(), ids=PAYS)
def test_drafts_where_they_pay(
    monkeypatch: pytest.MonkeyPatch, build: Callable[[], PreTrainedModel], cost: Callable[[int], float], least: float, kinds: set[str]
) -> None:
    model = build()
    expected = plain(model, max_new_tokens=LONG)
    for number in range(2):  # the second run knows the model
        output, seconds = time_generation(monkeypatch, model, cost)
        (totals,) = output.totals
        assert output.sequences.tolist() == expected
        assert LONG / seconds >= least, (number, totals)
        assert kinds <= {kind for kind, count in totals["decoding"].items() if count} <= {"plain", "lookup", "window"}
        assert cost is FREE or not totals["decoding"]["window"]  # none can be afforded
        assert totals["exact"] and totals["reason"].endswith(".")


@pytest.mark.parametrize(
    ("checked", "cost", "plain_passes", "begun", "rows"),
    [
        (True, 1.5, 400, False, 4), (True, 1.5, 40, False, None), (True, 1.5, 40, True, 4), (True, 3.0, 4000, False, None),
        (None, 1.5, 400, False, None),
    ],
)  # fmt: skip
def test_a_window_is_tried_where_its_cost_is_known_hopeful_and_affordable(
    checked: bool | None, cost: float, plain_passes: int, begun: bool, rows: int | None
) -> None:
    host = CallerModel(models.llama(), [Branch(torch.tensor(PROMPT))], 16, CallerDistribution(Sampling()))
    pilot = adaptive.Pilot(host)
    pilot.known.checked = checked
    pilot.known.costs.add(4, cost)
    for _ in range(plain_passes):
        pilot.took("plain", PLAIN, 1, 1)
    assert pilot.window(4, begun) == rows


def test_the_first_passes_of_windows_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = position_model()
    output, _ = time_generation(monkeypatch, model, FREE)
    (known,) = adaptive.KNOWN[model].values()
    assert sum(map(len, known.windows.values())) == output.totals[0]["decoding"]["window"] - adaptive.SETTLING > 0  # in one stretch


def test_measurements_of_greedy_runs_and_of_sampled_ones_are_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wandering_model()
    for sampled, temperature in ((False, 1.0), (True, 0.5), (True, 1.5)):
        time_generation(monkeypatch, model, STEP, max_new_tokens=2, do_sample=sampled, temperature=temperature)
    assert len(adaptive.KNOWN[model]) == 2


def test_outcomes_of_a_lookup_include_the_one_under_comparison() -> None:
    record = adaptive.LookupRecord([1, 2, 3, 4, 1, 2])  # 1, 2 were followed by 3, 4, 1, 2
    record.add([3])
    assert record.outcomes(2) == [1, 0] and record.outcomes(1) == [0]
    record.add([9])
    assert record.outcomes(2) == [1, 0] and record.outcomes(1) == [0]


@pytest.mark.parametrize("tokens", [1, 2, 16, 24])
def test_a_short_run_makes_plain_passes_and_no_others(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    output, seconds = time_generation(monkeypatch, wandering_model(), STEP, max_new_tokens=tokens)
    assert output.sequences.tolist() == plain(wandering_model(), max_new_tokens=tokens)
    assert seconds == tokens == output.totals[0]["forwards"]
    assert "too short" in output.totals[0]["reason"]


@pytest.mark.parametrize("model, sentence", [(models.falcon, "mask of drafts"), (lambda: FORGETFUL, "positions and the mask")])
def test_a_class_that_takes_no_drafts_makes_plain_passes(
    monkeypatch: pytest.MonkeyPatch, model: Callable[[], PreTrainedModel], sentence: str
) -> None:
    output, _ = time_generation(monkeypatch, model(), FREE, max_new_tokens=120)
    assert output.sequences.tolist() == plain(model(), max_new_tokens=120)
    assert sentence in output.totals[0]["reason"]
    assert not output.totals[0]["decoding"]["window"] + output.totals[0]["decoding"]["lookup"]


def test_a_class_that_would_see_the_padding_of_a_guidance_pair_is_refused() -> None:
    with pytest.raises(NotSupported, match="positions and the mask"):
        FORGETFUL.generate(torch.tensor([PROMPT]), max_new_tokens=4, do_sample=False, guidance_scale=2.0, custom_generate=foretoken())


FORGETFUL = models.random_model(Forgetful, models.LlamaConfig(**models.SHAPE | {"max_position_embeddings": 512}))
CALLS: dict[str, dict[str, Any]] = {
    "guidance": {"guidance_scale": 2.0},
    "a penalty": {"repetition_penalty": 1.3},
    "the end": {"eos_token_id": [7, 11]},
    "a window of the caller's": {"window": 5},
}


@pytest.mark.parametrize("settings", CALLS.values(), ids=CALLS)
def test_requests_by_default(monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    monkeypatch.setattr(adaptive, "SHARE", 10.0)  # everything is tried, at any loss
    output, _ = time_generation(monkeypatch, wandering_model(), FREE, max_new_tokens=60, **settings)
    expected = plain(wandering_model(), max_new_tokens=60, **{name: value for name, value in settings.items() if name != "window"})
    assert output.sequences.tolist() == expected


def test_the_callable_keeps_the_report_of_its_last_call() -> None:
    call = foretoken()
    assert call.report == []
    sequences = models.llama().generate(torch.tensor([PROMPT] * 2), max_new_tokens=5, do_sample=False, custom_generate=call)
    assert sequences.shape == (2, len(PROMPT) + 5)
    assert [each["method"] for each in call.report] == ["auto", "auto"]
    assert all("too short" in each["reason"] for each in call.report)


WORDS_DRAWN, RUNS, IDS = 4, 700, 5
SAMPLED = {"do_sample": True, "temperature": 0.5, "top_k": 4}


def small() -> LlamaForCausalLM:
    """One layer and five ids, so that every sequence can be enumerated."""
    return models.llama(
        vocab_size=IDS, num_hidden_layers=1, hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1
    )


def distribution_of(model: LlamaForCausalLM, prompt: list[int], length: int) -> Distribution:
    """The probability of every continuation, from the model's plain passes and transformers' own processors."""
    found: Distribution = {(): 1.0}
    for _ in range(length):
        ids = torch.tensor([[*prompt, *sequence] for sequence in found])
        scores = TopKLogitsWarper(SAMPLED["top_k"])(ids, TemperatureLogitsWarper(SAMPLED["temperature"])(ids, model(ids).logits[:, -1]))
        rows = torch.softmax(scores.double(), -1).tolist()
        found = {
            (*sequence, token): chance * row[token]
            for ((sequence, chance), row), token in product(zip(found.items(), rows, strict=True), range(IDS))
            if row[token] > 0
        }
    return found


def sample_switching(
    monkeypatch: pytest.MonkeyPatch, runs: int
) -> tuple[Counter[tuple[int, ...]], Counter[str], dict[tuple[int, ...], float]]:
    """Samples of runs whose clock is drawn, so that they change between plain passes, lookup and windows at any token."""
    times = random.Random(3)

    def clock() -> float:
        clock.seconds += times.choice([0.1, 1.0, 4.0])
        return clock.seconds

    clock.seconds = 0.0
    monkeypatch.setattr(adaptive.Pilot, "clock", staticmethod(clock))
    monkeypatch.setattr(adaptive, "SHARE", 10.0)
    monkeypatch.setattr(adaptive.Knowledge, "best_window", lambda self, largest, tried=False: 4 if times.random() < 0.4 else None)
    monkeypatch.setattr(adaptive.PassCosts, "of", lambda self, rows: 0.5)
    model, prompt, call = small(), [1, 2, 3, 1, 2, 3], foretoken(seed=7)
    sampled = model.generate(torch.tensor([prompt]), custom_generate=call, max_new_tokens=WORDS_DRAWN, num_return_sequences=runs, **SAMPLED)
    kinds = Counter(kind for each in call.report for kind, count in each["decoding"].items() for _ in range(count))
    return Counter(tuple(row) for row in sampled[:, len(prompt) :].tolist()), kinds, distribution_of(model, prompt, WORDS_DRAWN)


def test_the_distribution_across_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = RUNS
    counts, kinds, expected = sample_switching(monkeypatch, runs)
    assert min(kinds[kind] for kind in ("plain", "lookup", "window")) > runs // 5, kinds
    measured = statistic(counts, expected, runs)
    assert abs(measured["z"]) < 4, measured
    assert detectable(expected, runs, 4.0) < 0.17  # what these runs can see


def test_a_wrong_residual_across_switches_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, REFERENCE)  # a mutant is a function of PyTorch's operations
    mutant = Mutant("residual is p", MUTANTS["residual is p"]())
    with mutant.in_force():
        counts, _, expected = sample_switching(monkeypatch, RUNS)
    mutant.check()
    assert statistic(counts, expected, RUNS)["z"] > 10


COSTS: list[tuple[dict[int, list[float]], int, float]] = [  # passes by their rows; rows; cost
    ({}, 1, 1.0),
    ({}, 6, 6.0),
    ({4: [2.0]}, 3, 2.0),
    ({4: [2.0]}, 2, 2.0),  # no more than a larger pass
    ({4: [2.0]}, 8, 4.0),  # in proportion at most
    ({4: [2.0], 16: [2.5]}, 8, 2.5),
    ({5: [9.0, 2.0, 2.2]}, 8, 2.2),  # a disturbed pass counts little
]


@pytest.mark.parametrize("seen, rows, cost", COSTS)
def test_cost_of_rows(seen: dict[int, list[float]], rows: int, cost: float) -> None:
    costs = PassCosts()
    for each, ratios in seen.items():
        for ratio in ratios:
            costs.add(each, ratio)
    assert costs.of(rows) == cost
