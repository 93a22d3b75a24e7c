"""janus: text -> picture with Janus and Janus-Pro (DeepSeek), through the classes of transformers.

Paper: Janus-Pro: Unified Multimodal Understanding and Generation with Data and Model Scaling, arXiv 2501.17811.
A Llama trunk reads the conversation and a begin-of-image token, then 24x24 picture tokens row by row, without row-end tokens. A
picture token has its own embedding and an aligner on the way in, and a head over picture tokens only on the way out. Guidance
pairs the prompt with one of the same length whose words are padding, attended like any other token, so a pair is one batch.

The trunk is transformers' own; the cache is ours. `_Layer` hands it a `Slab`, because a cache of transformers can drop a suffix
but cannot keep one path of a tree. Two constraints follow. A boolean mask is right only with sdpa attention (eager attention would
add it as 0 and 1), and positions must be explicit, since a node's depth in a tree is not the length of the cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoTokenizer, Cache, JanusConfig, JanusForConditionalGeneration
from transformers.cache_utils import CacheLayerMixin

from engine.backbones.prompts import readable_text
from engine.cache import Slab
from engine.core import ANY_SUIT, Prompt, Sampling
from engine.errors import BadPrompt, MissingWeights, NotSupported
from engine.layout import Raster
from engine.networks.sequence import TransformerSequence
from engine.networks.transformer import Fork

CHECKPOINT = "deepseek-community/Janus-Pro-1B"
CONVERSATION = "<|User|>: {}\n\n<|Assistant|>:"  # the checkpoint's chat template for one question
MISSING_COLOUR = (30, 34, 42)
DRAFT_ROWS = 256  # extra rows after the longest sequence, for the drafts of a pass


class _Layer(CacheLayerMixin):
    """One layer of a Slab, with the interface of a transformers cache layer."""

    def __init__(self, slab: Slab, layer: int):
        super().__init__()
        self.slab, self.layer, self.is_initialized = slab, layer, True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: the slab is allocated when the run begins."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        """Writes [branches, heads, R, width] after the kept rows; returns all visible keys and values."""
        return self.slab.write(self.layer, key_states, value_states)

    def get_seq_length(self) -> int:
        """The number of kept rows."""
        return self.slab.kept

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """The number of visible rows in a pass of `query_length`, and the index of the first."""
        return self.slab.kept + query_length, 0

    def get_max_length(self) -> int:
        """The number of rows that fit."""
        return self.slab.capacity


class _Trunk:
    """The picture half of Janus as a trunk for TransformerSequence. It holds no cache, so closing a run frees the slab."""

    def __init__(self, model: JanusForConditionalGeneration):
        self.model, self.language = model, model.model.language_model

    def embed(self, tokens: Tensor) -> Tensor:
        return self.model.prepare_embeddings_for_image_generation(tokens)[None]

    def run(self, x: Tensor, slots: Tensor, mask: Tensor | None, slab: Slab, fork: Fork | None = None) -> Tensor:
        assert fork is None, "Janus has no predictive stream"
        assert mask is not None or x.shape[1] == 1, "transformers reads a missing mask as a causal one"
        cache = Cache(layers=[_Layer(slab, i) for i in range(len(self.language.layers))])
        return self.language(
            inputs_embeds=x,
            position_ids=slots[None],
            attention_mask=None if mask is None else mask[None, None],  # 4-D masks are used unchanged
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state

    def head(self, hidden: Tensor) -> Tensor:
        return self.model.model.generation_head(hidden)


class Janus:
    """The backbone: a JanusForConditionalGeneration and a function from text to the token ids of a whole prompt (BOS ... BOI)."""

    name, end, weights_hash = "janus", None, None
    card: Mapping[str, Any] = MappingProxyType({})
    words: Mapping[str, int] = MappingProxyType({})  # its tokenizer reads any word
    capabilities = frozenset({"raster", "wavefront", "text", "codebook", "hidden"})
    suits = ANY_SUIT
    sampling = Sampling(temperature=1.0, top_k=0, top_p=1.0, guidance=5.0)

    def __init__(self, model: JanusForConditionalGeneration, read: Callable[[str], list[int]]):
        self.model, self.read = model.eval(), read
        self.device, self.dtype = model.device, str(model.dtype).removeprefix("torch.")
        self.parameters = sum(p.numel() for p in model.parameters())
        self.bos, self.boi, self.pad = special_ids(model)
        vq = model.config.vq_config
        self.limit, self.vocabulary = model.config.vision_config.num_image_tokens, vq.num_embeddings
        self.layout = Raster(vq.num_patches, vq.num_patches, 2 ** (len(vq.channel_multiplier) - 1))
        assert self.layout.rows * self.layout.columns == self.limit, (self.layout, self.limit)
        attention = model.model.language_model.config._attn_implementation
        assert attention == "sdpa", f"boolean masks are wrong with {attention} attention; load the model with sdpa"

    @property
    def sizes(self) -> list[int]:
        """The one picture size, in pixels."""
        return [self.layout.rows * self.layout.factor]

    def warning(self, text: str) -> str:
        """Nothing: it does not know what it cannot draw."""
        return ""

    def unknown_words(self, text: str) -> dict[str, list[str]]:
        """Empty: the tokenizer reads any text."""
        return {}

    def start(self, prompt: Prompt) -> TransformerSequence:
        """Prefills a prompt; raises BadPrompt if the text is empty or too long, or for a size that the model does not make."""
        self._check_size(prompt.size)
        ids, sampling = self._ids(prompt), prompt.sampling or self.sampling
        rows = torch.tensor([ids, self.unconditional(ids)][: 1 if sampling.guidance == 1 else 2], device=self.device)
        trunk, config = _Trunk(self.model), self.model.model.language_model.config
        capacity = len(ids) + self.limit + DRAFT_ROWS
        heads, width = config.num_key_value_heads, config.head_dim
        slab = Slab(config.num_hidden_layers, len(rows), heads, capacity, width, self.device, self.model.dtype)
        return TransformerSequence(
            trunk, trunk.language.embed_tokens(rows), None, slab,
            vocabulary=self.vocabulary, limit=self.limit, layout=self.layout, sampling=sampling,
            codebook=self.codebook(),
        )  # fmt: skip

    def unconditional(self, ids: list[int]) -> list[int]:
        """The prompt with padding for its words: all ids but begin of sequence and begin of image."""
        return [i if i in (self.bos, self.boi) else self.pad for i in ids]

    def _ids(self, prompt: Prompt) -> list[int]:
        text = readable_text(prompt.text, "a red apple on a blue table")
        ids = self.read(text)
        most = self.model.model.language_model.config.max_position_embeddings - self.limit
        if len(ids) > most:
            raise BadPrompt(f"The prompt has {len(ids):,} tokens; janus reads at most {most:,}. Shorten it.")
        return ids

    def _check_size(self, size: int | None) -> None:
        if size not in (None, *self.sizes):
            raise BadPrompt(f"janus makes pictures of {self.sizes[0]} pixels, not {size}. Choose {self.sizes[0]}.")

    @torch.inference_mode()
    def render(self, tokens: list[int], positions: list[int], final: bool, size: int | None = None) -> np.ndarray:
        """uint8 [H, W, 3]; missing tokens of a partial picture are dark gray. `final` has no effect: there is one decoder."""
        side, factor = self.layout.rows, self.layout.factor
        grid = torch.zeros(self.limit, dtype=torch.int64, device=self.device)
        known = torch.zeros(self.limit, dtype=torch.bool, device=self.device)
        at = torch.tensor(positions, dtype=torch.int64, device=self.device)
        grid[at], known[at] = torch.tensor(tokens, dtype=torch.int64, device=self.device), True
        picture = self.model.decode_image_tokens(grid[None])[0].float()  # [H, W, 3] in about -1..1
        pixels = ((picture.clamp(-1, 1) + 1) * 127.5).round().byte()
        shown = known.view(side, side).repeat_interleave(factor, 0).repeat_interleave(factor, 1)
        pixels[~shown] = torch.tensor(MISSING_COLOUR, dtype=torch.uint8, device=self.device)
        return pixels.cpu().numpy()

    def codebook(self) -> Tensor:
        """The decoder's input for every token, float32 [V, D]: rows of length 1, because the decoder normalises them."""
        return F.normalize(self.model.model.vqmodel.quantize.embedding.weight.detach().float(), dim=-1)


def special_ids(model: JanusForConditionalGeneration) -> tuple[int, int, int]:
    """Begin of sequence, begin of image, padding; raises MissingWeights if the generation settings lack one."""
    settings = model.generation_config
    picture = getattr(settings, "generation_kwargs", None) or {}
    ids = {
        "bos_token_id": settings.bos_token_id,
        "generation_kwargs.boi_token_id": picture.get("boi_token_id"),
        "pad_token_id": settings.pad_token_id,
    }
    lacking = [name for name, value in ids.items() if type(value) is not int]
    if lacking:
        raise MissingWeights(f"generation_config.json has no {' and no '.join(lacking)}. Download {CHECKPOINT} again.")
    return tuple(ids.values())


# --- files ------------------------------------------------------------------------------------------------------------


def load(path: str | None = None, device: str = "cpu", dtype: str = "auto") -> Janus:
    """The backbone in a local folder; downloads nothing. dtype "auto" is float32 on a CPU and bfloat16 elsewhere.

    Raises MissingWeights for an absent, incomplete or damaged folder, NotSupported for the folder of another model.
    """
    folder = _folder(path)
    if dtype == "auto":
        dtype = "float32" if torch.device(device).type == "cpu" else "bfloat16"
    model = _read_model(folder, getattr(torch, dtype))
    for part in ("vision_model", "aligner"):  # for understanding pictures; generation never calls them
        setattr(model.model, part, None)
    return Janus(model.requires_grad_(False).to(device), _reader(folder, special_ids(model)[1]))


def _folder(path: str | None) -> Path:
    """The folder of a converted Janus checkpoint."""
    if path is None:
        raise MissingWeights(f"janus needs a folder with its weights. Download {CHECKPOINT} and name that folder.")
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise MissingWeights(f"{folder} holds no config.json. Name the folder of a downloaded {CHECKPOINT}.")
    try:
        kind = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("model_type")
    except (OSError, ValueError, AttributeError, RecursionError) as e:
        raise MissingWeights(f"{folder / 'config.json'} is damaged ({_first_line(e)}). Download the folder again.") from e
    if kind == "multi_modality":
        raise NotSupported(f"{folder} holds Janus in DeepSeek's own format. Use the converted one, for instance {CHECKPOINT}.")
    if kind != "janus":
        raise NotSupported(f"{folder} holds a model of type '{kind}', not janus. Name the folder of a {CHECKPOINT}.")
    return folder


def _read_model(folder: Path, dtype: torch.dtype) -> JanusForConditionalGeneration:
    """The model with all its weights; raises MissingWeights if any are absent, because transformers would fill the gaps with noise."""
    try:
        _check_size(folder)
        model, report = JanusForConditionalGeneration.from_pretrained(
            folder, local_files_only=True, dtype=dtype, attn_implementation="sdpa", output_loading_info=True, use_safetensors=True
        )
    except (
        OSError, ValueError, RuntimeError, TypeError, AttributeError, LookupError, ArithmeticError, SafetensorError, StrictDataclassError,
    ) as e:  # fmt: skip
        raise MissingWeights(f"The weights in {folder} cannot be read ({_first_line(e)}). Download them again.") from e
    gaps = sorted(report["missing_keys"])
    if gaps:
        raise MissingWeights(f"The weights in {folder} lack {len(gaps)} tensors, such as {gaps[0]}. Download them again.")
    spare = sorted(name for name in report["unexpected_keys"] if name.startswith("model.language_model."))
    if spare:
        raise MissingWeights(f"The weights in {folder} hold more layers than config.json says, such as {spare[0]}. Download them again.")
    strange = next((name for name, weights in model.named_parameters() if not torch.isfinite(weights).all()), None)
    if strange is not None:
        raise MissingWeights(f"The weights in {folder} are damaged: {strange} holds numbers that are not finite. Download them again.")
    return model


def _check_size(folder: Path) -> None:
    """Raises ValueError if the configuration asks for many more numbers than the folder holds. transformers would allocate them first."""
    with torch.device("meta"):
        asked = sum(
            p.numel() for p in JanusForConditionalGeneration(JanusConfig.from_pretrained(folder, local_files_only=True)).parameters()
        )
    held = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            held += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    if asked > 2 * held:
        raise ValueError(f"config.json asks for {asked:,} numbers and the safetensors files hold {held:,}")


def _reader(folder: Path, boi: int) -> Callable[[str], list[int]]:
    """A function from text to ids: the conversation with the tokenizer's begin of sequence, then begin of image."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
        raise MissingWeights(f"The tokenizer in {folder} cannot be read ({_first_line(e)}). Download it again.") from e
    return lambda text: [*tokenizer(CONVERSATION.format(text)).input_ids, boi]


def _first_line(error: Exception) -> str:
    """The first line of another library's message, as part of a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")[:160]
