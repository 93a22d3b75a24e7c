"""Rooflines: the shapes of published models, three terms recovered from a curve, and computed speed-ups."""

from __future__ import annotations

import pytest
from torch import nn

from engine.methods import METHODS
from engine.tuning.curve import CostCurve
from engine.tuning.roofline import ACCELERATORS, SIZES, Roofline, computed, fitted, speedups
from research.bench.nodes import count_nodes, trunk_of

PUBLISHED = {"1B": "Janus-Pro 1B", "7B": "Janus-Pro 7B", "34B": "Emu3.5 34B"}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_those_of_published_models(size: str) -> None:
    trunk = trunk_of(PUBLISHED[size])
    parts = (*trunk.hosted.decoder.layers, trunk.hosted.head)
    parameters = sum(layer.weight.numel() for part in parts for layer in part.modules() if isinstance(layer, nn.Linear))
    assert SIZES[size].parameters == pytest.approx(parameters, rel=0.01)
    assert SIZES[size].layers == len(trunk.hosted.decoder.layers) and SIZES[size].nodes == count_nodes(trunk).total()


@pytest.mark.parametrize("line", [Roofline(0.8, 0.5, 0.14), Roofline(0.0, 1.0, 0.25), Roofline(1.5, 0.1, 0.01)])
def test_three_terms_are_recovered_from_a_curve(line: Roofline) -> None:
    curve = CostCurve(tuple((rows, line.at(rows)) for rows in (1, 2, 4, 8, 16, 32, 64)))
    again = fitted(curve)
    assert all(again.at(rows) == pytest.approx(time, rel=0.12) for rows, time in curve.points)
    assert again.at(1) == pytest.approx(line.at(1))


def test_a_pass_waits_for_its_weights_or_for_its_products() -> None:
    card, size = ACCELERATORS["H100"], SIZES["7B"]
    line = computed(card, size)
    bound = line.weights / line.row  # rows
    assert line.at(1) == line.at(0.9 * bound) == pytest.approx(1e3 * (2 * 6.14e9 / (0.87 * 3.35e12) + 412 * 2e-6))
    assert line.at(2 * bound) == pytest.approx(line.launches + 2 * line.weights)


def test_drafts_cost_a_layer_or_a_pass() -> None:
    totals = {"forwards": 10, "tokens": 40, "drafted": 70, "draft_forwards": 30}
    ratios = {name: speedups(METHODS[name], totals)["H100", "7B"] for name in ("sjdpp", "eagle")}
    assert ratios == {"sjdpp": pytest.approx(4 / (1 + 3)), "eagle": pytest.approx(4 / (1 + 3 / 30))}
