"""The predictive stream: a low-rank adapter for some rows of a pass; all other rows run the network unchanged.

Paper: Unifying Autoregressive and Discrete Diffusion Language Modeling via Cross-Regressive Decoding, Abulkhanov et al., section 4.1.
Row-selective: y = W x + s B A x on the rows from some number on, added after each linear layer, so the earlier rows stay identical to
the last bit. Compiled blocks compute it themselves (engine/networks/native_blocks.py). Other layers get hooks for one pass at a time and
for one thread, so plain decoding on the same weights is unaffected.
Adapters are stored in the format of peft: one trained with peft can be read here, and one trained here can be loaded there.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from engine.core import Rows, Sequence
from engine.errors import MissingWeights
from engine.kernels.cpu.steady_linear import SteadyLinear
from engine.kernels.row_lora import row_lora
from engine.networks.card import check_hash, has_card
from engine.networks.weights import need, read_card, read_json, read_tensors
from engine.sampling import guide

LARGEST_RANK = 4096
BLOCKS = ("blocks", "layers")  # names of a trunk's list of layers: in our trunks, and in transformers
PREFIX = "base_model.model."  # the prefix of every name in peft's files
# Options of peft that do not work for single rows: another formula, other weights, or other strengths by layer.
FOREIGN = ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern", "lora_bias", "alora_invocation_tokens", "target_parameters")


class Stream(Protocol):
    """The result of a backbone's `drafter("predictive_stream")`: weights that all runs share.

    causal : a predictive row sees earlier predictive rows only, not later ones
    both_ways : the stream for the same weights whose predictive rows also see later ones; None if none is trained
    """

    causal: bool
    both_ways: Stream | None

    def start(self, sequence: Sequence) -> Callable[[Rows, int], Tensor]:
        """Starts a run: from now on predictive rows of the sequence run with the adapter.

        Returns a function: the rows of a pass and the number of the first predictive one -> guided logits [R, V] of the predictive rows.
        The logits are raw, without grammar, temperature and filters; `Sequence.probs_after` turns them into distributions.
        """
        ...


class RowLora(nn.Module):
    """The adapter: A [rank, in] and B [out, rank] for each linear layer, named by its path in the trunk. A new one changes nothing."""

    def __init__(self, trunk: nn.Module, shapes: dict[str, tuple[int, int]], rank: int, scale: float):
        """shapes : (out, in) of each layer; scale : s, of B A x."""
        super().__init__()
        self.paths, self.scale, self.updates = list(shapes), scale, None
        self.first_layer = min(layer_of(path) or 0 for path in shapes)
        self.down = nn.ParameterList(nn.Parameter(torch.randn(rank, size[1]) / math.sqrt(size[1])) for size in shapes.values())
        self.up = nn.ParameterList(nn.Parameter(torch.zeros(size[0], rank)) for size in shapes.values())
        self._layers = [trunk.get_submodule(path) for path in shapes]  # a list, which keeps them out of parameters and state

    def pairs(self) -> Iterator[tuple[nn.Module, Tensor, Tensor]]:
        """Each adapted layer with its A and B."""
        return zip(self._layers, self.down, self.up, strict=True)

    @contextmanager
    def on_rows_from(self, first: int | Tensor) -> Iterator[None]:
        """In this context, rows from number `first` on of every pass of this thread run with the adapter; all others run without it."""
        thread = threading.get_ident()

        def hook(down: Tensor, up: Tensor) -> Callable[..., None]:
            def add(layer: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
                if threading.get_ident() == thread:
                    row_lora(output, inputs[0], down, up, first, self.scale)

            return add

        hooks = [layer.register_forward_hook(hook(*pair)) for layer, *pair in self.pairs()]
        try:
            yield
        finally:
            for handle in hooks:
                handle.remove()


class PredictiveStream:
    """An adapter and its visibility: the drafter that a method gets."""

    def __init__(self, lora: RowLora, causal: bool, both_ways: PredictiveStream | None = None):
        self.lora, self.causal, self.both_ways = lora.eval(), causal, both_ways

    def start(self, sequence: Sequence) -> Callable[[Rows, int], Tensor]:
        """Starts a run; see `Stream`."""
        sequence.adapter = self.lora
        guidance = sequence.sampling.guidance
        return lambda rows, first: guide(rows.logits[:, first:].float(), guidance)


def layer_of(path: str) -> int | None:
    """The number of the layer that a module's path in its trunk names; None for a module outside the layers."""
    first, _, rest = path.partition(".")
    return int(rest.split(".")[0]) if first in BLOCKS and rest else None


def layers_of(trunk: nn.Module) -> int:
    """The number of layers of a trunk."""
    return len(next(layers for name in BLOCKS if (layers := getattr(trunk, name, None)) is not None))


# --- files ------------------------------------------------------------------------------------------------------------


def folder_of(weights: Path, both_ways: bool = False) -> Path:
    """The folder, next to a model's weights, of the adapter, or of the adapter whose predictive rows also see later ones."""
    return weights / ("predictive_stream_both_ways" if both_ways else "predictive_stream")


def is_trained(weights: Path | None, both_ways: bool = False) -> bool:
    """True if there is an adapter next to a model's weights."""
    if weights is None:
        return False
    folder = folder_of(weights, both_ways)
    has_card(folder)  # restores it after an interrupted replacement; a folder written by peft has no card
    return (folder / "adapter_config.json").exists()


def read_adapter(weights: Path | None, trunk: nn.Module, base: str, weights_hash: str | None) -> PredictiveStream:
    """The adapter trained for these weights, with the adapter that sees both ways, if present; raises MissingWeights if there is none, or
    if one was trained for other weights."""
    if weights is None or not is_trained(weights):
        raise MissingWeights(f"{base} has no predictive_stream. Train it: python launch.py train predictive-stream --backbone {base}.")
    stream = read_stream(folder_of(weights), trunk, base, weights_hash)
    if is_trained(weights, both_ways=True):
        stream.both_ways = read_stream(folder_of(weights, both_ways=True), trunk, base, weights_hash)
    return stream


def read_stream(folder: Path, trunk: nn.Module, base: str, weights_hash: str | None) -> PredictiveStream:
    """The adapter in a folder; raises MissingWeights if it is damaged, or was trained for other weights."""
    config = read_config(folder)
    if (config.get("base_model_name_or_path"), config.get("revision")) != (base, weights_hash):
        other = f"{config.get('base_model_name_or_path')} ({config.get('revision')})"
        raise _unusable(folder, f"was trained for the weights {other}, and these are {base} ({weights_hash})")
    pairs = read_pairs(folder, config["r"], trunk)
    lora = RowLora(trunk, {path: (len(up), down.shape[1]) for path, (down, up) in pairs.items()}, config["r"], scale_of(config))
    for ours, theirs in zip((*lora.down, *lora.up), (*(d for d, _ in pairs.values()), *(u for _, u in pairs.values())), strict=True):
        ours.data = theirs
    card = read_card(folder) if (folder / "card.json").exists() else {}
    causal = need(card, "causal", bool, folder) if "causal" in card else True
    device = next(trunk.parameters()).device
    return PredictiveStream(lora.requires_grad_(False).to(device), causal)


def read_config(folder: Path) -> dict[str, Any]:
    """peft's settings; raises MissingWeights if they are damaged, or if the adapter is not a plain LoRA."""
    path = folder / "adapter_config.json"
    config = read_json(path)
    try:
        check_hash(path)
    except (OSError, ValueError) as e:
        raise _unusable(folder, f"has settings that cannot be read ({e})") from e
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if type(rank) is not int or not 1 <= rank <= LARGEST_RANK or isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise _unusable(folder, f"has settings that cannot be read (r = {rank!r}, lora_alpha = {alpha!r})")
    strange = [name for name in FOREIGN if config.get(name)]
    if config.get("peft_type") != "LORA" or config.get("bias", "none") != "none" or strange or not alpha > 0:
        raise _unusable(folder, f"is not a plain LoRA ({', '.join(strange) or config.get('peft_type')})")
    return config


def scale_of(config: dict[str, Any]) -> float:
    """The factor s of s B A x."""
    return config["lora_alpha"] / (math.sqrt(config["r"]) if config.get("use_rslora") else config["r"])


def read_pairs(folder: Path, rank: int, trunk: nn.Module) -> dict[str, tuple[Tensor, Tensor]]:
    """A [rank, in] and B [out, rank] of every layer by its path in the trunk; raises MissingWeights for names or shapes that do not fit.
    Reads safetensors only: peft's other format can run code."""
    path = folder / "adapter_model.safetensors"
    if not path.exists() and (folder / "adapter_model.bin").exists():
        raise _unusable(folder, "is an adapter_model.bin, which could run code. Only adapter_model.safetensors is read")
    tensors, layers = read_tensors(path), dict(trunk.named_modules())
    paths = sorted({key.removeprefix(PREFIX).rsplit(".lora_", 1)[0] for key in tensors})
    expected = {f"{PREFIX}{path}.lora_{half}.weight" for path in paths for half in "AB"}
    if not paths or expected != set(tensors) or not set(paths) <= set(layers):
        strange = next(iter(sorted(expected ^ set(tensors)) or sorted(set(paths) - set(layers))), "no tensor at all")
        raise _unusable(folder, f"does not fit this network ({strange})")
    pairs = {path: (tensors[f"{PREFIX}{path}.lora_A.weight"], tensors[f"{PREFIX}{path}.lora_B.weight"]) for path in paths}
    for path, (down, up) in pairs.items():
        _check_pair(folder, path, down, up, rank, layers[path])
    return pairs


def _check_pair(folder: Path, path: str, down: Tensor, up: Tensor, rank: int, layer: nn.Module) -> None:
    if not isinstance(layer, nn.Linear | SteadyLinear) or down.ndim != 2 or up.ndim != 2:
        raise _unusable(folder, f"does not fit this network ({path})")
    if (len(up), down.shape[1]) != (layer.out_features, layer.in_features):
        own = f"{layer.in_features} -> {layer.out_features}"
        raise _unusable(folder, f"adapts a layer {down.shape[1]} -> {len(up)} at {path}, which is {own} here")
    for tensor, shape in ((down, (rank, down.shape[1])), (up, (len(up), rank))):
        if tuple(tensor.shape) != shape:
            raise _unusable(folder, f"has a tensor {list(tensor.shape)} where its rank {rank} needs {list(shape)}")


def _unusable(folder: Path, what: str) -> MissingWeights:
    return MissingWeights(f"The adapter in {folder} {what}. Train one for these weights: python launch.py train predictive-stream.")
