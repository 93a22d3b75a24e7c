"""Folders of weights: what is stored is small, and what is read is what was meant."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.errors import MissingWeights
from engine.networks.weights import MODELS, read_tensors, ship


def written(tmp_path, tensors):
    ship(tmp_path, {"model-1.safetensors": tensors}, {})
    return tmp_path / "model-1.safetensors"


def test_matrices_take_a_byte_an_element_and_come_back_nearly_as_they_were(tmp_path):
    torch.manual_seed(0)
    rows = torch.randn(300, 192) * torch.logspace(-4, 4, 300)[:, None]  # rows of very different sizes
    stacked = torch.randn(3, 40, 64)
    path = written(tmp_path, {"rows": rows, "stacked": stacked})
    assert path.stat().st_size < 1.1 * (rows.numel() + stacked.numel()) + 1000
    back = read_tensors(path)
    assert set(back) == {"rows", "stacked"}
    for name, tensor in (("rows", rows), ("stacked", stacked)):
        largest = tensor.abs().amax(-1, keepdim=True)
        assert back[name].dtype == torch.float32
        assert ((back[name] - tensor).abs() <= largest * (0.51 / 127)).all()


def test_what_was_stored_once_is_stored_again_to_the_same_bytes(tmp_path):
    path = written(tmp_path, {"rows": torch.randn(100, 100)})
    first = path.read_bytes()
    assert written(tmp_path, read_tensors(path)).read_bytes() == first


def test_small_tensors_vectors_and_convolutions_stay_in_half_precision(tmp_path):
    tensors = {"bias": torch.randn(5000), "small": torch.randn(8, 8), "convolution": torch.randn(32, 32, 3, 3)}
    path = written(tmp_path, tensors)
    assert {v.dtype for v in load_file(str(path)).values()} == {torch.float16}
    back = read_tensors(path)
    assert all(torch.equal(back[k], v.half().float()) for k, v in tensors.items())


def test_rows_of_zeros_come_back_as_zeros(tmp_path):
    assert torch.equal(read_tensors(written(tmp_path, {"rows": torch.zeros(64, 128)}))["rows"], torch.zeros(64, 128))


def test_files_of_other_precisions_are_read(tmp_path):
    tensor = torch.randn(64, 128)
    save_file({"x": tensor.bfloat16(), "y": tensor}, str(tmp_path / "other.safetensors"))
    back = read_tensors(tmp_path / "other.safetensors")
    assert torch.equal(back["x"], tensor.bfloat16().float()) and torch.equal(back["y"], tensor)


def test_a_damaged_file_is_named(tmp_path):
    path = written(tmp_path, {"rows": torch.randn(64, 128)})
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(MissingWeights, match=r"model-1\.safetensors is damaged"):
        read_tensors(path)


def test_all_shipped_weights_keep_to_their_budget():
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 45 * 2**20
    assert max(path.stat().st_size for path in files) < 10_000_000
