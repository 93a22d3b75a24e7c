"""Folders of checkpoints, one table for all adapters: what loads, and the error message for each kind of damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from engine import memory
from engine.backbones import BACKBONES, checkpoint_files, load
from engine.backbones.chameleon import Chameleon, codes_of
from engine.backbones.emu3 import Emu3
from engine.backbones.janus import Janus
from engine.core import Backbone, Prompt, Sampling
from engine.errors import BadFile, ForetokenError, MissingWeights, NotSupported, TooLittleMemory
from engine.kernels.compressed_linear import CompressedLinear
from engine.kernels.cpu.packed_linear import can_pack
from engine.kernels.cpu.steady_linear import SteadyLinear
from engine.layout import Raster
from engine.machine import has_fast_bfloat16
from engine.memory import FORMS
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny, tiny_chameleon, tiny_checkpoints, tiny_glm_image, tiny_originals
from tests.engine.backbones.adapters import FOLDERS, tiktoken_table
from tests.engine.refusals import refuses

Damage = Callable[[Path], object]
MODEL = "model.safetensors"
HEAD = "model.generation_head.vision_head.weight"
BPT_QUERY = "conditioner.point_encoder.model.shape_model.encoder.query"


def entry(name: str, value: object, part: str | None = None) -> Damage:
    """Writes an entry of the configuration."""

    def damage(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (config if part is None else config[part])[name] = value
        (folder / "config.json").write_text(json.dumps(config))

    return damage


def text(name: str, content: str) -> Damage:
    """Replaces a file."""
    return lambda folder: (folder / name).write_text(content)


def truncate(name: str, size: int) -> Damage:
    """Truncates a file."""
    return lambda folder: (folder / name).write_bytes((folder / name).read_bytes()[:size])


def without(pattern: str) -> Damage:
    """Deletes files."""
    return lambda folder: [path.unlink() for path in folder.rglob(pattern) if path.is_file()]


def tensor(name: str, shape: tuple[int, ...] | None, file: str = MODEL, fill: float = 0.0) -> Damage:
    """Deletes a tensor, or changes its shape or its numbers."""

    def damage(folder: Path) -> None:
        pickled = not file.endswith("safetensors")
        whole = torch.load(folder / file, weights_only=False) if pickled else load_file(folder / file)
        tensors = whole["model"] if pickled else whole
        if shape is None:
            del tensors[name]
        else:
            tensors[name] = torch.full(shape or tensors[name].shape, fill)
        if pickled:
            torch.save(whole, folder / file)
        else:
            save_file(tensors, folder / file, {"format": "pt"})

    return damage


def as_pickle(folder: Path) -> None:
    """Weights that can run code."""
    torch.save(load_file(folder / MODEL), folder / "pytorch_model.bin")
    (folder / MODEL).unlink()


def without_codes(folder: Path) -> None:
    """A text model of the same class."""
    model = tiny_checkpoints.emu3_model()
    model.config.vocabulary_map = {"<image>": 2}
    model.save_pretrained(folder)


def without_mark(mark: str) -> Damage:
    """Removes one of the marks of Emu3's tokenizer."""

    def damage(folder: Path) -> None:
        without("*token*")(folder)
        tiny_checkpoints.save_emu3_tokenizer(folder, {name: word for name, word in tiny_checkpoints.MARKS.items() if name != mark})

    return damage


def without_grid_marks(folder: Path) -> None:
    """Removes the size marks of GLM-Image's tokenizer."""
    path = folder / "processor" / "tokenizer_config.json"
    path.write_text(json.dumps({name: value for name, value in json.loads(path.read_text()).items() if "bos_token" not in name}))


CHECKPOINT, PICTURES = "c2i_B_256.pt", "vq_ds16_c2i.pt"  # of llamagen
LACKS = MissingWeights
REFUSALS: dict[str, list[tuple[Damage, type[ForetokenError], str]]] = {
    "janus": [
        (text("config.json", '{"model_type": "llama"}'), NotSupported, ""),
        (text("config.json", '{"model_type": "multi_modality"}'), NotSupported, ""),
        (text("config.json", '{"model_type": null}'), NotSupported, ""),
        (text("config.json", "{"), LACKS, "damaged"), (text("config.json", "[]"), LACKS, "damaged"),
        (without("config.json"), LACKS, r"config\.json"),
        (without(MODEL), LACKS, ""), (truncate(MODEL, 1000), LACKS, ""),
        (tensor(HEAD, None), LACKS, r"generation_head\.vision_head\.weight"),  # transformers would fill it with noise and only warn
        (tensor(HEAD, (), fill=torch.nan), LACKS, "not finite"),
        (as_pickle, LACKS, "safetensors"), (without("*token*"), LACKS, "holds no tokenizer, without which no text is read"),
        (entry("num_embeddings", 50, "vq_config"), LACKS, ""),
        (entry("text_config", 5), LACKS, ""), (entry("vq_config", []), LACKS, ""), (entry("text_config", None), LACKS, ""),
        (entry("hidden_size", "wide", "text_config"), LACKS, ""), (entry("hidden_size", None, "text_config"), LACKS, ""),
        (entry("num_attention_heads", 0, "text_config"), LACKS, ""), (entry("num_hidden_layers", -1, "text_config"), LACKS, ""),
        (entry("channel_multiplier", "x", "vq_config"), LACKS, ""), (entry("base_channels", 33, "vq_config"), LACKS, ""),
    ],
    "emu3": [
        (without_codes, NotSupported, "0 of 24 codes"), (without("*token*"), LACKS, "holds no tokenizer, without which no text is read"),
        *((without_mark(mark), LACKS, mark) for mark in tiny_checkpoints.MARKS),
    ],
    "emu35": [
        (tensor("decoder.mid.attn_1.q.weight", None, f"vision_tokenizer/{MODEL}"), LACKS, r"attn_1\.q\.weight"),
        (without("emu3.tiktoken"), LACKS, ""), (lambda folder: (folder / MODEL).unlink(), LACKS, ""),
        (lambda folder: (folder / "vision_tokenizer" / MODEL).unlink(), LACKS, ""),
        (truncate(f"vision_tokenizer/{MODEL}", 500), BadFile, r"model\.safetensors cannot be read"),
        (lambda folder: [entry("model_type", "qwen3")(folder), entry("vocab_size", 151_936)(folder)], NotSupported, "makes no pictures"),
        (entry("hidden_size", "wide"), LACKS, ""), (entry("num_hidden_layers", None), LACKS, ""),
        (lambda folder: [entry(name, None)(folder) for name in ("rope_theta", "rope_parameters")], LACKS, ""),
        *((text("emu3.tiktoken", content), LACKS, "damaged") for content in ("no base64!! 0", "", tiktoken_table()[:200].decode())),
    ],
    "anole": [
        (tensor("lm_head.weight", None), LACKS, "lacks 1"), (tensor("model.layers.1.self_attn.k_norm.bias", None), LACKS, "lacks 1"),
        (tensor("model.norm.weight", (31,)), LACKS, "shape"), (tensor("model.layers.2.mlp.up_proj.weight", (3,)), LACKS, "more layers"),
        *((entry("hidden_size", value), LACKS, "") for value in (0, "wide")), (entry("num_attention_heads", 0), LACKS, ""),
        (entry("num_hidden_layers", -1), LACKS, ""), (entry("vocab_size", None), LACKS, ""),
        (truncate(MODEL, 2000), BadFile, ""), (truncate("vqgan.ckpt", 3000), BadFile, ""), (without("vqgan.ckpt"), LACKS, r"vqgan\.ckpt"),
        (without("*token*"), LACKS, "tokenizer"), (text("config.json", '{"model_type": "llama"}'), NotSupported, "llama"),
    ],
    "glm_image": [
        (tensor("lm_head.weight", None), LACKS, r"lm_head\.weight"), (truncate(MODEL, 3000), LACKS, ""),
        (text("config.json", '{"model_type": "glm4"}'), NotSupported, "glm4"), (without_grid_marks, LACKS, "The tokenizer has no "),
    ],
    "llamagen of classes": [
        (tensor("output.weight", None, CHECKPOINT), LACKS, "lacks 1 of"),
        (tensor("layers.1.attention.wo.weight", (64, 32), CHECKPOINT), LACKS, "shape"),
        (tensor("tok_embeddings.weight", (7,), CHECKPOINT), ForetokenError, "not weights"),
        (tensor("cls_embedding.embedding_table.weight", None, CHECKPOINT), ForetokenError, "not weights"),
        (tensor("decoder.conv_out.weight", None, PICTURES), LACKS, "lacks 1 of"),
        (tensor("quantize.embedding.weight", None, PICTURES), ForetokenError, "picture decoder"),
        (tensor("decoder.conv_blocks.1.attn.0.q.weight", (32, 32, 1, 1), PICTURES), ForetokenError, "not known here"),
        (truncate(CHECKPOINT, 5000), BadFile, ""),
    ],
    "llamagen of texts": [
        (without(PICTURES), LACKS, "picture tokenizer"), (without("*token*"), LACKS, "tokenizer"),
        (lambda folder: (folder / "flan-t5-xl").rename(folder.parent / "away"), LACKS, "flan-t5-xl"),
    ],
    "bpt": [
        (tensor(name, shape, "bpt-8-16-500m.pt", fill), LACKS, sentence_part) for name, shape, fill, sentence_part in (
            ("to_logits.weight", None, 0, "lacks 1 of the"), ("sos_token", None, 0, "not weights of bpt"),
            ("decoder.layers.1.1.to_k.weight", (64, 32), 0, "shape"), ("token_embed.weight", (4609, 64), 0, "4,609 tokens"),
            ("sos_token", (65,), 0, "does not divide"), (BPT_QUERY, (5,), 0, "not weights of bpt"),
            ("sos_token", (), torch.inf, "sos_token holds numbers that are not finite"),
        )
    ] + [(truncate("bpt-8-16-500m.pt", 50_000), BadFile, "")],
}  # fmt: skip
ROWS = [pytest.param(name, *row, id=f"{name}-{i}") for name, rows in REFUSALS.items() for i, row in enumerate(rows)]
READERS = sorted({folder.name for folder in FOLDERS.values()})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder for a checkpoint."""
    path = tmp_path / "own"
    path.mkdir()
    return path


def chameleon_of(kind: str) -> Callable[[Backbone], Backbone]:
    """The tiny Chameleon with the reader of a loaded one."""

    def model(loaded: Backbone) -> Backbone:
        same = tiny_chameleon.chameleon(kind)
        codes = codes_of(tiny_chameleon.words(), same.picture, same.kind)
        return Chameleon(
            same.hosted.decoder, same.head[0], same.picture, same.kind, codes, tiny_chameleon.words(), loaded.read, tiny_chameleon.BOS
        )

    return model


@dataclass(frozen=True)
class Loaded:
    """Expected content of a folder: a part of its licence, the ids of some words, and the model that it was written from."""

    licence: str = ""
    words: tuple[object, ...] = ()
    ids: tuple[int, ...] = ()
    same: Callable[[Backbone], Backbone] | None = None
    sizes: tuple[int, ...] = (8,)


RED_APPLE = tuple(tiny_chameleon.WORDS.index(word) for word in ("red", "apple"))
GLM = (*(tiny_glm_image.FIRST_WORD + i for i in (2, 3, 4, 0, 9, 9, 1, 0, 8, 8, 1)), tiny_glm_image.START)
LOADED = {
    # <|User|>: red apple <|Assistant|>: and begin of image
    "janus": Loaded("", ("red apple",), (0, 9, 5, 10, 7, 8, 9, 6, 10, 3), lambda loaded: Janus(tiny.janus_model(), loaded.read)),
    # begin, b, a, d, begin of image, 4*4, codes follow
    "emu3": Loaded(
        "", ("bad", Raster(4, 4)), (0, 7, 6, 9, 1, 29, 30, 29, 2), lambda loaded: Emu3(tiny_checkpoints.emu3_model(), loaded.read, 4)
    ),
    "emu35": Loaded("apache-2.0", ("red re",), (257, 32, 256)),
    "anole": Loaded("Chameleon Research", ("red apple",), RED_APPLE, chameleon_of("anole")),
    "lumina": Loaded("Chameleon Research", ("red apple",), RED_APPLE, chameleon_of("lumina")),
    "glm_image": Loaded("MIT", ("red apple", 32), GLM, sizes=(1024, 2048)),
    "llamagen of classes": Loaded("MIT", same=lambda loaded: tiny_originals.llamagen()),
    "llamagen of texts": Loaded("MIT"),
    "bpt": Loaded("Tencent Hunyuan", same=lambda loaded: tiny_originals.bpt_backbone(), sizes=()),
}


@pytest.mark.parametrize("name", list(FOLDERS))
def test_a_folder_is_recognised_and_decodes_as_the_model_it_was(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    loaded, wanted = load(folder, dtype="float32"), LOADED[name]
    assert loaded.name == FOLDERS[name].name and wanted.licence in loaded.card.get("licence", "")
    if wanted.sizes:
        assert loaded.sizes == list(wanted.sizes)
    if wanted.words:
        assert loaded.read(*wanted.words) == list(wanted.ids)
    if name == "glm_image":
        assert loaded.sampling == Sampling(temperature=0.9, top_p=0.75)
        return  # its pictures are not tiny
    prompt = Prompt(text=FOLDERS[name].text, sampling=Sampling(temperature=0.0, guidance=3.0))
    prompt = Prompt(points=tiny.sphere(), seed=3) if name == "bpt" else prompt
    run = generate(loaded, METHODS["ar"], prompt).finish()
    if wanted.same is not None:
        assert run.tokens == generate(wanted.same(loaded), METHODS["ar"], prompt).finish().tokens
    if name != "bpt":
        assert run.result().shape == (8, 8, 3) and loaded.render(run.tokens[:3], [0, 1, 2], False).shape == (8, 8, 3)


@pytest.mark.parametrize(("name", "damage", "kind", "sentence"), ROWS)
def test_a_damaged_folder_is_refused_in_one_sentence(
    name: str, damage: Damage, kind: type[ForetokenError], sentence: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    damage(folder)
    with refuses(kind, sentence or None):
        FOLDERS[name].load(folder)


def no_reader(*_: object) -> None:
    """Stands for the reader of weights."""
    pytest.fail("the weights were read")


@pytest.mark.parametrize("name", ["janus", "emu3"])
def test_a_missing_tokenizer_is_refused_before_the_weights_are_read(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    without("*token*")(folder)
    monkeypatch.setattr(f"{BACKBONES[name]}.read_model", no_reader)
    with pytest.raises(MissingWeights, match=r"holds no tokenizer, without which no text is read\. Copy tokenizer\.json"):
        FOLDERS[name].load(folder)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("place", [None, "nowhere", "."])
def test_no_weights_are_refused(name: str, place: str | None, tmp_path: Path) -> None:
    module = __import__(BACKBONES[name], fromlist=["load"])
    with refuses(MissingWeights):
        module.load(place and str(tmp_path / place))


@pytest.mark.parametrize("name", list(FOLDERS))
def test_what_does_not_fit_is_refused_before_it_is_loaded(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    monkeypatch.setattr(memory, "free", lambda device: 1000)
    monkeypatch.setattr(f"{BACKBONES[FOLDERS[name].name]}.read_model", no_reader, raising=False)
    with refuses(TooLittleMemory, f"^{FOLDERS[name].name} needs .* in float32"):
        FOLDERS[name].load(folder)


@pytest.mark.parametrize("name", ["anole", "llamagen of classes", "bpt"])
@pytest.mark.parametrize(("device", "weights", "step"), [("cuda", "full", "moved to the device"), ("cpu", "int8", "compressed")])
def test_files_read_as_a_whole_must_fit_into_the_machine(
    name: str, device: str, weights: str, step: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card may have more memory than the machine."""
    FOLDERS[name].write(folder, monkeypatch)
    module = __import__(BACKBONES[FOLDERS[name].name], fromlist=["load"])
    monkeypatch.setattr(memory, "check", lambda *arguments, **others: None)
    monkeypatch.setattr(checkpoint_files, "check", memory.check)
    monkeypatch.setattr(memory, "free", lambda device: 1000 if device == "cpu" else 10**12)
    monkeypatch.setattr(nn.Module, "to", lambda module, *place: module)
    with refuses(TooLittleMemory, rf"is read into this machine's memory before it is {step}\. That takes .* in float32, and 0\.0 MB are"):
        module.load(str(folder), device, "float32", weights)


@pytest.mark.parametrize("name", ["janus", "emu3", "emu35", "glm_image"])
def test_weights_are_read_straight_onto_the_device(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    monkeypatch.setattr(memory, "free", lambda device: None)

    def no_card(*_: object, device_map: dict[str, str], **others: object) -> None:
        raise MissingWeights(f"to {device_map['']}")

    monkeypatch.setattr(checkpoint_files, "complete", no_card)
    module = __import__(BACKBONES[name], fromlist=["load"])
    with pytest.raises(MissingWeights, match=r"^to cuda:1$"):
        module.load(str(folder), "cuda:1", "bfloat16")


@pytest.mark.parametrize("name", [name for name in FOLDERS if name not in ("bpt", "glm_image")])
def test_match_seed_holds_in_bfloat16(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default on a CPU with bfloat16 products gives the tokens of plain decoding for every window."""
    if not (has_fast_bfloat16() and can_pack(torch.bfloat16)):
        pytest.skip("this CPU has no products in bfloat16")
    FOLDERS[name].write(folder, monkeypatch)
    loaded = FOLDERS[name].load(folder, "auto")
    assert loaded.dtype == "bfloat16"
    for seed, window in ((0, 3), (1, 7), (2, 5)):
        prompt = Prompt(text=FOLDERS[name].text, seed=seed, sampling=Sampling(1.0, 20, 0.95))
        plain = generate(loaded, METHODS["ar"], prompt).finish()
        run = generate(loaded, METHODS["sjdpp"], prompt, {"window": window, "verify": "match seed"}).finish()
        assert run.tokens == plain.tokens and run.totals["forwards"] <= plain.totals["forwards"]


@pytest.mark.parametrize("form", FORMS[1:])
@pytest.mark.parametrize("name", ["janus", "emu3"])
def test_compressed_weights_run_every_method_that_suits(name: str, form: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And exact ones with match seed give the tokens of plain decoding with the same weights."""
    FOLDERS[name].write(folder, monkeypatch)
    loaded = load(name, str(folder), dtype="auto", weights=form)
    assert loaded.precision == f"{loaded.dtype}, {form} weights"
    assert {type(layer) for layer in layers_of(loaded.hosted.decoder)} == {CompressedLinear}
    prompt = Prompt(text=FOLDERS[name].text, seed=3, sampling=Sampling(1.0, 20, 0.95))
    plain, seeded = generate(loaded, METHODS["ar"], prompt).finish(), set()
    for method in METHODS.values():
        if method.needs <= loaded.capabilities:
            knobs = {"verify": "match seed"} if any(knob.name == "verify" for knob in method.knobs) else {}
            knobs |= EXACT_SETTINGS.get(method.name, {})
            run = generate(loaded, method, prompt, knobs).finish()
            assert len(run.tokens) == len(plain.tokens)
            if knobs and run.exact:
                seeded.add(method.name)
                assert run.tokens == plain.tokens, method.name
    assert {"sjd", "sjdpp", "jacobi"} <= seeded


EXACT_SETTINGS = {"gsd": {"half_width": 0}, "zipar": {"mode": "verified"}}


def layers_of(decoder: nn.Module) -> list[nn.Module]:
    """The linear layers of a decoder."""
    return [layer for layer in decoder.modules() if isinstance(layer, nn.Linear | SteadyLinear)]


def test_compressed_weights_never_stand_on_the_device_uncompressed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are mapped in the files' type and compressed one by one; a card of 12 GB has no room for 16."""
    FOLDERS["janus"].write(folder, monkeypatch)
    seen: list[tuple[str, torch.dtype]] = []
    read = checkpoint_files.complete

    def watch(*arguments: object, device_map: dict[str, str], dtype: torch.dtype, **others: object) -> nn.Module:
        seen.append((device_map[""], dtype))
        return read(*arguments, device_map=device_map, dtype=dtype, **others)

    monkeypatch.setattr(checkpoint_files, "complete", watch)
    loaded = load("janus", str(folder), "cpu", "bfloat16", "nf4")
    assert seen == [("cpu", torch.float32)] and {each.dtype for each in loaded.hosted.decoder.parameters()} == {torch.bfloat16}


def test_damaged_weights_are_refused_when_they_are_compressed_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS["janus"].write(folder, monkeypatch)
    tensor("model.language_model.layers.0.mlp.up_proj.weight", (), fill=float("nan"))(folder)
    with refuses(MissingWeights, "numbers that are not finite"):
        load("janus", str(folder), weights="int8")


def test_other_forms_of_weights_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS["janus"].write(folder, monkeypatch)
    with refuses(NotSupported, r"There are no 'fp8' weights\. Choose one of: full, int8, nf4\."):
        load("janus", str(folder), weights="fp8")
    with refuses(NotSupported, "pictogram has no int8 weights: only checkpoints of other projects are compressed"):
        load("pictogram", weights="int8")


class Runs:
    """An object whose pickle runs code when it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(folder: Path) -> None:
    torch.save({"model": tiny_originals.bpt_tensors() | {"extra": Runs(folder / "ran")}}, folder / "bpt.pt")
    with pytest.raises(BadFile, match="run code"):
        FOLDERS["bpt"].load(folder / "bpt.pt")
    assert not (folder / "ran").exists()


def test_a_tensor_of_another_shape_is_one_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without the report of transformers, which names its own arguments."""
    FOLDERS["janus"].write(folder, monkeypatch)
    name = "model.language_model.layers.0.mlp.up_proj.weight"
    rows, columns = load_file(folder / MODEL)[name].shape
    tensor(name, (rows - 1, columns))(folder)
    with pytest.raises(MissingWeights) as caught:
        FOLDERS["janus"].load(folder)
    sentence = f"has {name} of shape [{rows - 1}, {columns}], not [{rows}, {columns}]. It belongs to another config.json."
    assert str(caught.value) == f"{folder.name} {sentence}"
    printed = capfd.readouterr()
    assert "REPORT" not in printed.err + printed.out


@pytest.mark.parametrize(("name", "file"), [("janus", MODEL), ("llamagen of classes", CHECKPOINT), ("bpt", "bpt-8-16-500m.pt")])
def test_a_file_of_weights_stands_for_its_folder(name: str, file: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[name].write(folder, monkeypatch)
    assert FOLDERS[name].load(folder / file).parameters == FOLDERS[name].load(folder).parameters
