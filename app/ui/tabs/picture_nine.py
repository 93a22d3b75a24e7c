"""Nine pictures at once: the judge frames the one that shows most of the prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.live.boards.picture import Board
from app.requests.pictures import settings
from app.ui.tabs.seed_grid import Judged, Kind
from engine.recognition.picture_judge import ObjectCount

FRAMED, UNJUDGED = "Framed: the one that shows your prompt best.", "The judge cannot tell for this prompt or size, so none is framed."


def kind(count: Callable[[Board], ObjectCount | None]) -> Kind:
    """Nine pictures. count : the judge's count of a finished one, None = it cannot tell"""
    return Kind("pictures", "download", settings, Board, share, lambda boards, _: judged([count(board) for board in boards]))


def share(board: Board) -> str:
    """Share of the tokens of a growing picture, in words."""
    return f"{100 * len(board.run.tokens) / len(board.verdict):.0f} %" if board.count else ""


def judged(counts: Sequence[ObjectCount | None]) -> Judged:
    """The judgement by the counts of requested objects; None for a picture that the judge cannot tell."""
    known = [count for count in counts if count is not None]
    headline = f"{sum(count.matches for count in known)} of {len(counts)} show the whole prompt" if known else f"{len(counts)} pictures"
    return Judged(best_of(counts), [words_of(count) for count in counts], headline, FRAMED if known else UNJUDGED)


def best_of(counts: Sequence[ObjectCount | None]) -> int | None:
    """Index of the picture that shows most of the requested objects, then least else, then the first; None if none was judged."""
    known = [(i, count) for i, count in enumerate(counts) if count is not None]
    return max(known, key=lambda each: (each[1].detected / each[1].requested, -each[1].others))[0] if known else None


def words_of(count: ObjectCount | None) -> str:
    """The judge's count for a picture, in words."""
    if count is None:
        return ""
    return f"{count.detected} of {count.requested}" + (f", {count.others} more" if count.others else "")
