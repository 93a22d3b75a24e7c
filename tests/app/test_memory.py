"""Visitors leave nothing on the server: no runs, caches, files or memory growth."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.live.boards.lazy import Lazy
from app.live.session import Sessions, Ticket, Visit
from app.live.stream import Growth
from app.requests import meshes
from app.server import studio
from engine.cache import KVCache
from engine.mesh.read import Input
from engine.networks.sequence import TransformerSequence
from engine.run import Run
from tests.app.visitor import Visitor, wait_until

FIRST, LATER = 8, 12  # visitors before and after the first measurement
TABS = ("image", "mesh")
KINDS = (Run, Ticket, Visit, Growth, KVCache, TransformerSequence, Input)
CHAIR = (meshes.EXAMPLES / "chair.ply").read_bytes()


@pytest.fixture
def address(picto, low, tmp_path, monkeypatch) -> Iterator[tuple[str, Sessions]]:
    """A studio in this process, so that its objects can be counted."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "gradio"))
    sessions = studio.visitors()
    page = studio.build(picto, Lazy("lowpoly", tmp_path, lambda: low), sessions)
    yield studio.serve_page(page, "127.0.0.1", studio.free_port("127.0.0.1", 7950)).rstrip("/"), sessions
    assert page.state_holder.session_data == {}, "Gradio still remembers pages that were closed"
    page.close(verbose=False)


def come_and_go(address: str, sessions: Sessions, tab: str) -> None:
    """One visitor makes a picture, or an upload and a mesh, leaves another run unfinished, then closes the page."""
    with Visitor(address).present() as visitor:
        opening = visitor.handler("open", "mesh")
        visitor.ask(opening, visitor.values(opening))  # every page shows an example once its tab is opened
        if tab == "mesh":
            visitor.upload("scan.ply", CHAIR)
        assert visitor.can_generate(tab)
        visitor.ticket()  # and never runs
        assert sessions.is_present(visitor.session)
    assert wait_until(lambda: not sessions.is_present(visitor.session)), "the page was closed and its visit is still there"


def object_counts() -> Counter:
    """Number of live objects of each kind that belongs to a visitor."""
    gc.collect()
    return Counter(type(o).__name__ for o in gc.get_objects() if isinstance(o, KINDS))


def resident() -> int:
    """Resident memory of this process in bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says how much of a process is in memory")
def test_visitors_leave_nothing_behind(address, tmp_path):
    where, sessions = address
    before = object_counts()
    for number in range(FIRST):
        come_and_go(where, sessions, TABS[number % 2])
    first = resident()
    for number in range(LATER):
        come_and_go(where, sessions, TABS[number % 2])
    last = resident()
    print(f"resident: {first / 2**20:.1f} MiB behind {FIRST} visitors, {last / 2**20:.1f} MiB behind {LATER} more")
    # the server's threads let go of their last visitor
    assert wait_until(lambda: not object_counts() - before, 10), object_counts() - before
    assert list((tmp_path / "gradio").rglob("*.*")) == []
    assert last < 1.04 * first
