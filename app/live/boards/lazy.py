"""A model that is loaded when first needed, so that the page opens without waiting for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from engine.core import Backbone


class Lazy:
    """One model for all visitors. A failure is not cached, so weights that are trained later are found."""

    def __init__(self, name: str, folder: Path, read: Callable[[], Backbone]):
        self.name, self.folder = name, folder
        self._read = read
        self._lock = threading.Lock()
        self._loaded: Backbone | None = None

    @property
    def is_present(self) -> bool:
        """True if the folder contains a model."""
        return (self.folder / "card.json").exists()

    def get(self) -> Backbone:
        """The model, loaded on the first call; raises MissingWeights."""
        with self._lock:
            if self._loaded is None:
                self._loaded = self._read()
            return self._loaded
