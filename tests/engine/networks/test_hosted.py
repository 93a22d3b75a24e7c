"""Hosted decoders: a row of a pass has the same bits alone and in a window, in both types; padding and stale rows are never seen."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaModel

from engine.core import NO_DRAFT, Draft, Sampling
from engine.kernels.cpu.packed_linear import can_pack
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.networks.hosted import Hosted, HostedTrunk, RowEndCache, RowEnds, kv_cache_for
from engine.networks.sequence import TransformerSequence

WIDTH, VOCABULARY, PREFIX = 256, 64, 9
KINDS = [pytest.param(kind, marks=pytest.mark.skipif(not can_pack(kind), reason=f"{kind} is not packed here")) for kind in
         (torch.float32, torch.bfloat16)]  # fmt: skip


def random_llama(kind: torch.dtype, packed: bool = True) -> Hosted:
    """A random Llama of three layers with grouped queries, wide enough for the kernels of real models."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=704, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2
    )
    decoder = LlamaModel(config).eval().requires_grad_(False)
    for p in decoder.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=0.1)
    head = nn.Sequential(nn.Linear(WIDTH, VOCABULARY, bias=False).requires_grad_(False))
    decoder.to(kind), head.to(kind)
    parts = Hosted(decoder, decoder.embed_tokens, head, decoder.embed_tokens.weight[0])
    if packed:
        make_steady([decoder, head])
    return parts


def prompt_of(parts: Hosted) -> torch.Tensor:
    """Two guidance rows."""
    return parts.decoder.embed_tokens(torch.arange(2 * PREFIX).view(2, PREFIX))


def start_run(
    parts: Hosted, columns: int = 20, prefix: torch.Tensor | None = None, padding: tuple[int, ...] = (0, 3)
) -> TransformerSequence:
    """A run after a prompt; pictures of 20x20 tokens."""
    prefix = prompt_of(parts) if prefix is None else prefix
    length = prefix.shape[1]
    kv_cache = RowEndCache(kv_cache_for(parts, len(prefix), length + columns * (columns + 1)), RowEnds(length, columns, columns**2))
    return TransformerSequence(
        HostedTrunk(parts, padding), prefix, None, kv_cache, vocabulary=VOCABULARY, limit=columns**2, layout=Raster(columns, columns),
        sampling=Sampling(guidance=2.0),
    )  # fmt: skip


def token(i: int) -> int:
    """Any sequence of tokens."""
    return (7 * i + i * i) % VOCABULARY


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [3, 17, 31])
def test_a_window_has_the_bits_of_single_passes(kind: torch.dtype, window: int) -> None:
    """Across row ends and past the first block of keys, for both guidance rows, one of them padded."""
    parts = random_llama(kind)
    with torch.inference_mode():
        single, wide = start_run(parts), start_run(parts)
        logits = []
        for i in range(93):
            logits.append(single.forward(NO_DRAFT).logits[:, 0])
            single.commit([], token(i))
        for start in range(0, 93 - window - 1, window + 1):
            logits_of_window = wide.forward(Draft(torch.tensor([token(i) for i in range(start, start + window)]))).logits
            for i in range(window + 1):
                assert torch.equal(logits_of_window[:, i], logits[start + i]), (start, i)
            wide.commit(list(range(window)), token(start + window))


@pytest.mark.skipif(not can_pack(torch.bfloat16), reason="bfloat16 is not packed here")
def test_the_block_of_keys_may_change_between_them() -> None:
    """A single pass that ends in the first block of 512 keys has the bits of a window that reaches into the second."""
    parts = random_llama(torch.bfloat16)
    with torch.inference_mode():
        single, wide = start_run(parts, columns=24), start_run(parts, columns=24)
        for sequence in (single, wide):  # 15 windows of 32: 480 tokens, with prompt and row ends 508 rows
            for start in range(0, 480, 32):
                sequence.forward(Draft(torch.tensor([token(i) for i in range(start, start + 31)])))
                sequence.commit(list(range(31)), token(start + 31))
        assert single.kv_cache.below.kept + 1 <= 512 < single.kv_cache.below.kept + 16
        logits_of_window = wide.forward(Draft(torch.tensor([token(i) for i in range(480, 495)]))).logits
        for i in range(16):
            assert torch.equal(logits_of_window[:, i], single.forward(NO_DRAFT).logits[:, 0]), i
            single.commit([], token(480 + i))


def test_padding_is_never_seen() -> None:
    """Other inputs in the padded places give the same bits, and the padded prompt equals the prompt at its own positions."""
    parts = random_llama(torch.float32)
    draft = Draft(torch.tensor([1, 2, 3]))
    with torch.inference_mode():
        prefix, outputs = prompt_of(parts), []
        for noise in (0.0, 5.0):
            changed = prefix.clone()
            changed[1, :3] += noise
            outputs.append(start_run(parts, 4, changed).forward(draft).logits)
        assert torch.equal(*outputs)
        rows = start_run(parts, 4, prefix[1:, 3:], (0,)).forward(draft).logits
        torch.testing.assert_close(rows[0], outputs[0][1], atol=1e-5, rtol=0)
