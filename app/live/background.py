"""Work behind the page: measurements and examples that no visitor waits for, one after another, each begun while nobody uses the model."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from app.live.session import Sessions
from engine.core import Backbone
from engine.tuning.auto import resolve, resolve_stored
from engine.tuning.prepare import to_stderr_once

Task = Callable[[], object]


class Background:
    """Tasks of a studio, which begin once the page is served. sessions : know whether the model is in use"""

    def __init__(self, sessions: Sessions):
        self.sessions = sessions
        self._lock = threading.Lock()
        self._tasks: deque[Task] = deque()
        self._is_served, self._thread = False, None
        self._fastest: dict[int, str | None] = {}  # by the id of a model; None while it is being measured

    def start(self) -> None:
        """Begins the tasks that were added so far; later ones begin when they are added."""
        self._is_served = True
        self._begin()

    def add(self, task: Task) -> None:
        """Adds a task, which begins when those before it have ended."""
        with self._lock:
            self._tasks.append(task)
        self._begin()

    def _begin(self) -> None:
        with self._lock:
            if self._is_served and self._tasks and self._thread is None:
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()

    def _work(self) -> None:
        """Does the tasks; an error of one ends this thread with its traceback, and another one goes on."""
        try:
            while self._tasks:
                self.sessions.wait_until_free(None)
                self._tasks.popleft()()
        finally:
            with self._lock:
                self._thread = None
            self._begin()

    def fastest(self, backbone: Backbone) -> str | None:
        """The name of the fastest exact method of a model here, such as "auto:sjdpp,window=16"; None until it has been measured, which
        this call requests."""
        with self._lock:
            known = self._fastest.get(id(backbone), "")
        if known != "":
            return known
        name = resolve_stored(backbone, to_stderr_once)
        with self._lock:
            self._fastest[id(backbone)] = name
        if name is None:
            self.add(lambda: self._measure(backbone))
        return name

    def _measure(self, backbone: Backbone) -> None:
        name = resolve(backbone, to_stderr_once)
        with self._lock:
            self._fastest[id(backbone)] = name
