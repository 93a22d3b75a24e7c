"""llamagen: class or text -> picture with LlamaGen (HKU and ByteDance), from its own files.

Paper: Autoregressive Model Beats Diffusion: Llama for Scalable Image Generation, arXiv 2406.06525.
A Llama trunk reads one class embedding, or the features that a T5 encoder makes of a text, and then the codes of a square picture row by
row, without row ends. Rotary positions are those of the grid's rows and columns. The condition has none: its cosines *and sines* are
zero in the published model, so what a code attends to in a text does not depend on either. A text is padded on the left to 120 slots
that nothing sees; they are left out here. The guidance row of a text sees as many slots as the text has, and so does ours.

A folder holds two files, the transformer (c2i_L_384.pt) and the picture tokenizer (vq_ds16_c2i.pt); a text model also needs a folder with
flan-t5-xl. The picture's side stands only in the name of the transformer's file or of the folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaModel

from engine import memory
from engine.backbones import vqgan_names
from engine.backbones.checkpoint_files import dtype_of
from engine.backbones.llamagen_files import (
    CHECKPOINT,
    HEAD,
    configure,
    encoder_folder,
    encoder_numbers,
    expected_shapes,
    read_condition,
    read_trunk,
    side_of,
    size,
    text_features,
)  # fmt: skip
from engine.backbones.originals import originals
from engine.backbones.picture_checkpoint import EXAMPLE, PictureCheckpoint
from engine.backbones.prompts import readable_text
from engine.core import Prompt, Sampling
from engine.errors import BadPrompt
from engine.kernels.compressed_linear import compress
from engine.kernels.cpu.steady_linear import make_steady
from engine.layout import Raster
from engine.memory import FULL
from engine.networks.hosted import Hosted, linear_of
from engine.networks.vqgan import PictureDecoder

LICENCE = "MIT. The class models were trained on ImageNet, whose terms allow research only."
LONG = 9  # digits, more than any class has
CLASS_SAMPLING, TEXT_SAMPLING = Sampling(top_k=2000, guidance=4.0), Sampling(top_k=1000, guidance=7.5)  # of the authors' scripts


class Llamagen(PictureCheckpoint):
    """The backbone. `features` makes [n, features] of a text, n at most the slots of the condition; None for a model of classes."""

    name = "llamagen"

    def __init__(
        self, decoder: LlamaModel, head: nn.Linear, condition: Mapping[str, Tensor], picture: PictureDecoder, side: int,
        features: Callable[[str], Tensor] | None = None,
    ):  # fmt: skip
        """condition : the tensors of `cls_embedding`, without that word; side : of the picture in pixels"""
        self.condition, self.picture, self.features = condition, picture, features
        self.head = nn.Sequential(head)
        weights = [*decoder.parameters(), *head.parameters(), *condition.values(), *picture.parameters()]
        super().__init__(Hosted(decoder, decoder.embed_tokens, self.head), weights, LICENCE)
        grid = Raster(side // picture.factor, side // picture.factor, picture.factor)
        self.layouts, self.vocabulary = {side: grid}, head.out_features
        self.slots = decoder.config.max_position_embeddings - grid.rows * grid.columns  # of the condition
        self.sampling = CLASS_SAMPLING if features is None else TEXT_SAMPLING
        self.classes = len(condition["embedding_table.weight"]) - 1 if features is None else 0  # the last row stands for none

    def inputs(self, prompt: Prompt) -> tuple[Tensor, tuple[int, ...]]:
        """The inputs for a class or a text; raises BadPrompt for an unknown class, and for an empty or too long text."""
        x = self._class(prompt) if self.features is None else self._text(prompt)
        x = x[:1] if (prompt.sampling or self.sampling).guidance == 1 else x
        return x, (0,) * len(x)

    def place_decoder(self, lengths: Sequence[int], layout: Raster) -> Hosted:
        """The decoder for prompts of these lengths: the picture begins after all slots of the condition."""
        skipped = self.slots - torch.tensor(lengths, device=self.device)[:, None]
        return replace(self.hosted, place=torch.add, tables=(skipped,))

    def _class(self, prompt: Prompt) -> Tensor:
        """The embeddings of a class and of none, [2, 1, H]."""
        table = self.condition["embedding_table.weight"]
        last, text = len(table) - 2, (prompt.text or "").strip()
        label = int(text) if prompt.label is None and text.isdecimal() and len(text) < LONG else prompt.label
        if label is None or not 0 <= label <= last:
            what = f"'{text[:40]}'" if label is None else label
            raise BadPrompt(
                f"llamagen draws classes of ImageNet by number, 0 to {last}, not {what}. Write for instance 207, a golden retriever."
            )
        return table[torch.tensor([label, last + 1], device=self.device)][:, None]

    def _text(self, prompt: Prompt) -> Tensor:
        """The embeddings of a text and of none, [2, n, H]."""
        features = self.features(readable_text(prompt.text, EXAMPLE))
        if len(features) > self.slots:
            raise BadPrompt(f"The prompt has {len(features):,} tokens; llamagen reads at most {self.slots}. Shorten it.")
        pair = torch.stack([features, self.condition["uncond_embedding"][self.slots - len(features) :]]).to(self.hosted.decoder.dtype)
        inner = F.gelu(F.linear(pair, self.condition["cap_proj.fc1.weight"]), approximate="tanh")
        return F.linear(inner, self.condition["cap_proj.fc2.weight"])


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", weights: str = FULL) -> Llamagen:
    """The backbone from a local folder, or from the transformer's file next to its picture tokenizer; downloads nothing.

    Raises MissingWeights for an absent, incomplete or damaged checkpoint or text encoder, TooLittleMemory.
    """
    kind = dtype_of(device, dtype)
    with originals(path, "llamagen", CHECKPOINT, companion="vq") as files:
        config, side = configure(files.shapes), side_of(Path(path))
        files.need(expected_shapes(config), "llamagen")
        encoder = None if config["classes"] else encoder_folder(Path(path))
        numbers = encoder_numbers(encoder) if encoder else 0
        needed, name = size(config, side, numbers), str(kind).removeprefix("torch.")
        memory.check("llamagen", needed, device, name, weights=weights)
        memory.check_host("llamagen", needed, device, name, weights)
        condition = {name: tensor.to(device) for name, tensor in read_condition(files, config, kind).items()}
        picture = vqgan_names.read_decoder(files, config["picture"], vqgan_names.llamagen).to(device)
        decoder = compress(read_trunk(files, config, side // picture.factor, kind), weights, device).to(device)
        head = linear_of(files.read_as(HEAD, kind)).to(device)
    features = text_features(encoder, kind, device, config["text"][1]) if encoder else None
    backbone = Llamagen(decoder, head, condition, picture, side, features)
    make_steady([decoder, backbone.head])
    return backbone
