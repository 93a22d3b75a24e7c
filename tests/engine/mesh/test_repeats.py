"""Loops: which meshes are in one, and that every method ends with the token that closes it, as plain decoding does."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
import torch

from engine.core import Prompt, Sequence
from engine.errors import BadPrompt
from engine.mesh.bpt_tokens import BPT
from engine.mesh.repeats import REPEATS, RepeatCount, loop_start
from engine.methods import METHODS
from engine.run import Run, generate
from tests.engine.backbones import tiny

FACES = np.arange(9 * 14).reshape(-1, 3, 3)
CELLS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0]])
POINTS = torch.randn(256, 6, generator=torch.Generator().manual_seed(0))
LAST = 13  # tokens


@pytest.mark.parametrize(
    ("repeated", "start"),
    [
        (FACES[:0], None),
        (np.concatenate([FACES[3:5]] * 15), None),
        (np.concatenate([FACES[3:5, [1, 2, 0]]] * 40), 14),  # the same faces from another corner
        (np.concatenate([FACES, FACES, FACES[:3, [2, 1, 0]]]), None),  # the other winding: the back of a sheet
    ],
)
def test_a_loop_repeats_faces_to_its_end(repeated: np.ndarray, start: int | None) -> None:
    assert loop_start(np.concatenate([FACES, repeated]).tolist()) == start


def looping(repeats: int) -> list[int]:
    """Tokens of a fan that turns back and forth over one pair of faces, which it repeats this often."""
    block, centre = BPT.spell(CELLS)[0]
    ring = BPT.spell(CELLS)[1:, -1].tolist()
    return [int(block), int(centre), *(ring[i % 2] for i in range(3 + repeats))]


def test_tokens_end_with_the_last_repeated_face() -> None:
    repeats = RepeatCount()
    ended = [repeats.ends(token) for token in looping(REPEATS + 4)]
    assert ended.index(True) == len(looping(REPEATS)) - 1


def started(name: str, end_at: int | None) -> Run:
    """A run whose sequence ends with its token number `end_at`."""
    run = generate(tiny.lowpoly(), METHODS[name], Prompt(points=POINTS, seed=3), {"verify": "match seed"} if name != "ar" else {})
    numbers = count(1)

    def set_end(sequence: Sequence) -> None:
        sequence.ends = lambda token: next(numbers) == end_at

    run.began = set_end
    return run.finish()


@pytest.mark.parametrize("name", ["sjd", "sjdpp", "lookup", "surface", "lookahead"])
def test_a_method_ends_where_plain_decoding_does(name: str) -> None:
    plain = started("ar", LAST)
    assert started(name, LAST).tokens == plain.tokens and len(plain.tokens) == LAST and plain.finished
    assert len(started(name, None).tokens) > LAST  # the mutant: nothing ends it


def test_a_prefix_that_ends_in_a_loop_is_refused() -> None:
    for repeats, refused in ((REPEATS - 1, False), (REPEATS, True)):
        run = generate(tiny.lowpoly(), METHODS["ar"], Prompt(points=POINTS, prefix=tuple(looping(repeats))))
        if refused:
            with pytest.raises(BadPrompt, match="repeats itself"):
                next(run)
        else:
            assert len(next(run).tokens) == len(looping(repeats))
        run.close()
