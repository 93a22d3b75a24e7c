"""Random events of several visitors in threads, at the level of handlers: afterwards nobody waits, and all can generate."""

from __future__ import annotations

import copy
import sys
import threading
import time
import traceback
from random import Random
from typing import Any

import gradio as gr
import pytest

from app.limits import Limits
from app.runs.run_store import Shelf
from app.server import studio as app_studio
from engine.backbones import load
from tests.faults import folders
from tests.faults.direct import Direct
from tests.faults.outcome import Outcome
from tests.faults.sentences import hold
from tests.faults.visitor import Page, Visitor
from tests.faults.visits import Studio, can_generate, ends, opened

pytestmark = pytest.mark.filterwarnings("ignore:unclosed event loop:ResourceWarning")  # of Gradio's threads
VISITORS, CLICKS = 4, 3
PATIENCE = 240  # seconds until a thread counts as stuck
SEEDS = (7, 8, -1, None, 2**40, 1.5, "x")
MEASURED = ("generate", "fidget", "leave")


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Shelf:
    """Where the studio keeps runs."""
    return Shelf(tmp_path_factory.mktemp("runs"), Limits())


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, shelf: Shelf) -> gr.Blocks:
    """The page with tiny models."""
    folder = tmp_path_factory.mktemp("sessions")
    meshes = app_studio.mesh_model("lowpoly", str(folders.lowpoly(folder / "meshes")))
    return app_studio.build(load("pictogram", str(folders.pictogram(folder / "pictures"))), meshes, shelf=shelf)


@pytest.fixture
def studio(page: gr.Blocks, shelf: Shelf) -> Studio:
    """A studio whose handlers are called."""
    return Studio(Direct(page), Page(page.config), shelf.folder)


class Guest:
    """One visitor with two hands: one asks for runs, the other one does anything else meanwhile."""

    def __init__(self, studio: Studio, seed: int):
        self.studio, self.random, self.other = studio, Random(f"asks {seed}"), Random(f"fidgets {seed}")
        self.visitor = opened(studio, "mesh-")
        self.done = threading.Event()
        self.outcomes: list[Outcome] = []

    def ask(self) -> None:
        """Runs on either tab, with seeds of all kinds; sometimes the page is closed and opened again."""
        for _ in range(CLICKS):
            tab = self.random.choice(("", "", "mesh-"))
            self.visitor.values[self.studio.component(f"{tab}seed")] = self.random.choice(SEEDS)
            answers = self.visitor.fire(self.studio.page.of(f"{tab}generate", "click"))
            self.note("generate", all(a.ok for a in answers))
            if self.random.random() < 0.2:
                self.leave()
        self.done.set()

    def leave(self) -> None:
        """The page is closed, and another one is opened."""
        gone = self.visitor
        self.studio.way.gone.add(gone.session)
        gone.fire(self.studio.page.with_event("unload"))
        self.visitor = opened(self.studio, "mesh-")
        self.note("leave", True)

    def fidget(self) -> None:
        """Cancel, knobs, menus, examples, the die, the clock, with values that a page may hold; and now and then the page goes away."""
        handlers = [h for h in self.studio.page.handlers.values() if not h["queue"] and h["trigger_after"] is None]
        skipped = [self.studio.page.of(f"{tab}generate", "click") for tab in ("", "mesh-")]
        handlers = [h for h in handlers if h not in skipped and ends(self.studio.page, h)]
        handlers = [h for h in handlers if not any(t[1] == "unload" for t in h["targets"])]
        while not self.done.wait(self.other.random() * 0.05):
            handler, visitor = self.other.choice(handlers), self.visitor
            wrong = {(handler["id"], k): self.value(visitor, i) for k, i in enumerate(handler["inputs"])}
            self.note("fidget", all(a.ok for a in visitor.fire(handler, wrong)))

    def value(self, visitor: Visitor, component: int) -> Any:
        """What stands in a component, or something like it."""
        kept = copy.deepcopy(visitor.values[component])
        if isinstance(kept, dict) and isinstance(kept.get("values"), dict) and kept["values"]:
            name = self.other.choice(sorted(kept["values"]))
            kept["values"][name] = self.other.choice((kept["values"][name], 1, 2, 0.5, "x", -3))
        return kept

    def note(self, name: str, fine: bool) -> None:
        """Counts an event."""
        self.outcomes.append(Outcome(name, "value" if fine else "sentence", "told."))


def test_events_of_several_visitors_in_any_order(studio: Studio) -> None:
    guests = [Guest(studio, k) for k in range(VISITORS)]
    hands = [threading.Thread(target=work, daemon=True) for guest in guests for work in (guest.ask, guest.fidget)]
    for hand in hands:
        hand.start()
    deadline = time.monotonic() + PATIENCE
    for hand in hands:
        hand.join(max(0.0, deadline - time.monotonic()))
    stuck = [hand for hand in hands if hand.is_alive()]
    outcomes = [o for guest in guests for o in guest.outcomes]
    outcomes += [Outcome("bug", "bug", text) for text in studio.way.bugs]
    if stuck:
        outcomes.append(Outcome("stuck", "slow", f"{len(stuck)} threads never came back: {_where(stuck)}"))
    else:
        for guest in [*guests, Guest(studio, 99)]:
            for tab in ("", "mesh-"):
                wrong = after(studio, guest.visitor, tab)
                outcomes.append(Outcome("afterwards", "bug" if wrong else "value", wrong))
    assert {o.name for o in outcomes} >= set(MEASURED)
    hold(outcomes)


def _where(threads: list[threading.Thread]) -> str:
    """Where threads stand, to find out why they never come back."""
    frames = sys._current_frames()
    stacks = ["".join(traceback.format_stack(frames[t.ident], limit=12)) for t in threads if t.ident in frames]
    return "\n".join(stacks)


def after(studio: Studio, visitor: Visitor, tab: str) -> str:
    """Whether a visitor of the story can generate on a tab, with everything at its beginning: "" or why not."""
    mine = Visitor(studio.page, studio.way, visitor.session)
    if tab and not all(a.ok for a in mine.fire(studio.page.opening("Mesh"))):
        return "the tab does not open"
    studio.calm(mine)
    return can_generate(studio, mine, tab)
