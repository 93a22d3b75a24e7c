"""Layers to train on top of a model: new adapters and their files, and plain linear layers in place of packed ones."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from engine.drafters.predictive_stream import PREFIX, RowLora, layer_of
from engine.kernels.cpu.steady_linear import SteadyLinear


def new_adapter(trunk: nn.Module, layers: tuple[str, ...], rank: int, alpha: float, first: int = 0) -> RowLora:
    """A new adapter on the linear layers with these names, in the trunk's `blocks` from `first` on."""
    shapes = {
        path: (layer.out_features, layer.in_features)
        for path, layer in trunk.named_modules()
        if path.rsplit(".", 1)[-1] in layers and (number := layer_of(path)) is not None and first <= number
    }
    return RowLora(trunk, shapes, rank, alpha / rank)


def write_adapter(folder: Path, lora: RowLora, base: str, weights_hash: str | None, alpha: float) -> None:
    """Writes an adapter in the format of peft, in half precision. The base model's name and hash become peft's model and revision."""
    from peft import LoraConfig
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    names = sorted({path.rsplit(".", 1)[-1] for path in lora.paths})
    LoraConfig(
        r=len(lora.down[0]), lora_alpha=alpha, target_modules=names, inference_mode=True, base_model_name_or_path=base,
        revision=weights_hash, layers_to_transform=sorted({layer_of(path) or 0 for path in lora.paths}),
        layers_pattern=lora.paths[0].split(".")[0],
    ).save_pretrained(str(folder))  # fmt: skip
    tensors: dict[str, Tensor] = {}
    for path, down, up in zip(lora.paths, lora.down, lora.up, strict=True):
        tensors |= {f"{PREFIX}{path}.lora_A.weight": down, f"{PREFIX}{path}.lora_B.weight": up}
    save_file({k: v.detach().half().contiguous().cpu() for k, v in tensors.items()}, str(folder / "adapter_model.safetensors"))
    (folder / "adapter_model.safetensors").chmod(0o644)


def restore_linear(module: nn.Module) -> None:
    """Replaces every steady layer inside a module by a plain one, which has a gradient: for training on top of a loaded checkpoint."""
    for child in list(module.modules()):
        for name, layer in list(child.named_children()):
            if isinstance(layer, SteadyLinear):  # or a compressed one
                with torch.device("meta"):
                    linear = nn.Linear(layer.in_features, layer.out_features, bias=layer.bias is not None)
                linear.weight = nn.Parameter(layer.expanded().clone(), requires_grad=False)
                if layer.bias is not None:
                    linear.bias = nn.Parameter(layer.bias.detach().clone(), requires_grad=False)
                setattr(child, name, linear)
