"""Steps become arrays without loss, and a mesh's tokens are divided among its faces."""

from __future__ import annotations

import numpy as np
import torch

from engine.core import Step
from engine.diagnostics import arrays, per_face, replay
from engine.mesh.bpt_tokens import parse, tokenize
from engine.trace import DeviationTrace, RoundTrace, Trace, TreeTrace
from research.worlds.lowpoly_shapes import shape


def test_every_token_is_counted_once() -> None:
    """An array is divided among faces and tokens without a face: owned sums and dangling tokens add up to the total."""
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
        Step([5, 6], [0, 1], drafted=3, trace=Trace([True, False]), knobs={"window": 4}),
        Step([7], [2], knobs={"window": 5}),
    ]
    columns = arrays(steps)
    assert columns["tokens"].tolist() == [5, 6, 7] and columns["step"].tolist() == [0, 0, 1]
    assert columns["accepted"][:2].tolist() == [1, 0] and np.isnan(columns["accepted"][2])
    assert columns["knob_window"].tolist() == [4, 5] and columns["step_drafted"].tolist() == [3, 0]


def test_a_trace_plays_again_as_the_steps_it_came_from() -> None:
    """Trees, energies and all numbers of every step: a saved run is drawn like a live one."""
    no_tree, tree = TreeTrace([], [], [], [], []), TreeTrace([6, 9, 8], [-1, -1, 0], [0], [0.5, 0.25, 0.75], [1.0, 1.0, 0.5], 2, 2)
    steps = [
        Step([5], [0], trace=Trace(depth=[0], tree=no_tree), knobs={"depth": 2, "kind": "drawn"}),
        Step(
            [6, 7], [1, 2], drafted=3, draft_forwards=2, exact=False, seconds=0.5, knobs={"depth": 3, "kind": "drawn"},
            trace=Trace(
                accepted=[True, False], accept_probability=[0.5], depth=[1, 0], tree=tree,
                deviation=DeviationTrace(0.125, 0.25), round=RoundTrace(torch.tensor([-1.0, 0.5]), [-2.0, 1.0], 1),
            ),
        ),
    ]  # fmt: skip
    trace = arrays(steps)
    assert {name for name in trace if name.startswith("step_")} == {
        "step_tokens", "step_drafted", "step_forwards", "step_draft_forwards", "step_seconds", "step_exact", "step_nodes", "step_round",
        "step_round_accepted", "step_deviation", "step_mean_deviation", "step_tree_depth", "step_tree_width",
    }  # fmt: skip
    assert {name: values.tolist() for name, values in trace.items() if name.startswith("tree_")} == {
        "tree_tokens": [6, 9, 8], "tree_parents": [-1, -1, 0], "tree_accepted": [True, False, False],
        "tree_p": [0.5, 0.25, 0.75], "tree_q": [1.0, 1.0, 0.5],
    }  # fmt: skip
    again = list(replay(trace))
    assert [(s.tokens, s.positions, s.drafted, s.draft_forwards, s.exact, s.seconds, s.knobs) for s in again] == [
        (s.tokens, s.positions, s.drafted, s.draft_forwards, s.exact, s.seconds, s.knobs) for s in steps
    ]
    assert [step.trace.tree for step in again] == [no_tree, tree]
    assert again[1].trace.round.energy.tolist() == [-1.0, 0.5] and again[1].trace.round.accepted == 1
    assert again[0].trace.deviation is None and again[1].trace.deviation == DeviationTrace(0.125, 0.25)
    assert again[0].trace.known_fields == {"accepted", "accept_probability", "depth", "tree", "round"}  # every column, nan or not
    twice = arrays(again)
    assert all(np.array_equal(values, twice[name], equal_nan=values.dtype.kind == "f") for name, values in trace.items())
