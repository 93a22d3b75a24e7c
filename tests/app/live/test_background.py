"""Work behind the page: begun once the page is served and the model is free, one task after another."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from app.live import background
from app.live.background import Background
from app.live.session import Sessions

PATIENCE = 60  # seconds


def test_tasks_wait_for_the_page_and_for_a_free_model_and_keep_their_order(tmp_path) -> None:
    sessions, done, ended = Sessions(folder=tmp_path), [], threading.Event()
    work = Background(sessions)
    work.add(lambda: done.append("first"))
    work.add(lambda: (done.append("second"), ended.set()))
    number = sessions.enter("visitor")
    assert sessions.begin("visitor", number) and sessions.is_wanted()
    work.start()
    assert not ended.wait(0.05) and done == []
    sessions.end("visitor", number)
    assert ended.wait(PATIENCE) and done == ["first", "second"] and not sessions.is_wanted()


def test_an_error_of_one_task_does_not_end_the_others(tmp_path, monkeypatch) -> None:
    work, ended, raised = Background(Sessions(folder=tmp_path)), threading.Event(), threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda error: error.exc_type is ZeroDivisionError and raised.set())
    work.add(lambda: 1 / 0)
    work.add(ended.set)
    work.start()
    assert ended.wait(PATIENCE) and raised.wait(PATIENCE)


def test_the_fastest_method_is_measured_behind_the_page_once(tmp_path, monkeypatch) -> None:
    measured, model = threading.Event(), SimpleNamespace(name="toy")
    monkeypatch.setattr(background, "resolve_stored", lambda backbone, say: None)
    monkeypatch.setattr(background, "resolve", lambda backbone, say: measured.set() or "auto:sjd")
    work = Background(Sessions(folder=tmp_path))
    assert [work.fastest(model) for _ in range(3)] == [None] * 3 and not measured.is_set()
    work.start()
    assert measured.wait(PATIENCE)
    work.add(measured.clear)
    while measured.is_set():  # the next task begins when the measurement is known
        threading.Event().wait(0.01)
    assert work.fastest(model) == "auto:sjd"
