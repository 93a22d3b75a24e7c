"""Uploaded files: limits of size, time and number, who sees them, and the input of a run after a refused file."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import numpy as np
import pytest

from app.live import reading, uploads
from app.live.boards.lazy import Lazy
from app.live.session import Sessions
from app.requests import meshes
from app.runs import history
from app.shared import StudioState
from app.ui import knobs as knob_panel
from app.ui.tab_context import TabContext
from app.ui.tabs import mesh_input, mesh_outcome, mesh_tab
from app.ui.tabs.race import RaceTab
from engine.errors import BadFile
from engine.mesh.read import read
from engine.sandbox import Died, TookTooLong
from tests.app.conftest import ROOT

CHAIR = meshes.EXAMPLES / "chair.ply"
VISITOR = SimpleNamespace(session_hash="a")
POINTS = "\n".join(" ".join(map(str, row)) for row in read(CHAIR).points[:300, :3].tolist())


@pytest.fixture
def tab(picto, low, tmp_path) -> RaceTab:
    """A tab on a separate page, with an example loaded."""
    with gr.Blocks(analytics_enabled=False) as page, gr.Tabs(), gr.Tab("Mesh") as place:
        context = TabContext(
            page, place, StudioState(picto, Lazy("lowpoly", tmp_path, lambda: low), Sessions(folder=tmp_path / "visitors"))
        )
        made = RaceTab(context, mesh_tab.MeshRace(context))
        made.wire()
    made.subject.open("xspecmesh", "ar", {}, False, VISITOR)
    return made


def file(folder: Path, name: str, content: str = POINTS) -> str:
    """A file where Gradio stores uploads."""
    path = folder / "sent" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return str(path)


def drop_file(tab: RaceTab, path: str) -> dict:
    """Drops a file; returns the page's values."""
    tab.subject.input.announce(path, VISITOR)
    *shown, zone = tab.subject.input.drop(path, "xspecmesh", "ar", VISITOR)
    assert zone is None
    return dict(zip(tab.subject.input.table, shown, strict=True))


def asked_for(tab: RaceTab) -> dict:
    """Presses Generate; returns the page's values."""
    ticket, seed = tab.queue.enter(VISITOR, True)
    names = ("go", "cancel", "line", "clock", "messages", *tab.queue.offers)
    return {"ticket": ticket, "seed": seed, **dict(zip(names, tab.queue.show_entered(VISITOR), strict=True))}


def ran(tab: RaceTab, ticket: int) -> list[dict]:
    """All updates of a run of a few faces."""
    knobs = knob_panel.encode("ar", ())
    chosen = {"values": {"face_budget": 8}}
    return list(tab.run(ticket, 7, "ar", knobs, chosen, False, "ar", knobs, VISITOR))


def page_results(tab: RaceTab) -> dict:
    """Updates that a run queued for the page."""
    return dict(zip(("messages", *tab.queue.offers), tab.queue.deliver(VISITOR), strict=True))


# ---------------------------------------------------------------- limits


def test_a_file_that_is_too_large_is_not_even_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "BYTES", 10)
    (tmp_path / "big.obj").write_text("v 0 0 0\n" * 9)
    with pytest.raises(BadFile, match=r"big\.obj has 72 bytes"):
        uploads.read_upload(tmp_path / "big.obj")


def test_a_mesh_of_too_many_faces_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FACES", 1)
    (tmp_path / "two.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 3\nf 1 2 4\n")
    with pytest.raises(BadFile, match="has 2 faces; meshes on this page can have at most 1"):
        reading.read_small(tmp_path / "two.obj", "auto")


@pytest.mark.parametrize(("wrong", "said"), [(TookTooLong, "be read within 30 seconds"), (Died, "memory"), (MemoryError, "memory")])
def test_a_read_that_is_ended_is_a_sentence(tmp_path, monkeypatch, wrong, said):
    def end(*_, **__):
        raise wrong("x")

    monkeypatch.setattr(uploads, "run_sandboxed", end)
    with pytest.raises(BadFile, match=said):
        uploads.read_upload(CHAIR)


def test_reading_happens_in_another_process_and_comes_back_whole():
    here, there = read(CHAIR, "z"), uploads.read_upload(CHAIR, "z")
    assert (here.points == there.points).all() and here.frame.up == there.frame.up == "z" and here.notes == there.notes


def test_reading_starts_without_pytorch():
    code = "import sys, app.live.reading; print({'torch', 'gradio'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_a_damaged_file_is_the_same_sentence_as_everywhere(tmp_path):
    (tmp_path / "bad.ply").write_text("nothing of the kind")
    with pytest.raises(BadFile, match=r"bad\.ply is damaged"):
        uploads.read_upload(tmp_path / "bad.ply")


# ---------------------------------------------------------------- what a run works on


def test_nobody_generates_while_a_file_is_being_read(tab, tmp_path):
    path = file(tmp_path, "scan.xyz")
    assert "Reading scan.xyz" in tab.subject.input.announce(path, VISITOR)[0]["text"]
    refused = asked_for(tab)
    assert refused["ticket"] == 0 and "Reading scan.xyz" in refused["line"][0]["text"]
    assert refused["cancel"].visible and not refused["go"].visible
    assert tab.queue.restore(VISITOR)[0] == gr.skip(), "Cancel stays while the run waits for the file"
    tab.subject.input.drop(path, "xspecmesh", "ar", VISITOR)
    assert tab.subject.input.resume(3, VISITOR)[0] == 4, "the run begins"
    assert asked_for(tab)["ticket"] and tab.sessions.input_of("a").shape.name == "scan.xyz"
    tab.queue.stop(VISITOR)
    assert tab.subject.input.resume(4, VISITOR)[1].visible, "a file that was dropped later starts nothing"


def test_a_run_that_waits_for_a_file_does_not_begin_without_it(tab, tmp_path):
    path = file(tmp_path, "bad.ply", "nothing")
    tab.subject.input.announce(path, VISITOR)
    assert asked_for(tab)["cancel"].visible
    tab.subject.input.drop(path, "xspecmesh", "ar", VISITOR)
    count, go, cancel, line, _ = tab.subject.input.resume(0, VISITOR)
    assert count == gr.skip() and go.visible and not cancel.visible and line == []
    tab.subject.input.announce(file(tmp_path, "scan.xyz"), VISITOR)
    asked_for(tab)
    go, cancel, line, _ = tab.queue.stop(VISITOR)
    assert go.visible and not cancel.visible and line == [], "the wait can be given up"


def test_a_reading_that_never_comes_keeps_nobody_from_generating_for_long(tab, tmp_path, monkeypatch):
    tab.subject.input.announce(file(tmp_path, "scan.xyz"), VISITOR)
    now = tab.sessions._clock()
    monkeypatch.setattr(tab.sessions, "_clock", lambda: now + uploads.WAIT)
    assert asked_for(tab)["ticket"]


def test_a_file_that_is_read_when_a_run_has_begun_changes_nothing(tab, tmp_path, monkeypatch):
    def meanwhile(path, up):
        tab.sessions.end_reading("a")
        assert asked_for(tab)["ticket"]
        return read(path, up)

    monkeypatch.setattr(mesh_input, "read_upload", meanwhile)
    shown = drop_file(tab, file(tmp_path, "scan.xyz"))
    assert "run is in progress" in shown["messages"][0]["text"] and "results" not in {k for k, v in shown.items() if isinstance(v, gr.Row)}
    assert tab.sessions.input_of("a").shape.name == "chair.ply"


def test_a_run_behind_a_refused_file_says_what_it_works_on(tab, tmp_path):
    assert "is damaged" in drop_file(tab, file(tmp_path, "bad.ply", "nothing"))["messages"][0]["text"]
    values = asked_for(tab)
    assert values["messages"] == [{"kind": "hint", "text": "bad.ply could not be read, so this is still chair.ply."}]
    ran(tab, values["ticket"])
    assert "chair.ply" in page_results(tab)["messages"][0]["text"]
    drop_file(tab, file(tmp_path, "scan.xyz"))
    assert asked_for(tab)["messages"] == []


def test_an_axis_that_cannot_be_taken_leaves_the_menu_where_it_was(tab):
    shown = dict(zip(tab.subject.input.table, tab.subject.input.turn({"up": "w"}, "xspecmesh", "ar", VISITOR), strict=True))
    assert shown["axis"]["up"] == "auto" and "up axis cannot be w" in shown["messages"][0]["text"]


def test_the_input_of_a_run_that_comes_back_is_an_example_or_the_file_that_is_there(tab):
    assert tab.subject.input.wish("a", "chair.ply", "y", "xspecmesh", "ar") == {}, "it is there already"
    assert tab.subject.input.wish("a", "table.ply", "z", "xspecmesh", "ar")["tiles"] == "table"
    assert tab.sessions.input_of("a").up == "z"
    for name in ("scan.ply", "../clouds/chair.ply", "/tmp/chair.ply"):
        (said,) = tab.subject.input.wish("a", name, "y", "xspecmesh", "ar")["messages"]
        assert "which is not included in the file" in said["text"] and tab.sessions.input_of("a").shape.name == "table.ply"


# ---------------------------------------------------------------- files on the disk


def test_a_visitor_has_one_file_and_it_goes_with_them(tab, tmp_path):
    for name, content in (("one.xyz", POINTS), ("two.xyz", POINTS), ("bad.xyz", "")):
        drop_file(tab, file(tmp_path, name, content))
    kept = [p.name for p in (tmp_path / "visitors").rglob("*") if p.is_file()]
    assert kept == ["two.xyz"] and list((tmp_path / "sent").iterdir()) == []
    tab.sessions.leave("a")
    assert list((tmp_path / "visitors").iterdir()) == []


def test_who_leaves_while_their_file_is_read_leaves_nothing(tab, tmp_path, monkeypatch):
    def meanwhile(path, up):
        shape = read(path, up)
        tab.sessions.leave("a")
        return shape

    monkeypatch.setattr(mesh_input, "read_upload", meanwhile)
    drop_file(tab, file(tmp_path, "scan.xyz"))
    assert not tab.sessions.is_present("a") and list((tmp_path / "visitors").iterdir()) == []


def test_only_a_file_is_taken(tab, tmp_path):
    (tmp_path / "folder.ply").mkdir()
    for path in (tmp_path / "folder.ply", tmp_path / "gone.ply"):
        assert "did not arrive" in drop_file(tab, str(path))["messages"][0]["text"]
    assert (tmp_path / "folder.ply").exists()


@pytest.mark.parametrize("place", ["history", "downloads"])
def test_a_full_disk_costs_neither_the_mesh_nor_the_rest(tab, monkeypatch, place):
    def full(*_, **__):
        raise OSError(28, "No space left on device", "/home/someone/runs/x.glb")

    monkeypatch.setattr(*{"history": (history, "save", full), "downloads": (mesh_outcome, "write_files", full)}[place])
    ran(tab, asked_for(tab)["ticket"])
    last = page_results(tab)
    (said,) = last["messages"]
    assert f"not saved to the {place}" in said["text"] and "No space left" in said["text"] and "/" not in said["text"]
    assert last["settings" if "settings" in last else "glb"].interactive == (place == "history")
    assert not tab.sessions.is_busy("a")


# ---------------------------------------------------------------- over HTTP


def test_others_go_on_while_a_large_file_is_read(visit):
    """Reading does not hold the main process: another visitor's requests are answered before it ends."""
    grid = np.stack(np.meshgrid(np.arange(280), np.arange(280)), -1).reshape(-1, 2)
    lines = [f"v {x} {y} {(x * y) % 17}" for x, y in grid.tolist()]
    lines += [f"f {i} {i + 1} {i + 280}" for i in range(1, 280 * 279)]
    reader, other = visit(), visit()
    came: list[str] = []
    reading = threading.Thread(target=lambda: came.append(reader.upload("big.obj", "\n".join(lines).encode())))
    reading.start()
    answered = 0
    while reading.is_alive():
        other.ask(other.handler("choose"), ["sjd", None])
        answered += 1
    reading.join()
    assert "big.obj: a mesh of" in came[0], came[0][-800:]
    assert answered >= 5


def test_a_file_that_is_too_large_is_refused_by_the_server(visit):
    assert "Send a smaller file" in visit().upload("big.obj", bytes(uploads.BYTES + 2**20))


def test_what_begins_a_run_is_not_shown_once_it_is_over(tab):
    assert not asked_for(tab)["go"].visible
    ticket, _ = tab.queue.enter(VISITOR, True)
    tab.sessions.end("a", ticket)  # it has queued an error for the page
    assert all(shown == gr.skip() for shown in tab.queue.show_entered(VISITOR))
