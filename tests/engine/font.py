"""The mark of tests that draw scenes of emoji."""

from __future__ import annotations

import pytest

from engine.errors import MissingFont
from engine.words.world import font_path


def _has_font() -> bool:
    try:
        font_path()
    except MissingFont:
        return False
    return True


NEEDS_FONT = pytest.mark.skipif(not _has_font(), reason="no emoji font on this machine")
