"""Tiny model folders of every kind with all files that may accompany the weights, and functions that use one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from engine.backbones import load
from engine.core import Backbone, Prompt
from engine.drafters import feature_draft, predictive_stream, resampler
from engine.drafters.mesh_heads import MeshHeads
from engine.mesh.bpt_tokens import BPT
from engine.methods import METHODS
from engine.networks.mesh_decoder import describe
from engine.networks.weights import ship, split
from engine.recognition import picture_judge as judge
from engine.run import generate
from research.train import adapters
from tests.engine.backbones import tiny

PROMPT = "two red cats on a table"
LAYERS = {"pictogram": ("query_key_value", "attention_out"), "lowpoly": ("query_key_value", "out")}


def pictogram(folder: Path, seed: int = 1) -> Path:
    """A pictogram with a feature drafter, a predictive stream and a resampler."""
    torch.manual_seed(seed)
    backbone = tiny.pictogram()
    drafter = feature_draft.FeatureDrafter(32, 2, 48)
    upward = resampler.UpSampler(backbone.codebook(), 2, 8, 1)
    files = {
        "tokenizer.safetensors": random_state(backbone.tokenizer, seed), "decoder-1.safetensors": random_state(backbone.model, seed),
        "feature_draft.safetensors": drafter.state_dict(),
        "resampler.safetensors": {f"2.{k}": v for k, v in upward.state_dict().items()},
    }  # fmt: skip
    card = {
        "name": "pictogram", "words": tiny.WORDS, "sides": [8, 16],
        "tokenizer": {"settings": backbone.tokenizer.settings, "held_out": {"psnr": 30.5}},
        "decoder": {"settings": backbone.model.settings, "files": 1, "held_out": {"loss": 0.5}, "curve": [{"step": 1, "loss": 2.0}]},
        "feature_draft": {"settings": drafter.settings}, "resampler": {"networks": {"2": upward.settings}, "spreads": {"2": 0.5}},
    }  # fmt: skip
    ship(folder, files, card)
    stream(folder, load("pictogram", str(folder)), "pictogram")
    return folder


def random_state(model: nn.Module, seed: int) -> dict[str, torch.Tensor]:
    """A random state of a model by seed."""
    return {k: v if seed == 1 else v + 0.01 * seed for k, v in model.state_dict().items() if k != "one_hot"}


def stream(folder: Path, backbone: Backbone, name: str) -> None:
    """A predictive stream for the weights of a folder."""
    paths = {path.rsplit(".", 1)[-1] for path, layer in backbone.model.decoder.named_modules() if isinstance(layer, nn.Linear)}
    adapter = adapters.new_adapter(backbone.model.decoder, tuple(sorted(paths & set(LAYERS[name])) or sorted(paths)[:1]), 2, 4.0)
    adapters.write_adapter(predictive_stream.folder_of(folder), adapter, name, backbone.weights_hash, 4.0)


def lowpoly(folder: Path) -> Path:
    """A lowpoly with heads, a feature drafter, a predictive stream, and the adapter and heads of lowpoly:lora."""
    from peft import LoraConfig, get_peft_model

    model = tiny.mesh_model()
    torch.manual_seed(2)
    heads, drafter = MeshHeads(2, 32, 2, BPT.vocabulary, "cross"), feature_draft.FeatureDrafter(32, 2, 48)
    states = {"heads_cross": heads, "heads_cross_lora": heads, "feature_draft": drafter}
    files = split(model.state_dict(), "model") | {f"{name}.safetensors": part.state_dict() for name, part in states.items()}
    card = {
        "name": "lowpoly", "families": ["table"], "model": {"settings": describe(model.settings), "files": 1, "held_out": {"loss": 1.5}},
        "heads": {name: {"settings": heads.settings} for name in ("heads_cross", "heads_cross_lora")},
        "feature_draft": {"settings": drafter.settings},
    }  # fmt: skip
    ship(folder, files, card)
    backbone = load("lowpoly", str(folder))
    stream(folder, backbone, "lowpoly")
    names = sorted({path.rsplit(".", 1)[-1] for path, layer in model.decoder.blocks.named_modules() if isinstance(layer, nn.Linear)})
    blocks = load("lowpoly", str(folder)).model.decoder.blocks
    get_peft_model(blocks, LoraConfig(r=2, lora_alpha=4, target_modules=names[:2])).save_pretrained(str(folder / "lora_cross"))
    return folder


def picture_judge(folder: Path) -> Path:
    """A judge."""
    network = judge.Judge(["apple", "cat", "table"], 4)
    card = {"name": "judge", "names": list(network.names), "judge": {"settings": network.settings, "held_out": {"all": 0.9}}}
    ship(folder, {"judge.safetensors": network.state_dict()}, card)
    return folder


def use(name: str) -> Callable[[Path], str]:
    """Uses a folder of this kind as a user would: loads the weights and every other part, and takes two steps."""
    return use_judge if name == "judge" else lambda folder: use_backbone(name, folder)


def use_backbone(name: str, folder: Path) -> str:
    """Loads a backbone with all its drafters, and takes two steps of plain decoding."""
    backbone = load(name, str(folder))
    finite(backbone.model)
    for drafter in sorted({"mesh_heads", "feature_draft", "predictive_stream"} & backbone.capabilities):
        drafters = backbone.drafter(drafter)
        if drafter == "mesh_heads":
            finite(drafters.of(drafters.kinds[0]).heads)
        elif isinstance(drafters, nn.Module):
            finite(drafters)
    if name == "pictogram":
        assert backbone.resampler is not None
        prompt = Prompt(PROMPT, size=backbone.sizes[0])
    else:
        prompt = Prompt(points=tiny.sphere())
    run = generate(backbone, METHODS["ar"], prompt)
    steps = [next(run), next(run)]
    run.close()
    assert all(isinstance(token, int) for step in steps for token in step.tokens)
    return f"{name} {backbone.weights_hash}"


def use_judge(folder: Path) -> str:
    """Loads a judge and shows it a gray picture."""
    network = judge.load(folder)
    finite(network)
    network.read([np.full((128, 128, 3), 99, np.uint8)])
    return f"a judge of {len(network.names)}"


def finite(module: nn.Module) -> None:
    """Fails if a weight is not finite."""
    for name, tensor in module.state_dict().items():
        assert torch.isfinite(tensor).all(), f"{name} holds numbers that are not finite"


def link_copy(folder: Path, target: Path, name: str, content: bytes | None) -> Path:
    """A copy of a folder by hard links, with one file replaced or left out."""
    shutil.copytree(folder, target, copy_function=os.link)
    (target / name).unlink()
    if content is not None:
        (target / name).write_bytes(content)
    return target
