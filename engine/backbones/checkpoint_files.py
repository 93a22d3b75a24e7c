"""Reads a checkpoint of transformers from a local folder: configuration, weights, tokenizer. Never downloads anything.

Everything is checked before it is used, because transformers fills gaps in the weights with noise, allocates whatever a configuration asks
for, and ignores tensors it does not know. Every failure is a sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from engine.checkpoints.families import TOKENIZER_FILES, ModelFamily, what_else
from engine.checkpoints.reading import DTYPES
from engine.errors import MissingWeights, NotSupported, first_line
from engine.kernels.compressed_linear import compress
from engine.layout import Raster
from engine.machine import has_bfloat16
from engine.memory import FULL, Size, check
from engine.networks.hosted import DRAFT_ROWS, head_width
from engine.networks.hosted_attention import whole_blocks

Configuration = TypeVar("Configuration", bound=PreTrainedConfig)
UNREADABLE = (
    OSError, ValueError, RuntimeError, TypeError, AttributeError, LookupError, ArithmeticError, SafetensorError, StrictDataclassError,
)  # fmt: skip
# what transformers and safetensors raise for damaged files
PROMPT = 256  # tokens of the prompt assumed by the estimate of memory


def checkpoint_folder(path: str | None, family: ModelFamily) -> Path:
    """The folder of a checkpoint: `path`, or the folder that the file `path` lies in. Raises MissingWeights or NotSupported."""
    if path is None:
        raise MissingWeights(f"{family.name} needs a folder with its weights. Download {family.source} and name that folder.")
    folder = Path(path).parent if Path(path).is_file() else Path(path)
    config = read_config(folder, family.source)
    if not family.fits(config, {}):
        raise NotSupported(f"{folder} {what_else(config, {})}")
    return folder


def read_config(folder: Path, source: str) -> dict[str, Any]:
    """The object in config.json; raises MissingWeights."""
    path = folder / "config.json"
    if not path.is_file():
        raise MissingWeights(f"{folder} holds no config.json. Give the folder of a downloaded {source}.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as e:
        raise MissingWeights(f"{path} is damaged ({first_line(e)}). Download the folder again.") from e
    if not isinstance(config, dict):
        raise MissingWeights(f"{path} is damaged (it holds no object). Download the folder again.")
    return config


def configuration(folder: Path, kind: type[Configuration]) -> Configuration:
    """The configuration in a folder; raises MissingWeights if an entry is impossible."""
    try:
        return kind.from_pretrained(folder, local_files_only=True)
    except UNREADABLE as e:
        raise MissingWeights(f"The config.json in {folder} cannot be read ({first_line(e)}). Download it again.") from e


def read_model(
    folder: Path, kind: type[PreTrainedModel], dtype: torch.dtype, needed: str, config: PreTrainedConfig, device: str, weights: str = FULL
) -> PreTrainedModel:
    """The model with all its weights on a device, for inference; raises MissingWeights if any are absent or damaged.

    The files are mapped, so weights for a GPU never fill the memory of the machine. Weights to be compressed are mapped in the files' dtype
    and converted layer by layer, so neither memory ever holds all of them.

    needed : the decoder, as the names of its tensors begin; more of them than the configuration says is an error
    weights : the form of the decoder's linear layers
    """
    try:
        check_numbers(folder, kind, config)
        with quiet_transformers(bars=True):
            first, place = (dtype, device) if weights == FULL else (dtype_in(folder), "cpu")
            settings = {"config": config, "dtype": first, "attn_implementation": "sdpa", "device_map": {"": place}}
            model = complete(folder, kind, folder.name, needed, **settings)
    except UNREADABLE as e:
        raise MissingWeights(f"The weights in {folder} cannot be read ({first_line(e)}). Download them again.") from e
    compress(model.get_submodule(needed.rstrip(".")), weights, device, dtype)
    check_finite(model, folder)
    return (model if weights == FULL else model.to(dtype)).to(device).eval().requires_grad_(False)


def complete(folder: Path, kind: type[PreTrainedModel], name: str, needed: str | tuple[()] = (), **how: Any) -> PreTrainedModel:
    """The model that transformers makes of a folder; raises MissingWeights, about the name, unless it has all tensors in their shapes.

    needed : how the names of tensors begin of which there may be no others; how : further arguments of `from_pretrained`
    """
    model, report = kind.from_pretrained(
        folder, local_files_only=True, output_loading_info=True, use_safetensors=True, ignore_mismatched_sizes=True, **how
    )
    if gaps := sorted(report["missing_keys"]):
        raise MissingWeights(f"{name} lacks {len(gaps)} tensors, such as {gaps[0]}. Download it again.")
    if spare := sorted(each for each in report["unexpected_keys"] if each.startswith(needed)):
        raise MissingWeights(f"{name} holds more layers than config.json says, such as {spare[0]}. Download it again.")
    if wrong := sorted(report["mismatched_keys"], key=str):
        tensor, has, wants = wrong[0]
        raise MissingWeights(f"{name} has {tensor} of shape {list(has)}, not {list(wants)}. It belongs to another config.json.")
    return model


@contextmanager
def quiet_transformers(bars: bool = False) -> Iterator[None]:
    """transformers without reports and, unless `bars`, without progress bars: our own error messages say what is wrong."""
    level, shown = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    if not bars:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def dtype_of(device: str, dtype: str) -> torch.dtype:
    """The type of a decoder. "auto" is bfloat16, but float32 on a device that would emulate its products."""
    if dtype == "auto":
        dtype = "bfloat16" if has_bfloat16(torch.device(device)) else "float32"
    return getattr(torch, dtype)


def check_room(
    family: ModelFamily, numbers: int, text: PreTrainedConfig, layout: Raster, vocabulary: int, device: str, dtype: torch.dtype,
    weights: str = FULL, branches: int = 2, decodes: bool = True,
) -> Size:  # fmt: skip
    """The size of a run. Raises TooLittleMemory if some numbers of weights, the cache and the distributions of a picture do not fit into
    the device.

    text : the configuration of the decoder; layout : the picture's; weights : the form of its linear layers; decodes : whether a network
    makes pixels of its codes
    """
    codes = layout.rows * layout.columns
    rows = codes + layout.rows + min(max(text.max_position_embeddings - codes, 0), PROMPT) + DRAFT_ROWS
    size = Size(
        parameters=numbers,
        layers=text.num_hidden_layers,
        heads=text.num_key_value_heads,
        width=head_width(text),
        slots=whole_blocks(rows, torch.device(device)),
        vocabulary=vocabulary,
        pixels=codes * layout.factor**2 if decodes else 0,
        branches=branches,
        linear=linear_numbers(text),
    )
    check(family.name, size, device, str(dtype).removeprefix("torch."), weights=weights)
    return size


def linear_numbers(text: PreTrainedConfig) -> int:
    """The numbers in the linear layers of a decoder: queries, keys, values and output of its attention, and three of its network."""
    attention = 2 * head_width(text) * (text.num_attention_heads + text.num_key_value_heads)
    return text.num_hidden_layers * text.hidden_size * (attention + 3 * text.intermediate_size)


def cut_numbers(text: PreTrainedConfig, codes: int) -> int:
    """The numbers that a head loses when it is cut to the codes of pictures."""
    return (text.vocab_size - codes) * text.hidden_size


def numbers_in(folder: Path) -> int:
    """The number of elements in the safetensors files of a folder, from their headers; raises MissingWeights for a damaged one."""
    held = 0
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(path, "pt") as file:
                held += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except UNREADABLE as e:
        raise MissingWeights(f"The weights in {folder} cannot be read ({first_line(e)}). Download them again.") from e
    return held


def dtype_in(folder: Path) -> torch.dtype:
    """The type of the first tensor in the safetensors files of a folder that has one of `DTYPES`' floating-point types."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            kinds = (DTYPES.get(file.get_slice(name).get_dtype()) for name in file.keys())  # noqa: SIM118
            if (kind := next((kind for kind in kinds if kind is not None and kind.is_floating_point), None)) is not None:
                return kind
    raise ValueError("no file holds numbers")


def check_finite(model: nn.Module, folder: Path) -> None:
    """Raises MissingWeights if a weight is not a finite number; of compressed weights, the scales show it."""
    tensors = (*model.named_parameters(), *((name, scales) for name, scales in model.named_buffers() if name.endswith(".scales")))
    strange = next((name for name, weights in tensors if not torch.isfinite(weights).all()), None)
    if strange is not None:
        raise MissingWeights(f"The weights in {folder} are damaged: {strange} holds numbers that are not finite. Download them again.")


def check_numbers(folder: Path, kind: type[PreTrainedModel], config: PreTrainedConfig) -> None:
    """Raises ValueError if the configuration asks for many more numbers than the folder holds. transformers would allocate them first."""
    with torch.device("meta"):
        needed = sum(p.numel() for p in kind(config).parameters())
    held = numbers_in(folder)
    if needed > 2 * held:
        raise ValueError(f"config.json asks for {needed:,} numbers and the safetensors files hold {held:,}")


def read_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder; raises MissingWeights."""
    if not any((folder / name).is_file() for name in TOKENIZER_FILES):
        raise MissingWeights(
            f"{folder} holds no tokenizer, without which no text is read. Copy tokenizer.json or tokenizer.model, and "
            "tokenizer_config.json, from where its weights come from into it."
        )
    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise MissingWeights(f"The tokenizer in {folder} cannot be read ({first_line(e)}). Download it again.") from e
