"""Runs in a forked worker, as on ZeroGPU: the same steps; the parent's sliders and Cancel act in it; errors keep their sentences."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from app.live.boards.picture import Board
from app.live.session import Sessions
from app.live.stream import Throttle, updates
from app.live.worker import LocalRunner, RemoteRunner, portable
from app.runs.history import describe
from engine.core import Prompt
from engine.decoding.initializers import WINDOW
from engine.errors import BadPrompt
from engine.trace import Trace

pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="ZeroGPU's workers are forks of Linux")
PROMPT = Prompt("a red apple", seed=3, size=64)


class Forks:
    """Stand-in for spaces.GPU: every call forks a worker; arguments and results are pickled. A worker waits until its result was taken,
    so that a test can move a knob between two steps."""

    def __init__(self) -> None:
        self.processes: list[Any] = []

    def __call__(self, duration: int) -> Callable[..., Any]:
        def decorate(work: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
            return lambda *arguments: self.run(work, pickle.dumps(arguments))

        return decorate

    def run(self, work: Callable[..., Iterator[Any]], request: bytes) -> Iterator[Any]:
        context = multiprocessing.get_context("fork")
        here, there = context.Pipe()

        def serve() -> None:
            torch.set_num_threads(1)
            for reply in work(*pickle.loads(request)):
                there.send_bytes(pickle.dumps(reply))
                there.recv_bytes()
            there.send_bytes(pickle.dumps(None))

        process = context.Process(target=serve, daemon=True)
        process.start()
        self.processes.append(process)
        there.close()
        try:
            while (reply := pickle.loads(here.recv_bytes())) is not None:
                yield reply
                here.send_bytes(b"next")
        finally:
            process.kill()
            process.join()


@pytest.fixture
def away(picto, low) -> RemoteRunner:
    """Both models in a worker."""
    return RemoteRunner({"pictogram": picto, "lowpoly": low}, Forks())


def test_a_worker_makes_the_steps_of_this_process(picto, away):
    sides = [("sjdpp", {"window": 8, "verify": "match seed"}), ("ar", {})]
    races = []
    for runner in (LocalRunner(), away):
        boards = [Board(run) for run in runner.start(picto, PROMPT, sides)]
        last = list(updates(boards, Throttle(period=0), runner.race))[-1]
        assert last == {0, 1} and all(board.run.finished and board.run.seconds > 0 for board in boards)
        races.append(boards)
    for here, there in zip(*races, strict=True):
        assert here.run.tokens == there.run.tokens and (here.final() == there.final()).all()
        assert [s.forwards for s in here.run.steps] == [s.forwards for s in there.run.steps]
        assert np.array_equal(here.known["entropy"], there.known["entropy"], equal_nan=True)
        local, remote = describe(here.run), describe(there.run)
        assert {k: v for k, v in local.items() if k != "totals"} == {k: v for k, v in remote.items() if k != "totals"}


def test_a_slider_that_is_moved_in_the_parent_acts_in_the_running_worker(picto, away):
    sessions = Sessions()
    number = sessions.enter("a")
    assert sessions.begin("a", number)
    (run,) = away.start(picto, PROMPT, [("sjdpp", {"window": 4})])
    sessions.hold("a", number, [run])
    for count, _ in enumerate(away.race([run]), start=1):
        if count == 3:
            sessions.move("a", "sjdpp", {"window": 9})
    windows = [step.knobs["window"] for step in run.steps]
    assert windows[:3] == [4, 4, 4] and set(windows[4:]) == {9} != {WINDOW.default}
    assert max(step.drafted for step in run.steps[:3]) < max(step.drafted for step in run.steps[4:])
    assert describe(run)["moves"][0]["name"] == "window"


def test_cancel_in_the_parent_ends_the_run_in_the_worker(picto, away):
    (run,) = away.start(picto, PROMPT, [("ar", {})])
    steps = 0
    for _ in away.race([run]):
        steps += 1
        if steps == 2:
            run.stop()
    assert steps < 5 and run.stopped and not run.finished and len(run.tokens) == steps


def test_who_leaves_ends_the_worker(picto, low):
    forks = Forks()
    away = RemoteRunner({"pictogram": picto}, forks)
    (run,) = away.start(picto, PROMPT, [("ar", {})])
    race = away.race([run])
    next(race)
    race.close()
    assert not forks.processes[0].is_alive()


def test_an_error_of_a_person_keeps_its_sentence(picto, away):
    (run,) = away.start(picto, Prompt("a red apple", size=77), [("ar", {})])
    with pytest.raises(BadPrompt, match="77"):
        list(away.race([run]))


def test_a_race_of_meshes_crosses_too(low, away):
    prompt = Prompt(points=torch.rand(300, 6), seed=1, size=8)
    runs = [runner.start(low, prompt, [("xspecmesh", {})])[0] for runner in (LocalRunner(), away)]
    LocalRunner().finish(runs[:1])
    away.finish(runs[1:])
    assert runs[0].tokens == runs[1].tokens and (runs[0].result().vertices == runs[1].result().vertices).all()


def test_no_tensor_is_left_in_what_crosses():
    sent = portable({"draft": torch.ones(2, dtype=torch.bfloat16), "trace": Trace(accepted=torch.ones(3)), "list": [torch.zeros(1)]})
    assert sent["draft"].dtype == np.float32 and isinstance(sent["trace"].accepted, np.ndarray) and isinstance(sent["list"][0], np.ndarray)


def test_each_race_has_numbers_of_its_own(picto, away):
    first, second = (away.start(picto, PROMPT, [("sjdpp", {"window": w}), ("ar", {})]) for w in (5, 6))
    assert [run.live.read()["window"] for run in (first[0], second[0])] == [5, 6]
    first[1].stop()
    assert not second[1].stopped and second[0].live.read()["window"] == 6
