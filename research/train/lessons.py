"""The option that the recipes of the emoji world share: which lessons (objects, relations and styles) they train on."""

from __future__ import annotations

from dataclasses import dataclass, field

from research.train import loop
from research.worlds.emoji_scenes import LESSONS


def suffix(taught: str) -> str:
    """Returns the ending of a checkpoint's name for some lessons: "" for the first ones."""
    return "" if taught == "first" else f"-{taught}"


@dataclass
class LessonOptions(loop.RecipeOptions):
    """The options of a recipe, with the lessons."""

    lessons: str | None = field(
        default=None,
        metadata=loop.argument(
            "lessons to train on: first (32 objects), common (168), spoken (168, as people ask) or the whole world (default: the preset's)",
            choices=list(LESSONS),
        ),
    )
