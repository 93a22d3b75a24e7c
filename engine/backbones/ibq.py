"""The picture decoder of IBQ, the tokenizer of Emu3.5: codes -> picture, 16 pixels a code.

Paper: Scalable Image Tokenization with Index Backpropagation Quantization, arXiv 2412.02692. The decoder is the one of VQGAN, which
transformers has as part of Janus; only its stages are numbered the other way round. Its sizes are read from the shapes of its tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from transformers.models.janus.configuration_janus import JanusVQVAEConfig
from transformers.models.janus.modeling_janus import JanusVQVAEDecoder

from engine.backbones.checkpoint_files import check_finite, first_line
from engine.errors import MissingWeights, NotSupported

SUBFOLDER = "vision_tokenizer"
STAGE = re.compile(r"up\.(\d+)\.")
PARTS = ("quantize.embedding.weight", "post_quant_conv.", "decoder.")


class PictureDecoder(nn.Module):
    """Codes int64 [rows, columns] -> picture [16 rows, 16 columns, 3] in about -1..1."""

    def __init__(self, codes: int, width: int, config: JanusVQVAEConfig):
        """codes, width : of the codebook"""
        super().__init__()
        self.codes = nn.Embedding(codes, width)
        self.post_quant_conv = nn.Conv2d(width, config.latent_channels, 1)
        self.decoder = JanusVQVAEDecoder(config)
        self.factor = 2 ** (len(config.channel_multiplier) - 1)

    def forward(self, codes: Tensor) -> Tensor:
        """See the class."""
        vectors = self.codes(codes).permute(2, 0, 1)[None]
        return self.decoder(self.post_quant_conv(vectors))[0].permute(1, 2, 0)


def read_picture_decoder(folder: Path) -> PictureDecoder:
    """The decoder in a checkpoint's folder, in float32; raises MissingWeights or NotSupported.

    Its tensors lie in safetensors files in the subfolder vision_tokenizer, or, as an import writes them, beside the weights.
    """
    tensors: dict[str, Tensor] = {}
    try:
        for path in (*sorted(folder.glob(f"{SUBFOLDER}/*.safetensors")), *sorted(folder.glob("*.safetensors"))):
            with safe_open(path, "pt") as file:
                wanted = [name for name in file.keys() if name.startswith(PARTS) and name not in tensors]  # noqa: SIM118
                tensors |= {name: file.get_tensor(name).float() for name in wanted}
    except (SafetensorError, OSError) as e:
        raise MissingWeights(f"The picture tokenizer in {folder} cannot be read ({first_line(e)}). Download it again.") from e
    if not tensors:
        where = folder / SUBFOLDER
        raise MissingWeights(f"There is no picture tokenizer in {where}. Put the safetensors file of BAAI/Emu3.5-VisionTokenizer there.")
    return built(tensors, folder)


def built(tensors: Mapping[str, Tensor], folder: Path) -> PictureDecoder:
    """The decoder with its weights; `folder` is for messages."""
    try:
        config = config_of({name.removeprefix("decoder."): tuple(tensor.shape) for name, tensor in tensors.items()})
        codes, width = tensors["quantize.embedding.weight"].shape
    except (KeyError, ValueError, IndexError, ZeroDivisionError) as e:
        raise MissingWeights(f"The picture tokenizer in {folder} lacks parts of its decoder ({first_line(e)}). Download it again.") from e
    with torch.device("meta"):
        found = PictureDecoder(codes, width, config)
    last = len(config.channel_multiplier) - 1
    ours = {
        name.replace("quantize.embedding", "codes"): tensor
        for name, tensor in ((STAGE.sub(lambda up: f"up.{last - int(up[1])}.", name), tensor) for name, tensor in tensors.items())
    }
    try:
        found.load_state_dict(ours, assign=True)
    except RuntimeError as e:
        what = (str(e).splitlines()[1:] or [str(e)])[0].strip()[:160].rstrip(".")
        raise NotSupported(f"The picture tokenizer in {folder} is not that of Emu3.5 ({what}). Use BAAI/Emu3.5-VisionTokenizer.") from e
    check_finite(found, folder)
    return found.eval().requires_grad_(False)


def config_of(shapes: Mapping[str, tuple[int, ...]]) -> JanusVQVAEConfig:
    """The sizes of a decoder, from its shapes without the prefix `decoder.`; raises KeyError or ValueError."""
    stages = 1 + max(int(found[1]) for name in shapes if (found := STAGE.match(name)))
    base = shapes["conv_out.weight"][1]
    return JanusVQVAEConfig(
        latent_channels=shapes["conv_in.weight"][1],
        base_channels=base,
        channel_multiplier=[shapes[f"up.{i}.block.0.conv1.weight"][0] // base for i in range(stages)],
        num_res_blocks=len([name for name in shapes if re.fullmatch(r"up\.0\.block\.\d+\.conv1\.weight", name)]) - 1,
        out_channels=shapes["conv_out.weight"][0],
    )
