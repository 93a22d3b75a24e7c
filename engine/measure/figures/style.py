"""What `launch.py bench image --figure FILE` draws: one figure for each method that has one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import BadOutput, NotSupported
from engine.measure.figures import controller, fidelity, multi_scale
from engine.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = dict[str, list[list[Run]]]  # by row and prompt, as `speed.measure` gives them

FIGURES: dict[str, Callable[[Runs], tuple[Figure, list[dict[str, Any]]]]] = {
    multi_scale.METHOD: multi_scale.figure,
    controller.METHOD: controller.figure,
    fidelity.METHOD: fidelity.figure,
}


def drawn(methods: Iterable[str]) -> str:
    """The method whose figure is drawn: the first that has one. Raises NotSupported if there is none; asked before anything is measured."""
    found = next((name for name in methods if name in FIGURES), None)
    if found is None:
        raise NotSupported(f"--figure has nothing to draw: no row of {' or '.join(FIGURES)} is asked for. Add one with --methods.")
    return found


def draw(method: str, runs: Runs, path: Path) -> list[dict[str, Any]]:
    """The figure of a method as a PNG; raises BadOutput if it cannot be written. Returns its points."""
    figure, points = FIGURES[method](runs)
    try:
        figure.savefig(path, format="png")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another file with --figure.") from e
    return points
