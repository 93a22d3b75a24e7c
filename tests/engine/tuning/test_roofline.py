"""Rooflines: the shapes of published models, three terms recovered from a curve, and computed speed-ups."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from engine.cache import FixedView
from engine.networks.mesh_decoder import MeshBlock, MeshDecoder, MeshSettings
from engine.networks.transformer import TransformerDecoder
from engine.tuning.curve import CostCurve
from engine.tuning.expected import Expected
from engine.tuning.roofline import ACCELERATORS, OWN, SIZES, ModelSize, Roofline, computed, fitted, size_of, speedups
from research.bench.nodes import NodeCount, count_nodes, trunk_of
from tests.engine.backbones import tiny

PUBLISHED = {"1B": "Janus-Pro 1B", "7B": "Janus-Pro 7B", "34B": "Emu3.5 34B"}


@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_those_of_published_models(size: str) -> None:
    trunk = trunk_of(PUBLISHED[size])
    parts = (*trunk.hosted.decoder.layers, trunk.hosted.head)
    parameters = sum(layer.weight.numel() for part in parts for layer in part.modules() if isinstance(layer, nn.Linear))
    assert SIZES[size].parameters == pytest.approx(parameters, rel=0.01)
    assert SIZES[size].layers == len(trunk.hosted.decoder.layers) and SIZES[size].nodes == count_nodes(trunk).total()


def nodes_of(layers: int, own: type) -> int:
    """Nodes of a pass of one of our decoders in fixed shapes, without what surrounds its layers."""
    rows, width, branches = 8, 64, 2
    with torch.device("meta"), torch.inference_mode():
        x, cache = torch.empty(branches, rows, width), FixedView(torch.empty(layers, 2, branches, 2, 64, 32), torch.arange(rows), 64)
        mask, kv, table = torch.ones(rows, 64, dtype=torch.bool), torch.empty(branches, 2, 5, 32), torch.empty(rows, 32)
        mesh, picture = MeshDecoder(MeshSettings(layers, width, 2, 128)), TransformerDecoder(layers, width, 2, 128)
        with NodeCount() as nodes:
            mesh(x, mask, [(kv, kv)] * layers, cache) if own is MeshBlock else picture(x, table, table, mask, cache)
    return nodes.counts.total()


@pytest.mark.parametrize("own", OWN)
def test_layers_of_our_own_models_have_this_many_nodes(own: type) -> None:
    assert nodes_of(3, own) - nodes_of(2, own) == OWN[own]


def test_a_loaded_model_is_as_large_as_its_linear_layers() -> None:
    backbone = tiny.lowpoly()
    s = backbone.model.settings
    layer = (3 + 1 + 1 + 1) * s.width**2 + 3 * s.width * s.inner  # self-attention, the queries and the output of the other, feed-forward
    assert size_of(backbone) == ModelSize(s.layers * layer + s.width * s.vocabulary, s.layers, OWN[MeshBlock], 1)
    hosted = tiny.janus()
    assert size_of(hosted).nodes_of_layer == SIZES["1B"].nodes_of_layer and size_of(hosted).branches == 2
    small = computed(ACCELERATORS["H100"], size_of(backbone))
    assert small.launches > 0.9 * small.at(32)


@pytest.mark.parametrize("line", [Roofline(0.8, 0.5, 0.14), Roofline(0.0, 1.0, 0.25), Roofline(1.5, 0.1, 0.01)])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_three_terms_are_recovered_from_a_curve(line: Roofline, noise: float) -> None:
    curve = CostCurve(tuple((rows, line.at(rows) * (1 + noise * math.sin(rows))) for rows in (1, 2, 4, 8, 16, 32, 64)))
    again, deviation = fitted(curve)
    assert max(*again.ratios(curve), *(1 / each for each in again.ratios(curve))) == pytest.approx(deviation)
    assert deviation <= 1.005 + 1.2 * noise
    assert all(again.at(rows) == pytest.approx(line.at(rows), rel=0.01 + 2.5 * noise) for rows in range(1, 65))


def test_a_pass_waits_for_its_weights_or_for_its_products() -> None:
    card, size = ACCELERATORS["H100"], SIZES["7B"]
    line = computed(card, size)
    bound = line.weights / line.row  # rows
    assert line.at(1) == line.at(0.9 * bound) == pytest.approx(1e3 * (2 * 6.14e9 / (0.87 * 3.35e12) + 412 * 2e-6))
    assert line.at(2 * bound) == pytest.approx(line.launches + 2 * line.weights)


def test_drafts_cost_a_layer_or_a_pass() -> None:
    ratios = {name: speedups(Expected(name, {}, 4.0, 8.0, 3.0), SIZES)["H100", "7B"] for name in ("sjdpp", "eagle")}
    assert ratios == {"sjdpp": pytest.approx(4 / (1 + 3)), "eagle": pytest.approx(4 / (1 + 3 / 30))}
