"""Values of the trace, tree and map panels of the Image tab, for runs and for recorded Steps."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from PIL import Image

from app.live.boards.patches import PLAIN, SIDE, Patches
from app.live.stream import Trail
from app.runs.history import save
from app.ui.panels import canvas, trace, tree
from app.ui.panels.captions import bpt_words, made_with
from engine.core import Knob, Sampling, Step
from engine.diagnostics import replay
from engine.mesh.bpt_tokens import BPT
from engine.methods import METHODS
from engine.trace import DeviationTrace, RoundTrace, Trace
from tests.app import boards
from tests.app.boards import numbers

LETTERS = (Knob("energy_tolerance", "Θ", 0.0, 0, 16, 0.25), Knob("refresh", "", "carry", choices=("carry", "redraw")))
WHOLE = Sampling(temperature=1.0, top_k=0, top_p=1.0, guidance=1.0)  # the whole distribution: random drafts are sometimes accepted
TREES = {"depth": 3, "width": 3, "nodes": 8}
board = partial(boards.board, sampling=WHOLE)


def trail_of(steps: Iterable[Step]) -> Trail:
    """A trail of Steps."""
    trail = Trail()
    for step in steps:
        trail.add(step)
    return trail


def energies() -> list[Step]:
    """Traces of three passes of a dual stream: none, two of three and one of two drafts were accepted."""
    first = {"energy_tolerance": 0.0, "refresh": "carry"}
    levels, least = [0.5, -0.25, -np.inf], [-0.5, -0.7, -0.2]
    return [
        Step([4], [0], trace=Trace([False], entropy=[1.0], round=RoundTrace([], [], 0)), knobs=first),
        Step(
            [5, 6, 7], [1, 2, 3], drafted=3, knobs=first,
            trace=Trace(
                [True, True, False], accept_probability=[1.0, 0.8, 0.1], entropy=[1.0, 2.0, 3.0], deviation=DeviationTrace(0.125),
                energy=levels, threshold=least, round=RoundTrace(levels, least, 2),
            ),
        ),
        Step(
            [8, 9], [4, 5], drafted=2, knobs={"energy_tolerance": 2.5, "refresh": "carry"},
            trace=Trace(
                [True, False], entropy=[2.0, 2.5], energy=[0.0, -3.0], threshold=[-1.0, -2.0],
                round=RoundTrace([0.0, -3.0], [-1.0, -2.0], 1),
            ),
        ),
    ]  # fmt: skip


def test_the_trace_of_energies_has_thresholds_and_moved_knobs():
    trail = trail_of(energies())
    value = trace.encode(trail, replace(METHODS["sjdpp"], knobs=LETTERS), "running", 64)
    assert numbers(value["energy"]).tolist()[1:] == [0.5, -0.25, trace.IMPOSSIBLE, 0.0, -3.0] and np.isnan(numbers(value["energy"])[0])
    assert np.allclose(numbers(value["threshold"])[1:4], [-0.5, -0.7, -0.2])
    assert numbers(value["verdict"], np.uint8).tolist() == [1, 3, 3, 2, 3, 2]
    assert numbers(value["position"], np.int32).tolist() == [0, 1, 2, 3, 4, 5]
    assert numbers(value["step"], np.int32).tolist() == [0, 1, 1, 1, 2, 2]
    assert (value["last"]["accepted"], value["last"]["drafts"]) == (1, 2)
    assert numbers(value["last"]["threshold"]).tolist() == [-1.0, -2.0]
    assert value["deviation"] == "deviation from plain decoding 0.125"
    assert [move[:3] for move in trail.moves] == [("energy_tolerance", 0.0, 2.5)]
    assert value["moves"] == [{"letter": "Θ", "before": "0", "after": "2.5", "token": 4}]


def test_the_trace_of_other_methods_has_chances(picto):
    shown = board(picto, "sjdpp", 6, window=8)
    value = trace.encode(shown.trail, shown.run.method, "running", 64)
    chance, verdict = numbers(value["chance"]), numbers(value["verdict"], np.uint8)
    assert value["energy"] == value["threshold"] == "" and value["last"] is None and value["deviation"] == ""
    assert len(chance) == len(shown.run.tokens) == len(numbers(value["entropy"]))
    assert not np.isnan(chance[verdict == 3]).any()
    published = board(picto, "zipar", 4)
    assert "checks no guesses" in trace.encode(published.trail, published.run.method, "running", 64)["about"]


def test_trees_are_sent_with_their_path_and_their_shapes(picto):
    shown = board(picto, "eagle", 6, **TREES)
    value = tree.encode(shown.trail, shown.run.method, "running")
    nodes = shown.run.steps[-1].trace.tree
    assert numbers(value["tokens"], np.int32).tolist() == nodes.tokens and numbers(value["parents"], np.int32).tolist() == nodes.parents
    assert value["path"] == nodes.path and value["behind"] == len(shown.run.tokens) - len(shown.run.steps[-1].tokens)
    depth, width, accepted = (numbers(value[name], np.int32) for name in ("depth", "width", "accepted"))
    assert len(depth) == 5 and depth.max() <= 3 and set(width) == {3}  # the first pass has no tree
    assert accepted.tolist() == [len(s.trace.tree.path) for s in shown.run.steps[1:]]


def test_the_nodes_of_a_tree_are_patches_of_picture(picto):
    shown, patches = board(picto, "eagle", 6, **TREES), Patches(picto)
    value = tree.encode(shown.trail, shown.run.method, "running", patches)
    sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(value["sheet"].split(",")[1]))))
    nodes = shown.run.steps[-1].trace.tree
    assert sheet.shape == (SIDE, PLAIN * SIDE, 3) and np.allclose(numbers(value["p"]), nodes.p)
    for node, token in enumerate(nodes.tokens):  # each is the middle of a picture of copies
        alone = picto.sketch(np.full((5, 5), token), range(5), False)
        assert np.abs(sheet[:, node * SIDE : (node + 1) * SIDE].astype(int) - alone[16:24, 16:24]).max() <= 1
    assert (patches.of([nodes.tokens[0]])[0] == sheet[:, :SIDE]).all() and patches.of([]).shape == (0, SIDE, SIDE, 3)
    many = patches.sheet(range(PLAIN + 1))
    assert many.shape == (2 * SIDE, PLAIN * SIDE, 3) and (many[SIDE:, :SIDE] == patches.of([PLAIN])[0]).all()


def test_a_token_of_a_mesh_is_told_in_words():
    assert bpt_words(0) == "block 0 0 0" and bpt_words(BPT.first[1] + 16 + 2) == "offset 0 1 2"
    assert bpt_words(BPT.special + 64) == "new patch, block 1 0 0" and bpt_words(BPT.eos) == "end of the mesh"


def test_a_chart_says_what_it_was_made_from(picto):
    shown = board(picto, "sjdpp_published", 3, window=8)
    origin = made_with(shown.run)
    assert origin["seed"] == "5" and origin["prompt"] == "a red apple" and "window 8" in origin["knobs"] and "SJD++" in origin["method"]
    assert origin["machine"] and "guidance" in origin["sampling"]
    assert trace.encode(shown.trail, shown.run.method, "running", 64, origin)["made"] == origin


def test_a_method_without_trees_says_so(picto):
    shown = board(picto, "sjdpp", 3, window=8)
    value = tree.encode(shown.trail, shown.run.method, "running")
    assert value["state"] == "empty" and value["about"].startswith("SJD++ drafts no trees")
    first = board(picto, "eagle", 1, **TREES)
    assert tree.encode(first.trail, first.run.method, "running") == tree.IDLE


def test_maps_that_a_method_has_nothing_for_are_missing_with_a_reason(picto):
    by_name = {name: board(picto, name, 3) for name in ("sjdpp", "zipar", "eagle")}
    reasons = {name: canvas.missing(b.trail, b.run.method.title) for name, b in by_name.items()}
    assert reasons["sjdpp"] == {"depth": "SJD++ records no depth"}
    assert set(reasons["zipar"]) == {"accepted", "probability", "depth"} and reasons["zipar"]["accepted"] == "ZipAR checks no guesses"
    assert reasons["eagle"] == {}


def test_the_canvas_knows_depths_by_position(picto):
    shown = board(picto, "eagle", **TREES, children="sampled")
    value = canvas.encode(shown, shown.picture(), canvas.scales([shown]), "fast", "EAGLE-2", None)
    depth = numbers(value["maps"]["depth"], np.uint8)
    for step in shown.run.steps[1:]:
        if step.drafted:
            assert depth[step.positions].tolist() == [d + 1 for d in step.trace.depth]
    assert value["scales"]["depth"] == max(canvas.SHALLOW, *(max(s.trace.depth) for s in shown.run.steps))


@pytest.mark.parametrize("name", ["eagle", "sjdpp"])
def test_a_saved_run_is_drawn_like_the_run_itself(picto, tmp_path, name):
    shown = board(picto, name, **(TREES if name == "eagle" else {"window": 8}))
    with np.load(save(shown.run, tmp_path) / "trace.npz") as file:
        again = trail_of(replay(dict(file)))
    method = shown.run.method
    for panel, settings in ((trace, ("done", 64)), (tree, ("done",))):
        assert panel.encode(again, method, *settings) == panel.encode(shown.trail, method, *settings)
