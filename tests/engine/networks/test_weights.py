"""Folders of weights: small on disk, and read back correctly."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.backbones import lowpoly, pictogram
from engine.drafters.resampler import read_resampler
from engine.errors import BadOutput, MissingWeights
from engine.networks import shipping
from engine.networks.card import covered_files, sha256
from engine.networks.shipping import sign
from engine.networks.weights import MODELS, read_card, read_tensors, ship
from engine.recognition import picture_judge as judge
from tests.engine.refusals import refuses


def write_weights(tmp_path, tensors):
    ship(tmp_path, {"model-1.safetensors": tensors}, {})
    return tmp_path / "model-1.safetensors"


def test_matrices_take_a_byte_an_element_and_come_back_nearly_as_they_were(tmp_path):
    torch.manual_seed(0)
    rows = torch.randn(300, 192) * torch.logspace(-4, 4, 300)[:, None]  # rows of very different sizes
    stacked = torch.randn(3, 40, 64)
    path = write_weights(tmp_path, {"rows": rows, "stacked": stacked})
    assert path.stat().st_size < 1.1 * (rows.numel() + stacked.numel()) + 1000
    back = read_tensors(path)
    assert set(back) == {"rows", "stacked"}
    for name, tensor in (("rows", rows), ("stacked", stacked)):
        largest = tensor.abs().amax(-1, keepdim=True)
        assert back[name].dtype == torch.float32
        assert ((back[name] - tensor).abs() <= largest * (0.51 / 127)).all()


def test_what_was_stored_once_is_stored_again_to_the_same_bytes(tmp_path):
    path = write_weights(tmp_path, {"rows": torch.randn(100, 100)})
    first = path.read_bytes()
    assert write_weights(tmp_path, read_tensors(path)).read_bytes() == first


def test_small_tensors_vectors_and_convolutions_stay_in_half_precision(tmp_path):
    tensors = {"bias": torch.randn(5000), "small": torch.randn(8, 8), "convolution": torch.randn(32, 32, 3, 3)}
    path = write_weights(tmp_path, tensors)
    assert {v.dtype for v in load_file(str(path)).values()} == {torch.float16}
    back = read_tensors(path)
    assert all(torch.equal(back[k], v.half().float()) for k, v in tensors.items())


def test_rows_of_zeros_come_back_as_zeros(tmp_path):
    assert torch.equal(read_tensors(write_weights(tmp_path, {"rows": torch.zeros(64, 128)}))["rows"], torch.zeros(64, 128))


def test_files_of_other_precisions_are_read(tmp_path):
    tensor = torch.randn(64, 128)
    save_file({"x": tensor.bfloat16(), "y": tensor}, str(tmp_path / "other.safetensors"))
    back = read_tensors(tmp_path / "other.safetensors")
    assert torch.equal(back["x"], tensor.bfloat16().float()) and torch.equal(back["y"], tensor)


def test_a_damaged_file_is_named(tmp_path):
    path = write_weights(tmp_path, {"rows": torch.randn(64, 128)})
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(MissingWeights, match=r"model-1\.safetensors is damaged"):
        read_tensors(path)


def test_all_shipped_weights_keep_to_their_budget():
    files = [path for path in MODELS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 45 * 2**20
    assert max(path.stat().st_size for path in files) < 10_000_000


# --- what is damaged is a sentence ------------------------------------------------------------------------------------


@contextmanager
def refuses_weights(match: str | None = None) -> Iterator[pytest.ExceptionInfo]:
    """Expects that the block refuses weights with a sentence that names a remedy."""
    with refuses(MissingWeights, match) as caught:
        yield caught
    assert any(word in str(caught.value) for word in ("git", "train", "Train", "again", "Load")), caught.value


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"name": "lowpoly", "words": ["a', "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b'{"minutes": NaN}', "NaN"),
        (b'{"minutes": 1e999}', "not a number"),
        (b'{"minutes": -Infinity}', "Infinity"),
        (b"[1, 2]", "a list, not an object"),
        (b'"text"', "a text, not an object"),
        (b"null", "not an object"),
        (b"[" * 200_000, "not JSON"),
        (1 << 30, "card"),
        (-1, "card"),
    ],
)
def test_a_damaged_card_is_a_sentence(tmp_path: Path, content: bytes | int, word: str) -> None:
    """content : its bytes; a number: that many zeros; -1: a folder"""
    path = tmp_path / "card.json"
    if content == -1:
        path.mkdir()
    elif isinstance(content, int):
        with path.open("wb") as file:
            file.truncate(content)
    else:
        path.write_bytes(content)
    with refuses_weights(word):
        read_card(tmp_path)


CARDS: list[tuple[str, str, object]] = [  # model, entry, what it becomes (... = it is taken out); faults/test_cards.py has random ones
    *((model, entry, value)
      for model, entry in (("pictogram", "words"), ("pictogram", "sides"), ("lowpoly", "families"), ("judge", "names"))
      for value in (..., "text", [3.5])),
    *((model, entry, value) for model, entry in (
        ("pictogram", "tokenizer"), ("pictogram", "tokenizer.settings"), ("pictogram", "decoder"), ("pictogram", "decoder.settings"),
        ("lowpoly", "model"), ("judge", "judge"), ("judge", "judge.settings")) for value in (..., [])),
    *(("pictogram", f"decoder.settings.{name}", value) for name in ("layers", "width", "heads", "inner") for value in (0, 10**9, True)),
    *(("pictogram", "tokenizer.settings.levels", value) for value in ([], [10**6] * 4, ["8"])),
    *(("judge", "judge.settings.width", value) for value in (10**9, 25)),
    ("pictogram", "decoder.settings.depth", 3), ("judge", "judge.settings.depth", 3), ("pictogram", "sides", [9]),
    *((model, entry, value) for model, entry in (("pictogram", "decoder.files"), ("lowpoly", "model.files")) for value in (..., 99, "2")),
    *(("heads", entry, value) for entry in ("heads", "heads.heads_cross", "heads.heads_cross.settings") for value in (..., [])),
    *(("heads", f"heads.heads_cross.settings.{name}", value) for name in ("depth", "width", "heads") for value in (10**9, 5)),
    ("heads", "heads.heads_cross.backbone", "0123456789abcdef"),
    *(("heads", "heads.heads_cross.settings.kind", kind) for kind in ("mlp", "other")),
    *(("drafter", entry, value) for entry in ("feature_draft", "feature_draft.settings") for value in ([], {})),
    *(("drafter", f"feature_draft.settings.{name}", value) for name in ("width", "heads", "inner") for value in (10**9, None)),
    ("drafter", "feature_draft.backbone", "0123456789abcdef"), ("resampler", "resampler", []),
    *(("resampler", "resampler.spreads", value) for value in ({"2": -1e-9}, {"x": 0.1})),
    *(("resampler", "resampler.networks", value) for value in (
        {"3": {}}, {"2": 5}, [1], {"2": {"factor": 2, "width": 10**6}}, {"2": {"factor": 2, "strange": 3}})),
    ("resampler", "resampler.tokens", "0123456789abcdef"),
    *(("pictogram", "sha256", value) for value in ({"tokenizer.safetensors": 3}, {}, {"tokenizer.safetensors": "0" * 64})),
]  # fmt: skip


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the shipped models, whose cards a test may change."""
    return Path(shutil.copytree(MODELS, tmp_path_factory.mktemp("models") / "models"))


@contextmanager
def changed_card(folder: Path, entry: str, value: object) -> Iterator[None]:
    """Changes an entry of a card inside the block and restores it afterwards."""
    path = folder / "card.json"
    before = path.read_bytes()
    card = json.loads(before)
    *way, last = entry.split(".")
    row = card
    for name in way:
        row = row[name]
    if value is ...:
        del row[last]
    else:
        row[last] = value
    path.write_text(json.dumps(card))
    try:
        yield
    finally:
        path.write_bytes(before)


LOADERS: dict[str, tuple[str, Callable[[Path], object]]] = {  # the folder that holds it, and what reads it
    "pictogram": ("pictogram", pictogram.load), "lowpoly": ("lowpoly", lowpoly.load), "judge": ("judge", judge.load),
    "heads": ("lowpoly", lambda folder: lowpoly.load(folder).drafter("mesh_heads").of("cross-attention")),
    "drafter": ("lowpoly", lambda folder: lowpoly.load(folder).drafter("feature_draft")),
    "resampler": ("pictogram", lambda folder: read_resampler(folder, read_card(folder), pictogram.load_tokenizer(folder))),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "entry", "value"), CARDS)
def test_a_card_with_a_wrong_entry_is_a_sentence(models: Path, kind: str, entry: str, value: object) -> None:
    name, read = LOADERS[kind]
    with changed_card(models / name, entry, value), refuses_weights():
        read(models / name)


def test_a_decoder_of_another_tokenizer_is_refused(models: Path) -> None:
    with changed_card(models / "pictogram", "decoder.tokens", "0123456789abcdef"):
        with refuses_weights("another tokenizer") as caught:
            pictogram.load(models / "pictogram")
    assert "train pictogram." in str(caught.value)


@pytest.mark.parametrize(
    ("tensors", "word"),
    [
        ({"x": torch.ones(3, dtype=torch.int64)}, "int64"),
        ({"x": torch.ones(3, dtype=torch.bool)}, "bool"),
        ({"x": torch.ones(3, 4, dtype=torch.int8)}, "no scale"),
        ({"x": torch.ones(3, 4, dtype=torch.int8), "x.scale": torch.ones(4, 1)}, "no scale"),
        ({"x": torch.ones(3, 4, dtype=torch.int8), "x.scale": torch.ones(3, 1, dtype=torch.int64)}, "no scale"),
        ({"x": torch.ones(3, 4, dtype=torch.int8), "x.scale": torch.full((3, 1), torch.nan)}, "not finite"),
        ({"x": torch.tensor([1.0, torch.inf])}, "not finite"),
        ({"x": torch.tensor([1.0, -torch.nan]).half()}, "not finite"),
    ],
)
def test_what_are_no_weights_is_a_sentence(tmp_path: Path, tensors: dict[str, torch.Tensor], word: str) -> None:
    save_file(tensors, str(tmp_path / "x.safetensors"))
    with refuses_weights(word):
        read_tensors(tmp_path / "x.safetensors")


@pytest.mark.parametrize("place", [0, 7, 8, 100, -1000, -1])
@pytest.mark.parametrize("hashed", [True, False])
def test_a_flipped_byte_or_an_early_end_is_seen(tmp_path: Path, place: int, hashed: bool) -> None:
    """With a card's hashes any damage is detected; without them, as in a foreign folder, an early end is."""
    path = write_weights(tmp_path, {"rows": torch.randn(64, 128)})
    whole = path.read_bytes()
    if not hashed:
        (tmp_path / "card.json").write_text("{}")
    changed_bytes = [whole[: place % len(whole)]] + ([bytes(b ^ (i == place % len(whole)) for i, b in enumerate(whole))] if hashed else [])
    for content in changed_bytes:
        path.write_bytes(content)
        with refuses_weights("is damaged"):
            read_tensors(path)


def test_a_file_that_its_card_does_not_name_is_refused(tmp_path: Path) -> None:
    write_weights(tmp_path, {"rows": torch.randn(4, 4)})
    save_file({"x": torch.ones(2)}, str(tmp_path / "model-2.safetensors"))
    with pytest.raises(MissingWeights, match="does not name it"):
        read_tensors(tmp_path / "model-2.safetensors")


def test_every_shipped_file_stands_on_a_card_with_its_hash() -> None:
    for card in MODELS.rglob("card.json"):
        named = read_card(card.parent)["sha256"]
        assert named == {path.relative_to(card.parent).as_posix(): sha256(path) for path in covered_files(card.parent)}
    files = {path for path in MODELS.rglob("*") if path.is_file()}
    assert files == {p for card in MODELS.rglob("card.json") for p in (card, *covered_files(card.parent))}


@pytest.mark.parametrize(("option", "kind"), lowpoly.ADAPTERS.items())
def test_an_adapter_is_read_from_safetensors_alone(models: Path, tmp_path: Path, option: str, kind: str) -> None:
    folder = Path(shutil.copytree(models / "lowpoly", tmp_path / "lowpoly"))
    adapter = folder / f"lora_{kind}"
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(MissingWeights, match=r"adapter_model\.bin"):
        lowpoly.load(folder, option=option)


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"r": 0}, "cannot be read"), ({"r": 10**9}, "cannot be read"), ({"r": True}, "cannot be read"), ({"r": 8}, "rank 8"),
     ({"lora_alpha": "x"}, "cannot be read"), ({"lora_alpha": -1}, "plain LoRA"), ({"peft_type": "IA3"}, "plain LoRA"),
     ({"use_dora": True}, "use_dora")],
)  # fmt: skip
def test_a_merged_adapter_with_strange_settings_is_a_sentence(models: Path, tmp_path: Path, changes: dict[str, object], word: str) -> None:
    folder = Path(shutil.copytree(models / "lowpoly", tmp_path / "lowpoly"))
    path = folder / "lora_cross" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    sign(folder)
    with refuses_weights(word):
        lowpoly.load(folder, option="lora")
    path.write_text("[]")
    with pytest.raises(MissingWeights):
        lowpoly.load(folder, option="lora")


# --- what is written --------------------------------------------------------------------------------------------------


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    path = write_weights(tmp_path / "m", {"rows": torch.ones(8, 8)})
    before = path.read_bytes()
    with pytest.raises(BadOutput, match="not finite"):
        write_weights(tmp_path / "m", {"rows": torch.full((8, 8), torch.nan)})
    with pytest.raises(BadOutput, match="not finite"):
        ship(tmp_path / "m", {}, {"held_out": {"loss": float("nan")}})
    assert path.read_bytes() == before and sorted(p.name for p in tmp_path.iterdir()) == ["m"]


def test_a_disk_that_refuses_leaves_the_folder_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_weights(tmp_path / "m", {"rows": torch.ones(8, 8)})
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shipping, "save_file", full)
    with pytest.raises(BadOutput, match="No space left") as caught:
        write_weights(tmp_path / "m", {"rows": torch.zeros(8, 8)})
    assert "--export" in str(caught.value)
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before and path.exists()
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


def test_a_folder_that_another_process_writes_is_left_alone(tmp_path: Path) -> None:
    write_weights(tmp_path / "m", {"rows": torch.ones(8, 8)})
    for part in (tmp_path / f".part-{os.getppid()}-ab-m", tmp_path / "m" / f".part-{os.getppid()}-ab-predictive_stream"):
        part.mkdir()
        with pytest.raises(BadOutput, match=f"Process {os.getppid()} is writing"):
            ship(tmp_path / "m", {}, {"a": 1})
        part.rmdir()
    ship(tmp_path / "m", {}, {"a": 1})
    assert read_card(tmp_path / "m")["a"] == 1


def test_shipping_does_not_call_damaged_files_right(tmp_path: Path) -> None:
    path = write_weights(tmp_path / "m", {"rows": torch.ones(8, 8)})
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    ship(tmp_path / "m", {"other.safetensors": {"x": torch.ones(2)}}, {})
    with pytest.raises(MissingWeights, match="SHA-256"):
        read_tensors(path)
    assert read_tensors(tmp_path / "m" / "other.safetensors")["x"].tolist() == [1, 1]


def test_a_variant_begins_as_a_copy_of_its_base(tmp_path: Path) -> None:
    write_weights(tmp_path / "m", {"rows": torch.ones(8, 8)})
    before = {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()}
    ship(tmp_path / "out", {"drafter.safetensors": {"x": torch.ones(2)}}, {"drafter": 1}, base=tmp_path / "m")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"model-1.safetensors", "drafter.safetensors", "card.json"}
    assert {p.name: p.read_bytes() for p in (tmp_path / "m").iterdir()} == before


def test_a_folder_whose_swap_was_killed_is_put_back_by_the_next_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(shutil.copytree(MODELS / "lowpoly", tmp_path / "lowpoly"))
    monkeypatch.setattr(lowpoly, "FOLDER", folder)
    monkeypatch.setattr(lowpoly.load_model, "__defaults__", (folder,))
    stream = folder / "predictive_stream"
    stream.rename(folder / ".aside-4711-predictive_stream")
    folder.rename(tmp_path / ".aside-4711-lowpoly")
    assert "predictive_stream" in lowpoly.load().capabilities
    assert [p.name for p in tmp_path.iterdir()] == ["lowpoly"] and stream.exists()
