"""The adapters on the published configurations, without memory: sizes, vocabularies and numbers of weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import (
    Emu3Config,
    Emu3ForConditionalGeneration,
    JanusConfig,
    JanusForConditionalGeneration,
    JanusVQVAEConfig,
    LlamaConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from engine.backbones import checkpoint_files
from engine.backbones.checkpoint_files import check_room, cut_numbers, linear_numbers
from engine.backbones.emu3 import ROW_END, Emu3
from engine.backbones.emu35 import CODES, IDS, Emu35
from engine.backbones.janus import Janus
from engine.checkpoints.families import ADAPTED
from engine.core import Prompt
from engine.layout import Raster
from engine.memory import Size, need
from engine.networks.hosted import head_width
from engine.networks.vqgan import PictureDecoder, VQGANSettings

JANUS = {"1B": (2048, 5632, 24, 16), "7B": (4096, 11_008, 30, 32)}  # width, inner width, layers, heads


def janus(name: str) -> Janus:
    """A published Janus-Pro of the meta device."""
    width, inner, layers, heads = JANUS[name]
    text = LlamaConfig(
        vocab_size=102_400, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=heads, max_position_embeddings=16_384,
    )  # fmt: skip
    config = JanusConfig(text_config=text, vq_config=JanusVQVAEConfig(num_patches=24, projection_dim=width, image_token_embed_dim=width))
    config.vision_config.projection_dim = width
    with torch.device("meta"):
        model = JanusForConditionalGeneration(config).to(torch.bfloat16)
    settings = model.generation_config
    settings.bos_token_id, settings.pad_token_id, settings.generation_kwargs = 0, 1, {"boi_token_id": 2}
    return Janus(model, lambda text: [0, 3, 2])


def emu3() -> Emu3:
    """Emu3-Gen of the meta device: the defaults of its class."""
    names = {f"<|visual token {code:06d}|>": 151_854 + code for code in range(32_768)} | {ROW_END: 151_846}
    with torch.device("meta"):
        model = Emu3ForConditionalGeneration(Emu3Config(vocabulary_map=names)).to(torch.bfloat16)
    return Emu3(model, lambda text, layout: [0])


def emu35() -> Emu35:
    """Emu3.5-Image of the meta device: Qwen3 of 32B with a larger vocabulary."""
    config = Qwen3Config(
        vocab_size=IDS.first_code + CODES, hidden_size=5120, intermediate_size=25_600, num_hidden_layers=64, num_attention_heads=64,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=32_768,
    )  # fmt: skip
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
        pictures = PictureDecoder(VQGANSettings(CODES, 256, 256, (1024, 512, 512, 256, 256), blocks=5, normalised=False))
    return Emu35(model, pictures, lambda text: [0])


@pytest.mark.parametrize(
    ("make", "layout", "vocabulary", "billions", "gigabytes"),
    [
        (lambda: janus("1B"), Raster(24, 24, 16), 16_384, 1.87, 4.86), (lambda: janus("7B"), Raster(24, 24, 16), 16_384, 6.99, 16.0),
        (emu3, Raster(90, 90, 8), 32_768, 8.76, 22.2), (emu35, Raster(64, 64, 16), 131_072, 34.37, 75.9),
    ],
    ids=["janus 1B", "janus 7B", "emu3", "emu35"],
)  # fmt: skip
def test_a_published_configuration_fits_its_adapter(make, layout: Raster, vocabulary: int, billions: float, gigabytes: float) -> None:
    backbone = make()
    assert backbone.layout == layout and backbone.vocabulary == vocabulary and backbone.dtype == "bfloat16"
    assert backbone.sizes == [layout.rows * layout.factor]
    assert backbone.parameters / 1e9 == pytest.approx(billions, abs=0.1)
    config, codes = backbone.hosted.decoder.config, layout.rows * layout.columns
    size = Size(
        backbone.parameters, config.num_hidden_layers, config.num_key_value_heads, head_width(config), codes + 512, vocabulary,
        codes * layout.factor**2,
    )  # fmt: skip
    assert need(size, "bfloat16").total / 1e9 == pytest.approx(gigabytes, rel=0.03)
    if backbone.hosted.row_end is None:  # row ends cannot be read without memory
        sequence = backbone.start(Prompt(text="a red apple"))  # allocates nothing; shapes must fit
        assert sequence.limit == codes


@pytest.mark.parametrize(("form", "gigabytes"), [("full", 20.9), ("int8", 14.2), ("nf4", 10.9)])
def test_emu3_fits_a_card_of_12_gb_in_nf4(form: str, gigabytes: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The linear layers are counted as the model has them; a card of 12 GiB has about 12.1 GB free."""
    backbone = emu3()
    text, codes, needs = backbone.hosted.decoder.config, 32_768, []
    layers = [layer for layer in backbone.hosted.decoder.modules() if isinstance(layer, nn.Linear)]
    assert linear_numbers(text) == sum(layer.weight.numel() for layer in layers)

    def keep(name: str, size: Size, device: str, dtype: str, weights: str) -> None:
        needs.append(need(size, dtype, weights=weights))

    monkeypatch.setattr(checkpoint_files, "check", keep)
    numbers = 8_764_000_000 - cut_numbers(text, codes)
    check_room(ADAPTED["emu3"], numbers, text, Raster(90, 90, 8), codes, "cpu", torch.bfloat16, form)
    assert needs[0].total / 1e9 == pytest.approx(gigabytes, abs=0.1) and (needs[0].total < 12.1e9) == (form == "nf4")
