"""The Emu3.5 adapter against Qwen3ForCausalLM's own loop, its files, and the folders it must refuse, on tiny random models."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers.models.janus.configuration_janus import JanusVQVAEConfig
from transformers.models.janus.modeling_janus import JanusVQVAEDecoder

from engine.backbones import emu35 as adapter
from engine.backbones.emu35 import Ids, load, qwen3_config, read_picture_decoder
from engine.backbones.tiktoken_file import read_tiktoken
from engine.backbones.vqgan_names import taming
from engine.checkpoints import families
from engine.core import Draft, Prompt, Sampling
from engine.errors import BadFile, MissingWeights, NotSupported
from engine.kernels.cpu.packed_linear import can_pack
from engine.machine import has_fast_bfloat16
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny_checkpoints as tiny

SIDE = 4
PROMPTS = ("red apple", "a", "two cats")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A model that keeps its own attention and its whole head."""
    return tiny.emu35_model()


def own_tokens(model: nn.Module, text: str, guidance: float) -> list[int]:
    """The codes of transformers' loop."""
    conditional, negative = (torch.tensor([ids]) for ids in tiny.emu35().rows(text, tiny.emu35().layout))
    start = conditional.shape[1]

    def legal(batch: int, sequence: torch.Tensor) -> list[int]:
        last = (len(sequence) - start) % (SIDE + 1) == SIDE
        return [tiny.ROW] if last else list(range(tiny.FIRST_CODE, tiny.FIRST_CODE + tiny.CODES))

    found = model.generate(
        conditional, attention_mask=torch.ones_like(conditional), do_sample=False, max_new_tokens=SIDE * (SIDE + 1) - 1,
        guidance_scale=guidance, negative_prompt_ids=negative, negative_prompt_attention_mask=torch.ones_like(negative),
        prefix_allowed_tokens_fn=legal, eos_token_id=None,
    )[0, start:].tolist()  # fmt: skip
    return [i - tiny.FIRST_CODE for place, i in enumerate(found) if place % (SIDE + 1) < SIDE]


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("guidance", [2.0, 5.0])
def test_greedy_tokens_are_those_of_the_class(model: nn.Module, text: str, guidance: float) -> None:
    prompt = Prompt(text=text, sampling=Sampling(temperature=0.0, guidance=guidance))
    run = generate(tiny.emu35(), METHODS["ar"], prompt).finish()
    assert run.tokens == own_tokens(model, text, guidance)
    assert len(set(run.tokens)) > 2
    assert run.totals["forwards"] == SIDE * SIDE


def test_prompts_and_guidance_matter(model: nn.Module) -> None:
    """Otherwise the comparison above could not fail."""
    assert len({tuple(own_tokens(model, text, guidance)) for text in PROMPTS for guidance in (2.0, 5.0)}) == 6


def test_logits_are_those_of_the_class(model: nn.Module) -> None:
    backbone = tiny.emu35()
    chain = [(5 * i + 2) % tiny.CODES for i in range(7)]
    with torch.inference_mode():
        found = backbone.start(Prompt(text="red apple")).forward(Draft(torch.tensor(chain))).logits
    ids = [tiny.FIRST_CODE + code for code in chain]
    for branch, prompt in enumerate(backbone.rows("red apple", backbone.layout)):
        flat = torch.tensor([[*prompt, *ids[:4], tiny.ROW, *ids[4:]]])
        expected = model(flat).logits[0, len(prompt) - 1 :, tiny.FIRST_CODE : tiny.FIRST_CODE + tiny.CODES]
        torch.testing.assert_close(found[branch], expected[[0, 1, 2, 3, 5, 6, 7, 8]], atol=1e-5, rtol=0)


@pytest.mark.parametrize("method", ["jacobi", "sjd", "sjdpp"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str) -> None:
    prompt = Prompt(text="red apple", seed=7, sampling=Sampling(1.0, 12, 0.95, 3.0))
    plain = generate(tiny.emu35(), METHODS["ar"], prompt).finish()
    run = generate(tiny.emu35(), METHODS[method], prompt, {"window": 6, "verify": "match seed"}).finish()
    assert run.tokens == plain.tokens
    assert run.totals["forwards"] <= plain.totals["forwards"]


# --- files ------------------------------------------------------------------------------------------------------------


def published(decoder: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a decoder by their published names, and one of the encoder."""
    named = {taming(name, 2): tensor.contiguous() for name, tensor in decoder.state_dict().items()}
    return named | {"encoder.conv_in.weight": torch.zeros(3)}


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


def table(*tokens: bytes) -> bytes:
    """A .tiktoken file: all bytes, then some tokens."""
    entries = [*(bytes([i]) for i in range(256)), *tokens]
    return b"\n".join(base64.b64encode(token) + b" " + str(rank).encode() for rank, token in enumerate(entries))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as BAAI's, with tiny numbers; the vocabulary is that of the tiny model plus the bytes of its tokenizer."""
    base = 300
    ids = Ids(row_end=260, begin=261, answer=262, image=263, codes_follow=264, first_code=base)
    monkeypatch.setattr(adapter, "IDS", ids)
    monkeypatch.setattr(adapter, "CODES", tiny.CODES)
    monkeypatch.setattr(families, "EMU35_WORDS", base + tiny.CODES)
    monkeypatch.setattr(adapter, "SIDE", SIDE)
    torch.manual_seed(8)
    config = tiny.emu35_model().config
    config.vocab_size = base + tiny.CODES
    whole = type(tiny.emu35_model())(config)
    whole.save_pretrained(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    written["model_type"], written["rope_theta"] = "Emu3", 1e6  # BAAI's form
    written["max_position_embeddings"] = 5000
    (tmp_path / "config.json").write_text(json.dumps(written))
    (tmp_path / "emu3.tiktoken").write_bytes(table(b"re", b"red"))
    (tmp_path / "vision_tokenizer").mkdir()
    save_file(published(tiny.ibq()), tmp_path / "vision_tokenizer" / "model.safetensors")
    return tmp_path


def test_a_folder_of_the_publisher_loads_and_draws(folder: Path) -> None:
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Emu3.5\n")
    loaded = load(str(folder), dtype="float32")
    assert loaded.read("red re") == [257, 32, 256]
    prompt = Prompt(text="red", sampling=Sampling(temperature=0.0, guidance=2.0))
    tokens = generate(loaded, METHODS["sjdpp"], prompt, {"window": 4, "verify": "match seed"}).finish().tokens
    assert tokens == generate(loaded, METHODS["ar"], prompt).finish().tokens
    picture = loaded.render(tokens, list(range(16)), True)
    assert picture.shape == (8, 8, 3) and picture.std() > 1
    assert loaded.card["licence"] == "apache-2.0"


@pytest.mark.skipif(not (has_fast_bfloat16() and can_pack(torch.bfloat16)), reason="this CPU has no products in bfloat16")
def test_match_seed_holds_in_bfloat16(folder: Path) -> None:
    loaded = load(str(folder))
    assert loaded.dtype == "bfloat16"
    for seed in range(4):
        prompt = Prompt(text="red", seed=seed, sampling=Sampling(1.0, 20, 0.95, 3.0))
        plain = generate(loaded, METHODS["ar"], prompt).finish()
        run = generate(loaded, METHODS["sjdpp"], prompt, {"window": 7, "verify": "match seed"}).finish()
        assert run.tokens == plain.tokens


def test_the_published_decoder_is_read_stage_by_stage(folder: Path) -> None:
    codes = torch.arange(16).view(4, 4)
    with torch.inference_mode():
        found, original = read_picture_decoder(folder)(codes), Original(published(tiny.ibq())).eval()(codes)
    torch.testing.assert_close(found, original, atol=1e-5, rtol=0)
    assert original.std() > 0.05


def test_a_decoder_beside_the_weights_is_found(folder: Path) -> None:
    """Where an import writes it."""
    (folder / "vision_tokenizer" / "model.safetensors").rename(folder / "pictures.safetensors")
    codes = torch.arange(16).view(4, 4)
    torch.testing.assert_close(read_picture_decoder(folder)(codes), tiny.ibq()(codes), atol=0, rtol=0)


def test_a_decoder_with_a_gap_is_refused(folder: Path) -> None:
    tensors = published(tiny.ibq())
    del tensors["decoder.mid.attn_1.q.weight"]
    save_file(tensors, folder / "vision_tokenizer" / "model.safetensors")
    with pytest.raises(MissingWeights, match=r"attn_1\.q\.weight"):
        load(str(folder))


@pytest.mark.parametrize("name", ["emu3.tiktoken", "vision_tokenizer/model.safetensors", "model.safetensors"])
def test_an_absent_file_is_refused(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(MissingWeights) as caught:
        load(str(folder))
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


def test_a_truncated_picture_tokenizer_is_refused(folder: Path) -> None:
    path = folder / "vision_tokenizer" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadFile, match=r"model\.safetensors cannot be read"):
        load(str(folder))


def test_a_text_model_is_refused(folder: Path) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | {"model_type": "qwen3", "vocab_size": 151_936}))
    with pytest.raises(NotSupported, match="writes text and makes no pictures"):
        load(str(folder))


@pytest.mark.parametrize("change", [{"hidden_size": "wide"}, {"rope_theta": None, "rope_parameters": None}, {"num_hidden_layers": None}])
def test_a_wrong_configuration_is_refused(folder: Path, change: dict[str, object]) -> None:
    written = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(written | change))
    with pytest.raises(MissingWeights):
        qwen3_config(folder)


@pytest.mark.parametrize("content", [b"no base64!! 0", b"", table()[:200]])
def test_a_damaged_tokenizer_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "emu3.tiktoken").write_bytes(content)
    with pytest.raises(MissingWeights, match="damaged"):
        read_tiktoken(tmp_path / "emu3.tiktoken")


def test_merges_follow_the_ranks(tmp_path: Path) -> None:
    """The lowest rank first, also where a token can be split in several ways, and never across words."""
    (tmp_path / "a.tiktoken").write_bytes(table(b"bc", b"ab", b"abc", b"abcd", b" a"))
    read = read_tiktoken(tmp_path / "a.tiktoken")
    assert read("abc") == [258]  # b c first, then a bc
    assert read("ab abcd") == [257, 32, 259]  # " a" has a higher rank than what is made of "abcd"
    assert read("abcd") == [259]
    assert read("é") == list("é".encode())


def test_ids_of_the_checkpoint_are_its_own() -> None:
    assert replace(adapter.IDS) == Ids(151_846, 151_849, 151_746, 151_852, 151_851, 151_854)
    assert adapter.IDS.first_code + adapter.CODES == families.EMU35_WORDS
