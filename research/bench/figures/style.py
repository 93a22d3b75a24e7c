"""The figures of `launch.py bench image --figure FILE`: one for each method that has one, and for a sweep of the budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.errors import BadOutput, NotSupported
from engine.run import Run
from research.bench.figures import budget, controller, fidelity, multi_scale

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Runs = dict[str, list[list[Run]]]  # by row and prompt, as `speed.measure` gives them

FIGURES: dict[str, Callable[[Runs], tuple[Figure, list[dict[str, Any]]]]] = {
    budget.KNOB: budget.figure,
    multi_scale.METHOD: multi_scale.figure,
    controller.METHOD: controller.figure,
    fidelity.METHOD: fidelity.figure,
}


def drawn(names: Iterable[str]) -> str:
    """Returns the first swept knob or method that has a figure; raises NotSupported if there is none. Called before measuring."""
    found = next((name for name in names if name in FIGURES), None)
    if found is None:
        raise NotSupported(f"--figure has nothing to draw: there is no row of {' or '.join(FIGURES)}. Add one with --methods or --sweep.")
    return found


def draw(method: str, runs: Runs, path: Path) -> list[dict[str, Any]]:
    """Writes the figure of a method as a PNG and returns its points; raises BadOutput if it cannot be written."""
    figure, points = FIGURES[method](runs)
    try:
        figure.savefig(path, format="png")
    except OSError as e:
        raise BadOutput(f"Cannot write {path} ({e.strerror}). Choose another file with --figure.") from e
    return points
