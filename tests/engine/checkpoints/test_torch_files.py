"""PyTorch files: the tensors of torch.save come back bit for bit, and nothing that a file names is ever called."""

from __future__ import annotations

import argparse
import pickle
import resource
import struct
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch

from engine.checkpoints.reading import open_checkpoint
from engine.errors import BadFile
from tests.engine.checkpoints.files import pickle_of, torch_file, traps, with_pickle
from tests.engine.refusals import refuses

KINDS = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool]


def tensors() -> dict[str, torch.Tensor]:
    """Tensors of every dtype, and views: of one storage, transposed, empty."""
    base = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    by_kind = {f"kind.{kind}": (base * 3).to(kind) for kind in KINDS}
    return by_kind | {"row": base[2], "turned": base.T, "whole": base, "none": torch.empty(0, 3), "scalar": torch.tensor(2.5)}


def test_tensors_come_back(tmp_path: Path) -> None:
    wanted = tensors()
    with open_checkpoint(torch_file(tmp_path / "a.pt", OrderedDict(wanted))) as checkpoint:
        assert checkpoint.entries.keys() == wanted.keys()
        for name, tensor in wanted.items():
            assert checkpoint.entries[name].shape == tuple(tensor.shape) and checkpoint.entries[name].dtype == tensor.dtype
            assert torch.equal(checkpoint.read(name), tensor), name


@pytest.mark.parametrize("wrapper", ["model", "state_dict", "module"])
def test_wrappers_of_training_scripts_are_removed(tmp_path: Path, wrapper: str) -> None:
    module = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tree = {wrapper: module.state_dict(), "optimizer": optimizer.state_dict(), "steps": 7, "args": argparse.Namespace(lr=1e-4, names=["a"])}
    with open_checkpoint(torch_file(tmp_path / "a.ckpt", tree)) as checkpoint:
        assert checkpoint.shapes == {"weight": (2, 3), "bias": (2,)} and checkpoint.parameters == 8
        assert torch.equal(checkpoint.read("weight"), module.weight)


def test_parameters_are_tensors(tmp_path: Path) -> None:
    one = torch.nn.Parameter(torch.arange(4.0))
    with open_checkpoint(torch_file(tmp_path / "a.pt", {"one": one})) as checkpoint:
        assert torch.equal(checkpoint.read("one"), one.data)


@pytest.mark.parametrize("name", traps(Path("x")))
def test_code_in_a_pickle_is_refused_and_never_runs(tmp_path: Path, name: str) -> None:
    trace = tmp_path / "trace"
    path = torch_file(tmp_path / "a.bin", {"weight": torch.ones(2), "extra": traps(trace)[name]})
    with refuses(BadFile, r"would run code.*Nothing was executed"):
        open_checkpoint(path)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["os.system", "exec"])
def test_the_traps_work(tmp_path: Path, name: str) -> None:
    """An ordinary load of the same file runs the code; otherwise the test above could not fail."""
    path = torch_file(tmp_path / "a.bin", {"extra": traps(tmp_path / "trace")[name]})
    code = f"import torch; torch.load({str(path)!r}, weights_only=False)"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "trace").exists()


def test_a_whole_module_is_refused(tmp_path: Path) -> None:
    with refuses(BadFile, r"torch\.nn\.modules\.linear\.Linear"):
        open_checkpoint(torch_file(tmp_path / "a.pt", torch.nn.Linear(2, 2)))


def raw(*parts: bytes) -> bytes:
    """A pickle of protocol 2 by hand."""
    return b"\x80\x02" + b"".join(parts) + b"."


@pytest.mark.parametrize(
    "content",
    [
        raw(b"cbuiltins\neval\n", b"(X\x03\x00\x00\x001+1tR"),
        raw(b"(X\x03\x00\x00\x001+1", b"ibuiltins\neval\n"),  # INST
        raw(b"(cbuiltins\neval\nX\x03\x00\x00\x001+1o"),  # OBJ
        raw(b"\x82\x01"),  # EXT1: a name by number
        raw(b"\x96" + struct.pack("<Q", 2**40)),  # BYTEARRAY8 of a terabyte
        raw(b"X" + struct.pack("<I", 2**31)),  # a text of two gigabytes
        raw(b"\x8e" + struct.pack("<Q", 2**50)),  # BINBYTES8
        raw(b"\x8b" + struct.pack("<i", 2**30)),  # LONG4
        raw(b"Q"),  # a reference from an empty stack
        raw(b"(0"),  # POP across a mark
        raw(b"t"),  # a tuple without a mark
        raw(b"]}]s"),  # a list as a key
        raw(b"h\x07"),  # a memo that was never kept
        b"\x80\x02}",
        b"",
    ],
)
def test_hostile_pickles_are_refused(tmp_path: Path, content: bytes) -> None:
    with refuses(BadFile):
        open_checkpoint(with_pickle(tmp_path / "a.pt", content))


def test_packed_entries_are_refused(tmp_path: Path) -> None:
    """Ten gigabytes of zeros fit into ten megabytes of zip."""
    path = with_pickle(tmp_path / "a.pt", pickle_of({"a": torch.zeros(1000)}), {"data/0": bytes(4000)}, packed=True)
    with refuses(BadFile, "compressed"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": (2**40,), "stride": (0,)}, "many more numbers"),  # one number, repeated
        ({"size": (4,), "stride": (2,)}, "not resizable"),
        ({"size": (4,), "stride": (1,), "offset": 1}, "not resizable"),
        ({"size": (4,), "stride": (-1,)}, "cannot be read"),
        ({"size": (4, 1), "stride": (1,)}, "cannot be read"),
    ],
)
def test_views_beyond_their_storage_are_refused(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    class Reaching:
        def __reduce__(self) -> tuple[Any, ...]:
            storage = torch.arange(4.0).untyped_storage()
            typed = torch.storage.TypedStorage(wrap_storage=storage, dtype=torch.float32, _internal=True)
            return torch._utils._rebuild_tensor_v2, (typed, change.get("offset", 0), change["size"], change["stride"], False, OrderedDict())

    with refuses(BadFile, reason):
        open_checkpoint(torch_file(tmp_path / "a.pt", {"a": Reaching()}))


def test_many_names_for_the_same_numbers_are_refused(tmp_path: Path) -> None:
    """Their tensors would fill a disk."""
    one = torch.zeros(10_000)
    with refuses(BadFile, "more numbers than the file"):
        open_checkpoint(torch_file(tmp_path / "a.pt", {f"name {i}": one for i in range(100)}))


def test_every_cut_is_refused(tmp_path: Path) -> None:
    whole = torch_file(tmp_path / "a.pt", tensors()).read_bytes()
    for length in [0, 1, 3, *range(10, len(whole), len(whole) // 40)]:
        (tmp_path / "cut.pt").write_bytes(whole[:length])
        with refuses(BadFile):
            open_checkpoint(tmp_path / "cut.pt")


def test_a_storage_of_another_length_is_refused(tmp_path: Path) -> None:
    path = with_pickle(tmp_path / "a.pt", pickle_of({"a": torch.zeros(4)}), {"data/0": bytes(12)})
    with refuses(BadFile, "no storage of 16 bytes"):
        open_checkpoint(path)


@pytest.mark.parametrize("content", [b"just a text", pickle.dumps({"a": 1}), pickle.dumps(2**70)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with refuses(BadFile):
        open_checkpoint(tmp_path / "a.bin")


def test_a_file_of_an_older_pytorch_says_what_to_do(tmp_path: Path) -> None:
    torch.save(tensors(), tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    with refuses(BadFile, r"PyTorch 1\.6 or later.*save it again"):
        open_checkpoint(tmp_path / "a.pt")


def test_no_number_is_read_before_it_is_wanted(tmp_path: Path) -> None:
    """The names and shapes of a 64 MB file are read without loading its pages."""
    path = torch_file(tmp_path / "a.pt", {"a": torch.zeros(2**24)})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.shapes == {"a": (2**24,)}
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_a_program_is_refused(tmp_path: Path) -> None:
    torch.jit.trace(torch.nn.Linear(2, 2), torch.ones(1, 2)).save(tmp_path / "a.pt")
    with refuses(BadFile, "TorchScript"):
        open_checkpoint(tmp_path / "a.pt")
