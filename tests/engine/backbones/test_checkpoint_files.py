"""Folders of checkpoints: what is read from them, the type of the decoder, memory, and what is refused; on tiny random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast

from engine import memory
from engine.backbones import checkpoint_files, emu3, janus
from engine.backbones.checkpoint_files import dtype_of
from engine.backbones.emu3 import Emu3
from engine.checkpoints.families import stated_licence
from engine.core import Prompt, Sampling
from engine.errors import MissingWeights, NotSupported, TooLittleMemory
from engine.kernels.cpu.packed_linear import can_pack
from engine.kernels.cpu.steady_linear import SteadyLinear
from engine.machine import has_fast_bfloat16
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny, tiny_checkpoints
from tests.engine.backbones.test_janus import save_tokenizer

MARKS = {"boi_token": "<|image start|>", "image_wrapper_token": "<|image token|>"}


def save_emu3_tokenizer(folder: Path, marks: dict[str, str] = MARKS) -> None:
    """A tokenizer of letters with the marks of Emu3's."""
    known = {"<bos>": 0, "<|image start|>": 1, "<|image token|>": 2, "<pad>": 4, "<unk>": 5}
    known |= {letter: 6 + i for i, letter in enumerate("abcdefghijklmnopqrst")} | {"4": 29, "*": 30}
    tokenizer = Tokenizer(WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split("", "isolated")
    special = {"bos_token": "<bos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, extra_special_tokens=marks, **special).save_pretrained(folder)


@pytest.fixture
def emu3_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A converted Emu3 of 4x4 codes."""
    monkeypatch.setattr(emu3, "SIDE", 4)
    tiny_checkpoints.emu3_model().save_pretrained(tmp_path)
    save_emu3_tokenizer(tmp_path)
    return tmp_path


@pytest.fixture
def janus_folder(tmp_path: Path) -> Path:
    """A converted Janus of 4x4 codes."""
    tiny.janus_model().save_pretrained(tmp_path)
    save_tokenizer(tmp_path)
    return tmp_path


def test_emu3_loads_and_decodes_as_the_model_it_was(emu3_folder: Path) -> None:
    loaded = emu3.load(str(emu3_folder), dtype="float32")
    ids = loaded.read("bad", loaded.layout)
    assert ids == [0, 7, 6, 9, 1, 29, 30, 29, 2]  # begin, b, a, d, begin of image, 4*4, codes follow
    prompt = Prompt(text="bad", sampling=Sampling(temperature=0.0, guidance=3.0))
    found = generate(loaded, METHODS["ar"], prompt).finish()
    plain = Emu3(tiny_checkpoints.emu3_model(), loaded.read, 4)
    assert found.tokens == generate(plain, METHODS["ar"], prompt).finish().tokens
    assert (found.result() == plain.render(found.tokens, found.positions, True)).all()


@pytest.mark.parametrize("mark", list(MARKS))
def test_a_tokenizer_without_a_mark_is_refused(emu3_folder: Path, mark: str) -> None:
    for file in emu3_folder.glob("*token*"):
        file.unlink()
    save_emu3_tokenizer(emu3_folder, {name: text for name, text in MARKS.items() if name != mark})
    with pytest.raises(MissingWeights, match=mark):
        emu3.load(str(emu3_folder))


@pytest.mark.parametrize("module", [janus, emu3])
def test_a_missing_tokenizer_is_refused_before_the_weights_are_read(
    module: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(f"{module.FAMILY.name}_folder")
    for file in folder.glob("*token*"):
        file.unlink()
    monkeypatch.setattr(module, "read_model", lambda *_: pytest.fail("the weights were read"))
    with pytest.raises(MissingWeights, match=r"holds no tokenizer, without which no text is read\. Copy tokenizer\.json"):
        module.load(str(folder))


def test_a_tensor_of_another_shape_is_one_sentence(janus_folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Without the report of transformers, which names its own arguments."""
    name = "model.language_model.layers.0.mlp.up_proj.weight"
    tensors = load_file(janus_folder / "model.safetensors")
    rows, columns = tensors[name].shape
    save_file(tensors | {name: tensors[name][:-1].clone()}, janus_folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingWeights) as caught:
        janus.load(str(janus_folder))
    sentence = f"has {name} of shape [{rows - 1}, {columns}], not [{rows}, {columns}]. It belongs to another config.json."
    assert str(caught.value) == f"{janus_folder.name} {sentence}"
    printed = capfd.readouterr()
    assert "REPORT" not in printed.err + printed.out


def test_emu3_without_codes_is_refused(emu3_folder: Path) -> None:
    """As a text model would be: its vocabulary has no pictures."""
    model = tiny_checkpoints.emu3_model()
    model.config.vocabulary_map = {"<image>": 2}
    model.save_pretrained(emu3_folder)
    with pytest.raises(NotSupported, match="0 of 24 codes"):
        emu3.load(str(emu3_folder))


def test_a_file_of_weights_stands_for_its_folder(janus_folder: Path) -> None:
    assert janus.load(str(janus_folder / "model.safetensors")).vocabulary == 48


@pytest.mark.skipif(not (has_fast_bfloat16() and can_pack(torch.bfloat16)), reason="this CPU has no products in bfloat16")
@pytest.mark.parametrize("name", ["janus", "emu3"])
def test_match_seed_holds_in_bfloat16(name: str, request: pytest.FixtureRequest) -> None:
    """What a CPU with products in bfloat16 loads by default: the tokens of plain decoding, whatever the window."""
    folder = request.getfixturevalue(f"{name}_folder")
    loaded = {"janus": janus, "emu3": emu3}[name].load(str(folder))
    assert loaded.dtype == "bfloat16"
    for seed in range(6):
        prompt = Prompt(text="red apple", seed=seed, sampling=Sampling(1.0, 20, 0.95, 3.0))
        plain = generate(loaded, METHODS["ar"], prompt).finish()
        for window in (3, 7):
            run = generate(loaded, METHODS["sjdpp"], prompt, {"window": window, "verify": "match seed"}).finish()
            assert run.tokens == plain.tokens


def test_the_decoder_is_packed_and_the_picture_decoder_is_not_rounded(janus_folder: Path) -> None:
    loaded = janus.load(str(janus_folder))
    layers = [module for module in loaded.hosted.decoder.modules() if isinstance(module, SteadyLinear)]
    assert len(layers) == (7 * 2 if can_pack(getattr(torch, loaded.dtype)) else 0)
    assert {p.dtype for p in loaded.model.model.vqmodel.parameters()} == {torch.float32}


@pytest.mark.parametrize(("fast", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_type_follows_the_processor(monkeypatch: pytest.MonkeyPatch, fast: bool, expected: torch.dtype) -> None:
    monkeypatch.setattr(checkpoint_files, "has_fast_bfloat16", lambda: fast)
    assert dtype_of("cpu", "auto") == expected
    assert dtype_of("cuda", "auto") == torch.bfloat16
    assert dtype_of("cpu", "float32") == torch.float32


@pytest.mark.parametrize("name", ["janus", "emu3"])
def test_what_does_not_fit_is_refused_before_it_is_loaded(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = request.getfixturevalue(f"{name}_folder")
    monkeypatch.setattr(memory, "free", lambda device: 1000)
    monkeypatch.setattr({"janus": janus, "emu3": emu3}[name], "read_model", lambda *rest: pytest.fail("the weights were read"))
    with pytest.raises(TooLittleMemory, match=f"{name} needs") as caught:
        {"janus": janus, "emu3": emu3}[name].load(str(folder))
    assert str(caught.value).endswith(".") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("---\nlicense: apache-2.0\n---\n", "apache-2.0"), ("---\nlicense: other\nlicense_name: deepseek\n---\n", "deepseek"),
        ("---\ntags: x\n---\nlicense: mit\n", ""), ("# A model\nlicense: mit\n", ""), ("", ""), ("---\nlicense: 'mit'\n---\n", "mit"),
        ("---\nlicense: mit\n", ""),
    ],
)  # fmt: skip
def test_the_licence_is_that_of_the_head(tmp_path: Path, head: str, licence: str) -> None:
    (tmp_path / "README.md").write_text(head)
    assert stated_licence(tmp_path) == licence


def test_a_licence_file_says_it_where_no_head_does(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A model\n")
    (tmp_path / "LICENSE").write_text("\n# The MIT License\n\nPermission is hereby granted\n")
    assert stated_licence(tmp_path) == "The MIT License"


def test_a_folder_without_a_readme_names_no_licence(tmp_path: Path) -> None:
    assert stated_licence(tmp_path) == ""
