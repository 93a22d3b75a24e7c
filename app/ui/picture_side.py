"""Values of the Image tab's panels for a race."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.live.boards.patches import Patches
from app.live.boards.picture import Board
from app.live.stream import pair
from app.ui.method_menu import left_badge, run_badge, title_of
from app.ui.panels import canvas, verdict
from app.ui.panels.race import RaceFrame
from app.ui.race_panels import PICTURES


def draw_race(boards: Sequence[Board], changed: set[int], patches: Patches, ends: bool = True) -> dict[str, Any]:
    """Values of the panels of the changed boards, and of the line above them. boards : the right one first; ends : the last picture also
    ends the race"""
    scales = canvas.scales(list(boards))
    panels = {}
    for which in sorted(changed, reverse=True):
        board = boards[which]
        if board.count:
            side, badge = ("fast", run_badge(board.run)) if which == 0 else ("plain", left_badge(board.run))
            shown = board.picture(others=boards)
            panels["right" if which == 0 else "left"] = canvas.encode(board, shown, scales, side, title_of(board.run.name), badge, boards)
    if 0 in changed and boards[0].count:
        panels |= PICTURES.live_values(frame_of(boards, patches))
    if ends or not all(board.run.finished for board in boards):
        panels["verdict"] = verdict.encode(*pair(boards))
    return panels


def frame_of(boards: Sequence[Board], patches: Patches) -> RaceFrame:
    """Input of the panels for a race of pictures."""
    return RaceFrame(boards, len(boards[0].verdict), patches)
