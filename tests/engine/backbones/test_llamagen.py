"""The adapter of LlamaGen: against the published equations written out, its picture decoder against transformers' class, and refusals."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import JanusVQVAEConfig, T5EncoderModel
from transformers.models.janus.modeling_janus import JanusVQVAE

from engine.backbones import llamagen, llamagen_files, vqgan_names
from engine.backbones.llamagen_files import expected_shapes, size
from engine.checkpoints.reading import Shapes
from engine.core import NO_DRAFT, Prompt, Sampling
from engine.errors import MissingWeights
from engine.methods import METHODS
from engine.networks.vqgan import PictureDecoder, VQGANSettings
from engine.run import generate
from tests.engine.backbones import tiny_originals
from tests.engine.backbones.tiny_originals import llamagen_tensors, picture_decoder, save_llamagen, save_text_encoder
from tests.engine.refusals import refuses

GREEDY = Sampling(temperature=0.0, guidance=3.0)
GRID, SLOTS = 4, 6  # codes in a row; slots of a text
SIXTEEN = VQGANSettings(codes=16_384, width=8, latent=256, stages=(512, 256, 256, 128, 128))  # the published picture decoder

# --- the published equations, one row at a time ------------------------------------------------------------------------------


def rotate(x: Tensor, slots: int) -> Tensor:
    """Queries or keys [R, heads, d] with their rotary positions: numbers 2i and 2i+1 are a pair; the first `slots` rows become zero."""
    half = x.shape[-1] // 2
    frequency = 10_000.0 ** (-torch.arange(0, half, 2).float() / half)
    cells = torch.arange(len(x) - slots)
    angles = torch.cat([(cells // GRID)[:, None] * frequency, (cells % GRID)[:, None] * frequency], -1)[:, None]
    even, odd = x[slots:, :, 0::2], x[slots:, :, 1::2]
    pairs = torch.stack([even * angles.cos() - odd * angles.sin(), odd * angles.cos() + even * angles.sin()], -1)
    return torch.cat([torch.zeros_like(x[:slots]), pairs.flatten(2)])


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """Root-mean-square norm."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight


def logits(tensors: dict[str, Tensor], condition: Tensor, known: Tensor, codes: list[int]) -> Tensor:
    """Logits [V] after some codes. condition [slots, H]; known bool [slots]: slots that other slots see."""
    x, slots = torch.cat([condition, tensors["tok_embeddings.weight"][codes]]), len(condition)
    seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
    seen[:, :slots] &= known
    seen |= torch.eye(len(x), dtype=torch.bool)
    for layer in range(2):
        part = {name.removeprefix(f"layers.{layer}."): tensor for name, tensor in tensors.items()}
        q, k, v = F.linear(rms_norm(x, part["attention_norm.weight"]), part["attention.wqkv.weight"]).view(len(x), 3, 1, -1).unbind(1)
        scores = torch.einsum("rhd,shd->hrs", rotate(q, slots), rotate(k, slots)) / q.shape[-1] ** 0.5
        weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
        x = x + F.linear(torch.einsum("hrs,shd->rhd", weights, v).flatten(1), part["attention.wo.weight"])
        y = rms_norm(x, part["ffn_norm.weight"])
        gate, up = F.linear(y, part["feed_forward.w1.weight"]), F.linear(y, part["feed_forward.w3.weight"])
        x = x + F.linear(F.silu(gate) * up, part["feed_forward.w2.weight"])
    return F.linear(rms_norm(x[-1], tensors["norm.weight"]), tensors["output.weight"])


def conditions(tensors: dict[str, Tensor], prompt: Prompt) -> tuple[Tensor, Tensor]:
    """The conditions of both guidance branches [2, slots, H], and a mask of the known slots."""
    if prompt.label is not None:
        return tensors["cls_embedding.embedding_table.weight"][torch.tensor([[prompt.label], [12]])], torch.ones(1, dtype=torch.bool)
    features = tiny_originals.features(prompt.text)
    known = torch.arange(SLOTS) >= SLOTS - len(features)
    pair = torch.stack([F.pad(features, (0, 0, SLOTS - len(features), 0)), tensors["cls_embedding.uncond_embedding"]])
    inner = F.gelu(F.linear(pair, tensors["cls_embedding.cap_proj.fc1.weight"]), approximate="tanh")
    return F.linear(inner, tensors["cls_embedding.cap_proj.fc2.weight"]), known


PROMPTS = [Prompt(label=0), Prompt(label=11), Prompt(text="a"), Prompt(text="red"), Prompt(text="apples")]


@torch.inference_mode()
@pytest.mark.parametrize("prompt", PROMPTS, ids=lambda prompt: str(prompt.text or prompt.label))
def test_greedy_tokens_are_those_of_the_published_equations(prompt: Prompt) -> None:
    text = prompt.text is not None
    tensors, codes, worst = llamagen_tensors(text), [], 0.0
    pair, known = conditions(tensors, prompt)
    sequence = tiny_originals.llamagen(text).start(Prompt(text=prompt.text, label=prompt.label, sampling=GREEDY))
    for _ in range(GRID * GRID):
        both = torch.stack([logits(tensors, condition, known, codes) for condition in pair])
        worst = max(worst, float((sequence.forward(NO_DRAFT).logits[:, 0] - both).abs().max()))
        codes.append(int(torch.lerp(both[1], both[0], 3.0).argmax()))
        sequence.commit([], codes[-1])
    assert worst < 5e-5
    assert sequence.done and len(set(codes)) > 4
    run = generate(tiny_originals.llamagen(text), METHODS["ar"], Prompt(text=prompt.text, label=prompt.label, sampling=GREEDY))
    assert run.finish().tokens == codes


def test_a_class_may_be_given_as_text() -> None:
    model = tiny_originals.llamagen()
    same = [generate(model, METHODS["ar"], prompt).finish().tokens for prompt in (Prompt(label=7, seed=1), Prompt(text=" 7 ", seed=1))]
    assert same[0] == same[1]


# --- the picture decoder ------------------------------------------------------------------------------------------------------


def in_running_order(name: str, stages: int) -> str:
    """The names of Janus' decoder in transformers: taming's, with stages numbered as they run."""
    own_name = vqgan_names.taming(name, stages)
    for stage in range(stages):
        own_name = own_name.replace(f"decoder.up.{stage}.", f"decoder.UP.{stages - 1 - stage}.")
    return own_name.replace("decoder.UP", "decoder.up")


@torch.inference_mode()
def test_pictures_are_those_of_the_class_of_transformers() -> None:
    torch.manual_seed(4)
    theirs = JanusVQVAE(
        JanusVQVAEConfig(
            embed_dim=8, num_embeddings=48, latent_channels=32, base_channels=32, channel_multiplier=[1, 2, 2], num_res_blocks=1,
            projection_dim=32, image_token_embed_dim=32, num_patches=4,
        )
    ).eval()  # fmt: skip
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=1.2 / p[0].numel() ** 0.5 if p.ndim > 1 else 0.3)
    settings = VQGANSettings(48, 8, 32, (64, 64, 32), blocks=2)
    ours = PictureDecoder(settings).eval()
    known = theirs.state_dict()
    ours.load_state_dict({name: known[in_running_order(name, 3)] for name in ours.state_dict()})
    codes = torch.randint(48, (4, 4))
    expected = theirs.decode(codes.view(1, -1))[0]  # [H, W, 3] or [3, H, W]
    expected = expected if expected.shape[-1] == 3 else expected.permute(1, 2, 0)
    pixels = ours(codes)
    assert pixels.shape == (16, 16, 3) and pixels.std() > 0.1
    torch.testing.assert_close(pixels, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.codebook()[codes.flatten()], theirs.quantize.get_codebook_entry(codes.view(1, -1))[0].flatten(1).T)


@pytest.mark.parametrize("form", [vqgan_names.llamagen, vqgan_names.taming])
def test_a_decoder_is_found_by_the_names_of_either_form(form: vqgan_names.Form) -> None:
    held = tiny_originals.Held(tiny_originals.decoder_tensors(form))
    decoder = vqgan_names.read_decoder(held, vqgan_names.configure(held.shapes, form, True), form)
    codes = torch.arange(12).view(3, 4)
    with torch.inference_mode():
        assert torch.equal(decoder(codes), picture_decoder()(codes))


def test_names_of_published_decoders() -> None:
    shapes = vqgan_names.expected_shapes(SIXTEEN, vqgan_names.llamagen)
    assert shapes["decoder.conv_blocks.0.attn.2.proj_out.weight"] == (512, 512, 1, 1)
    assert shapes["decoder.conv_blocks.1.res.0.nin_shortcut.weight"] == (256, 512, 1, 1)
    assert shapes["decoder.conv_blocks.3.upsample.conv.bias"] == (128,) and "decoder.conv_blocks.4.upsample.conv.bias" not in shapes
    assert shapes["decoder.mid.1.q.weight"] == (512, 512, 1, 1) and shapes["post_quant_conv.weight"] == (256, 8, 1, 1)
    meta = vqgan_names.expected_shapes(replace(SIXTEEN, attentive=False, width=256, codes=8192, normalised=False), vqgan_names.taming)
    assert meta["decoder.up.4.block.2.conv2.weight"] == (512, 512, 3, 3) and meta["decoder.up.0.block.0.norm1.bias"] == (128,)
    assert meta["decoder.mid.attn_1.k.bias"] == (512,) and not any(".up.4.attn" in name for name in meta)


# --- files ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny decoder makes two pixels of a code, so 256 pixels would be 16,384 codes."""
    monkeypatch.setattr(llamagen, "side_of", lambda path: tiny_originals.SIDE)


def test_the_side_is_in_a_name(tmp_path: Path) -> None:
    for name, side in (("c2i_L_384.pt", 384), ("t2i_XL_stage2_512.pt", 512), ("c2i_B_256.safetensors", 256)):
        folder = tmp_path / str(side)
        folder.mkdir()
        (folder / name).touch()
        assert llamagen.side_of(folder) == llamagen.side_of(folder / name) == side
        (folder / name).rename(folder / "model.pt")
        assert llamagen.side_of(folder) == side  # of the folder's name
    (tmp_path / "unnamed").mkdir()
    (tmp_path / "unnamed" / "card.json").write_text('{"name": "llamagen", "source": {"c2i_L_384.pt": [1, 2]}}')
    assert llamagen.side_of(tmp_path / "unnamed") == 384  # imported from there
    (tmp_path / "unnamed" / "card.json").write_text('{"name": "llamagen"}')
    with refuses(MissingWeights, "how large"):
        llamagen.side_of(tmp_path / "unnamed")


@pytest.mark.usefixtures("small")
def test_an_encoder_of_another_width_is_refused(tmp_path: Path) -> None:
    folder = save_llamagen(tmp_path / "own", text=True)
    shutil.rmtree(folder / "flan-t5-xl")
    save_text_encoder(folder / "t5", width=12)
    with refuses(MissingWeights, "width of 12"):
        llamagen.load(str(folder))


PUBLISHED = {  # dimension, layers, feed-forward, parameters in millions with the picture decoder
    "B": (768, 12, 2048, 111), "L": (1024, 24, 2816, 343), "XL": (1280, 36, 3584, 775), "XXL": (1536, 48, 4096, 1411),
    "3B": (3200, 24, 8704, 3100),
}  # fmt: skip


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_published_sizes(name: str) -> None:
    width, layers, inner, millions = PUBLISHED[name]
    config = {"vocabulary": 16_384, "width": width, "layers": layers, "inner": inner, "classes": 1001, "text": [0, 0], "picture": SIXTEEN}
    shapes: Shapes = expected_shapes(config)
    assert llamagen.configure(shapes) == config
    counted = size(config)
    assert abs(counted.parameters / 1e6 - 42 - millions) < 0.03 * millions  # the picture decoder has 42 million
    assert counted.heads * counted.width == width and counted.width in (64, 100)


@pytest.mark.usefixtures("small")
def test_the_memory_of_a_text_model_counts_its_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_llamagen(tmp_path / "own", text=True)
    encoder = llamagen_files.encoder_folder(folder)
    numbers = sum(p.numel() for p in T5EncoderModel.from_pretrained(encoder).parameters())
    checked: list[int] = []
    monkeypatch.setattr(llamagen.memory, "check", lambda name, size, *rest, **options: checked.append(size.parameters))
    llamagen.load(str(folder), dtype="float32")
    assert llamagen_files.encoder_numbers(encoder) == numbers > 0
    assert checked[0] - numbers == size(llamagen.configure({n: tuple(t.shape) for n, t in llamagen_tensors(True).items()})).parameters
