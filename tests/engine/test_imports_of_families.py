"""Imports of the families that are not in transformers' form, with the files next to and inside their folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.backbones import imported_folders, llamagen, load
from engine.checkpoints.reading import open_checkpoint
from engine.converting import convert
from engine.core import Prompt, Sampling
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny, tiny_chameleon, tiny_originals


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(llamagen, "side_of", lambda path: tiny_originals.SIDE)


def tokens_of(path: Path, prompt: Prompt) -> list[int]:
    return generate(load(path, dtype="float32"), METHODS["ar"], prompt).finish().tokens


def run_import(path: Path) -> Path:
    folder = list(convert(path))[-1].folder
    assert folder is not None and imported_folders() == [folder] and not [*folder.rglob("*.pt"), *folder.rglob("*.ckpt")]
    return folder


@pytest.mark.parametrize("text", [False, True])
def test_llamagen_keeps_the_names_of_its_files_and_its_text_encoder(tmp_path: Path, text: bool) -> None:
    own = tiny_originals.save_llamagen(tmp_path / "LlamaGen", text)
    folder = run_import(own)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*.safetensors")}
    encoder = {"flan-t5-xl/model.safetensors"} if text else set()
    assert names == {f"{'t2i' if text else 'c2i'}_B_256.safetensors", "vq_ds16_c2i.safetensors"} | encoder
    prompt = Prompt(text="a red apple" if text else "5", seed=2, sampling=Sampling(1.0, 0, 1.0, 3.0))
    assert tokens_of(folder, prompt) == tokens_of(own, prompt)


def test_a_single_file_brings_its_picture_tokenizer(tmp_path: Path) -> None:
    own = tiny_originals.save_llamagen(tmp_path / "LlamaGen")
    folder = run_import(own / "c2i_B_256.pt")
    assert folder.name == "c2i_B_256" and (folder / "vq_ds16_c2i.safetensors").exists()


def test_bpt_is_one_file(tmp_path: Path) -> None:
    own = Path(tiny_originals.save_bpt(tmp_path / "bpt-8-16-500m.pt"))
    folder = run_import(own)
    assert folder.name == "bpt-8-16-500m" and (folder / "bpt-8-16-500m.safetensors").exists()
    prompt = Prompt(points=tiny.sphere(), seed=3)
    assert tokens_of(folder, prompt) == tokens_of(own, prompt)


@pytest.mark.parametrize("place", [".", "original_tokenizers"])
def test_chameleon_brings_metas_picture_decoder(tmp_path: Path, place: str) -> None:
    (tmp_path / "Anole").mkdir()
    own = tiny_chameleon.save(tmp_path / "Anole")
    (own / place).mkdir(exist_ok=True)
    os.rename(own / "vqgan.ckpt", own / place / "vqgan.ckpt")
    folder = run_import(own)
    with open_checkpoint(folder / "vqgan.safetensors") as checkpoint:
        assert "post_quant_conv.weight" in checkpoint.entries
    assert not (folder / "original_tokenizers").exists()
