"""Folders of checkpoints: their content, the decoder's dtype, memory, and refusals; on tiny random models."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from engine import machine
from engine.backbones import janus
from engine.backbones.checkpoint_files import dtype_of
from engine.checkpoints.families import stated_licence
from engine.kernels.cpu.packed_linear import can_pack
from engine.kernels.cpu.steady_linear import SteadyLinear
from tests.engine.backbones.adapters import FOLDERS


def test_the_decoder_is_packed_and_the_picture_decoder_is_not_rounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS["janus"].write(tmp_path, monkeypatch)
    loaded = janus.load(str(tmp_path))
    layers = [module for module in loaded.hosted.decoder.modules() if isinstance(module, SteadyLinear)]
    assert len(layers) == (7 * 2 if can_pack(getattr(torch, loaded.dtype)) else 0)
    assert {p.dtype for p in loaded.model.model.vqmodel.parameters()} == {torch.float32}


@pytest.mark.parametrize(("fast", "expected"), [(True, torch.bfloat16), (False, torch.float32)])
def test_the_type_follows_the_processor(monkeypatch: pytest.MonkeyPatch, fast: bool, expected: torch.dtype) -> None:
    monkeypatch.setattr(machine, "has_fast_bfloat16", lambda: fast)
    assert dtype_of("cpu", "auto") == expected
    assert dtype_of("cuda", "auto") == torch.bfloat16
    assert dtype_of("cpu", "float32") == torch.float32


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
