"""Loops of a model: a mesh that only writes faces which it already has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from engine.mesh.bpt_tokens import Cell, TokenParser

REPEATS = 32  # repeated faces in a row, from which a mesh is in a loop


class RepeatCount:
    """Number of the latest faces in a row that the mesh has already, `count`. Faces are equal if they have the same corners in the same
    winding."""

    def __init__(self) -> None:
        self.count = 0
        self._seen: set[tuple[Cell, ...]] = set()
        self._parser = TokenParser()

    def add(self, corners: Iterable[Cell]) -> None:
        """Takes the next face, three cells (x, y, z)."""
        corners = tuple(corners)
        first = corners.index(min(corners))
        face = corners[first:] + corners[:first]
        self.count = self.count + 1 if face in self._seen else 0
        self._seen.add(face)

    def ends(self, token: int) -> bool:
        """Takes the next token; True if the mesh is in a loop with the face that it completes."""
        face = self._parser.push(token)
        if face is not None:
            self.add(face.vertices)
        return face is not None and self.count >= REPEATS


def loop_start(faces: Sequence[Sequence[Sequence[int]]]) -> int | None:
    """Number of different faces before a mesh only repeats them, at least REPEATS times, to its end; None if it does not.

    faces : [F, 3, 3] as numbers, corners in the order of the tokens
    """
    repeats = RepeatCount()
    for face in faces:
        repeats.add(tuple(corner) for corner in face)
    return len(faces) - repeats.count if repeats.count >= REPEATS else None
