"""The files of Chameleon's descendants: the trunk and head in a folder of transformers, and the picture decoder next to them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import ChameleonConfig, ChameleonForConditionalGeneration, ChameleonModel, PreTrainedTokenizerBase

from engine.backbones.checkpoint_files import UNREADABLE, checkpoint_folder
from engine.backbones.originals import originals
from engine.backbones.vqgan_names import decoder_of, taming
from engine.checkpoints.families import ADAPTED
from engine.checkpoints.reading import Checkpoint
from engine.errors import MissingWeights, first_line
from engine.networks.vqgan import PictureDecoder

FAMILY = ADAPTED["chameleon"]
DECODERS = "vqgan.ckpt of Meta's Chameleon (Anole, Lumina-mGPT) or movqgan_270M.ckpt of ai-forever/MoVQGAN (Lumina-mGPT 2)"
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
HEAD = "lm_head.weight"


def folder_of(path: str | None) -> Path:
    """The folder of a checkpoint with a tokenizer; raises MissingWeights or NotSupported."""
    folder = checkpoint_folder(path, FAMILY)
    if not any((folder / name).is_file() for name in TOKENIZERS):
        raise MissingWeights(f"{folder} holds no tokenizer. Copy {TOKENIZERS[0]} of {FAMILY.source} into it.")
    return folder


def words_in(config: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """Id by name of all words, from the tokenizer and from the configuration, which names the codes."""
    named = config.get("vocabulary_map")
    return tokenizer.get_vocab() | (dict(named) if isinstance(named, Mapping) else {})


def configuration(config: Mapping[str, Any]) -> ChameleonConfig:
    """The configuration in the form of transformers; raises MissingWeights if an entry is impossible."""
    try:
        settings = ChameleonConfig.from_dict({**config, "vocabulary_map": {"<image>": 0}})  # names are not needed in the trunk
        if settings.num_hidden_layers < 1 or settings.hidden_size % settings.num_attention_heads:
            raise ValueError("layers or heads")
    except UNREADABLE as e:
        raise MissingWeights(f"config.json is damaged ({first_line(e)}). Download {FAMILY.source} again.") from e
    settings._attn_implementation = "sdpa"
    return settings


def expected_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of trunk and head, by its name in the files."""
    try:
        with torch.device("meta"):
            shapes = ChameleonForConditionalGeneration(configuration(config)).state_dict()
    except UNREADABLE as e:
        raise MissingWeights(f"config.json asks for an impossible network ({first_line(e)}). Download {FAMILY.source} again.") from e
    return {name: tuple(tensor.shape) for name, tensor in shapes.items() if not name.startswith("model.vqmodel.")}


def read_trunk(checkpoint: Checkpoint, config: Mapping[str, Any], dtype: torch.dtype) -> ChameleonModel:
    """The trunk with its weights, never allocated twice, without the encoder of pictures; raises MissingWeights for other weights."""
    checkpoint.need(expected_shapes(config), "chameleon")
    settings = configuration(config)
    if spare := [name for name in checkpoint.shapes if name.startswith(f"model.layers.{settings.num_hidden_layers}.")]:
        raise MissingWeights(f"{checkpoint.path} holds more layers than config.json says, such as {spare[0]}. Download them again.")
    with torch.device("meta"):
        trunk = ChameleonModel(settings)
    del trunk.vqmodel
    trunk.load_state_dict({name: checkpoint.read_as(f"model.{name}", dtype) for name in trunk.state_dict()}, assign=True)
    trunk.rotary_emb = type(trunk.rotary_emb)(settings)  # its table is not among the weights
    return trunk.eval().requires_grad_(False)


def decoder_in(folder: Path, checkpoint: Checkpoint) -> PictureDecoder:
    """The picture decoder: of the folder's own files, or of a vqgan or movqgan file in it or in a folder inside; raises MissingWeights."""
    if "post_quant_conv.weight" in checkpoint.shapes:
        return decoder_of(checkpoint, taming, normalised=False)
    decoders = sorted(
        file for file in (*folder.glob("*vqgan*"), *folder.glob("*/*vqgan*")) if file.suffix in (".ckpt", ".pt", ".safetensors")
    )
    if not decoders:
        raise MissingWeights(f"{folder} holds no picture decoder. Put {DECODERS} into it.")
    with originals(str(decoders[0]), "the picture decoder", DECODERS) as own:
        return decoder_of(own, taming, normalised=False)
