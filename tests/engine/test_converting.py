"""Imports of checkpoints: the written folder gives the same tokens; a failed import gives a sentence and leaves no folder."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from app import cli
from app.commands import models
from engine import converting
from engine.backbones import imported_folders, load, resolve
from engine.checkpoints import families, writing
from engine.converting import ImportProgress, convert, identify, remove
from engine.core import Prompt, Sampling
from engine.errors import BadFile, BadOutput, ForetokenError, MissingWeights, NotSupported
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny import save_tokenizer
from tests.engine.checkpoints.files import torch_file, traps
from tests.engine.refusals import refuses

HEAD = "model.generation_head.vision_head.weight"
PROMPT = Prompt(text="red apple", seed=3, sampling=Sampling(1.0, 0, 1.0, 3.0))


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint as transformers writes it, with a description, and code that must stay behind."""
    folder = tmp_path_factory.mktemp("hub") / "Tiny Janus"
    tiny.janus_model().save_pretrained(folder)
    save_tokenizer(folder)
    (folder / "README.md").write_text("---\nlicense: other\nlicense_name: tiny-license\n---\n# Tiny\n")
    (folder / "modeling_tiny.py").write_text("raise SystemExit\n")
    return folder


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A separate data folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "models"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint to be changed."""
    return Path(shutil.copytree(original, tmp_path / "changed"))


def run_import(path: Path, out: Path | None = None) -> tuple[Path, list[ImportProgress]]:
    """The folder of an import, and its progress."""
    steps = list(convert(path, out))
    assert steps[-1].folder is not None
    return steps[-1].folder, steps


def tokens_of(path: Path) -> list[int]:
    """Tokens of a picture by the model in a folder."""
    return generate(load(path), METHODS["ar"], PROMPT).finish().tokens


def pickle_weights(folder: Path, parts: int = 1) -> Path:
    """Pickles the weights of the checkpoint, in shards."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    files = {name: f"pytorch_model-{i % parts + 1:05}-of-{parts:05}.bin" for i, name in enumerate(names)}
    for file in set(files.values()):
        torch_file(folder / file, {name: weights[name] for name in names if files[name] == file})
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def left_out(path: Path, match: str, kind: type[ForetokenError], data: Path) -> None:
    """Asserts that an import is refused and leaves nothing."""
    with refuses(kind, match):
        list(convert(path))
    assert not data.exists() or list(data.iterdir()) == []


# --- what it is -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_is_described(original: Path) -> None:
    about = identify(original)
    count = sum(p.numel() for p in tiny.janus_model().parameters())
    assert (about.name, about.family, about.parameters, about.stated) == ("Tiny-Janus", "janus", count, "tiny-license")
    assert about.dtypes == {"float32": 4 * count} and about.codes == 48 and about.sizes == [8]
    assert "0.3 million parameters" in str(about) and "licence: tiny-license" in str(about)


def test_a_folder_of_the_hubs_cache_has_its_repositorys_name(original: Path, tmp_path: Path) -> None:
    cached = tmp_path / "models--deepseek-community--Janus-Pro-1B" / "snapshots" / "0123abc"
    shutil.copytree(original, cached)
    assert identify(cached).name == "Janus-Pro-1B"


@pytest.mark.parametrize(("name", "expected"), [("pictogram", "pictogram-imported"), ("a b/ü", "model"), ("..", "model")])
def test_names_are_plain(original: Path, tmp_path: Path, name: str, expected: str) -> None:
    place = tmp_path / name
    place.mkdir(parents=True, exist_ok=True)
    assert converting.name_of(place) == (expected if name != ".." else converting.name_of(tmp_path.parent))


# --- imports ----------------------------------------------------------------------------------------------------------


def test_safetensors_are_linked_and_make_the_same_tokens(original: Path, data: Path) -> None:
    folder_made, steps = run_import(original)
    assert (
        folder_made == data / "Tiny-Janus" and imported_folders() == [folder_made] and resolve("Tiny-Janus") == ("janus", str(folder_made))
    )
    assert steps[-1].done == steps[-1].total == identify(original).bytes
    assert os.path.samefile(folder_made / "model.safetensors", original / "model.safetensors")
    assert tokens_of(folder_made) == tokens_of(original)
    assert not (folder_made / "modeling_tiny.py").exists() and (folder_made / "tokenizer.json").exists()


@pytest.mark.parametrize("parts", [1, 3])
def test_pickled_weights_are_written_as_safetensors(
    original: Path, folder: Path, data: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "SHARD", 40_000)
    monkeypatch.setattr(writing, "PIECE", 1000)
    model, steps = run_import(pickle_weights(folder, parts))
    assert len(list(model.glob("*.safetensors"))) > 2 and not list(model.glob("*.bin*"))
    assert [step.done for step in steps] == sorted(step.done for step in steps) and len(steps) > 100
    assert tokens_of(model) == tokens_of(original)


def test_types_are_kept(folder: Path, data: Path) -> None:
    weights = {name: tensor.bfloat16() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(weights, folder / "model.safetensors")  # without a format, so it is written anew
    model, _ = run_import(folder)
    again = load_file(model / "model.safetensors")
    assert again.keys() == weights.keys() and all(torch.equal(again[name], weights[name]) for name in weights)


def test_a_second_import_changes_nothing(original: Path, data: Path) -> None:
    model, _ = run_import(original)
    before = {path.name: path.stat().st_mtime_ns for path in (model, *model.iterdir())}
    assert run_import(original)[0] == model
    assert {path.name: path.stat().st_mtime_ns for path in (model, *model.iterdir())} == before


def test_an_import_chooses_the_form_of_the_weights(original: Path, data: Path) -> None:
    """A second import with another form changes the card alone; another form may be requested when the model is loaded."""
    model, _ = run_import(original)
    assert load(model).weight_form == "full"
    for form in ("int8", "nf4"):
        list(convert(original, weights=form))
        list(convert(original))
        assert load(model).weight_form == form and load(model, weights="full").weight_form == "full"
    assert os.path.samefile(model / "model.safetensors", original / "model.safetensors")
    remove("Tiny-Janus")
    list(convert(original, weights="int8"))
    assert load(model).weight_form == "int8" and models.imported_row(model)["how"] == "imported, Janus and Janus-Pro, int8 weights"


def test_changed_weights_are_imported_again(folder: Path, data: Path) -> None:
    model, _ = run_import(folder)
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    save_file(weights | {HEAD: weights[HEAD] + 1}, folder / "model.safetensors", {"format": "pt"})
    assert run_import(folder)[0] == model
    assert torch.equal(load_file(model / "model.safetensors")[HEAD], weights[HEAD] + 1)


def test_another_folder_may_be_named(original: Path, data: Path, tmp_path: Path) -> None:
    model, _ = run_import(original, tmp_path / "elsewhere")
    assert model == tmp_path / "elsewhere" and imported_folders() == [] and tokens_of(model) == tokens_of(original)


def test_a_folder_with_something_else_is_not_replaced(original: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(BadOutput, match="no imported model"):
        list(convert(original, tmp_path / "mine"))
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_a_full_disk_is_refused_before_anything_is_written(original: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(converting.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    left_out(original, "0.0 MB free", BadOutput, data)


def test_an_import_can_be_removed(original: Path, data: Path) -> None:
    model, _ = run_import(original)
    with pytest.raises(NotSupported, match="There are: Tiny-Janus"):
        remove("../Tiny-Janus")
    assert remove("Tiny-Janus") == model and not model.exists() and (original / "model.safetensors").exists()


@pytest.mark.parametrize("place", ["processor", "../processor"])
def test_a_tokenizer_in_a_folder_of_its_own_comes_along(folder: Path, data: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family = replace(families.FAMILIES[0], processor=("", "processor", "../processor"))
    monkeypatch.setattr(families, "FAMILIES", (family, *families.FAMILIES[1:]))
    monkeypatch.setattr(families, "ADAPTED", {family.name: family})
    (folder / place).mkdir()
    for file in folder.glob("*token*"):
        file.rename(folder / place / file.name)
    model, _ = run_import(folder)
    assert (model / "processor" / "tokenizer.json").is_file() and not (model / "tokenizer.json").exists()


# --- refusals ---------------------------------------------------------------------------------------------------------


def without(folder: Path, *names: str) -> None:
    for name in names:
        for file in folder.glob(name):
            file.unlink()


def change_config(folder: Path, **entries: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | entries))


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("change", "match", "kind"),
    [
        (lambda f: without(f, "*token*"), "holds no tokenizer", MissingWeights),
        (lambda f: without(f, "model.safetensors"), "holds no weights", MissingWeights),
        (lambda f: change_weights(f, lambda w: w.pop(HEAD)), f"lacks 1 tensors, such as {HEAD}", MissingWeights),
        (lambda f: change_weights(f, lambda w: w.update({HEAD: w[HEAD][:5].clone()})), r"shape \[5, 32\], not \[48, 32\]", MissingWeights),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x00" * 50), "cannot be read", BadFile),
        (lambda f: change_config(f, model_type="llama"), "makes no pictures", NotSupported),
        (lambda f: change_config(f, model_type="multi_modality"), "DeepSeek's own form", NotSupported),
        (lambda f: change_config(f, model_type=None), "none of the families", NotSupported),
        (lambda f: change_config(f, text_config=5), "does not fit its config", BadFile),
        (lambda f: (f / "config.json").write_text("{"), "not JSON", MissingWeights),
    ],
)
def test_what_cannot_be_imported_is_a_sentence(
    folder: Path, data: Path, change: Callable[[Path], object], match: str, kind: type[ForetokenError]
) -> None:
    change(folder)
    left_out(folder, match, kind, data)


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["base_model.model.layers.0.lora_A.weight"], "LoRA adapter"),
        (["quantize.embedding.weight", "decoder.conv_in.weight"], "picture tokenizer alone"),
        (["down_blocks.0.conv.weight"], "diffusion model"),
        (["model.embed_tokens.weight", "lm_head.weight"], "writes text and makes no pictures"),
        (["anything"], "none of the families"),
    ],
)
def test_other_files_are_named_for_what_they_are(tmp_path: Path, data: Path, names: list[str], match: str) -> None:
    save_file({name: torch.ones(2) for name in names}, tmp_path / "a.safetensors")
    left_out(tmp_path / "a.safetensors", match, NotSupported, data)


def test_a_pickle_that_would_run_code_is_refused(folder: Path, data: Path, tmp_path: Path) -> None:
    without(folder, "model.safetensors")
    torch_file(folder / "pytorch_model.bin", {"weight": traps(tmp_path / "trace")["os.system"]})
    left_out(folder, "would run code", BadFile, data)
    assert not (tmp_path / "trace").exists()


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_imports_lists_and_removes(original: Path, data: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["models", "import", str(original), "--json"]) == 0
    output = capsys.readouterr().out
    assert "Janus and Janus-Pro" in output and "Use it: python launch.py --backbone Tiny-Janus" in output
    assert json.loads(output.splitlines()[-1])["folder"] == str(data / "Tiny-Janus")
    assert cli.main(["models", "--json"]) == 0
    row = json.loads(capsys.readouterr().out.splitlines()[-1])["Tiny-Janus"]
    assert row["ready"] and row["family"] == "janus" and row["sizes"] == [8]
    assert cli.main(["models", "remove", "Tiny-Janus"]) == 0 and imported_folders() == []
    assert cli.main(["models", "remove", "Tiny-Janus"]) == 2


def test_looking_writes_nothing(original: Path, data: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["models", "import", str(original), "--look"]) == 0
    assert "tiny-license" in capsys.readouterr().out and not data.exists()


@pytest.mark.parametrize("arguments", [["import"], ["import", "a", "b"], ["remove"], ["other"], ["import", "nowhere"]])
def test_wrong_commands_are_a_sentence(arguments: list[str], capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["models", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
