"""The Emu3.5 adapter against Qwen3ForCausalLM's own loop, its files, and the folders it must refuse, on tiny random models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.backbones import emu35 as adapter
from engine.backbones.emu35 import SpecialIds, read_picture_decoder
from engine.backbones.tiktoken_file import read_tiktoken
from engine.checkpoints import families
from tests.engine.backbones import tiny_checkpoints as tiny
from tests.engine.backbones.adapters import FOLDERS, tiktoken_table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in BAAI's form."""
    FOLDERS["emu35"].write(tmp_path, monkeypatch)
    return tmp_path


def test_a_decoder_beside_the_weights_is_found(folder: Path) -> None:
    """In BAAI's place and in an import's. Its tensor names are tested in test_llamagen.py."""
    assert torch.equal(read_picture_decoder(folder)(torch.arange(16).view(4, 4)), tiny.ibq()(torch.arange(16).view(4, 4)))
    (folder / "vision_tokenizer" / "model.safetensors").rename(folder / "pictures.safetensors")
    codes = torch.arange(16).view(4, 4)
    torch.testing.assert_close(read_picture_decoder(folder)(codes), tiny.ibq()(codes), atol=0, rtol=0)


def test_merges_follow_the_ranks(tmp_path: Path) -> None:
    """The lowest rank first, also where a token can be split in several ways, and never across words."""
    (tmp_path / "a.tiktoken").write_bytes(tiktoken_table(b"bc", b"ab", b"abc", b"abcd", b" a"))
    read = read_tiktoken(tmp_path / "a.tiktoken")
    assert read("abc") == [258]  # b c first, then a bc
    assert read("ab abcd") == [257, 32, 259]  # " a" has a higher rank than the merges of "abcd"
    assert read("abcd") == [259]
    assert read("é") == list("é".encode())


def test_ids_of_the_checkpoint_are_its_own() -> None:
    assert replace(adapter.IDS) == SpecialIds(151_846, 151_849, 151_746, 151_852, 151_851, 151_854)
    assert adapter.IDS.first_code + adapter.CODES == families.EMU35_WORDS
