"""Attention by blocks has the values and the gradients of PyTorch's attention."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.networks import attention
from engine.networks.attention import ROWS, attend
from engine.networks.transformer import causal_mask

MASKS = {  # rows, keys and the mask
    "everything": (70, 37, None),
    "one block": (90, 90, causal_mask(90, 0, torch.device("cpu"))),
    "many blocks": (2 * ROWS + 41, 2 * ROWS + 41, causal_mask(2 * ROWS + 41, 0, torch.device("cpu"))),
    "after a prefix": (ROWS + 3, ROWS + 60, causal_mask(ROWS + 3, 57, torch.device("cpu"))),
    "scattered": (
        ROWS + 9,
        200,
        (torch.rand(ROWS + 9, 200, generator=torch.Generator().manual_seed(3)) < 0.2).index_fill_(1, torch.tensor([5]), True),
    ),
}


def inputs(rows: int, keys: int) -> list[Tensor]:
    numbers = torch.Generator().manual_seed(rows)
    return [torch.randn(2, 3, n, 16, generator=numbers).bfloat16().requires_grad_() for n in (rows, keys, keys)]


def relative(out: Tensor, true: Tensor) -> float:
    return ((out.float() - true).norm() / true.norm()).item()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("name", MASKS)
def test_attention_with_gradients_agrees_with_float32(name: str, compiled: bool) -> None:
    rows, keys, mask = MASKS[name]
    q, k, v = inputs(rows, keys)
    assert attention.by_blocks(q, v, mask)
    run = torch.compile(attend, backend="aot_eager", dynamic=True) if compiled else attend
    out = run(q, k, v, mask, 0.5)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    (out * weight).sum().backward()
    exact = [x.detach().float().requires_grad_() for x in (q, k, v)]
    true = F.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.5)
    (true * weight).sum().backward()
    assert out.dtype == torch.bfloat16 and relative(out, true.detach()) < 0.01
    for own, other in zip((q, k, v), exact, strict=True):
        assert relative(own.grad, other.grad) < 0.02


def test_what_a_row_must_not_see_does_not_reach_it() -> None:
    rows, keys, mask = MASKS["many blocks"]
    q, k, v = inputs(rows, keys)
    before = attend(q, k, v, mask)
    late = v.detach().clone()
    late[:, :, 150:] += 100.0
    assert torch.equal(attend(q, k, late, mask)[:, :, :150], before[:, :, :150])
    attend(q, k, v, mask)[:, :, :150].sum().backward()
    assert not v.grad[:, :, 150:].any() and v.grad[:, :, :150].any()


def test_inference_float32_and_masks_of_a_batch_use_the_kernel_of_pytorch() -> None:
    q, k, v = inputs(4, 4)
    assert not attention.by_blocks(q, v, torch.ones(2, 1, 4, 4, dtype=torch.bool))
    assert not attention.by_blocks(q.float(), v.float(), None)
    assert not attention.by_blocks(q.detach(), v.detach(), None)
    with torch.no_grad():
        assert not attention.by_blocks(q, v, None)
    mask = causal_mask(4, 0, torch.device("cpu"))
    plain = [x.detach().float() for x in (q, k, v)]
    assert torch.equal(attend(*plain, mask, 0.5), F.scaled_dot_product_attention(*plain, attn_mask=mask, scale=0.5))
