"""lowpoly with the adapter of XSpecMesh's second stage merged in: a separate backbone, easier to draft for, with a slightly different
distribution.

Paper: XSpecMesh, section 3.5: heads and a low-rank adapter of the backbone are trained together, and inference uses W + AB. So "exact"
means exact with respect to this model; the card records its divergence from lowpoly.
"""

from __future__ import annotations

import torch

from engine.backbones import lowpoly
from engine.backbones.lowpoly import Lowpoly
from engine.drafters.mesh_heads import SHORT
from engine.drafters.predictive_stream import read_config, read_pairs, scale_of
from engine.errors import MissingWeights
from engine.networks.weights import hash_of, parts, read_card


class LowpolyLora(Lowpoly):
    """lowpoly with merged weights, and the heads that were trained with them."""

    name = "lowpoly_lora"
    heads_suffix = "_lora"


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", kind: str = "cross") -> LowpolyLora:
    """lowpoly with the adapter that was trained with one kind of heads ("cross" or "mlp"); raises MissingWeights if there is none."""
    products = lowpoly.checked_dtype(device, dtype)
    folder = lowpoly.model_folder(path)
    adapter = folder / f"lora_{kind}"
    if not (adapter / "adapter_config.json").exists():
        raise MissingWeights(f"{adapter} holds no adapter. Train it: python launch.py train mesh-heads, or use --backbone lowpoly.")
    model = lowpoly.load_model(folder)
    config = read_config(adapter)
    with torch.no_grad():
        for name, (down, up) in read_pairs(adapter, config["r"], model.decoder.blocks).items():
            model.decoder.blocks.get_submodule(name).weight += (up @ down) * scale_of(config)
    merged = LowpolyLora(lowpoly.ready(model, device, products), read_card(folder), folder, dtype=products)
    merged.kinds = [each for each in merged.kinds if SHORT[each] == kind]  # the others were trained with another adapter
    merged.base_hash = hash_of(parts(folder, "model"))
    merged.weights_hash = hash_of([*parts(folder, "model"), adapter / "adapter_model.safetensors"])
    return merged
