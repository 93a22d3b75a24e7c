"""LlamaGen's own files: names, shapes and readers of the parts.

The transformer keeps queries, keys and values of a layer in one tensor, and the two numbers that a rotary position turns side by side; a
Llama model of transformers has three tensors, and the two numbers half a head apart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaModel, T5Config, T5EncoderModel

from engine import memory
from engine.backbones import vqgan_names
from engine.backbones.checkpoint_files import configuration, read_model, read_tokenizer
from engine.checkpoints.reading import Checkpoint, Shapes
from engine.errors import MissingWeights
from engine.networks.card import CARD, read_card
from engine.networks.hosted import DRAFT_ROWS
from engine.networks.packing import count

CHECKPOINT = "transformer and picture tokenizer of huggingface.co/FoundationVision/LlamaGen or peizesun/llamagen_t2i"
SIDES = (256, 384, 512)
HEADS = {3200: 32, 4096: 32}  # by width; all others have heads of width 64
TOKENIZERS = ("tokenizer.json", "spiece.model")
EPS, BASE = 1e-5, 10_000.0  # epsilon of the norms; base of the rotary positions
IN_A_LAYER: Mapping[str, tuple[str, int]] = {  # transformers' name: LlamaGen's, and the part of its stacked tensor
    "self_attn.q_proj": ("attention.wqkv", 0), "self_attn.k_proj": ("attention.wqkv", 1), "self_attn.v_proj": ("attention.wqkv", 2),
    "self_attn.o_proj": ("attention.wo", 0), "mlp.gate_proj": ("feed_forward.w1", 0), "mlp.up_proj": ("feed_forward.w3", 0),
    "mlp.down_proj": ("feed_forward.w2", 0), "input_layernorm": ("attention_norm", 0), "post_attention_layernorm": ("ffn_norm", 0),
}  # fmt: skip
HEAD, CONDITION = "output.weight", "cls_embedding."
CLASS, TEXT = f"{CONDITION}embedding_table.weight", f"{CONDITION}uncond_embedding"


def configure(shapes: Shapes) -> dict[str, Any]:
    """The settings of a checkpoint from the shapes of its tensors; raises MissingWeights if it is not LlamaGen's or lacks a decoder."""
    try:
        vocabulary, width = shapes["tok_embeddings.weight"]
        settings = {
            "vocabulary": vocabulary, "width": width, "layers": count(shapes, "layers."),
            "inner": shapes["layers.0.feed_forward.w1.weight"][0],
            "classes": shapes[CLASS][0] if CLASS in shapes else 0,
            "text": [0, 0] if CLASS in shapes else list(shapes[TEXT]),
        }  # fmt: skip
    except (KeyError, IndexError, ValueError) as e:
        raise MissingWeights(f"These are not weights of llamagen: {e} is missing or damaged. Download {CHECKPOINT}.") from e
    return settings | {"picture": vqgan_names.configure(shapes, vqgan_names.llamagen, normalised=True)}


def expected_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that loading needs, by its published name. config : see `configure`."""
    v, w, inner = config["vocabulary"], config["width"], config["inner"]
    shapes: dict[str, tuple[int, ...]] = {"tok_embeddings.weight": (v, w), HEAD: (v, w), "norm.weight": (w,)}
    for layer in range(config["layers"]):
        start = f"layers.{layer}."
        shapes |= {f"{start}attention.wqkv.weight": (3 * w, w), f"{start}attention.wo.weight": (w, w)}
        shapes |= {f"{start}attention_norm.weight": (w,), f"{start}ffn_norm.weight": (w,), f"{start}feed_forward.w2.weight": (w, inner)}
        shapes |= {f"{start}feed_forward.w1.weight": (inner, w), f"{start}feed_forward.w3.weight": (inner, w)}
    if config["classes"]:
        shapes[CLASS] = (config["classes"], w)
    else:
        shapes |= {TEXT: tuple(config["text"]), "cls_embedding.cap_proj.fc1.weight": (w, config["text"][1])}
        shapes["cls_embedding.cap_proj.fc2.weight"] = (w, w)
    return shapes | vqgan_names.expected_shapes(config["picture"], vqgan_names.llamagen)


def size(config: Mapping[str, Any], side: int = SIDES[-1], encoder: int = 0) -> memory.Size:
    """The sizes that memory depends on. config : see `configure`; side : of the picture in pixels; encoder : number of weights of the text
    encoder
    """
    shapes = expected_shapes(config)
    numbers = sum(math.prod(shape) for shape in shapes.values()) + encoder
    linear = sum(math.prod(shape) for name, shape in shapes.items() if name.startswith("layers.") and len(shape) == 2)
    heads = heads_of(config["width"])
    codes = (side // 2 ** (len(config["picture"].stages) - 1)) ** 2
    slots = (config["text"][0] or 1) + codes + DRAFT_ROWS
    width = config["width"] // heads
    return memory.Size(numbers, config["layers"], heads, width, slots, config["vocabulary"], side * side, linear=linear)


def heads_of(width: int) -> int:
    """The number of attention heads of a published width."""
    return HEADS.get(width, max(1, width // 64))


def side_of(path: Path) -> int:
    """The picture's side in pixels, from the names of the files, of their originals before an import, or of the folder; raises
    MissingWeights if they do not say."""
    folder = path.parent if path.is_file() else path
    imported = list(read_card(folder).get("source", {})) if (folder / CARD).is_file() else []
    own = [path.name] if path.is_file() else sorted(file.name for file in path.iterdir() if file.is_file())
    for name in (*own, *imported, folder.name):
        if match := re.search(rf"(?<!\d)({'|'.join(map(str, SIDES))})(?!\d)", name):
            return int(match[1])
    raise MissingWeights(f"No name in {path} says how large the pictures are. Give the file its published name, such as c2i_L_384.pt.")


class GridRotary(nn.Module):
    """Cosines and sines by slot, used instead of a Llama model's: zero for the condition, then by row and column of the grid."""

    def __init__(self, side: int, width: int, condition: int):
        """side : codes in a row; width : of an attention head; condition : slots before the picture"""
        super().__init__()
        frequency = BASE ** (-torch.arange(0, width // 2, 2)[: width // 4].float() / (width // 2))
        row, column = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
        angles = torch.cat([row.reshape(-1, 1) * frequency, column.reshape(-1, 1) * frequency], -1)
        nothing = torch.zeros(condition, angles.shape[1])
        for name, table in (("cos", angles.cos()), ("sin", angles.sin())):
            self.register_buffer(name, torch.cat([nothing, table]).repeat(1, 2), persistent=False)

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [branches, R, width] of some slots, in the dtype of x"""
        return self.cos[position_ids].to(x.dtype), self.sin[position_ids].to(x.dtype)


def read_trunk(checkpoint: Checkpoint, config: Mapping[str, Any], grid: int, dtype: torch.dtype) -> LlamaModel:
    """The trunk with its weights, never allocated twice."""
    width, heads = config["width"], heads_of(config["width"])
    settings = LlamaConfig(
        vocab_size=config["vocabulary"], hidden_size=width, intermediate_size=config["inner"], num_hidden_layers=config["layers"],
        num_attention_heads=heads, num_key_value_heads=heads, head_dim=width // heads, rms_norm_eps=EPS,
        max_position_embeddings=(config["text"][0] or 1) + grid * grid,
    )  # fmt: skip
    settings._attn_implementation = "sdpa"
    with torch.device("meta"):
        decoder = LlamaModel(settings)
    tensors = {
        "embed_tokens.weight": checkpoint.read_as("tok_embeddings.weight", dtype),
        "norm.weight": checkpoint.read_as("norm.weight", dtype),
    }
    for layer in range(config["layers"]):
        for ours, (theirs, part) in IN_A_LAYER.items():
            tensor = checkpoint.read_as(f"layers.{layer}.{theirs}.weight", dtype)
            if theirs.endswith("wqkv"):
                tensor = tensor[part * width : (part + 1) * width]
                tensor = split_rotary_pairs(tensor, heads) if part < 2 else tensor.clone()
            tensors[f"layers.{layer}.{ours}.weight"] = tensor
    decoder.load_state_dict(tensors, assign=True)
    decoder.rotary_emb = GridRotary(grid, width // heads, config["text"][0] or 1)
    return decoder.eval().requires_grad_(False)


def read_condition(checkpoint: Checkpoint, config: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Tensor]:
    """The tensors that make inputs of a class or of a text's features, by their published names without `cls_embedding`."""
    names = [name for name in expected_shapes(config) if name.startswith(CONDITION)]
    return {name.removeprefix(CONDITION): checkpoint.read_as(name, dtype) for name in names}


def split_rotary_pairs(weight: Tensor, heads: int) -> Tensor:
    """Rows [heads * d, H] of queries or keys, from adjacent pairs of rotary numbers to a first and a second half of each head."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def encoder_folder(path: Path) -> Path:
    """The subfolder with a T5 encoder; raises MissingWeights if there is none, or none with a tokenizer."""
    folder = path.parent if path.is_file() else path
    at = next((each.parent for each in sorted(folder.glob("*/config.json"))), None)
    if at is None:
        raise MissingWeights(f"llamagen's text model reads features of flan-t5-xl. Put the folder of google/flan-t5-xl into {folder}.")
    if not any((at / name).is_file() for name in TOKENIZERS):  # transformers would make an empty one
        raise MissingWeights(f"{at} holds no tokenizer. Copy {TOKENIZERS[0]} or {TOKENIZERS[1]} of google/flan-t5-xl into it.")
    return at


def encoder_numbers(at: Path) -> int:
    """Number of weights of a text encoder, by its configuration."""
    with torch.device("meta"):
        return sum(p.numel() for p in T5EncoderModel(configuration(at, T5Config)).parameters())


def text_features(at: Path, dtype: torch.dtype, device: str, width: int) -> Callable[[str], Tensor]:
    """A function from a text to its features [n, width], by the T5 encoder in a folder; raises MissingWeights if it is damaged."""
    encoder, tokenizer = read_model(at, T5EncoderModel, dtype, "encoder.", configuration(at, T5Config), device), read_tokenizer(at)
    if encoder.config.d_model != width:
        raise MissingWeights(f"The text encoder in {at} has a width of {encoder.config.d_model}, not {width}. Use google/flan-t5-xl.")

    def features(text: str) -> Tensor:
        ids = tokenizer(" ".join(text.lower().split()), return_tensors="pt").input_ids.to(device)
        return encoder(input_ids=ids).last_hidden_state[0]

    return features
