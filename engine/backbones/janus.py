"""janus: text -> picture with Janus and Janus-Pro (DeepSeek), 1B and 7B, through the classes of transformers.

Paper: Janus-Pro: Unified Multimodal Understanding and Generation with Data and Model Scaling, arXiv 2501.17811.
A Llama trunk reads the conversation and a begin-of-image token, then 24x24 picture tokens row by row, without row-end tokens. A
picture token has its own embedding and an aligner on the way in, and a head over picture tokens only on the way out. Guidance
pairs the prompt with one of the same length whose words are padding, attended like any other token.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F
from transformers import JanusConfig, JanusForConditionalGeneration

from engine.backbones.checkpoint_files import (
    check_room,
    checkpoint_folder,
    configuration,
    dtype_of,
    numbers_in,
    read_model,
    read_tokenizer,
)  # fmt: skip
from engine.backbones.picture_checkpoint import PictureCheckpoint
from engine.checkpoints.families import ADAPTED, stated_licence
from engine.core import Sampling
from engine.errors import MissingWeights
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL
from engine.networks.hosted import Hosted

FAMILY = ADAPTED["janus"]
CONVERSATION = "<|User|>: {}\n\n<|Assistant|>:"  # the checkpoint's chat template for one question


class Janus(PictureCheckpoint):
    """The backbone: a JanusForConditionalGeneration and a function from text to the token ids of a whole prompt (BOS ... BOI)."""

    name, sampling = "janus", Sampling(temperature=1.0, top_k=0, top_p=1.0, guidance=5.0)

    def __init__(self, model: JanusForConditionalGeneration, read: Callable[[str], list[int]], licence: str = ""):
        self.model, self.read = model.eval(), read
        hosted = Hosted(model.model.language_model, model.prepare_embeddings_for_image_generation, model.model.generation_head)
        super().__init__(hosted, model.parameters(), licence)
        self.bos, self.boi, self.pad = special_ids(model)
        layout = layout_of(model.config)
        self.layouts, self.vocabulary = {layout.rows * layout.factor: layout}, model.config.vq_config.num_embeddings

    def rows(self, text: str, layout: Raster) -> list[list[int]]:
        """The conversation, and the same with padding for its words."""
        ids = self.read(text)
        return [ids, self.unconditional(ids)]

    def unconditional(self, ids: list[int]) -> list[int]:
        """The prompt with padding for its words: all ids but begin of sequence and begin of image."""
        return [i if i in (self.bos, self.boi) else self.pad for i in ids]

    def decode(self, codes: Tensor) -> Tensor:
        """The picture [H, W, 3], in about -1..1, of codes int64 [rows, columns]."""
        vq = self.model.model.vqmodel
        vectors = F.normalize(vq.quantize.embedding(codes), dim=-1)  # [rows, columns, D]
        return vq.decoder(vq.post_quant_conv(vectors.permute(2, 0, 1)[None]))[0].permute(1, 2, 0)

    def codebook(self) -> Tensor:
        """The decoder's input for every token, float32 [V, D]: rows of length 1, because the decoder normalises them."""
        return F.normalize(self.model.model.vqmodel.quantize.embedding.weight.detach().float(), dim=-1)


def layout_of(config: JanusConfig) -> Raster:
    """The layout of the one picture size."""
    vq = config.vq_config
    layout = Raster(vq.num_patches, vq.num_patches, 2 ** (len(vq.channel_multiplier) - 1))
    if layout.rows * layout.columns != config.vision_config.num_image_tokens:
        tokens = config.vision_config.num_image_tokens
        raise MissingWeights(
            f"config.json says {tokens:,} tokens for {layout.rows}x{layout.columns} codes. Download {FAMILY.source} again."
        )
    return layout


def special_ids(model: JanusForConditionalGeneration) -> tuple[int, int, int]:
    """Begin of sequence, begin of image, padding; raises MissingWeights if the generation settings lack one."""
    settings = model.generation_config
    picture = getattr(settings, "generation_kwargs", None) or {}
    ids = {
        "bos_token_id": settings.bos_token_id,
        "generation_kwargs.boi_token_id": picture.get("boi_token_id"),
        "pad_token_id": settings.pad_token_id,
    }
    lacking = [name for name, value in ids.items() if type(value) is not int]
    if lacking:
        raise MissingWeights(f"generation_config.json has no {' and no '.join(lacking)}. Download {FAMILY.source} again.")
    return tuple(ids.values())


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Janus:
    """The backbone in a local folder; downloads nothing.

    Raises MissingWeights for an absent, incomplete or damaged folder, NotSupported for the folder of another model, TooLittleMemory.
    """
    folder = checkpoint_folder(path, FAMILY)
    kind = dtype_of(device, dtype)
    config = configuration(folder, JanusConfig)
    tokenizer = read_tokenizer(folder)  # before the weights, which take long
    check_room(FAMILY, numbers_in(folder), config.text_config, layout_of(config), config.vq_config.num_embeddings, device, kind, weights)
    model = read_model(folder, JanusForConditionalGeneration, kind, "model.language_model.", config, device, weights)
    for part in ("vision_model", "aligner"):  # for understanding pictures; generation never calls them
        setattr(model.model, part, None)
    model.model.vqmodel.encoder, model.lm_head = None, None
    model.model.vqmodel.float()
    boi = special_ids(model)[1]
    backbone = Janus(model, lambda text: [*tokenizer(CONVERSATION.format(text)).input_ids, boi], stated_licence(folder))
    make_steady([backbone.hosted.decoder, model.model.generation_head, model.model.generation_aligner])
    return backbone
