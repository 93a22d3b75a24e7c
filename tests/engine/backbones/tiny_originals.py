"""Tiny random checkpoints in their authors' form: tensors by published names, saved like the published files."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast, T5Config, T5EncoderModel

from engine.backbones import bpt, llamagen_files, vqgan_names
from engine.backbones.bpt import Bpt
from engine.backbones.llamagen import Llamagen
from engine.networks.hosted import linear_of
from engine.networks.mesh_decoder import MeshModel, MeshSettings
from engine.networks.vqgan import PictureDecoder, VQGANSettings
from tests.engine.backbones.tiny import spread

CODES, WIDTH, SIDE = 40, 64, 8
BPT = MeshSettings(
    layers=2, width=64, heads=1, inner=48, length=96, memories=2, features=54, encoder_width=64, encoder_blocks=1, latents=5, budgets=0
)  # fmt: skip


@cache
def bpt_model() -> MeshModel:
    """Two layers of one head; sequences of up to 96 tokens."""
    torch.manual_seed(6)
    model = MeshModel(BPT)
    spread(model, 0.2)
    for name, p in model.named_parameters():
        if p.ndim == 1:
            nn.init.normal_(p, float("norm.weight" in name), 0.2)
    return model.eval().requires_grad_(False)


def bpt_tensors() -> dict[str, Tensor]:
    """The same weights under BPT's names, and a tensor of the half that reconstructs surfaces."""
    tensors = {}
    for name, tensor in bpt_model().state_dict().items():
        theirs = bpt.sources(name)
        parts = tensor if name.endswith(bpt.MEMORY) else tensor.chunk(len(theirs))
        tensors |= dict(zip(theirs, parts, strict=True))
    return tensors | {"conditioner.point_encoder.model.shape_model.pre_kl.weight": torch.randn(3, 3)}


def bpt_backbone(grammar: bool = True) -> Bpt:
    """The tiny BPT."""
    return Bpt(bpt_model(), grammar)


@cache
def picture_decoder() -> PictureDecoder:
    """40 codes of 4 numbers, pictures twice as wide as the grid."""
    torch.manual_seed(7)
    decoder = PictureDecoder(VQGANSettings(CODES, 4, 32, (32, 32), blocks=1))
    for p in decoder.parameters():
        nn.init.normal_(p, std=1.2 / p[0].numel() ** 0.5 if p.ndim > 1 else 0.3)
    return decoder.eval().requires_grad_(False)


def decoder_tensors(form: vqgan_names.Form) -> dict[str, Tensor]:
    """The weights of the picture decoder by published names, and one of the encoder."""
    decoder = picture_decoder()
    return {form(name, 2): tensor for name, tensor in decoder.state_dict().items()} | {"encoder.conv_in.weight": torch.randn(3)}


@cache
def llamagen_tensors(text: bool = False) -> dict[str, Tensor]:
    """A transformer of two layers and its picture decoder, by LlamaGen's names: 12 classes, or texts of up to 6 features of 10 numbers."""
    picture = decoder_tensors(vqgan_names.llamagen)
    config = {
        "vocabulary": CODES, "width": WIDTH, "layers": 2, "inner": 48, "classes": 0 if text else 13, "text": [6, 10] if text else [0, 0],
        "picture": vqgan_names.configure({name: tuple(t.shape) for name, t in picture.items()}, vqgan_names.llamagen, True),
    }  # fmt: skip
    own = {name: shape for name, shape in llamagen_files.expected_shapes(config).items() if name not in picture}
    torch.manual_seed(21)
    tensors = {name: torch.randn(shape) * (0.2 if name.startswith(("layers.", "output.")) else 0.5) for name, shape in own.items()}
    tensors |= {name: 1 + 0.2 * t for name, t in tensors.items() if "norm" in name}
    return tensors | picture


def features(text: str) -> Tensor:
    """Features of a text without an encoder: a vector for each letter."""
    torch.manual_seed(9)
    return torch.randn(128, 10)[[ord(c) % 128 for c in text]]


class Held:
    """Tensors in memory with the interface of engine.checkpoints.reading.Checkpoint."""

    def __init__(self, tensors: dict[str, Tensor]):
        self.tensors = tensors
        self.shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}

    def read_as(self, name: str, dtype: torch.dtype) -> Tensor:
        """A copy of a tensor."""
        return self.tensors[name].to(dtype, copy=True)


@cache
def llamagen(text: bool = False) -> Llamagen:
    """The tiny LlamaGen: pictures of 8 pixels, 4x4 codes."""
    checkpoint = Held(llamagen_tensors(text))
    config = llamagen_files.configure(checkpoint.shapes)
    picture = vqgan_names.read_decoder(checkpoint, config["picture"], vqgan_names.llamagen)
    head, condition = (
        linear_of(checkpoint.read_as(llamagen_files.HEAD, torch.float32)),
        llamagen_files.read_condition(checkpoint, config, torch.float32),
    )
    trunk = llamagen_files.read_trunk(checkpoint, config, SIDE // picture.factor, torch.float32)
    return Llamagen(trunk, head, condition, picture, SIDE, features if text else None)


def save_text_encoder(folder: Path, width: int = 10) -> None:
    """A T5 encoder and a tokenizer of whole words that ends with </s>."""
    torch.manual_seed(11)
    settings = T5Config(vocab_size=16, d_model=width, d_kv=4, d_ff=8, num_layers=1, num_heads=2, feed_forward_proj="gated-gelu")
    model = T5EncoderModel(settings)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.4)
    model.save_pretrained(folder)
    words = ["<pad>", "</s>", "<unk>", "red", "apple", "on", "a", "table"]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="</s>", unk_token="<unk>").save_pretrained(folder)


def save_llamagen(folder: Path, text: bool = False) -> Path:
    """A folder with the authors' two files and, for texts, a folder with an encoder."""
    tensors = llamagen_tensors(text)
    picture = {name for name in tensors if name.startswith(("decoder.", "encoder.", "quantize.", "post_quant_conv."))}
    folder.mkdir(exist_ok=True)
    torch.save(
        {"model": {n: t for n, t in tensors.items() if n not in picture}, "steps": 9}, folder / f"{'t2i' if text else 'c2i'}_B_256.pt"
    )
    torch.save({"model": {n: t for n, t in tensors.items() if n in picture}}, folder / "vq_ds16_c2i.pt")
    if text:
        save_text_encoder(folder / "flan-t5-xl")
    return folder


def save_bpt(path: Path, tensors: dict[str, Tensor] | None = None) -> str:
    """A file as the authors save it: the module's tensors and other things."""
    torch.save({"model": bpt_tensors() if tensors is None else tensors, "config": b"pickled", "version": "1.0"}, path)
    return str(path)
