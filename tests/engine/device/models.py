"""The tiny models of every family, built on a device: `place` puts a module there."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import nn

from engine.backbones.bpt import Bpt
from engine.backbones.chameleon import Chameleon, codes_of
from engine.backbones.emu3 import Emu3
from engine.backbones.emu35 import Emu35
from engine.backbones.glm_image import FACTOR, GlmImage
from engine.backbones.janus import Janus
from engine.backbones.llamagen import Llamagen
from engine.backbones.lowpoly import Lowpoly
from engine.backbones.pictogram import Pictogram
from engine.core import Backbone, Method, Prompt
from engine.drafters.feature_draft import FeatureDrafter, NetworkFeatures
from engine.drafters.mesh_heads import SHORT, BoundHeads, HeadsByKind, MeshHeads
from engine.drafters.predictive_stream import PredictiveStream
from engine.drafters.spatial_heads import NetworkHeads, SpatialHeads
from engine.mesh.bpt_tokens import BPT
from engine.methods import METHODS, PRESETS, find
from research.train.adapters import new_adapter
from tests.engine.backbones import tiny, tiny_chameleon, tiny_checkpoints, tiny_glm_image, tiny_originals
from tests.engine.drafters.test_feature_draft import network
from tests.engine.drafters.test_spatial_heads import network as spatial_heads

Place = Callable[[nn.Module], nn.Module]
TEXT = Prompt("red apple", seed=3)
POINTS = Prompt(points=tiny.sphere(), seed=3)
LAYERS = ("query_key_value", "attention_out", "gate_up", "feed_out", "query", "out", "value_gate", "q_proj", "down_proj")


@dataclass
class Model:
    """A backbone with the drafters that fit it, by name, and a prompt."""

    backbone: Backbone
    prompt: Prompt
    drafters: dict[str, Any] = field(default_factory=dict)

    def drafter_of(self, method: Method) -> Any:
        """The drafter of a method; for a method that names several, all available ones; None if it has none."""
        drafters = {name: self.drafters[name] for name in method.drafters if name in self.drafters}
        return drafters if len(method.drafters) > 1 else next(iter(drafters.values()), None)


def copy_to(module: nn.Module, place: Place) -> nn.Module:
    """A copy on the device."""
    return place(deepcopy(module))


def feature_draft(place: Place) -> NetworkFeatures:
    """A random drafter for states of width 32."""
    return NetworkFeatures(copy_to(network(), place))


def stream(decoder: nn.Module, place: Place) -> PredictiveStream:
    """A random adapter of predictive rows from the second layer on."""
    torch.manual_seed(7)
    lora = new_adapter(decoder, LAYERS, 4, 8.0, 1)
    for up in lora.up:
        nn.init.normal_(up, std=0.2)
    return PredictiveStream(place(lora.requires_grad_(False)), True)


def pictogram(place: Place) -> Model:
    """Three scales, all drafters of pictures."""
    plain = tiny.pictogram()
    model = copy_to(plain.model, place)
    backbone = tiny.wide_open(Pictogram(model, copy_to(plain.tokenizer, place), tiny.WORDS, (8, 16, 32), {}))
    backbone.capabilities |= {"feature_draft", "predictive_stream", "spatial_heads"}
    prompt = Prompt("red apple", seed=3, size=128)
    return Model(backbone, prompt, {
        "feature_draft": feature_draft(place), "predictive_stream": stream(model.decoder, place),
        "spatial_heads": NetworkHeads(copy_to(spatial_heads(), place)),
    })  # fmt: skip


def lowpoly(place: Place) -> Model:
    """A mesh model with a grammar and all drafters of meshes."""
    backbone = Lowpoly(copy_to(tiny.mesh_model(), place), {})
    backbone.capabilities |= {"mesh_heads", "feature_draft", "predictive_stream"}
    return Model(backbone, POINTS, {
        "mesh_heads": mesh_heads(backbone, place), "feature_draft": feature_draft(place),
        "predictive_stream": stream(backbone.model.decoder, place),
    })  # fmt: skip


def mesh_heads(backbone: Lowpoly, place: Place) -> HeadsByKind:
    """Random heads of every kind."""

    def heads(kind: str) -> BoundHeads:
        torch.manual_seed(5)
        heads = MeshHeads(4, backbone.model.settings.width, 2, BPT.vocabulary, SHORT[kind], True)
        tiny.spread(heads, 0.3)
        return BoundHeads(place(heads), backbone.model.decoder.head)

    return HeadsByKind(list(SHORT), heads, backbone.name)


def bpt(place: Place) -> Model:
    """BPT's architecture."""
    return Model(Bpt(copy_to(tiny_originals.bpt_model(), place)), POINTS)


def janus(place: Place) -> Model:
    """With a feature drafter, for its hidden states."""
    backbone = Janus(place(tiny.janus_model()), tiny.janus_ids)
    backbone.capabilities |= {"feature_draft"}
    return Model(backbone, TEXT, {"feature_draft": feature_draft(place)})


def emu3(place: Place) -> Model:
    """Row ends."""
    return Model(Emu3(place(tiny_checkpoints.emu3_model()), tiny_checkpoints.read, side=4), TEXT)


def emu35(place: Place) -> Model:
    """Row ends, and a picture decoder of its own."""
    parts = place(tiny_checkpoints.emu35_model()), place(tiny_checkpoints.ibq())
    return Model(Emu35(*parts, tiny_checkpoints.letters, side=4, ids=tiny_checkpoints.IDS), TEXT)


def chameleon(name: str) -> Callable[[Place], Model]:
    """Anole, or Lumina-mGPT with row ends."""

    def build(place: Place) -> Model:
        kind, words = tiny_chameleon.kind(name), tiny_chameleon.words()
        own, picture = deepcopy(tiny_chameleon.model()), tiny_originals.picture_decoder()
        codes = codes_of(words, picture, kind)
        head = nn.Linear(own.config.hidden_size, len(codes), bias=False).requires_grad_(False)
        head.weight.copy_(own.lm_head.weight[codes])
        parts = place(own.model), place(head), copy_to(picture, place)
        return Model(Chameleon(*parts, kind, codes, words, tiny_chameleon.ids, tiny_chameleon.BOS), TEXT)

    return build


def glm_image(place: Place) -> Model:
    """Positions on three axes."""
    own = copy_to(tiny_glm_image.model(), place)
    sides = (tiny_glm_image.COLUMNS * FACTOR,)
    return Model(GlmImage(own, tiny_glm_image.read, sides=sides, small=tiny_glm_image.SMALL), TEXT)


def llamagen(place: Place) -> Model:
    """Classes."""
    plain = tiny_originals.llamagen()
    decoder, head, picture = (copy_to(part, place) for part in (plain.hosted.decoder, plain.head[0], plain.picture))
    tensors = place(nn.ParameterList(nn.Parameter(tensor, requires_grad=False) for tensor in plain.condition.values()))
    condition = dict(zip(plain.condition, tensors, strict=True))
    return Model(Llamagen(decoder, head, condition, picture, tiny_originals.SIDE), Prompt("3", seed=3))


MODELS: dict[str, Callable[[Place], Model]] = {
    "pictogram": pictogram, "lowpoly": lowpoly, "bpt": bpt, "janus": janus, "emu3": emu3, "emu35": emu35,
    "anole": chameleon("anole"), "lumina": chameleon("lumina"), "glm_image": glm_image, "llamagen": llamagen,
}  # fmt: skip


@cache
def near(name: str) -> Model:
    """A model on the processor."""
    return MODELS[name](stay)


@cache
def near_with_drafters(name: str) -> Model:
    """A model on the processor with a random drafter of every kind."""
    model = MODELS[name](stay)
    trunk, backbone = model.backbone.draft_trunk, model.backbone
    is_mesh = model.prompt.points is not None
    width = backbone.model.settings.width if is_mesh else trunk.config.hidden_size
    torch.manual_seed(6)
    features, heads = FeatureDrafter(width, 2, 48), SpatialHeads(width, backbone.vocabulary, 3)
    for each in (features, heads):
        tiny.spread(each, 0.3)
    model.drafters = {"feature_draft": NetworkFeatures(features), "predictive_stream": stream(trunk, stay)}
    model.drafters |= {"mesh_heads": mesh_heads(backbone, stay)} if is_mesh else {"spatial_heads": NetworkHeads(heads)}
    backbone.capabilities |= model.drafters.keys()
    return model


def stay(module: nn.Module) -> nn.Module:
    """The module, where it is."""
    return module


def methods_for(model: Model) -> list[str]:
    """The methods and presets for a model, in the order of the tables."""

    def fits(name: str) -> bool:
        method, knobs = find(name)
        borrows = "relax" in knobs and "codebook" not in model.backbone.capabilities
        return (
            not method.needs - model.backbone.capabilities
            and not borrows
            and all(name in model.drafters or name not in model.backbone.capabilities for name in method.drafters)
        )

    return [name for name in (*METHODS, *PRESETS) if fits(name)]
