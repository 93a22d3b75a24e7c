"""The adapter of Anole and Lumina-mGPT: against transformers' own generate with guidance, and the folders it must refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine.backbones import chameleon
from engine.backbones.chameleon import BEGIN, KINDS, ROW_END, TURN, codes_of, kind_of, layouts_of, size_word
from engine.core import Sampling
from engine.errors import MissingWeights, NotSupported
from engine.networks.vqgan import PictureDecoder, VQGANSettings
from tests.engine.backbones import tiny_chameleon as tiny
from tests.engine.backbones.tiny_originals import CODES
from tests.engine.refusals import refuses

GREEDY = Sampling(temperature=0.0, guidance=3.0)


def test_prompts_are_those_of_the_authors_scripts() -> None:
    names = {i: word for word, i in tiny.words().items()}
    anole = [[names[i] for i in row] for row in tiny.chameleon("anole").rows("ab", tiny.chameleon("anole").layout)]
    assert anole == [["<s>", "a", "b", TURN, BEGIN], ["<s>", BEGIN]]
    lumina, seen = tiny.chameleon("lumina"), []
    lumina = chameleon.Chameleon(
        lumina.hosted.decoder, lumina.head[0], lumina.picture, lumina.kind, list(range(CODES)), tiny.words(),
        lambda text: seen.append(text) or [9], tiny.BOS,
    )  # fmt: skip
    rows = [[names[i] for i in row] for row in lumina.rows("a red cat", lumina.layout)]
    mark = [BEGIN, size_word(8), size_word(8)]
    assert rows == [["<s>", names[9], TURN, *mark], mark]
    assert seen == ["Generate an image of 8x8 according to the following prompt:\na red cat"]
    assert size_word(768) == "<reserved08824>"


def test_sizes_depend_on_the_positions() -> None:
    assert list(layouts_of(KINDS["lumina"], 16, 10_240)) == [768, 512, 1024]
    assert list(layouts_of(KINDS["lumina"], 16, 4096)) == [768, 512]
    grid = layouts_of(KINDS["lumina2"], 8, 10_240)[768]
    assert (grid.rows, grid.columns, grid.factor) == (96, 96, 8)
    assert list(layouts_of(KINDS["anole"], 16, 4096)) == [512]
    with refuses(MissingWeights, "128 positions"):
        layouts_of(KINDS["anole"], 16, 128)


def test_the_kind_is_in_the_configuration() -> None:
    assert kind_of({"vocab_size": 65_536}) == "anole"
    assert kind_of({"vocab_size": 65_536, "mask_image_logits": False}) == "lumina"
    assert kind_of({"vocab_size": 65_536, "architectures": ["ChameleonXLLMXForConditionalGeneration"]}) == "lumina"
    assert kind_of({"vocab_size": 171_385, "mask_image_logits": False}) == "lumina2"


def test_codes_of_the_second_lumina_follow_one_another() -> None:
    with torch.device("meta"):
        picture = PictureDecoder(VQGANSettings(16_384, 4, 4, (32, 32), 1, False, False, True))
    words = {word: i for i, word in enumerate([TURN, BEGIN, ROW_END, *map(size_word, (512, 768, 1024))])}
    codes = codes_of(words, picture, KINDS["lumina2"])
    assert codes[0] == 155_000 and codes[-1] == 171_383
    with refuses(NotSupported, "reserved08799"):
        codes_of({word: i for word, i in words.items() if word != ROW_END}, picture, KINDS["lumina2"])
    with refuses(NotSupported, "0 codes"):
        codes_of(words, picture, KINDS["anole"])


@torch.inference_mode()
def test_norms_of_the_second_lumina_look_at_the_codes() -> None:
    """Every norm is scaled and shifted, because scale 1 and shift 0 would not depend on the codes."""
    torch.manual_seed(1)
    plain, placed = (PictureDecoder(VQGANSettings(CODES, 4, 4, (32, 32), 1, True, False, where)).eval() for where in (False, True))
    tensors = {}
    for name in placed.state_dict():
        if ".scale." in name or ".shift." in name:
            tensors[name] = torch.full_like(placed.state_dict()[name], float(name.endswith("scale.bias")))
        else:
            tensors[name] = plain.state_dict()[name.replace(".base.", ".")]
    placed.load_state_dict(tensors)
    codes = torch.arange(12).view(3, 4)
    torch.testing.assert_close(placed(codes), plain(codes))
    tensors["norm.shift.weight"][0, 0] = 1.0
    placed.load_state_dict(tensors)
    assert (placed(codes) - plain(codes)).abs().max() > 1e-3


# --- files ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that make pictures of 8 pixels."""
    monkeypatch.setattr(chameleon, "KINDS", {name: tiny.kind(name) for name in KINDS})


@pytest.mark.usefixtures("small")
def test_the_picture_decoder_may_lie_elsewhere(tmp_path: Path) -> None:
    folder = tiny.save(tmp_path / "own")
    expected = chameleon.load(str(folder), dtype="float32").decode(torch.zeros(2, 2, dtype=torch.int64))
    (folder / "vqgan.ckpt").unlink()
    (folder / "tokenizer").mkdir()
    tiny.save_decoder(folder / "tokenizer" / "vqgan.safetensors")
    assert torch.equal(chameleon.load(str(folder), dtype="float32").decode(torch.zeros(2, 2, dtype=torch.int64)), expected)
    (folder / "tokenizer" / "vqgan.safetensors").rename(folder / "picture.safetensors")
    assert torch.equal(chameleon.load(str(folder), dtype="float32").decode(torch.zeros(2, 2, dtype=torch.int64)), expected)
