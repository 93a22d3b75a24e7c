"""The mark of tests that draw scenes of emoji."""

from __future__ import annotations

import pytest

from engine.errors import MissingFont
from engine.words import emoji_scenes


def _found() -> bool:
    try:
        emoji_scenes.font_path()
    except MissingFont:
        return False
    return True


NEEDS_FONT = pytest.mark.skipif(not _found(), reason="no emoji font on this machine")
