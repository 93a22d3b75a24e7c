"""Tiny random models for the tests: the same code as the real ones, milliseconds per run."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import nn
from transformers import (
    JanusConfig,
    JanusForConditionalGeneration,
    JanusVisionConfig,
    JanusVQVAEConfig,
    LlamaConfig,
    PreTrainedTokenizerFast,
)

from engine.backbones.janus import Janus
from engine.backbones.looks import Looks
from engine.backbones.lowpoly import Lowpoly, prepare_model
from engine.backbones.pictogram import Pictogram, PictogramModel
from engine.core import Prompt, Sampling
from engine.networks.cloud_blocks import CONTENTS
from engine.networks.mesh_decoder import MeshModel, MeshSettings
from engine.networks.sequence import TransformerSequence
from engine.networks.vq import PictureTokenizer

WORDS = ["red", "green", "apple", "on", "a", "table", "two", "cats"]
BOS, EOS, PAD, BOI = 0, 1, 2, 3
NORMAL = torch.inference_mode(False)  # a model that outlives its first test must not be made of inference tensors


def spread(module: nn.Module, std: float) -> None:
    """Redraws all matrices so that distributions are far from uniform and depend on every earlier token."""
    for p in module.parameters():
        if p.ndim == 2:
            nn.init.normal_(p, std=std)


def wide_open(backbone: Pictogram) -> Pictogram:
    """The same backbone, sampling from its whole distribution under strong guidance: only a grammar makes tokens impossible."""
    backbone.sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, guidance=3.0)
    return backbone


@cache
@NORMAL
def pictogram() -> Pictogram:
    """8x8 tokens of 32 values."""
    torch.manual_seed(1)
    model = PictogramModel((4, 4, 2), len(WORDS), layers=2, width=32, heads=2, inner=64)
    spread(model.decoder, 0.25)
    for table in (model.head_rows, model.digits_in, model.digits_out, model.words.weight, model.scale.weight):
        nn.init.normal_(table, std=0.5)
    nn.init.normal_(model.gist_map.weight, std=0.03)
    tokenizer = PictureTokenizer((4, 4, 2), encoder=8, decoder=8, blocks=1)
    return wide_open(Pictogram(model, tokenizer, WORDS, (8,), {}))


@cache
@NORMAL
def with_scales() -> Pictogram:
    """The tiny pictogram as if all three of its scales had been trained: 8x8, 16x16 and 32x32 tokens."""
    plain = pictogram()
    return wide_open(Pictogram(plain.model, plain.tokenizer, WORDS, (8, 16, 32), {}))


@cache
@NORMAL
def with_looks() -> Pictogram:
    """A tiny pictogram that reads the looks of apples and cats."""
    torch.manual_seed(8)
    plain = pictogram()
    model = PictogramModel((4, 4, 2), len(WORDS), layers=2, width=32, heads=2, inner=64, looks=2)
    model.load_state_dict(plain.model.state_dict(), strict=False)
    spread(model.left_map, 0.25)
    pictures = np.random.default_rng(8).integers(0, 256, (2, 128, 128, 4), dtype=np.uint8)
    tokenizer = PictureTokenizer((4, 4, 2), encoder=8, decoder=8, blocks=1)
    for p in tokenizer.parameters():
        if p.ndim == 4:
            nn.init.normal_(p, std=0.3)  # else every square is one token
    looks = Looks({name: Image.fromarray(picture, "RGBA") for name, picture in zip(("apple", "cat"), pictures, strict=True)})
    return wide_open(Pictogram(model, tokenizer, WORDS, (8,), {"words": WORDS}, looks=looks))


class WithGrammar(Pictogram):
    """The tiny pictogram with a grammar that depends on the path: a token may not equal either of the two before it."""

    def __init__(self) -> None:
        plain = pictogram()
        super().__init__(plain.model, plain.tokenizer, WORDS, plain.sides, {})
        wide_open(self)

    def start(self, prompt: Prompt) -> TransformerSequence:
        """A sequence whose distributions obey the grammar."""
        sequence = super().start(prompt)
        sequence.grammar, sequence._state = Unlike(self.model.vocabulary), ()
        return sequence


@cache
@NORMAL
def mesh_model() -> MeshModel:
    """The network of lowpoly: two layers, sequences of up to 96 tokens."""
    torch.manual_seed(3)
    sizes = {"layers": 2, "width": 32, "heads": 2, "inner": 64, "length": 96, "memories": 2}
    settings = MeshSettings(**sizes, encoder_width=16, encoder_blocks=1, latents=5, contents=CONTENTS)
    model = MeshModel(settings)
    spread(model, 0.25)
    nn.init.normal_(model.decoder.start, std=0.5)
    return model


def lowpoly(grammar: bool = True) -> Lowpoly:
    """Random weights: its meshes are nonsense, its grammar is not."""
    return Lowpoly(mesh_model(), {}, grammar=grammar)


def octahedron() -> tuple[np.ndarray, np.ndarray]:
    """Vertices and faces of a mesh that can guide another."""
    corners = np.concatenate([np.eye(3), -np.eye(3)]) * 0.9
    return corners, np.array([[0, 1, 2], [1, 3, 2], [3, 4, 2], [4, 0, 2], [1, 0, 5], [3, 1, 5], [4, 3, 5], [0, 4, 5]])


def quick_lowpoly(grammar: bool = True) -> Lowpoly:
    """The tiny lowpoly with the blocks and layers of a model loaded on a CPU."""
    return Lowpoly(prepare_model(mesh_model.__wrapped__(), "cpu"), {}, grammar=grammar)  # its own: others share the model


def sphere(count: int = 64) -> torch.Tensor:
    """Points of a sphere with normals, [count, 6]."""
    directions = nn.functional.normalize(torch.randn(count, 3, generator=torch.Generator().manual_seed(4)), dim=-1)
    return torch.cat([0.95 * directions, directions], -1)


class Unlike:
    """A token may not equal either of the two before it."""

    masks = None
    start: tuple[int, ...] = ()

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def next(self, state: tuple[int, ...], token: int) -> tuple[int, ...]:
        """The last two tokens."""
        return (*state[-1:], token)

    def allowed_ids(self, state: tuple[int, ...]) -> torch.Tensor:
        """All ids but these."""
        allowed = torch.ones(self.vocabulary, dtype=torch.bool)
        allowed[list(state)] = False
        return allowed


def janus_model() -> JanusForConditionalGeneration:
    """4x4 tokens of 48 values; grouped queries (4 heads, 2 key heads), and a vision half that generation never calls."""
    torch.manual_seed(2)
    config = JanusConfig(
        text_config=LlamaConfig(
            vocab_size=32, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD,
        ),
        vision_config=JanusVisionConfig(
            hidden_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=2, projection_dim=32,
            num_image_tokens=16, mlp_ratio=2.0,
        ),
        vq_config=JanusVQVAEConfig(
            embed_dim=8, num_embeddings=48, latent_channels=32, base_channels=32, channel_multiplier=[1, 1], num_res_blocks=1,
            projection_dim=32, image_token_embed_dim=32,
        ),
        image_token_id=4,
    )  # fmt: skip
    config._attn_implementation = "sdpa"
    model = JanusForConditionalGeneration(config).eval().requires_grad_(False)
    spread(model.model.language_model, 0.25)
    for part in (model.model.generation_embeddings, model.model.generation_aligner, model.model.generation_head):
        spread(part, 0.4)
    settings = model.generation_config
    settings.bos_token_id, settings.eos_token_id, settings.pad_token_id = BOS, EOS, PAD
    settings.generation_kwargs = {"boi_token_id": BOI}
    settings._from_model_config = False  # as in converted checkpoints; else these settings are not read back from a file
    return model


def janus_ids(text: str) -> list[int]:
    """A prompt without a tokenizer: BOS, one id per letter, BOI."""
    return [BOS, *(5 + ord(c) % 27 for c in text), BOI]


@cache
@NORMAL
def janus() -> Janus:
    """The tiny Janus."""
    return Janus(janus_model(), janus_ids)


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of whole words that begins with BOS, like the real one."""
    words = ["<bos>", "<eos>", "<pad>", "<begin_of_image>", "<unk>", "User", "Assistant", "red", "apple", "<|", "|>:"]
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
