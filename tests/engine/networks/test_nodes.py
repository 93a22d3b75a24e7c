"""The graph of a pass: the number of its nodes, counted on the meta device with the shapes of published models."""

from __future__ import annotations

import pytest
import torch

from research.bench import nodes


def test_views_are_no_nodes_and_copies_are() -> None:
    with nodes.NodeCount() as count, torch.inference_mode():
        x = torch.empty(4, 6, device="meta")
        x[1:].transpose(0, 1).unbind(0), x.view(24), x.to(torch.float32), x.reshape(3, 8)
        assert not count.counts
        x.T.reshape(24), x.to(torch.float16), x[0].add_(1), torch.empty_like(x)
    assert count.counts == {"reshape": 1, "to": 1, "add_": 1}


BUDGET = {"Janus-Pro 1B": 350, "Lumina-mGPT 7B": 450, "Emu3 8B": 450, "GLM-Image 9B": 600, "Emu3.5 34B": 870}


@pytest.mark.parametrize("name", BUDGET)
def test_a_pass_has_few_nodes(name: str) -> None:
    trunk = nodes.trunk_of(name)
    layers = trunk.hosted.decoder.config.num_hidden_layers
    fused, before = nodes.count_nodes(trunk), nodes.count_nodes(trunk, fused=False)
    assert fused.total() <= BUDGET[name] and before.total() > 3 * fused.total()
    assert fused["attend_parts"] == fused["merge_parts"] == fused["rotary_write"] == fused["gate"] == layers
    assert before["scaled_dot_product_attention"] == layers and "scaled_dot_product_attention" not in fused


def test_the_estimate_is_bytes_over_bandwidth_and_a_time_for_each_small_node() -> None:
    trunk = nodes.trunk_of("Emu3 8B")
    fused = nodes.count_nodes(trunk)
    more = fused + nodes.Counter({"mul": 500})
    assert nodes.estimate(trunk, more, 3.35e12) - nodes.estimate(trunk, fused, 3.35e12) == pytest.approx(1.0)
    assert 5 < nodes.estimate(trunk, fused, 3.35e12) < 6.5
