"""A new method is one file and one line in the table: it is in the menu, in `verify`, in `bench`, in the documentation and in `auto`."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from app.ui import knobs, method_menu
from engine.core import Case, Knob, Method, Preset
from engine.methods import METHODS, ar, find, names
from engine.tuning import auto
from research.bench.plan import ImageBench
from research.exactness.exactness import tasks
from tests.engine.backbones import tiny
from tests.test_docs import ROOT

METHOD = Method(  # all that its file declares
    name="echo",
    title="Echo",
    about="Repeats what plain decoding says, once for every reader.",
    decode=ar.decode,
    knobs=(Knob("readers", "r", 2, 1, 8, 1, help="Number of readers.", label="People who read"),),
    paper="none",
    exact=lambda knobs: True,
    why=lambda knobs: "Exact: it is plain decoding.",
    presets=(Preset("echo_loud", "The same for a large hall.", {"readers": 8}),),
    cases=(Case("ECHO", "same distribution", mutants=("temperature after top-p",)),),
    candidates=lambda backbone: [("echo", {"readers": count}) for count in (1, 2)],
    baseline=True,
)


@pytest.fixture(autouse=True)
def registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The line in the table."""
    monkeypatch.setitem(METHODS, "echo", METHOD)


@pytest.fixture
def make() -> ModuleType:
    """docs/make.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("docs_make", ROOT / "docs/make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_it_is_on_the_command_line_and_in_the_menu() -> None:
    assert find("echo")[0] is METHOD and find("echo_loud") == (METHOD, {"readers": 8}) and {"echo", "echo_loud"} <= {*names()}
    menu = method_menu.choices(tiny.pictogram())
    assert ("Echo", "echo") in menu and ("Echo (loud)", "echo_loud") in menu
    card = next(card for card in method_menu.cards(menu) if card["name"] == "echo")
    assert (card["about"], card["group"], card["exact"]) == (METHOD.about, "Baselines", True)
    assert knobs.declare(METHOD.knobs[0])["label"] == "People who read"
    assert method_menu.badge("echo", {})["summary"] == ["Echo", "exact", "people who read 2"]


def test_verify_measures_its_claims_and_those_of_all_methods() -> None:
    keys = {(task.key, task.mutant) for task in tasks(["echo"], full=False)}
    assert {("echo[ECHO]", None), ("echo[ECHO]", "temperature after top-p")} < keys


def test_bench_has_a_row_of_it() -> None:
    assert {"echo", "echo_loud"} <= ImageBench(backbone="pictogram").entries(tiny.pictogram().capabilities).keys()


def test_the_documentation_has_its_row_and_its_knobs(make) -> None:
    readme = make.fill((ROOT / "README.md").read_text(encoding="utf-8"))
    assert f"| `echo` | Echo. {METHOD.about} | yes | `echo_loud` (exact) |" in readme
    page = make.fill((ROOT / "docs/methods/baselines.md").read_text(encoding="utf-8"))
    assert "| `readers` | r | 2 | 1 to 8 | always | Number of readers. |" in page and "- `echo_loud`: `readers` = 8" in page


def test_auto_may_try_it() -> None:
    assert ("echo", {"readers": 2}) in auto.candidates(tiny.pictogram())
