"""Parts of a step: nested parts are not counted twice, and the functions are themselves again afterwards."""

from __future__ import annotations

from itertools import count

import pytest

from engine.core import Backbone, Prompt
from engine.methods import METHODS
from engine.run import generate
from research.bench import parts
from research.exactness.toy import Toy
from tests.engine.backbones import tiny


@pytest.mark.parametrize(("backbone", "method", "part"), [(tiny.pictogram(), "sjdpp", "model pass"), (Toy(), "eagle", "growing the tree")])
def test_a_moment_belongs_to_one_part(backbone: Backbone, method: str, part: str) -> None:
    before, ticks = [getattr(owner, name) for owner, name, _ in parts.PARTS], count()
    with parts.timed_parts(lambda: float(next(ticks))) as seconds:
        generate(backbone, METHODS[method], Prompt("red apple"), {}).finish()
    assert seconds[part] > 0 and seconds.total() < next(ticks)
    assert [getattr(owner, name) for owner, name, _ in parts.PARTS] == before
