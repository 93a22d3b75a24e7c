"""Files and folders of weights: what can be read, and the error message for every kind that cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.checkpoints.reading import names_of, open_checkpoint
from engine.errors import BadFile, ForetokenError, MissingWeights
from tests.engine.checkpoints.files import torch_file
from tests.engine.refusals import refuses

WEIGHTS = {"a.weight": torch.arange(6.0).view(2, 3), "b.bias": torch.ones(4, dtype=torch.bfloat16), "c": torch.tensor([1, 2])}


def sharded_folder(folder: Path, form: str = "safetensors") -> Path:
    """A folder of three shards and an index."""
    folder.mkdir()
    places = {}
    for i, (name, tensor) in enumerate(WEIGHTS.items()):
        file = f"model-{i + 1:05}-of-00003.safetensors" if form == "safetensors" else f"pytorch_model-{i + 1:05}-of-00003.bin"
        (save_file({name: tensor}, folder / file) if form == "safetensors" else torch_file(folder / file, {name: tensor}))
        places[name] = file
    index = "model.safetensors.index.json" if form == "safetensors" else "pytorch_model.bin.index.json"
    (folder / index).write_text(json.dumps({"weight_map": places}))
    return folder


def refuse(path: Path, match: str, kind: type[ForetokenError] = ForetokenError) -> None:
    """Asserts that a path is refused."""
    with refuses(kind, match):
        open_checkpoint(path)


@pytest.mark.parametrize("form", ["safetensors", "pickled"])
def test_shards_are_one_checkpoint(tmp_path: Path, form: str) -> None:
    with open_checkpoint(sharded_folder(tmp_path / "model", form)) as checkpoint:
        assert checkpoint.shapes == {name: tuple(tensor.shape) for name, tensor in WEIGHTS.items()}
        assert checkpoint.parameters == 10 and set(names_of(checkpoint)) == set(WEIGHTS)
        assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in WEIGHTS.items())


@pytest.mark.parametrize("form", ["safetensors", "pickled"])
def test_a_missing_shard_is_named(tmp_path: Path, form: str) -> None:
    folder = sharded_folder(tmp_path / "model", form)
    next(iter(sorted(folder.glob("*-00002-*")))).unlink()
    refuse(folder, r"lacks 1 of 3 shards, such as \w+-00002-of-00003", MissingWeights)


@pytest.mark.parametrize("name", ["../a.safetensors", "/etc/a.safetensors", "sub/a.safetensors", "..\\a.safetensors", "..", ""])
def test_an_index_reaches_no_other_folder(tmp_path: Path, name: str) -> None:
    save_file(WEIGHTS, tmp_path / "a.safetensors")
    folder = sharded_folder(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    refuse(folder, "not next to it", BadFile)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', '{"weight_map": NaN}'])
def test_a_damaged_index_is_refused(tmp_path: Path, text: str) -> None:
    folder = sharded_folder(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text(text)
    refuse(folder, "Download it again")


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = sharded_folder(tmp_path / "model")
    save_file(WEIGHTS, folder / "model-00002-of-00003.safetensors")
    refuse(folder, "again, which", BadFile)


@pytest.mark.parametrize("length", [0, 4, 7, 20, -1])
def test_cut_safetensors_are_refused(tmp_path: Path, length: int) -> None:
    save_file(WEIGHTS, tmp_path / "a.safetensors")
    whole = (tmp_path / "a.safetensors").read_bytes()
    (tmp_path / "a.safetensors").write_bytes(whole[:length])
    refuse(tmp_path / "a.safetensors", "cannot be read", BadFile)


def test_a_folder_prefers_safetensors(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    (tmp_path / "pytorch_model.bin").write_bytes(b"anything")
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.files == [tmp_path / "model.safetensors"]


def test_files_without_an_index_are_one_checkpoint(tmp_path: Path) -> None:
    torch_file(tmp_path / "model.pt", {"a": torch.ones(2)})
    torch_file(tmp_path / "tokenizer.pt", {"model": {"b": torch.ones(3)}})
    with open_checkpoint(tmp_path) as checkpoint:
        assert checkpoint.shapes == {"a": (2,), "b": (3,)}
    torch_file(tmp_path / "tokenizer.pt", {"a": torch.ones(3)})
    refuse(tmp_path, "tokenizer.pt holds 'a' again, which model.pt has", BadFile)


def test_the_configuration_beside_a_file_is_read(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "a.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "janus"}')
    with open_checkpoint(tmp_path / "a.safetensors") as checkpoint:
        assert checkpoint.config == {"model_type": "janus"}
    (tmp_path / "config.json").write_text("{")
    refuse(tmp_path / "a.safetensors", "not JSON.*Download it again", MissingWeights)


@pytest.mark.parametrize(
    ("files", "match"),
    [
        ([], "holds no weights"),
        (["model.gguf"], "is a GGUF file"),
        (["readme.txt"], "holds no weights"),
    ],
)
def test_folders_without_a_checkpoint_are_refused(tmp_path: Path, files: list[str], match: str) -> None:
    for name in files:
        (tmp_path / name).write_bytes(b"x")
    refuse(tmp_path, match)


@pytest.mark.parametrize(("name", "match"), [("a.gguf", "GGUF"), ("a.tar", "a tar archive"), ("a.txt", "not a weights file")])
def test_other_files_are_refused(tmp_path: Path, name: str, match: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    refuse(tmp_path / name, match, BadFile)


def test_an_absent_path_is_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "There is no file or folder", MissingWeights)
