"""The families of models that can be imported: how to recognise each, and what to know before using it.

A family is recognised by config.json and by the names and shapes of its tensors; its network is not built and no values are read. To add
one, add a line to FAMILIES and an adapter of the same name to `engine.backbones.BACKBONES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.checkpoints.reading import Checkpoint
from engine.errors import MissingWeights, NotSupported

Config = Mapping[str, Any]
Shapes = Mapping[str, tuple[int, ...]]
EMU35_WORDS = 282_926  # ids of Emu3.5: 151,854 for text and 131,072 for codes
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "tokenizer_config.json")
OWN_FORMS = {  # model types in config.json whose tensors have other names
    "multi_modality": "Janus in DeepSeek's own form. Use the converted one: deepseek-community/Janus-Pro-1B or -7B",
    "Emu3": "Emu3 in BAAI's own form. Use the converted one: BAAI/Emu3-Gen-hf",
}
TEXT_KINDS = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3", "gemma3_text", "gpt2", "gpt_neox", "phi3", "olmo2", "glm4")


@dataclass(frozen=True)
class ModelFamily:
    """Models that share an adapter.

    name      : of the adapter, a key of BACKBONES
    makes     : the kind of result
    source    : where its publisher offers the weights; they are not downloaded here
    licence   : of the published weights
    fits      : returns True if a configuration and the shapes of tensors match this family
    about     : returns (tokens per result, number of token ids, sizes in pixels) of a checkpoint
    network   : the transformers class whose tensors it has; "" for files in another form
    names     : for those, the module with `expected(config)` (names to shapes) and, without a config.json, `configure(shapes)`
    reads     : kind of prompt: "text", "class" or "points"
    companion : patterns of other weight files in the folder, such as a picture decoder's
    processor : path from the weights to a folder that may have the tokenizer; "" = the same folder
    inside    : True if weights in subfolders belong to it, such as a text encoder's or a picture tokenizer's
    """

    name: str
    title: str
    makes: str
    source: str
    licence: str
    fits: Callable[[Config, Shapes], bool]
    about: Callable[[Config, Shapes], tuple[int, int, list[int]]]
    network: str = ""
    names: str = ""
    reads: str = "text"
    companion: tuple[str, ...] = ()
    inside: bool = False
    processor: tuple[str, ...] = ("",)


def kind(*names: str) -> Callable[[Config, Shapes], bool]:
    """Fits checkpoints whose config.json has one of these types."""
    return lambda config, shapes: config.get("model_type") in names


def has_tensors(*names: str) -> Callable[[Config, Shapes], bool]:
    """Fits checkpoints with all of these tensors."""
    return lambda config, shapes: all(name in shapes for name in names)


def is_emu35(config: Config, shapes: Shapes) -> bool:
    """Emu3.5 shares its type with Emu3, but its queries and keys are normalised and its vocabulary is larger."""
    table = shapes.get("model.embed_tokens.weight", (config.get("vocab_size"),))
    named = str(config.get("model_type")).lower() in ("emu3", "qwen3", "emu3p5", "emu3_5")
    return named and table[0] == EMU35_WORDS


def entry(config: Config, names: str, otherwise: int) -> int:
    """An integer of a configuration, such as "vq_config.num_embeddings", or `otherwise`: configurations omit defaults of their class."""
    value: Any = config
    for name in names.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if type(value) is int else otherwise


def about_janus(config: Config, shapes: Shapes) -> tuple[int, int, list[int]]:
    """A square grid of codes, each 2^(stages - 1) pixels wide."""
    side = entry(config, "vq_config.num_patches", 24)
    vq = config.get("vq_config")
    stages = vq.get("channel_multiplier") if isinstance(vq, Mapping) else None
    factor = 2 ** (len(stages) - 1) if isinstance(stages, list) and 0 < len(stages) < 9 else 16
    return side * side, entry(config, "vq_config.num_embeddings", 16_384), [side * factor]


def about_llamagen(config: Config, shapes: Shapes) -> tuple[int, int, list[int]]:
    """Every code is 16 pixels wide; a class model's file does not give the number of codes, so the published sizes are returned."""
    return 576, shapes["output.weight"][0], [256, 384, 512]


def about_bpt(config: Config, shapes: Shapes) -> tuple[int, int, list[int]]:
    """At most one token per position."""
    return shapes.get("abs_pos_emb.weight", (0,))[0], shapes["token_embed.weight"][0], []


FAMILIES: tuple[ModelFamily, ...] = (
    ModelFamily(
        "janus", "Janus and Janus-Pro", "pictures from text", "deepseek-community/Janus-Pro-1B or -7B",
        "DeepSeek Model License: commercial use is allowed, with use-based restrictions that must be passed on",
        kind("janus"), about_janus, "JanusForConditionalGeneration",
    ),
    ModelFamily(
        "emu35", "Emu3.5", "pictures from text", "BAAI/Emu3.5-Image", "Apache-2.0",
        is_emu35, lambda config, shapes: (4096, 131_072, [1024]), "Qwen3ForCausalLM", inside=True,
    ),
    ModelFamily(
        "emu3", "Emu3", "pictures from text", "BAAI/Emu3-Gen-hf", "Apache-2.0",
        kind("emu3"), lambda config, shapes: (8100, entry(config, "vq_config.codebook_size", 32_768), [720]),
        "Emu3ForConditionalGeneration",
    ),
    ModelFamily(
        "chameleon", "Chameleon: Anole and Lumina-mGPT", "pictures from text", "leloy/Anole-7b-v0.1-hf or Alpha-VLLM/Lumina-mGPT-7B-768",
        "Chameleon Research License (Anole, Lumina-mGPT 1.0): no commercial use; Lumina-mGPT 2.0: Apache-2.0",
        kind("chameleon"), lambda config, shapes: (1024, entry(config, "vq_config.num_embeddings", 8192), [512]),
        names="engine.backbones.chameleon_files", companion=("*vqgan*", "*/*vqgan*"),
    ),
    ModelFamily(
        "glm_image", "GLM-Image, its autoregressive half", "picture tokens from text, for GLM-Image's diffusion decoder",
        "zai-org/GLM-Image, its folder vision_language_encoder", "MIT",
        kind("glm_image"), lambda config, shapes: (1024, 16_384, [1024]), "GlmImageForConditionalGeneration",
        processor=("", "processor", "../processor"),
    ),
    ModelFamily(
        "llamagen", "LlamaGen", "pictures from a class or from text", "FoundationVision/LlamaGen",
        "MIT; the class models learned from ImageNet, whose pictures are for research",
        has_tensors("tok_embeddings.weight", "layers.0.attention.wqkv.weight", "output.weight"), about_llamagen,
        names="engine.backbones.llamagen_files", reads="class", companion=("vq*",), inside=True,
    ),
    ModelFamily(
        "bpt", "BPT", "meshes from a point cloud", "bpt-8-16-500m.pt of whaohan/bpt",
        "Tencent Hunyuan 3D 2.0 Community License: not in the EU, the UK and South Korea",
        has_tensors("sos_token", "token_embed.weight"), about_bpt,
        names="engine.backbones.bpt", reads="points",
    ),
)  # fmt: skip


ADAPTED: Mapping[str, ModelFamily] = MappingProxyType({family.name: family for family in FAMILIES})


def family_named(name: str) -> ModelFamily | None:
    """The family of an adapter; None for the models that ship with Foretoken."""
    return ADAPTED.get(name)


def family_of(checkpoint: Checkpoint) -> ModelFamily:
    """The family of a checkpoint; raises NotSupported, with a description of the file and advice, if it has none."""
    shapes = checkpoint.shapes
    family = next((family for family in FAMILIES if family.fits(checkpoint.config, shapes)), None)
    if family is None:
        raise NotSupported(f"{checkpoint.path.name or checkpoint.path} {what_else(checkpoint.config, shapes)}")
    return family


def what_else(config: Config, shapes: Shapes) -> str:
    """A description of a checkpoint that no adapter reads, with advice; the end of a sentence that begins with its name."""
    known, names = config.get("model_type"), tuple(shapes)
    if other := next((family for family in FAMILIES if family.fits(config, shapes)), None):
        return f"holds {other.title}, which the adapter {other.name} reads. Name it by its folder alone, or with that adapter."
    if known in OWN_FORMS:
        return f"holds {OWN_FORMS[known]}."
    if any(".lora_A." in name for name in names):
        return "holds a LoRA adapter, not a whole model. Merge it into its model first."
    if any(name.startswith(("quantize.embedding", "quantize.codebook")) for name in names):
        return "holds a picture tokenizer alone. Put it into one folder with its transformer, and name the folder."
    if any("down_blocks." in name or "transformer_blocks." in name or "double_blocks." in name for name in names):
        return "holds a diffusion model, which has no tokens to accelerate. Name an autoregressive model."
    if known in TEXT_KINDS or "lm_head.weight" in shapes or "model.embed_tokens.weight" in shapes:
        what = f"a model of type '{known}'" if known else "a language model"
        return f"holds {what}, which writes text and makes no pictures. Supported: {titles()}."
    what = f"a model of type '{known}'" if known else f"tensors such as '{min(names, default='')[:60]}'"
    return f"holds {what}, which is none of the families here: {titles()}."


def titles() -> str:
    """The names of the families, for messages."""
    return ", ".join(family.name for family in FAMILIES)


def tokenizer_folder(family: ModelFamily, folder: Path) -> Path:
    """The folder with a family's tokenizer, or `folder` if it reads no text; raises MissingWeights if there is none."""
    if family.reads != "text":
        return folder
    for place in (folder / path for path in family.processor):
        if any((place / name).is_file() for name in TOKENIZER_FILES) or any(place.glob("*.tiktoken")):
            return place
    raise MissingWeights(
        f"{folder} holds no tokenizer, without which {family.name} reads no text. Copy tokenizer.json or tokenizer.model, and "
        f"tokenizer_config.json, from {family.source} into it."
    )


def stated_licence(folder: Path) -> str:
    """The licence named at the head of README.md, or the first line of a licence file; "" if there is neither."""
    lines = _lines(folder / "README.md")
    if lines[:1] == ["---"]:
        head = dict(line.partition(":")[::2] for line in lines[1 : lines.index("---", 1) if "---" in lines[1:] else 1])
        entries = {key.strip(): value.strip().strip("'\"") for key, value in head.items()}
        if stated := entries.get("license_name") or entries.get("license"):
            return stated[:80]
    for name in ("LICENSE", "LICENSE.txt", "LICENSE.md"):
        if first := next((line.strip("# ") for line in _lines(folder / name) if line.strip("# ")), ""):
            return first[:80]
    return ""


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", errors="replace") as file:
        return [line.strip() for line in file.read(20_000).splitlines()]
