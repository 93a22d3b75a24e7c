"""The mark of tests that draw scenes of emoji."""

from __future__ import annotations

import pytest

from engine.data import emoji_scenes
from engine.errors import MissingFont


def _found() -> bool:
    try:
        emoji_scenes.font_path()
    except MissingFont:
        return False
    return True


NEEDS_FONT = pytest.mark.skipif(not _found(), reason="no emoji font on this machine")
