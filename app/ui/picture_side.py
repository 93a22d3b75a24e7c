"""Panels of the Image tab for a race."""

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
    """The values of the panels of the changed boards, the right one first, and of the line above them. ends: the last picture is also the
    end of the run"""
    scales = canvas.scales(list(boards))
    panels = {}
    for which in sorted(changed, reverse=True):
        board = boards[which]
        if board.count:
            side, badge = ("fast", run_badge(board.run)) if which == 0 else ("plain", left_badge(board.run))
            shown = board.picture(beside=boards)
            panels["right" if which == 0 else "left"] = canvas.encode(board, shown, scales, side, title_of(board.run.name), badge, boards)
    if 0 in changed and boards[0].count:
        panels |= PICTURES.live_values(frame_of(boards, patches))
    if ends or not all(board.run.finished for board in boards):
        panels["verdict"] = verdict.encode(*pair(boards))
    return panels


def frame_of(boards: Sequence[Board], patches: Patches, here: bool = True) -> RaceFrame:
    """A race of pictures as its panels see it. here: the model is in this process"""
    return RaceFrame(boards, len(boards[0].verdict), patches, here=here)
