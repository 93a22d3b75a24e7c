"""The names of a VQGAN picture decoder's tensors in two published forms, and a reader of the decoder.

`llamagen` is the form of LlamaGen's tokenizers; its stages are in the order in which they run. `taming` is the form of taming-transformers,
which Chameleon's vqgan.ckpt, MoVQGAN and IBQ have; there stages are numbered from the last to the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch

from engine.checkpoints.reading import Checkpoint, Shapes
from engine.errors import MissingWeights, NotSupported
from engine.networks.vqgan import PictureDecoder, VQGANSettings, build_decoder, settings_of

Form = Callable[[str, int], str]  # from our name and the number of stages to the published name
ENDS: Mapping[str, str] = {
    "codes.weight": "quantize.embedding.weight", "widen": "post_quant_conv", "enter": "decoder.conv_in", "norm": "decoder.norm_out",
    "leave": "decoder.conv_out",
}  # fmt: skip
PARTS: Mapping[str, str] = {  # of residual blocks and attention
    "first_norm": "norm1", "second_norm": "norm2", "first": "conv1", "second": "conv2", "fit": "nin_shortcut",
    "norm": "norm", "query": "q", "key": "k", "value": "v", "out": "proj_out",
}  # fmt: skip


OF_A_NORM: Mapping[str, str] = {".base.": ".norm_layer.", ".scale.": ".conv_y.", ".shift.": ".conv_b."}  # of MoVQ


def llamagen(name: str, stages: int) -> str:
    """The name in LlamaGen's form."""
    return _published_name(name, "decoder.mid.{}", "decoder.conv_blocks.{}", ("res", "attn"), lambda stage: stage)


def taming(name: str, stages: int) -> str:
    """The name in taming-transformers' form."""
    published = _published_name(name, "decoder.mid.{}", "decoder.up.{}", ("block", "attn"), lambda stage: stages - 1 - stage)
    return published.replace("mid.0", "mid.block_1").replace("mid.1", "mid.attn_1").replace("mid.2", "mid.block_2")


def _published_name(name: str, middle: str, stage: str, kinds: tuple[str, str], number: Callable[[int], int]) -> str:
    if name in ENDS:
        return ENDS[name]
    for ours, theirs in OF_A_NORM.items():
        if ours in name:
            whole, _, last = _published_name(name.replace(ours, "."), middle, stage, kinds, number).rpartition(".")
            return f"{whole}{theirs}{last}"
    part, _, last = name.rpartition(".")
    if part in ENDS:
        return f"{ENDS[part]}.{last}"
    if match := re.fullmatch(r"middle\.(\d)\.(\w+)", part):
        return f"{middle.format(match[1])}.{PARTS[match[2]]}.{last}"
    if match := re.fullmatch(r"stages\.(\d+)\.grow", part):
        return f"{stage.format(number(int(match[1])))}.upsample.conv.{last}"
    match = re.fullmatch(r"stages\.(\d+)\.(residuals|attentions)\.(\d+)\.(\w+)", part)
    kind = kinds[match[2] == "attentions"]
    return f"{stage.format(number(int(match[1])))}.{kind}.{match[3]}.{PARTS[match[4]]}.{last}"


def configure(shapes: Shapes, form: Form, normalised: bool) -> VQGANSettings:
    """The settings of the decoder in a checkpoint; raises MissingWeights if there is none."""
    stage = re.compile(r"decoder\.(?:conv_blocks|up)\.(\d+)\.")
    stages = 1 + max((int(match[1]) for name in shapes if (match := stage.match(name))), default=-1)
    placed = "decoder.norm_out.conv_y.weight" in shapes
    names = _names(VQGANSettings(1, 1, GROUPED, (GROUPED,) * max(1, stages), MOST_BLOCKS, placed=placed))
    ours = {name: shapes[theirs] for name in names if (theirs := form(name, stages)) in shapes}
    try:
        settings = settings_of(ours, normalised)
        known = {form(name, stages) for name in _names(settings)}
    except (KeyError, ValueError, IndexError, ZeroDivisionError) as e:
        raise MissingWeights(f"There is no whole picture decoder among the weights (see {e}). Download the picture tokenizer too.") from e
    if spare := sorted(name for name in shapes if name.startswith("decoder.") and name not in known):
        raise NotSupported(f"The picture decoder has parts that are not known here, such as {spare[0]}. Use a published picture tokenizer.")
    return settings


GROUPED, MOST_BLOCKS = 32, 9  # of a decoder that has every name that may occur


def expected_shapes(settings: VQGANSettings, form: Form) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor that the decoder needs, by its published name."""
    return {form(name, len(settings.stages)): shape for name, shape in _names(settings).items()}


def _names(settings: VQGANSettings) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in PictureDecoder(settings).state_dict().items()}


def decoder_of(checkpoint: Checkpoint, form: Form, normalised: bool) -> PictureDecoder:
    """The decoder of a checkpoint, its sizes read from its shapes; raises MissingWeights or NotSupported."""
    settings = configure(checkpoint.shapes, form, normalised)
    checkpoint.need(expected_shapes(settings, form), "the picture decoder")
    return read_decoder(checkpoint, settings, form)


def read_decoder(checkpoint: Checkpoint, settings: VQGANSettings, form: Form) -> PictureDecoder:
    """The decoder of a checkpoint, in float32."""
    stages = len(settings.stages)
    return build_decoder(settings, {name: checkpoint.read_as(form(name, stages), torch.float32) for name in _names(settings)})
