"""The adapters of transformers' classes: their tiny backbones, the class's own loop, and their folders on disk."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from engine.backbones import chameleon, emu3, emu35, llamagen, load, vqgan_names
from engine.backbones.chameleon import KINDS, ROW_END, codes_of
from engine.checkpoints import families
from engine.core import Backbone
from tests.engine.backbones import tiny, tiny_chameleon, tiny_checkpoints, tiny_glm_image, tiny_originals

SIDE = 4  # codes in a row of a tiny picture
TEXTS = ("red apple", "a", "two cats on the table")


def greedy(
    model: nn.Module, rows: Sequence[list[int]], codes: list[int], guidance: float, row_end: int | None, **more: object
) -> list[int]:
    """The codes that transformers' generate draws for a prompt and its negative, with row ends forced as in the authors' scripts."""
    prompt, count = rows[0], more.pop("count", SIDE * (SIDE + (row_end is not None)))

    def allowed_codes(batch: int, ids: Tensor) -> list[int]:
        ends = row_end is not None and (len(ids) - len(prompt)) % (SIDE + 1) == SIDE
        return [row_end] if ends else codes

    if len(rows) > 1:
        negative = torch.tensor([rows[1]])
        more |= {"guidance_scale": guidance, "negative_prompt_ids": negative, "negative_prompt_attention_mask": torch.ones_like(negative)}
    ids = torch.tensor([prompt])
    generated = model.generate(
        ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=count, prefix_allowed_tokens_fn=allowed_codes,
        eos_token_id=None, **more,
    )[0, len(prompt) :].tolist()  # fmt: skip
    return [codes.index(i) for i in generated if i != row_end]


def janus_tokens(text: str, guidance: float) -> list[int]:
    """Tokens of Janus's own picture loop."""
    ids = torch.tensor([tiny.janus_ids(text)])
    settings = {"generation_mode": "image", "do_sample": False, "guidance_scale": guidance}
    return tiny.janus_model().generate(ids, attention_mask=torch.ones_like(ids), **settings)[0].tolist()


def emu3_tokens(text: str, guidance: float) -> list[int]:
    """Tokens of Emu3's class, with a longer or a shorter negative prompt and codes out of order."""
    rows = [tiny_checkpoints.read(words, tiny_checkpoints.emu3().layout) for words in (text, emu3.NEGATIVE)]
    return greedy(tiny_checkpoints.emu3_model(), rows, tiny_checkpoints.code_ids(), guidance, tiny_checkpoints.ROW)


def emu35_tokens(text: str, guidance: float) -> list[int]:
    """Tokens of Emu3.5's class, with two whole prompts."""
    first, rows = tiny_checkpoints.FIRST_CODE, tiny_checkpoints.emu35().rows(text, tiny_checkpoints.emu35().layout)
    codes = list(range(first, first + tiny_checkpoints.CODES))
    return greedy(tiny_checkpoints.emu35_model(), rows, codes, guidance, tiny_checkpoints.ROW)


def chameleon_tokens(kind: str) -> Callable[[str, float], list[int]]:
    """The loop of a kind of Chameleon."""

    def tokens(text: str, guidance: float) -> list[int]:
        model, backbone, names = tiny_chameleon.model(), tiny_chameleon.chameleon(kind), tiny_chameleon.words()
        model.model.vocabulary_mapping.image_tokens = []  # the class hides these ids, the authors' scripts do not
        codes = codes_of(names, tiny_originals.picture_decoder(), tiny_chameleon.kind(kind))
        row_end = names[ROW_END] if tiny_chameleon.kind(kind).sized else None
        return greedy(model, backbone.rows(text, backbone.layout), codes, guidance, row_end)

    return tokens


def glm_image_tokens(text: str, guidance: float) -> list[int]:
    """Tokens of a small picture, then of the whole one, without guidance."""
    small, columns = tiny_glm_image.SMALL, tiny_glm_image.COLUMNS
    grids = torch.tensor([[1, columns, columns], [1, small, small]])
    codes, rows = list(range(tiny_glm_image.CODES)), [tiny_glm_image.read(text, columns)]
    return greedy(tiny_glm_image.model(), rows, codes, guidance, None, image_grid_thw=grids, count=small**2 + columns**2)


@dataclass(frozen=True)
class Adapter:
    """A tiny backbone, and the greedy tokens of the class's own loop for a text and a guidance."""

    backbone: Callable[[], Backbone]
    own_tokens: Callable[[str, float], list[int]]
    guidances: tuple[float, ...] = (1.5, 4.0)


ADAPTERS = {
    "janus": Adapter(tiny.janus, janus_tokens, (1.5, 3.0, 5.0)),
    "emu3": Adapter(tiny_checkpoints.emu3, emu3_tokens),
    "emu35": Adapter(tiny_checkpoints.emu35, emu35_tokens, (2.0, 5.0)),
    "anole": Adapter(lambda: tiny_chameleon.chameleon("anole"), chameleon_tokens("anole")),
    "lumina": Adapter(lambda: tiny_chameleon.chameleon("lumina"), chameleon_tokens("lumina")),
    "glm_image": Adapter(tiny_glm_image.glm_image, glm_image_tokens, (1.0,)),
}


# --- folders ------------------------------------------------------------------------------------------------------------------


def janus_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A converted Janus."""
    tiny.janus_model().save_pretrained(folder)
    tiny.save_tokenizer(folder)


def emu3_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A converted Emu3 of 4x4 codes."""
    patch.setattr(emu3, "SIDE", SIDE)
    tiny_checkpoints.emu3_model().save_pretrained(folder)
    tiny_checkpoints.save_emu3_tokenizer(folder)


def emu35_decoder(decoder: nn.Module) -> dict[str, Tensor]:
    """The tensors of a picture decoder by their published names, and one of the encoder."""
    named = {vqgan_names.taming(name, 2): tensor.contiguous() for name, tensor in decoder.state_dict().items()}
    return named | {"encoder.conv_in.weight": torch.zeros(3)}


def tiktoken_table(*tokens: bytes) -> bytes:
    """A .tiktoken file: all bytes, then some tokens."""
    entries = [*(bytes([i]) for i in range(256)), *tokens]
    return b"\n".join(base64.b64encode(token) + b" " + str(rank).encode() for rank, token in enumerate(entries))


def emu35_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A folder in BAAI's form with tiny weights; the vocabulary is the tiny model's plus the bytes of its tokenizer."""
    first = 300
    patch.setattr(emu35, "IDS", emu35.SpecialIds(row_end=260, begin=261, answer=262, image=263, codes_follow=264, first_code=first))
    patch.setattr(emu35, "CODES", tiny_checkpoints.CODES)
    patch.setattr(emu35, "SIDE", SIDE)
    patch.setattr(families, "EMU35_WORDS", first + tiny_checkpoints.CODES)
    torch.manual_seed(8)
    model = tiny_checkpoints.emu35_model()
    model.config.vocab_size = first + tiny_checkpoints.CODES
    type(model)(model.config).save_pretrained(folder)
    written = json.loads((folder / "config.json").read_text())
    forms = {"model_type": "Emu3", "rope_theta": 1e6, "max_position_embeddings": 5000}  # BAAI's form
    (folder / "config.json").write_text(json.dumps(written | forms))
    (folder / "emu3.tiktoken").write_bytes(tiktoken_table(b"re", b"red"))
    (folder / "vision_tokenizer").mkdir()
    save_file(emu35_decoder(tiny_checkpoints.ibq()), folder / "vision_tokenizer" / "model.safetensors")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Emu3.5\n")


def chameleon_folder(lumina: bool) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """A folder of a kind of Chameleon whose pictures have 8 pixels."""

    def save(folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(chameleon, "KINDS", {name: tiny_chameleon.kind(name) for name in KINDS})
        tiny_chameleon.save(folder, lumina)

    return save


def glm_image_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A folder with the tokenizer in `processor`."""
    tiny_glm_image.save(folder)


def llamagen_folder(text: bool) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """The authors' two files and, for texts, a folder with an encoder."""

    def save(folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(llamagen, "side_of", lambda path: tiny_originals.SIDE)  # the tiny decoder makes two pixels of a code
        tiny_originals.save_llamagen(folder, text)

    return save


def bpt_folder(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """The authors' file, which contains more than tensors."""
    tiny_originals.save_bpt(folder / "bpt-8-16-500m.pt")


@dataclass(frozen=True)
class Folder:
    """The name of the backbone that reads a folder, the function that writes it, and a prompt."""

    name: str
    write: Callable[[Path, pytest.MonkeyPatch], None]
    text: str = "red apple"

    def load(self, path: Path, dtype: str = "float32") -> Backbone:
        """Reads it."""
        return load(self.name, str(path), dtype=dtype)


FOLDERS = {
    "janus": Folder("janus", janus_folder),
    "emu3": Folder("emu3", emu3_folder, "bad"),
    "emu35": Folder("emu35", emu35_folder, "red"),
    "anole": Folder("chameleon", chameleon_folder(False)),
    "lumina": Folder("chameleon", chameleon_folder(True)),
    "glm_image": Folder("glm_image", glm_image_folder),
    "llamagen of classes": Folder("llamagen", llamagen_folder(False), "5"),
    "llamagen of texts": Folder("llamagen", llamagen_folder(True), "a red apple"),
    "bpt": Folder("bpt", bpt_folder),
}
