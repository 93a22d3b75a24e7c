"""Several runs at once: each equals the run alone, for every method, and none disturbs another."""

from __future__ import annotations

import _thread
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from engine.backbones import load, lowpoly, pictogram
from engine.core import Backbone, Knobs, Method, Prompt, Sequence, Step
from engine.dispatch.choice import REFERENCE, VARIABLE
from engine.errors import BadPrompt, NotSupported
from engine.kernels.cpu.library import build, native
from engine.many import USUAL, EndedRun, compute, default_at_once, generate_many, race_together
from engine.methods import find
from engine.networks.trunk import PassArguments
from engine.noise import Noise
from engine.run import Run, generate
from research.exactness.toy import Toy

TEXTS = ("a red apple on a blue background", "a cat", "two green trees", "a yellow star on a red background")


@cache
def load_shipped(name: str, dtype: str) -> Backbone:
    """The shipped weights in a dtype."""
    return load(name, device="cpu", dtype=dtype)


@pytest.fixture
def pictures() -> Backbone:
    """The shipped pictogram."""
    return load_shipped("pictogram", "float32")


@pytest.fixture
def meshes() -> Backbone:
    """The shipped lowpoly."""
    return load_shipped("lowpoly", "float32")


def captions(backbone: Backbone, count: int = 4) -> list[Prompt]:
    """Prompts of small pictures, every second one without guidance."""
    bare = replace(backbone.sampling, guidance=1.0)
    return [Prompt(text, seed=i, size=64, sampling=bare if i % 2 else None) for i, text in enumerate(TEXTS[:count])]


def clouds(count: int = 4) -> list[Prompt]:
    """Prompts of meshes that end at different lengths."""
    prompts = []
    for i in range(count):
        normals = torch.nn.functional.normalize(torch.randn(300, 3, generator=torch.Generator().manual_seed(i)), dim=-1)
        places = normals * torch.tensor([0.9, 0.3 + 0.2 * i, 0.5])
        prompts.append(Prompt(points=torch.cat([places, normals], 1), seed=i, size=8 + 6 * i))
    return prompts


def run_alone(backbone: Backbone, name: str, prompts: list[Prompt], **knobs: Any) -> list[Run]:
    """The runs, one after another."""
    method, preset = find(name)
    return [generate(backbone, method, prompt, {**preset, **knobs}).finish() for prompt in prompts]


def run_many(backbone: Backbone, name: str, prompts: list[Prompt], at_once: int = 3, **knobs: Any) -> list[EndedRun]:
    """The runs at once, in the order of their prompts."""
    method, preset = find(name)
    return sorted(generate_many(backbone, method, prompts, {**preset, **knobs}, at_once), key=lambda each: each.index)


def trace_of(run: Run) -> list[tuple]:
    """Values of the steps, without their seconds."""
    return [(s.tokens, s.positions, s.drafted, s.forwards, numbers(s.trace.accepted), numbers(s.trace.entropy)) for s in run.steps]


def numbers(values: Any) -> list[float] | None:
    """The numbers of a field of a trace."""
    return None if values is None else torch.as_tensor(values).tolist()


def assert_same(together: list[EndedRun], runs: list[Run]) -> None:
    """Every run has the tokens and the trace of the run alone."""
    assert [each.index for each in together] == list(range(len(runs)))
    for each, run in zip(together, runs, strict=True):
        assert each.error is None and each.run.finished
        assert trace_of(each.run) == trace_of(run)


class Counter:
    """Counts the runs of each joined pass."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, trunk: type):
        self.sizes: list[int] = []
        plain = trunk.run_together

        def record_size(own: Any, requests: list[PassArguments]) -> Any:
            results = plain(own, requests)
            if results is not None:
                self.sizes.append(len(requests))
            return results

        monkeypatch.setattr(trunk, "run_together", record_size)


# --- equality ---------------------------------------------------------------------------------------------------------

half = pytest.mark.skipif(native(torch.bfloat16) is None, reason="native functions do not run in bfloat16 here")
TRUNKS = {"pictogram": pictogram._PictogramTrunk, "lowpoly": lowpoly._LowpolyTrunk}
EQUAL = [
    *(("pictogram", "float32", name, knobs) for name, knobs in (
        ("ar", {}), ("sjdpp", {}), ("sjdpp", {"verify": "match seed", "window": 6}), ("adt_tree", {}), ("zipar", {}),
        ("zipar_verified", {}))),
    *(("lowpoly", "float32", name, {}) for name in ("ar", "xspecmesh_exact", "sjdpp")),
    *(pytest.param(*row, {}, marks=half) for row in (
        ("pictogram", "bfloat16", "ar"), ("pictogram", "bfloat16", "sjdpp"), ("lowpoly", "bfloat16", "xspecmesh_exact"))),
]  # fmt: skip


@pytest.mark.parametrize(("model", "dtype", "name", "knobs"), EQUAL)
def test_each_is_the_run_alone(model: str, dtype: str, name: str, knobs: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = load_shipped(model, dtype)
    prompts = clouds() if model == "lowpoly" else captions(backbone, 3 if dtype == "float32" else 4)
    runs, counter = run_alone(backbone, name, prompts, **knobs), Counter(monkeypatch, TRUNKS[model])
    assert_same(run_many(backbone, name, prompts, **knobs), runs)
    if model == "lowpoly":
        assert len({len(run.tokens) for run in runs}) > 1, "they should end at different times"
        assert not build()[0] or counter.sizes.count(3) > min(len(run.steps) for run in runs)  # the fourth has taken a free place
    else:
        assert not build()[0] or max(counter.sizes) == 3  # pairs and single branches together


@pytest.mark.parametrize(("name", "size"), [("mulo_jacobi", 128), ("cross_regression", 64)])
def test_passes_of_another_scale_or_with_an_adapter_work_too(pictures: Backbone, name: str, size: int) -> None:
    prompts = [Prompt(text, seed=i, size=size) for i, text in enumerate(TEXTS[:2])]
    assert_same(run_many(pictures, name, prompts), run_alone(pictures, name, prompts))


def test_passes_that_are_not_joined_are_computed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, REFERENCE)
    backbone = load("pictogram", device="cpu", dtype="float32")
    runs, counter = run_alone(backbone, "sjdpp", captions(backbone, 2)), Counter(monkeypatch, pictogram._PictogramTrunk)
    assert_same(run_many(backbone, "sjdpp", captions(backbone, 2)), runs)
    assert counter.sizes == []


def test_a_model_with_sequences_of_its_own_works_too() -> None:
    toy = Toy()
    prompts = [Prompt(seed=i) for i in range(5)]
    assert_same(run_many(toy, "sjd", prompts, at_once=2), run_alone(toy, "sjd", prompts))


# --- order ------------------------------------------------------------------------------------------------------------


def test_a_prompt_is_read_when_a_place_is_free() -> None:
    toy, read = Toy(), []

    def prompts() -> Iterator[Prompt]:
        for i in range(5):
            read.append(i)
            yield Prompt(seed=i)

    ended = generate_many(toy, find("ar")[0], prompts(), at_once=2)
    assert read == []
    next(ended)
    assert read == [0, 1]
    assert len(list(ended)) == 4 and read == [0, 1, 2, 3, 4]


def test_shorter_runs_come_first(meshes: Backbone) -> None:
    method = find("ar")[0]
    ended = list(generate_many(meshes, method, clouds(3)[::-1], at_once=3))
    lengths = [len(each.run.tokens) for each in ended]
    assert lengths == sorted(lengths) and [each.index for each in ended] != [0, 1, 2]


def test_the_seconds_of_the_runs_are_shares_of_the_time(pictures: Backbone) -> None:
    start = time.perf_counter()
    ended = run_many(pictures, "sjdpp", captions(pictures), at_once=4)
    whole = time.perf_counter() - start
    assert all(each.run.seconds > 0 for each in ended)
    assert sum(each.run.seconds for each in ended) <= whole


def test_many_at_once_are_usual_where_passes_are_joined(pictures: Backbone, meshes: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [default_at_once(each) for each in (pictures, meshes)] == [USUAL if build()[0] else 1] * 2
    monkeypatch.setenv(VARIABLE, REFERENCE)
    assert [default_at_once(load(name)) for name in ("pictogram", "lowpoly")] == [1, 1] and default_at_once(Toy()) == 1


def test_fewer_than_one_at_once_is_refused_before_anything_begins() -> None:
    with pytest.raises(BadPrompt, match="0 runs at once are too few"):
        generate_many(Toy(), find("ar")[0], [Prompt()], at_once=0)


def test_a_method_that_does_not_fit_is_refused() -> None:
    with pytest.raises(NotSupported, match="needs"):
        list(generate_many(load("lowpoly", device="cpu"), find("zipar")[0], clouds(1)))


# --- errors and ends --------------------------------------------------------------------------------------------------


@pytest.fixture
def started_runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """The runs that have started."""
    runs: list[Run] = []
    plain = Run.__init__

    def record_run(self: Run, *arguments: Any, **more: Any) -> None:
        plain(self, *arguments, **more)
        runs.append(self)

    monkeypatch.setattr(Run, "__init__", record_run)
    return runs


def open_runs(started_runs: list[Run]) -> int:
    """The number of runs that hold a cache."""
    return sum(run.sequence is not None for run in started_runs)


def with_bug(method: Method, seed: int, at: int) -> Method:
    """The method with a bug in one seed's run."""

    def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
        for i, step in enumerate(method.decode(sequence, knobs, noise, drafter)):
            if i == at and noise.base == Noise(seed, sequence.vocabulary, sequence.device).base:
                raise ZeroDivisionError("a bug")
            yield step

    return replace(method, decode=decode)


def test_what_goes_wrong_in_a_run_ends_only_this_run(pictures: Backbone, started_runs: list[Run]) -> None:
    prompts = [*captions(pictures, 3), Prompt("", seed=3, size=64)]
    runs = run_alone(pictures, "ar", prompts[:3])
    ended = sorted(generate_many(pictures, with_bug(find("ar")[0], 1, 7), prompts, at_once=4), key=lambda each: each.index)
    assert isinstance(ended[1].error, ZeroDivisionError) and ended[1].run.tokens == runs[1].tokens[:7]
    assert isinstance(ended[3].error, BadPrompt) and ended[3].run.tokens == []
    assert [trace_of(ended[i].run) for i in (0, 2)] == [trace_of(runs[i]) for i in (0, 2)]
    assert open_runs(started_runs) == 0


def test_what_goes_wrong_in_a_joined_pass_is_raised_in_its_runs(pictures: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(own: Any, requests: list[PassArguments]) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(pictogram._PictogramTrunk, "run_together", fail)
    ended = run_many(pictures, "ar", captions(pictures, 3), at_once=2)
    assert [type(each.error) for each in ended[:2]] == [ZeroDivisionError] * 2
    assert ended[2].error is None and ended[2].run.finished  # the last one is alone


def test_a_run_that_is_stopped_disturbs_no_other(pictures: Backbone) -> None:
    prompts = captions(pictures, 3)
    runs = run_alone(pictures, "sjdpp", prompts)

    def watch(index: int, run: Run) -> None:
        if index == 1 and len(run.steps) == 2:
            run.stop()

    method, preset = find("sjdpp")
    ended = sorted(generate_many(pictures, method, prompts, preset, at_once=2, watch=watch), key=lambda each: each.index)
    assert not ended[1].run.finished and trace_of(ended[1].run) == trace_of(runs[1])[:2]
    assert [trace_of(ended[i].run) for i in (0, 2)] == [trace_of(runs[i]) for i in (0, 2)]


def test_runs_that_race_together_take_their_own_steps(pictures: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, (method, preset), joint = captions(pictures, 3), find("sjdpp"), []
    alone = run_alone(pictures, "sjdpp", prompts)
    monkeypatch.setattr("engine.many.compute", lambda places, own=compute: (joint.append(len(places)), own(places)))
    runs = [generate(pictures, method, prompt, preset) for prompt in prompts]
    for index, step in race_together(runs):
        assert runs[index].steps[-1] is step and not torch.is_inference_mode_enabled()
        if index == 1 and len(runs[1].steps) == 2:
            runs[1].stop()
    assert [trace_of(runs[i]) for i in (0, 2)] == [trace_of(alone[i]) for i in (0, 2)] and runs[0].finished
    assert trace_of(runs[1]) == trace_of(alone[1])[:2] and not runs[1].finished
    assert joint[0] == 3 and open_runs(runs) == 0


@pytest.mark.parametrize("end", [lambda ended: ended.close(), lambda ended: None], ids=["closed", "dropped"])
def test_whoever_wants_no_more_leaves_no_run(meshes: Backbone, started_runs: list[Run], end: Callable[[Any], None]) -> None:
    ended = generate_many(meshes, find("ar")[0], clouds(), at_once=3)
    next(ended)
    assert open_runs(started_runs) == 2
    end(ended)
    del ended
    assert open_runs(started_runs) == 0


def test_ctrl_c_ends_all_runs(pictures: Backbone, started_runs: list[Run]) -> None:
    once = iter([_thread.interrupt_main])  # a second one would end the tidying too

    def decode(sequence: Sequence, knobs: Knobs, noise: Noise, drafter: Any) -> Iterator[Step]:
        for i, step in enumerate(find("ar")[0].decode(sequence, knobs, noise, drafter)):
            if i == 3:
                next(once, lambda: None)()
            yield step

    with pytest.raises(KeyboardInterrupt):
        list(generate_many(pictures, replace(find("ar")[0], decode=decode), captions(pictures, 3), at_once=2))
    assert len(started_runs) == 2 and open_runs(started_runs) == 0


def test_the_caller_is_not_in_inference_mode_between_runs(meshes: Backbone) -> None:
    for _ in generate_many(meshes, find("ar")[0], clouds(2), at_once=2):
        assert not torch.is_inference_mode_enabled()


def test_what_the_caller_raises_ends_all_runs(pictures: Backbone, started_runs: list[Run]) -> None:
    def watch(index: int, run: Run) -> None:
        if len(run.steps) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(generate_many(pictures, find("ar")[0], captions(pictures, 3), at_once=2, watch=watch))
    assert open_runs(started_runs) == 0
