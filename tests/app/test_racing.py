"""Work of the race tabs after a run."""

from __future__ import annotations

import json

import pytest

from app.live.session import Sessions
from app.ui.tabs import decoder


@pytest.fixture
def sessions(tmp_path):
    return Sessions(folder=tmp_path)


def write_files(sessions, tmp_path, writers, ticket):
    return decoder.write_files(sessions, "", "a", ticket, writers, lambda name: tmp_path / name)


def test_a_larger_file_waits_for_the_end_of_a_run(sessions, tmp_path):
    number = sessions.enter("a")
    assert sessions.begin("a", number)
    delays = []

    def ends(seconds: float) -> bool:
        delays.append(seconds)
        sessions.end("a", number)
        return True

    def write(path):
        assert delays, "it was written beside a run"
        path.write_text("done")
        return path

    sessions.wait_until_free = ends
    offers, mistakes = write_files(sessions, tmp_path, {"gif": write}, number)
    assert delays == [decoder.LONGEST_WAIT] and (tmp_path / "gif").read_text() == "done"
    assert list(offers) == ["gif"] and mistakes == []


def test_a_run_without_end_does_not_keep_a_file(sessions, tmp_path, monkeypatch):
    monkeypatch.setattr(decoder, "LONGEST_WAIT", 0.01)
    number = sessions.enter("a")
    assert sessions.begin("a", number)
    offers, _ = write_files(sessions, tmp_path, {"gif": lambda path: path}, number)
    assert list(offers) == ["gif"]


@pytest.mark.parametrize("happens", ["leave", "enter"])
def test_files_of_a_race_that_the_page_does_not_show_are_neither_written_nor_offered(sessions, tmp_path, happens):
    def write(path):
        getattr(sessions, happens)("a")
        return path

    number = sessions.enter("a")
    sessions.end("a", number)
    assert write_files(sessions, tmp_path, {"gif": write, "mp4": pytest.fail}, number) == ({}, [])
    assert not sessions.shows("a", "", number)


def test_a_run_of_the_other_tab_keeps_the_files_of_this_one(sessions, tmp_path):
    number = sessions.enter("a")
    sessions.end("a", number)
    sessions.enter("a", "mesh-")
    assert list(write_files(sessions, tmp_path, {"gif": lambda path: path}, number)[0]) == ["gif"]


def test_a_disk_that_refuses_costs_one_file(sessions, tmp_path):
    def full(path):
        raise OSError(28, "No space left on device")

    offers, mistakes = write_files(sessions, tmp_path, {"gif": full, "mp4": lambda path: path}, sessions.enter("a"))
    assert list(offers) == ["mp4"] and ["No space left" in str(error) for error in mistakes] == [True]


def test_a_seed_that_is_not_kept_is_that_of_the_run(visit):
    visitor = visit()
    handler = visitor.handler("enter")
    data = visitor.values(handler)
    names = [visitor.components[each]["props"].get("elem_id") for each in visitor.handlers[handler]["inputs"]]
    data[names.index("keep")] = False
    data[names.index("settings")]["values"]["size"] = "64 px"
    ticket, seed = json.loads(visitor.ask(handler, data))["data"]
    visitor.ask(visitor.handler("run"), [ticket])
    assert f"-{seed}.png" in visitor.ask(visitor.handler("deliver"), []) and seed != data[names.index("seed")]
