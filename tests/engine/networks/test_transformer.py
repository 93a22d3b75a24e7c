"""A row of the shared decoder depends on its absolute position."""

from __future__ import annotations

import torch

from engine.networks.transformer import TransformerDecoder, rotary_table


def test_a_row_that_sees_nothing_else_knows_where_it_is() -> None:
    """Rotary positions alone are relative, so equal rows would have equal states."""
    torch.manual_seed(0)
    decoder = TransformerDecoder(2, 32, 2, 48, placed=True)
    cos, sin = rotary_table(torch.arange(12.0).view(6, 2), 16)
    x = torch.randn(1, 32).expand(1, 6, 32)
    only_itself = torch.eye(6, dtype=torch.bool)
    with torch.inference_mode():
        alike = decoder(x, cos, sin, only_itself)  # the map starts at zero
        torch.nn.init.normal_(decoder.place_map.weight, std=0.02)
        apart = decoder(x, cos, sin, only_itself)
    assert torch.allclose(alike, alike[:, :1].expand_as(alike), atol=1e-6)
    assert torch.cdist(apart[0], apart[0])[~only_itself].min() > 1e-3
