"""What the recipes of pictogram's world are asked besides the usual: which part of it is taught."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from engine.data.emoji_scenes import LESSONS
from engine.train import loop


def suffix(taught: str) -> str:
    """What ends the name of a checkpoint that learns some lessons: nothing for the first ones."""
    return "" if taught == "first" else f"-{taught}"


@dataclass
class Options(loop.Options):
    """What a person asks of a recipe, and what shall be taught."""

    lessons: str | None = None  # None: the preset's

    @staticmethod
    def parser(name: str) -> argparse.ArgumentParser:
        """The options as arguments of `launch.py train NAME`."""
        p = loop.Options.parser(name)
        p.add_argument(
            "--lessons", choices=list(LESSONS), help="what is taught: first, for a CPU, or the whole world (default: the preset's)"
        )
        return p
