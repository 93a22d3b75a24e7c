"""Memory estimates against real allocations, and the error messages for models that do not fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine import memory
from engine.core import Prompt
from engine.errors import TooLittleMemory
from engine.memory import Size, check, free, need, of_container, size_text
from engine.networks.hosted import DRAFT_ROWS
from engine.networks.hosted_attention import whole_blocks
from engine.noise.kernel import KEPT
from tests.engine.backbones import tiny

SEVEN = Size(parameters=7_400_000_000, layers=30, heads=32, width=128, slots=1300, vocabulary=16_384, pixels=384**2)


def size_of_tiny() -> Size:
    """The size of the tiny Janus with a prompt of five letters."""
    model = tiny.janus().model
    config = model.config.text_config
    slots = whole_blocks(len(tiny.janus_ids("apple")) + 16 + DRAFT_ROWS, model.device)
    numbers = sum(p.numel() for p in model.parameters())
    return Size(numbers, config.num_hidden_layers, config.num_key_value_heads, config.head_dim, slots, 48)


def test_the_cache_is_what_a_run_allocates() -> None:
    sequence = tiny.janus().start(Prompt(text="apple"))
    assert need(size_of_tiny(), "float32").cache == sequence.kv_cache.block.nbytes
    sequence.close()


def test_a_gpu_holds_whole_blocks_of_rows() -> None:
    counts = [check("janus", replace(SEVEN, slots=slots), device, "float32", room=10**12).cache for device, slots in (
        ("cuda", 1300), ("cuda", 1536), ("cpu", 1300),
    )]  # fmt: skip
    assert counts[0] == counts[1] > counts[2]


def test_the_weights_are_what_the_model_holds() -> None:
    model = tiny.janus().model
    assert need(size_of_tiny(), "float32").weights == sum(p.nbytes for p in model.parameters())


def test_a_wider_window_needs_more_and_a_half_dtype_half_the_cache() -> None:
    assert need(SEVEN, "bfloat16", window=64).passes == pytest.approx(need(SEVEN, "bfloat16", window=32).passes * 65 / 33)
    assert 2 * need(SEVEN, "bfloat16").cache == need(SEVEN, "float32").cache
    assert 2 * need(replace(SEVEN, branches=1), "float32").cache == need(SEVEN, "float32").cache


def test_what_fits_is_not_refused() -> None:
    wanted = need(SEVEN, "float32")
    assert check("janus", SEVEN, "cpu", "float32", room=wanted.total) == wanted


@pytest.mark.parametrize(
    ("room", "advice"),
    [
        (32e9, "Use --dtype bfloat16: that needs 16.8 GB."),
        (16.3e9, "Use --dtype bfloat16 with guidance 1: that needs 16.1 GB."),
        (10e9, "at most 4.3 billion parameters."),
        (0.9e9, "in bfloat16; free some memory."),
    ],
)
def test_the_refusal_says_what_would_fit(room: float, advice: str) -> None:
    with pytest.raises(TooLittleMemory) as caught:
        check("janus", SEVEN, "cpu", "float32", room=int(room))
    text = str(caught.value)
    assert text.endswith(advice) and "janus needs 32.9 GB in float32" in text and size_text(int(room)) in text


@pytest.mark.parametrize(
    ("room", "weights", "advice"),
    [
        (33e9, "full", None), (16e9, "full", "Use --weights int8: that needs 13.8 GB."),
        (23e9, "full", "Use --dtype bfloat16: that needs 16.8 GB."),
        (13e9, "full", "Use --dtype bfloat16 --weights int8: that needs 10.5 GB."),
        (9e9, "int8", "Use --dtype bfloat16 --weights nf4: that needs 7.5 GB."),
        (3e9, "nf4", "in bfloat16 with nf4 weights and guidance 1; free some memory."),
    ],
)  # fmt: skip
def test_a_refusal_names_smaller_weights_where_they_can_be_compressed(room: float, weights: str, advice: str | None) -> None:
    size = replace(SEVEN, linear=6_500_000_000)
    if advice is None:
        assert check("janus", size, "cpu", "float32", room=int(room), weights=weights).total < room
        return
    with pytest.raises(TooLittleMemory) as caught:
        check("janus", size, "cpu", "float32", room=int(room), weights=weights)
    assert str(caught.value).endswith(advice) and ("with int8 weights" in str(caught.value)) == (weights == "int8")


def test_what_is_advised_fits() -> None:
    """The checkpoint size that a refusal names must pass the same check."""
    other = replace(SEVEN, parameters=4_320_000_000, branches=1)
    assert check("janus", other, "cpu", "bfloat16", room=int(10e9)).total <= 10e9


def test_a_limit_of_a_container_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("8000\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 3000\ninactive_file 1500\n")
    assert list(of_container(tmp_path)) == [4500]
    (tmp_path / "memory.max").write_text("max\n")
    assert list(of_container(tmp_path)) == []
    assert list(of_container(tmp_path / "nowhere")) == []


def test_free_memory_of_this_machine_is_known_or_none() -> None:
    room = free("cpu")
    assert room is None or room > 2**20
    assert free(torch.device("meta")) is None


def test_the_noise_counts_up_to_what_a_run_keeps() -> None:
    assert need(replace(SEVEN, slots=100), "float32").noise == 100 * 16_384 * 4
    assert need(replace(SEVEN, vocabulary=131_072, slots=4600), "float32").noise == KEPT < 131_072 * 4600 * 4


def test_what_pytorch_holds_for_reuse_on_a_gpu_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, result in {"mem_get_info": (30, 80), "memory_reserved": 40, "memory_allocated": 25}.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, result=result: result)
    assert free("cuda") == 45


@pytest.mark.parametrize(("cards", "says"), [(1, False), (2, False), (4, True)])
def test_cards_that_have_room_together_are_mentioned(cards: int, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of 34 billion numbers on cards of 24 GB."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: cards)
    monkeypatch.setattr(memory, "free", lambda device: 24 * 10**9)
    with pytest.raises(TooLittleMemory) as refusal:
        check("emu35", Size(34 * 10**9, 64, 8, 128, 4096, 131072), "cuda", "bfloat16")
    assert (f"The {cards} graphics cards together have enough, but a model runs on one" in str(refusal.value)) == says
