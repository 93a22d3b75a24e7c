"""The only loop: totals, live knobs, stopping, refusals, races; and the duties of every method."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import engine.run
from engine.backbones.janus import Janus
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.pictogram import Pictogram
from engine.core import NO_DRAFT, Knob, KnobArray, Knobs, Method, Prompt, Sampling, Sequence, Step
from engine.decoding.initializers import WINDOW
from engine.errors import BadKnob, NotSupported
from engine.methods import METHODS, PRESETS, find
from engine.noise import Noise
from engine.run import Run, generate, race
from engine.trace import Trace
from research.exactness.toy import Toy
from tests.engine.backbones import tiny
from tests.engine.refusals import refuses

PROMPT = Prompt(text="two red cats", seed=5, sampling=Sampling(0.8, 20, 0.95, 2.0))
TOKENS = 64  # of the tiny pictogram
EXACT = {name: dict(METHODS[name].common) for name in METHODS}  # knobs under which a method promises plain decoding's distribution
WINDOWED = [name for name in METHODS if {"window", "init"} <= {k.name for k in METHODS[name].knobs}]
USABLE = [name for name in (*METHODS, *PRESETS) if find(name)[0].needs <= Pictogram.capabilities]

COUNT = Knob("count", "n", 1, 1, 8, 1)
FIXED = Knob("fixed", "", 2, 0, 9, 1, live=False)
STYLE = Knob("style", "", "plain text", choices=("plain text", "bold"))
RATIO = Knob("ratio", "τ", 0.5, 0.0, 2.0, 0.05)


def counting(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
    """A method that commits `count` tokens per step and records the knobs that it saw."""
    while not sequence.done:
        n, committed = sequence.length, []
        forwards = int(knobs.count)
        for _ in range(forwards):
            if not sequence.done:
                sequence.forward(NO_DRAFT)
                committed += sequence.commit([], sequence.length % 7)
        places = list(range(n, n + len(committed)))
        yield Step(committed, places, drafted=3, forwards=forwards, draft_forwards=2, trace=Trace(depth=[knobs.count, knobs.fixed]))


COUNTING = Method(
    "counting", "Counting", counting, (COUNT, FIXED, STYLE, RATIO), "none",
    exact=lambda knobs: knobs.count < 5, why=lambda knobs: "", needs=frozenset({"raster"}),
)  # fmt: skip


def run(method: Method = COUNTING, prompt: Prompt = PROMPT, **knobs: float | str) -> Run:
    """A run on the tiny pictogram."""
    return generate(tiny.pictogram(), method, prompt, knobs)


# --- totals and steps -------------------------------------------------------------------------------------------------


def test_totals_add_up() -> None:
    finished = run(count=4).finish()
    totals = finished.totals
    assert len(finished.steps) == 16 and finished.finished and not finished.stopped
    assert (totals["tokens"], totals["forwards"], totals["draft_forwards"], totals["drafted"]) == (64, 64, 32, 48)
    assert totals["step_compression"] == 1.0
    assert totals["seconds"] == finished.seconds >= sum(s.seconds for s in finished.steps) > 0
    assert totals["tokens_per_second"] == pytest.approx(64 / finished.seconds)
    assert finished.tokens == [i % 7 for i in range(64)] and finished.positions == list(range(64))


def test_totals_of_nothing() -> None:
    assert set(run().totals.values()) == {0}


def test_rendering_is_not_in_the_clock() -> None:
    finished = run(count=8).finish()
    before = finished.seconds
    assert finished.result().shape == (64, 64, 3)
    assert finished.seconds == before


@pytest.mark.parametrize("name", USABLE)
@pytest.mark.parametrize("verify", ["residual", "match seed"])
def test_steps_cover_every_position_once(name: str, verify: str) -> None:
    method, preset = find(name)
    known = {k.name for k in method.knobs}
    settings = {k: v for k, v in {"window": 6, "verify": verify}.items() if k in known}
    knobs = {k.name: k.default for k in method.knobs} | preset | settings
    if verify == "match seed" and not method.exact(Knobs(knobs)):
        with pytest.raises(BadKnob, match="match seed"):
            run(method, **knobs).finish()
        return
    finished = run(method, **knobs).finish()
    assert sorted(finished.positions) == list(range(TOKENS))
    assert len(finished.tokens) == TOKENS and all(0 <= t < 32 for t in finished.tokens)
    for step in finished.steps:
        assert len(step.tokens) == len(step.positions) > 0
        assert set(step.knobs) == known
        assert {len(v) for v in (step.trace.accepted, step.trace.entropy) if v is not None} == {len(step.tokens)}


# --- live knobs -------------------------------------------------------------------------------------------------------


def test_a_live_knob_acts_on_the_next_step() -> None:
    going = run()
    first = next(going)
    going.set(count=3, style="bold")
    second = next(going)
    assert (len(first.tokens), len(second.tokens)) == (1, 3)
    assert first.knobs["count"] == first.trace.depth[0] == 1 and first.knobs["style"] == "plain text"
    assert second.knobs["count"] == second.trace.depth[0] == 3 and second.knobs["style"] == "bold"


def test_a_fixed_knob_is_read_at_the_start_only() -> None:
    going = run(fixed=4)
    next(going)
    going.set(fixed=7)
    step = next(going)
    assert step.knobs["fixed"] == step.trace.depth[1] == 4


def test_a_live_knob_moves_a_real_method() -> None:
    going = run(METHODS["sjd"], window=4)
    assert next(going).drafted == 3
    going.set(window=9)
    assert next(going).drafted == 8


def test_exactness_is_that_of_the_knobs_used() -> None:
    going = run()
    next(going)
    assert going.exact
    going.set(count=6)
    assert not next(going).exact
    going.set(count=1)
    assert next(going).exact and not going.exact  # one relaxed step makes a relaxed run


def test_a_model_has_values_that_suit_it_until_a_person_says_otherwise() -> None:
    backbone = tiny.pictogram()
    backbone.suits = {"sjd": {"window": 3, "init": "random"}}
    values = generate(backbone, METHODS["sjd"], PROMPT, {"window": 5}).live.read()
    assert (values["window"], values["init"]) == (5, "random")
    assert generate(backbone, METHODS["sjd"], PROMPT).live.read()["window"] == 3
    assert generate(backbone, METHODS["sjdpp"], PROMPT).live.read()["window"] == WINDOW.default


@pytest.mark.parametrize("kind", [Pictogram, Janus, Lowpoly, Toy])
def test_what_suits_a_model_are_knobs_of_methods(kind: type) -> None:
    for name, values in kind.suits.items():
        KnobArray(METHODS[name].knobs, values)


def test_live_values_may_lie_in_any_buffer() -> None:
    """Another process writes into shared memory, without the run's own `set`."""
    buffer = np.zeros(4)
    going = Run(tiny.pictogram(), COUNTING, PROMPT, {"count": 2}, buffer=buffer)
    assert len(next(going).tokens) == 2
    KnobArray(COUNTING.knobs, {"count": 5}, buffer)
    assert len(next(going).tokens) == 5


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"count": 0}, "Choose 1 to 8"),
        ({"count": 9}, "Choose 1 to 8"),
        ({"ratio": math.nan}, "Choose 0 to 2"),
        ({"ratio": math.inf}, "Choose 0 to 2"),
        ({"ratio": "wide"}, "needs a number, not 'wide'"),
        ({"style": "italic"}, "plain text, bold"),
        ({"style": 1.0}, "plain text, bold"),
        ({"windoww": 3}, "There are: count, fixed, style, ratio"),
    ],
)
def test_bad_knobs_are_refused(knobs: dict[str, float | str], words: str) -> None:
    going = run()
    for ask in (run, going.set):
        with refuses(BadKnob, words):
            ask(**knobs)
    assert going.live.read() == run().live.read()  # a refused value leaves no trace


@pytest.mark.parametrize(
    ("method", "knob", "spelling", "value"),
    [
        *((COUNTING, "style", spelling, "bold") for spelling in ("bold", "Bold", " BOLD ")), (COUNTING, "count", "3", 3),
        *((METHODS["sjd"], "verify", spelling, "match seed") for spelling in ("match seed", "match-seed", "Match_Seed")),
    ],
)  # fmt: skip
def test_values_are_read_kindly(method: Method, knob: str, spelling: str, value: object) -> None:
    """In any case, with dashes for spaces; whole numbers stay integers."""
    value_read = run(method, **{knob: spelling}).live.read()[knob]
    assert value_read == value and type(value_read) is type(value)


def test_a_missing_capability_is_refused() -> None:
    method = Method("m", "M", counting, (), "none", lambda k: True, lambda k: "", needs=frozenset({"raster", "mesh"}))
    with refuses(NotSupported, "m needs mesh; pictogram"):
        run(method)


@pytest.mark.parametrize("name", ["sjdp", "nothing at all"])
def test_an_unknown_method_is_refused(name: str) -> None:
    with refuses(NotSupported, "sjdpp"):
        find(name)


# --- stopping and freeing ---------------------------------------------------------------------------------------------


def test_stopping_keeps_what_is_there_and_frees_the_rest() -> None:
    going = run(count=3)
    next(going), next(going)
    sequence, kv_cache = going.sequence, weakref.ref(going.sequence.kv_cache)
    going.stop()
    assert list(going) == []
    assert going.stopped and not going.finished and going.sequence is None
    assert going.tokens == [0, 1, 2, 3, 4, 5] and going.totals["tokens"] == 6
    gc.collect()
    assert kv_cache() is None and sequence.kv_cache is None  # a remaining reference to the sequence holds no cache
    picture = going.result()
    assert (picture[:8, :48] != (30, 34, 42)).any() and (picture[8:] == (30, 34, 42)).all()


def test_finishing_frees_the_cache() -> None:
    going = run(METHODS["sjdpp"], window=4)
    next(going)
    kv_cache = weakref.ref(going.sequence.kv_cache)
    going.finish()
    gc.collect()
    assert kv_cache() is None and next(going, None) is None


def test_closing_in_the_middle_closes_the_method() -> None:
    closed = []

    def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
        try:
            yield from counting(sequence, knobs, noise, drafter)
        finally:
            closed.append(True)

    going = run(Method("m", "M", decode, (COUNT, FIXED), "none", lambda k: True, lambda k: ""))
    next(going)
    going.close()
    going.close()
    assert closed == [True]


def test_two_runs_on_the_same_weights_do_not_disturb_each_other() -> None:
    other = Prompt(text="a green apple", seed=6, sampling=PROMPT.sampling)
    alone = [run(METHODS["sjd"], prompt, window=4).finish().tokens for prompt in (PROMPT, other)]
    together = [run(METHODS["sjd"], prompt, window=4) for prompt in (PROMPT, other)]
    while not all(r.finished for r in together):
        for r in together:
            next(r, None)
    assert [r.tokens for r in together] == alone and alone[0] != alone[1]


# --- races ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that only a test's methods advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Seconds."""
        return self.now


def run_with_steps(clock: Clock, seconds: float, steps: int) -> Run:
    """A run whose steps take `seconds` each."""

    def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
        for i in range(steps):
            clock.now += seconds
            yield Step([1], [i])

    return run(Method("m", "M", decode, (), "none", lambda k: True, lambda k: ""))


def test_a_race_advances_the_run_whose_clock_is_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(engine.run, "time", clock)
    runs = [run_with_steps(clock, 1.0, 8), run_with_steps(clock, 3.0, 3)]
    order = [which for which, _ in race(runs)]
    assert order == [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0]  # ties go to the first; at most one step of the slow one ahead
    assert [r.seconds for r in runs] == [8.0, 9.0]
    assert all(r.finished and r.sequence is None for r in runs)


def test_the_clock_counts_the_prefill_and_nothing_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(engine.run, "time", clock)
    start = Pictogram.start

    def slow_start(self: Pictogram, prompt: Prompt) -> Sequence:
        clock.now += 10
        return start(self, prompt)

    monkeypatch.setattr(Pictogram, "start", slow_start)
    going = run_with_steps(clock, 1.0, 2)
    assert next(going).seconds == 11
    clock.now += 100  # somebody draws a picture
    assert next(going).seconds == 1 and going.seconds == 12


# --- the same seed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("window", range(1, 9))
def test_match_seed_gives_plain_tokens_for_any_window(name: str, window: int, plain: list[int]) -> None:
    finished = run(METHODS[name], **EXACT[name] | {"window": window, "verify": "match seed"}).finish()
    assert finished.tokens == plain
    assert finished.exact and finished.totals["forwards"] <= TOKENS


@pytest.fixture(scope="module")
def plain() -> list[int]:
    """The tokens of plain decoding."""
    return run(METHODS["ar"]).finish().tokens


def test_a_model_on_a_second_card_decodes_with_that_card_as_the_current_device(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, cards, seen = Toy(), [0], []

    @contextmanager
    def on(device: torch.device) -> Iterator[None]:
        cards.append(device.index)
        try:
            yield
        finally:
            cards.pop()

    def decode(*arguments: Any) -> Iterator[Step]:
        for step in METHODS["ar"].decode(*arguments):
            seen.append(cards[-1])
            yield step

    monkeypatch.setattr(torch.cuda, "device", on)
    run = generate(toy, replace(METHODS["ar"], decode=decode), Prompt(seed=1))
    monkeypatch.setattr(toy, "device", torch.device("cuda", 1))
    monkeypatch.setattr("engine.run.Noise", lambda seed, vocabulary, device: Noise(seed, vocabulary, torch.device("cpu")))
    run.finish()
    assert set(seen) == {1} and cards == [0]


def test_gradients_are_off() -> None:
    going = run()
    next(going)
    assert going.sequence.kv_cache.block.is_inference() and torch.is_grad_enabled()
