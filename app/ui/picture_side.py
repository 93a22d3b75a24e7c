"""What the Image tab shows of a race: the values of its panels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.live.boards.patches import Patches
from app.live.boards.picture import Board
from app.live.stream import pair
from app.ui.method_menu import left_badge, run_badge, title_of
from app.ui.panels import canvas, trace, tree, verdict
from app.ui.panels.made import made_with


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
    fast = boards[0]
    if 0 in changed and fast.count:
        made = made_with(fast.run)
        panels["trace"] = trace.encode(fast.trail, fast.run.method, canvas.state(fast), len(fast.verdict), made)
        panels["tree"] = tree.encode(fast.trail, fast.run.method, canvas.state(fast), patches, made)
    if ends or not all(board.run.finished for board in boards):
        panels["verdict"] = verdict.encode(*pair(boards))
    return panels
