"""The public names of `import engine`: seven names, lazily, and every model loaded once."""

from __future__ import annotations

import inspect
import json
import os
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import engine
from engine import backbones, loading
from engine.errors import MissingWeights, NotSupported, TooLittleMemory
from tests.readme import ROOT, run_python


def test_the_door_has_these_names() -> None:
    assert engine.__all__ == ["Prompt", "Sampling", "generate", "generate_many", "load", "methods", "race"]
    assert set(engine.__all__) <= set(dir(engine))
    assert list(inspect.signature(engine.load).parameters) == ["name_or_folder", "device", "dtype", "weights"]
    assert list(inspect.signature(engine.generate).parameters)[:4] == ["backbone", "method", "prompt", "knobs"]
    assert list(inspect.signature(engine.generate_many).parameters)[:5] == ["backbone", "method", "prompts", "knobs", "at_once"]
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        _ = engine.lode


def test_the_door_brings_a_run_about(registered_toy: None) -> None:
    toy = engine.load("toy")
    method, knobs = engine.methods.find("sjd")
    sampling = engine.Sampling(temperature=0.5)
    runs = [engine.generate(toy, m, engine.Prompt(seed=3, sampling=sampling), k) for m, k in ((method, knobs), engine.methods.find("ar"))]
    assert {which for which, _ in engine.race(runs)} == {0, 1}
    assert all(run.finished for run in runs)


@pytest.mark.parametrize(
    "code",
    [
        "import engine, sys; print('torch' in sys.modules)",
        "import app.cli, engine.errors, engine.assets, sys; print('torch' in sys.modules)",  # what a command line needs for --help
    ],
)
def test_importing_it_costs_no_pytorch(code: str, tmp_path: Path) -> None:
    assert run_python(sys.executable, code, tmp_path, PYTHONPATH=str(ROOT)) == "False\n"


@pytest.mark.parametrize(("name", "prompt"), [("pictogram", "'a cat', size=64"), ("lowpoly", "points=ball, size=8")])
def test_a_run_does_not_import_pytorchs_compiler(name: str, prompt: str, tmp_path: Path) -> None:
    """It takes longer to import than PyTorch itself. Computing with a network on the meta device imports it, and so does a mark for the
    compiler."""
    code = (
        "import engine, sys, torch; ball = torch.nn.functional.normalize(torch.randn(256, 3), dim=-1);"
        "ball = torch.cat([ball / 2, ball], 1);"
        f"backbone, prompt = engine.load('{name}'), engine.Prompt({prompt}); backbone.start(prompt).close();"
        "run = engine.generate(backbone, engine.methods.find('sjd')[0], prompt); next(run); run.close();"
        "print('torch._dynamo' in sys.modules)"
    )
    assert run_python(sys.executable, code, tmp_path, PYTHONPATH=str(ROOT)) == "False\n"


def test_all_names_can_be_imported_from_it(tmp_path: Path) -> None:
    code = "from engine import methods, Prompt, Sampling, generate, load, race; print(methods.METHODS['ar'].name, load.__module__)"
    assert run_python(sys.executable, code, tmp_path, PYTHONPATH=str(ROOT)) == "ar engine.loading\n"


class Loader:
    """Replaces backbones.load: counts calls and waits if asked to. warmed : the windows that models were prepared for"""

    def __init__(self, wait: Callable[[str], None] = lambda name: None):
        self.asked: list[tuple[Any, ...]] = []
        self.warmed: list[int] = []
        self.wait = wait

    def __call__(self, *key: Any) -> SimpleNamespace:
        self.asked.append(key)
        self.wait(key[0])
        suits = {"sjdpp": {"window": 4}} if key[0] == "lowpoly" else {}
        return SimpleNamespace(key=key, device=torch.device(key[2]), suits=suits, warm_up=self.warmed.append)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> loading.BackboneStore:
    """An empty store, which `load` uses."""
    empty = loading.BackboneStore()
    monkeypatch.setattr(loading, "_SHELF", empty)
    return empty


@pytest.fixture
def loader(shelf: loading.BackboneStore, monkeypatch: pytest.MonkeyPatch) -> Loader:
    """Loader of the empty store."""
    counting = Loader()
    monkeypatch.setattr(backbones, "load", counting)
    return counting


def test_a_model_is_the_same_by_name_device_and_dtype(loader: Loader) -> None:
    first = engine.load("pictogram")
    assert engine.load() is first
    assert engine.load("pictogram", "cpu", "auto") is first
    assert engine.load("pictogram", dtype="float32") is not first
    assert engine.load("pictogram", device="meta") is not first
    assert engine.load("lowpoly") is not first
    assert loader.asked == [
        ("pictogram", None, "cpu", "auto", "auto"), ("pictogram", None, "cpu", "float32", "auto"),
        ("pictogram", None, "meta", "auto", "auto"),
        ("lowpoly", None, "cpu", "auto", "auto"),
    ]  # fmt: skip


def test_a_model_on_a_gpu_is_warmed_up_once(loader: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "device_of", str)
    for name in ("pictogram", "lowpoly", "pictogram"):
        engine.load(name, "cuda:1")
    engine.load("pictogram", "cpu")
    assert loader.warmed == [16, 4], "the window of the method, and the model's own"


def test_a_folder_is_known_by_its_card_and_is_one_however_it_is_written(
    loader: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "card.json").write_text(json.dumps({"name": "lowpoly"}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    first = engine.load("mine")
    assert engine.load(tmp_path / "mine") is first
    assert engine.load(str(tmp_path / "mine") + os.sep) is first
    assert loader.asked == [("lowpoly", str(tmp_path / "mine"), "cpu", "auto", "auto")]
    assert engine.load("lowpoly") is not first


def test_the_shipped_folder_can_be_loaded(shelf: loading.BackboneStore) -> None:
    from engine import assets

    assert engine.load(assets.models() / "lowpoly").name == "lowpoly"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("piktogram",), "'piktogram' is neither a backbone"),
        (("pictogram", "abacus"), "There is no device 'abacus'"),
        (("pictogram", "cpu", "float8"), "There is no dtype 'float8'"),
    ],
)
def test_what_is_not_there_is_a_sentence(arguments: tuple[str, ...], sentence: str, loader: Loader) -> None:
    with pytest.raises(NotSupported, match=sentence):
        engine.load(*arguments)
    assert loader.asked == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_a_sentence(loader: Loader) -> None:
    with pytest.raises(NotSupported, match="No CUDA device is visible"):
        engine.load("pictogram", "cuda")


def test_a_failure_is_not_remembered(loader: Loader) -> None:
    def fail(name: str) -> None:
        raise MissingWeights("nothing here yet")

    loader.wait = fail
    with pytest.raises(MissingWeights):
        engine.load("lowpoly")
    loader.wait = lambda name: None
    assert engine.load("lowpoly").key[0] == "lowpoly"


class StandIn(SimpleNamespace):
    """A model that weak references can watch."""


class Card:
    """Memory for some models, which loading takes and the end of a model gives back. Each stand-in is part of a cycle, as real ones are."""

    def __init__(self, places: int):
        self.places, self.loaded = places, []

    def load(self, name: str, *key: Any) -> StandIn:
        """A stand-in; raises TooLittleMemory if all places are taken."""
        if self.places == 0:
            raise TooLittleMemory(f"{name} needs 10.0 GB, and 0.0 GB are free.")
        self.places -= 1
        self.loaded.append(name)
        model = StandIn(name=name, device=torch.device("cpu"))
        model.itself = model
        weakref.finalize(model, self.free)
        return model

    def free(self) -> None:
        """Gives a place back."""
        self.places += 1


@pytest.fixture
def card(shelf: loading.BackboneStore, monkeypatch: pytest.MonkeyPatch) -> Card:
    """A card with room for two models."""
    card = Card(2)
    monkeypatch.setattr(backbones, "load", card.load)
    return card


def test_the_least_recently_used_model_makes_room(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("pictogram", "lowpoly", "pictogram", "lowpoly:lora"):
        engine.load(name)
    assert card.loaded == ["pictogram", "lowpoly", "lowpoly:lora"] and card.places == 0
    assert [record.getMessage() for record in caplog.records] == [
        "lowpoly was unloaded to make room for another model; it is loaded again when it is next used."
    ]
    engine.load("pictogram")
    assert card.loaded[-1] == "lowpoly:lora"  # pictogram stayed
    engine.load("lowpoly")
    assert card.loaded[-1] == "lowpoly"


def test_a_model_in_use_is_not_unloaded(card: Card) -> None:
    """The least recently used one is in use, so the next one goes; if all are, the model does not fit."""
    first = engine.load("pictogram")
    engine.load("lowpoly")
    second = engine.load("lowpoly:lora")
    assert engine.load("pictogram") is first and card.loaded == ["pictogram", "lowpoly", "lowpoly:lora"]
    with pytest.raises(TooLittleMemory, match=r"lowpoly needs 10\.0 GB"):
        engine.load("lowpoly")
    assert engine.load("lowpoly:lora") is second


def run_threads(count: int, action: Callable[[], Any]) -> list[Any]:
    """Results of several threads that start at the same time."""
    gate, results = threading.Barrier(count), []

    def work() -> None:
        gate.wait(10)
        results.append(action())

    threads = [threading.Thread(target=work, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    return results


def test_threads_that_ask_for_the_same_model_share_one_loading(loader: Loader) -> None:
    asking, everybody = threading.Semaphore(0), 8

    def ask() -> Any:
        asking.release()
        return engine.load("pictogram")

    def wait(name: str) -> None:
        for _ in range(everybody):
            assert asking.acquire(timeout=10)

    loader.wait = wait  # a loading ends when all have asked
    loaded = run_threads(everybody, ask)
    assert len(loaded) == everybody
    assert len({id(each) for each in loaded}) == 1
    assert len(loader.asked) == 1


def test_another_model_is_not_kept_waiting(loader: Loader) -> None:
    begun, other_is_there = threading.Event(), threading.Event()

    def wait(name: str) -> None:
        if name == "pictogram":
            begun.set()
            assert other_is_there.wait(10)

    loader.wait = wait
    slow = threading.Thread(target=engine.load, args=("pictogram",), daemon=True)
    slow.start()
    assert begun.wait(10)
    quick = threading.Thread(target=lambda: (engine.load("lowpoly"), other_is_there.set()), daemon=True)
    quick.start()
    quick.join(10)
    assert other_is_there.is_set()
    slow.join(10)
    assert not slow.is_alive()
