"""lowpoly with the adapter of XSpecMesh's second stage merged in: a backbone of its own, easier to guess, and not quite the same law.

Paper: XSpecMesh, section 3.5: heads and a low-rank adapter of the backbone are trained together, and W + AB is used for inference. So
"exact" means exact with respect to this model; the card gives its divergence from lowpoly.
"""

from __future__ import annotations

from engine.backbones import lowpoly
from engine.backbones.lowpoly import Lowpoly
from engine.drafters.mesh_heads import SHORT
from engine.errors import MissingWeights
from engine.networks.weights import hash_of, parts, read_card


class LowpolyLora(Lowpoly):
    """lowpoly with merged weights and the heads that were trained with them."""

    name = "lowpoly_lora"
    heads_suffix = "_lora"


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto", kind: str = "cross") -> LowpolyLora:
    """Merges the adapter that was trained with heads of a kind ("cross" or "mlp"); raises MissingWeights if there is none."""
    from peft import PeftModel

    lowpoly.check_dtype(dtype)
    folder = lowpoly.model_folder(path)
    adapter = folder / f"lora_{kind}"
    if not (adapter / "adapter_config.json").exists():
        raise MissingWeights(f"{adapter} holds no adapter. Train it: python launch.py train mesh-heads, or use --backbone lowpoly.")
    model = lowpoly.load_model(folder)
    model.decoder.blocks = PeftModel.from_pretrained(model.decoder.blocks, str(adapter)).merge_and_unload()
    merged = LowpolyLora(lowpoly.ready(model, device), read_card(folder), folder)
    merged.kinds = [each for each in merged.kinds if SHORT[each] == kind]  # the others were trained beside another adapter
    merged.weights_hash = hash_of([*parts(folder, "model"), adapter / "adapter_model.safetensors"])
    return merged
