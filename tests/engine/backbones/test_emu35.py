"""The Emu3.5 adapter against Qwen3ForCausalLM's own loop, its files, and the folders it must refuse, on tiny random models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.models.janus.configuration_janus import JanusVQVAEConfig
from transformers.models.janus.modeling_janus import JanusVQVAEDecoder

from engine.backbones import emu35 as adapter
from engine.backbones.emu35 import Ids, read_picture_decoder
from engine.backbones.tiktoken_file import read_tiktoken
from engine.checkpoints import families
from tests.engine.backbones import tiny_checkpoints as tiny
from tests.engine.backbones.adapters import FOLDERS, emu35_decoder, tiktoken_table


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as BAAI's."""
    FOLDERS["emu35"].write(tmp_path, monkeypatch)
    return tmp_path


class Original(nn.Module):
    """The decoder of VQGAN that transformers has as part of Janus. It numbers stages in the order in which they run."""

    def __init__(self, tensors: dict[str, torch.Tensor]):
        super().__init__()
        self.post_quant_conv = nn.Conv2d(8, 32, 1)
        self.decoder = JanusVQVAEDecoder(
            JanusVQVAEConfig(latent_channels=32, base_channels=32, channel_multiplier=[1, 2], num_res_blocks=1)
        )
        swapped = {"decoder.up.0.": "decoder.up.1.", "decoder.up.1.": "decoder.up.0."}
        self.book = tensors["quantize.embedding.weight"]
        self.load_state_dict(
            {
                swapped.get(name[:13], name[:13]) + name[13:]: tensor
                for name, tensor in tensors.items()
                if name.startswith(("post_quant_conv.", "decoder."))
            }
        )

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.post_quant_conv(self.book[codes].permute(2, 0, 1)[None]))[0].permute(1, 2, 0)


def test_the_published_decoder_is_read_stage_by_stage(folder: Path) -> None:
    codes = torch.arange(16).view(4, 4)
    with torch.inference_mode():
        found, original = read_picture_decoder(folder)(codes), Original(emu35_decoder(tiny.ibq())).eval()(codes)
    torch.testing.assert_close(found, original, atol=1e-5, rtol=0)
    assert original.std() > 0.05


def test_a_decoder_beside_the_weights_is_found(folder: Path) -> None:
    """Where an import writes it."""
    (folder / "vision_tokenizer" / "model.safetensors").rename(folder / "pictures.safetensors")
    codes = torch.arange(16).view(4, 4)
    torch.testing.assert_close(read_picture_decoder(folder)(codes), tiny.ibq()(codes), atol=0, rtol=0)


def test_merges_follow_the_ranks(tmp_path: Path) -> None:
    """The lowest rank first, also where a token can be split in several ways, and never across words."""
    (tmp_path / "a.tiktoken").write_bytes(tiktoken_table(b"bc", b"ab", b"abc", b"abcd", b" a"))
    read = read_tiktoken(tmp_path / "a.tiktoken")
    assert read("abc") == [258]  # b c first, then a bc
    assert read("ab abcd") == [257, 32, 259]  # " a" has a higher rank than what is made of "abcd"
    assert read("abcd") == [259]
    assert read("é") == list("é".encode())


def test_ids_of_the_checkpoint_are_its_own() -> None:
    assert replace(adapter.IDS) == Ids(151_846, 151_849, 151_746, 151_852, 151_851, 151_854)
    assert adapter.IDS.first_code + adapter.CODES == families.EMU35_WORDS
