"""A growing picture: the verdict on every position, and the drafts that are shown until they are committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image

from app.live.boards.growing import MISSING, Growing
from app.live.stream import PENDING, Growth, Trail
from engine.core import Step
from engine.run import Run


class Board(Growth):
    """Display state of one picture: an entry per position, filled Step by Step.

    verdict : uint8 [positions]; PENDING, OWN (the model's token where no draft was checked), CORRECTED (a draft was rejected),
              ACCEPTED, REDRAWN (next to a rejected one)
    token, step : int32 [positions], -1 = pending
    known : by name of Trail.SERIES, float32 [positions], nan = unknown
    small : tokens by position, of a draft at a smaller scale; scale : that scale in pixels, 0 = none
    """

    def __init__(self, run: Run):
        super().__init__(run)
        self.rows = self.columns = self.factor = self.scale = 0
        self.small: dict[int, int] = {}
        self._growing: Growing | None = None
        self._coarse: Growing | None = None
        self._final: np.ndarray | None = None
        self._file: str | None = None  # the finished picture as sent to the page
        self._allocate(0)

    def _allocate(self, positions: int) -> None:
        self.verdict = np.full(positions, PENDING, np.uint8)
        self.token = np.full(positions, -1, np.int32)
        self.step = np.full(positions, -1, np.int32)
        self.known = {name: np.full(positions, np.nan, np.float32) for name in Trail.SERIES}

    def add(self, step: Step) -> None:
        """Writes a Step to its positions."""
        if not self.rows:
            layout = self.run.sequence.layout  # exists after the first step
            self.rows, self.columns, self.factor = layout.rows, layout.columns, layout.factor
            self._allocate(self.rows * self.columns)
            self._growing = Growing(self.run.backbone, self.run.prompt.size, (self.rows, self.columns))
        at = np.array(step.positions, np.int64)
        self.token[at] = step.tokens
        self.step[at] = self.count  # before the step is counted
        super().add(step)
        count = len(at)
        self.verdict[at] = np.frombuffer(bytes(self.trail.verdict[-count:]), np.uint8)
        for name in self.known.keys() & step.trace.known_fields:
            self.known[name][at] = self.trail.series[name][-count:]
        if step.draft and step.draft.get("scale"):
            if not self.scale:
                side = step.draft["scale"] // self.factor
                self._coarse = Growing(self.run.backbone, step.draft["scale"], (side, side))
            self.scale = step.draft["scale"]
            self.small |= zip(step.draft["positions"], step.draft["tokens"], strict=True)

    def shown_draft(self) -> tuple[list[int], list[int]]:
        """Drafted tokens and their positions, without positions that are already committed."""
        pairs = zip(*super().shown_draft(), strict=True)
        open_pairs = [(t, p) for t, p in pairs if p < len(self.verdict) and self.verdict[p] == PENDING]
        return [t for t, _ in open_pairs], [p for _, p in open_pairs]

    def draft_mask(self) -> np.ndarray:
        """bool [positions]: True where a draft is shown that may still change."""
        mask = np.zeros(len(self.verdict), bool)
        mask[self.shown_draft()[1]] = True
        if self.small and not self.ended:
            side = self.scale // self.factor
            known = np.zeros(side * side, bool)
            known[list(self.small)] = True
            finer = self.columns // side
            mask |= known.reshape(side, side).repeat(finer, 0).repeat(finer, 1).ravel()
        return mask & (self.verdict == PENDING)

    def picture(self, others: Iterable[Board] = ()) -> np.ndarray:
        """uint8 [H, W, 3]: a cheap rendering of the picture so far with its drafts; the final decoding once the run has ended. A draft at
        a smaller scale is enlarged until its tokens are committed. others: other boards of the race, see `final`"""
        if self.ended:
            return self.final(others)
        tokens, positions = self.shown_draft()
        grid = self.token.astype(np.int64)
        grid[positions] = tokens
        picture = self._growing.draw(grid.reshape(self.rows, self.columns), self.run.seconds)
        if not self.small:
            return picture
        side = self.scale // self.factor
        coarse = np.full(side * side, MISSING, np.int64)
        coarse[list(self.small)] = list(self.small.values())
        enlarged = Image.fromarray(self._coarse.draw(coarse.reshape(side, side), self.run.seconds))
        through = self.draft_mask().reshape(self.rows, self.columns).repeat(self.factor, 0).repeat(self.factor, 1)
        return np.where(through[:, :, None], np.asarray(enlarged.resize(picture.shape[1::-1], Image.Resampling.BICUBIC)), picture)

    def growing(self) -> np.ndarray:
        """uint8 [H, W, 4]: the picture so far, transparent where nothing is drawn yet; [H, W, 3] once the run has ended."""
        picture = self.picture()
        if self.ended:
            return picture
        drawn = ((self.verdict != PENDING) | self.draft_mask()).reshape(self.rows, self.columns)
        opacity = 255 * drawn.repeat(self.factor, 0).repeat(self.factor, 1).astype(np.uint8)
        return np.dstack([picture, opacity])

    def final(self, others: Iterable[Board] = ()) -> np.ndarray:
        """The finished picture, decoded once, or taken from another board of the race with the same tokens."""
        if self._final is None:
            same = (b._final for b in others if b._final is not None and np.array_equal(b.token, self.token))
            picture = next(same, None)
            self._final = self.run.result() if picture is None else picture
        return self._final

    def file(self, write: Callable[[np.ndarray], str], others: Iterable[Board] = ()) -> str:
        """The finished picture as returned by `write`, which is called once for all boards with the same picture."""
        if self._file is None:
            picture = self.final(others)
            same = (b._file for b in others if b._file is not None and b._final is picture)
            self._file = next(same, None) or write(picture)
        return self._file
