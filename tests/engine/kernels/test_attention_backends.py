"""Masked attention on an NVIDIA GPU leaves cuDNN out: ours, that of hosted decoders and that of a caller's model."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.kernels import attention_backends, tree_attention
from engine.networks import hosted_attention
from engine.transformers import host
from tests.engine.transformers import models

Allowed = tuple[bool, bool, bool]
CUDA = torch.device("cuda")


def allowed() -> Allowed:
    """Whether PyTorch may use cuDNN, flash attention and plain mathematics."""
    on_cuda = torch.backends.cuda
    return on_cuda.cudnn_sdp_enabled(), on_cuda.flash_sdp_enabled(), on_cuda.math_sdp_enabled()


def test_only_cudnn_is_left_out_and_only_on_a_gpu():
    before = allowed()
    with attention_backends.without_cudnn(CUDA):
        assert allowed() == (False, True, True)
    with attention_backends.without_cudnn(torch.device("cpu")):
        assert allowed() == before
    assert allowed() == before


def own() -> None:
    q = torch.randn(1, 2, 3, 8)
    tree_attention.tree_attention_reference(q, q, q, torch.ones(3, 3, dtype=torch.bool))


def hosted() -> None:
    q = torch.randn(1, 2, 3, 8)
    hosted_attention.attend(torch.nn.Module(), q, q, q, torch.ones(1, 1, 3, 3, dtype=torch.bool))


def callers() -> None:
    models.ours(models.llama())


@pytest.mark.parametrize(("module", "run"), [(tree_attention, own), (hosted_attention, hosted), (host, callers)])
def test_every_masked_attention_is_under_it(module, run: Callable[[], None], monkeypatch: pytest.MonkeyPatch):
    seen: list[Allowed] = []
    attention = F.scaled_dot_product_attention

    def recorded(*args: object, **options: object) -> Tensor:
        seen.append(allowed())
        return attention(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", recorded)
    monkeypatch.setattr(module, "without_cudnn", lambda device: attention_backends.without_cudnn(CUDA))  # as if the tensors were there
    run()
    assert seen and set(seen) == {(False, True, True)}
