"""Steps become arrays without a loss, and a mesh shares its tokens out among its faces."""

from __future__ import annotations

import numpy as np

from engine.backbones.bpt_tokens import parse, tokenize
from engine.core import Step
from engine.data.lowpoly_shapes import shape
from engine.diagnostics import arrays, per_face


def test_every_token_is_counted_once() -> None:
    """Faces and tokens without a face together share an array out: owned sums and dangling tokens add up to the whole."""
    one = shape("table", 3)
    tokens = tokenize(one.vertices, one.faces)[0].tolist()
    parser = parse([*tokens, tokens[0], 5120])
    values = np.arange(parser.length, dtype=np.float32)
    means = per_face(parser.faces, values)
    owned = sum(float(m) * len(f.owned) for m, f in zip(means, parser.faces, strict=True))
    assert round(owned + values[parser.dangling()].sum()) == values.sum()
    assert np.isclose(means.min(), values[list(parser.faces[0].owned)].mean())


def test_faces_whose_tokens_say_nothing_are_nan() -> None:
    one = shape("table", 0)
    parser = parse(tokenize(one.vertices, one.faces)[0])
    values = np.full(parser.length, np.nan, np.float32)
    values[list(parser.faces[2].owned)] = 1
    means = per_face(parser.faces, values)
    assert means[2] == 1 and np.isnan(np.delete(means, 2)).all()


def test_arrays_keep_the_order_of_commitment() -> None:
    steps = [
        Step([5, 6], [0, 1], drafted=3, trace={"accepted": [True, False]}, knobs={"window": 4}),
        Step([7], [2], trace={}, knobs={"window": 5}),
    ]
    found = arrays(steps)
    assert found["tokens"].tolist() == [5, 6, 7] and found["step"].tolist() == [0, 0, 1]
    assert found["accepted"][:2].tolist() == [1, 0] and np.isnan(found["accepted"][2])
    assert found["knob_window"].tolist() == [4, 5] and found["step_drafted"].tolist() == [3, 0]
