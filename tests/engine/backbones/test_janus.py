"""The Janus adapter against transformers' own loop, and the folders it must refuse, on a tiny random model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from engine.backbones import load as load_backbone
from engine.backbones.janus import Janus, load
from engine.core import Prompt, Sampling
from engine.errors import BadPrompt, ForetokenError, MissingWeights, NotSupported
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny

PROMPTS = ("red apple", "a", "two cats on the green table")
GREEDY = Sampling(temperature=0.0, guidance=3.0)


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    """A whole model, understanding half included, as its own generate needs it."""
    return tiny.janus_model()


def own_tokens(model: torch.nn.Module, text: str, guidance: float) -> list[int]:
    """What transformers' loop makes of a prompt."""
    ids = torch.tensor([tiny.janus_ids(text)])
    settings = {"generation_mode": "image", "do_sample": False, "guidance_scale": guidance}
    return model.generate(ids, attention_mask=torch.ones_like(ids), **settings)[0].tolist()


@pytest.mark.parametrize("text", PROMPTS)
@pytest.mark.parametrize("guidance", [1.5, 3.0, 5.0])
def test_greedy_tokens_are_those_of_the_class(model: torch.nn.Module, text: str, guidance: float) -> None:
    sampling = Sampling(temperature=0.0, guidance=guidance)
    run = generate(tiny.janus(), METHODS["ar"], Prompt(text=text, sampling=sampling)).finish()
    assert run.tokens == own_tokens(model, text, guidance)
    assert len(set(run.tokens)) > 4  # a model that repeats one token would prove nothing


def test_prompts_and_guidance_matter(model: torch.nn.Module) -> None:
    """Otherwise the comparison above could not fail."""
    found = {tuple(own_tokens(model, text, guidance)) for text in PROMPTS for guidance in (1.5, 5.0)}
    assert len(found) == 6


@pytest.mark.parametrize("method", ["jacobi", "sjd", "sjdpp"])
@pytest.mark.parametrize("seed", [0, 7])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str, seed: int) -> None:
    prompt = Prompt(text="red apple", seed=seed, sampling=Sampling(1.0, 20, 0.95, 3.0))
    plain = generate(tiny.janus(), METHODS["ar"], prompt).finish()
    run = generate(tiny.janus(), METHODS[method], prompt, {"window": 6, "verify": "match seed"}).finish()
    assert run.tokens == plain.tokens
    assert run.totals["forwards"] <= plain.totals["forwards"]


def test_the_unconditional_prompt_is_padding() -> None:
    ids = [tiny.BOS, 9, 10, tiny.BOI]
    assert tiny.janus().unconditional(ids) == [tiny.BOS, tiny.PAD, tiny.PAD, tiny.BOI]


def test_any_attention_gives_way_to_ours() -> None:
    """A boolean mask would be added as 0 and 1 by eager attention."""
    other = tiny.janus_model()
    other.set_attn_implementation("eager")
    prompt = Prompt(text="red apple", sampling=GREEDY)
    tokens = generate(Janus(other, tiny.janus_ids), METHODS["ar"], prompt).finish().tokens
    assert tokens == generate(tiny.janus(), METHODS["ar"], prompt).finish().tokens


def test_whole_pictures_are_those_of_the_class(model: torch.nn.Module) -> None:
    tokens = list(range(16))
    picture = tiny.janus().render(tokens, list(range(16)), True)
    expected = (model.decode_image_tokens(torch.tensor([tokens]))[0].clamp(-1, 1) + 1) * 127.5
    assert np.abs(picture - expected.numpy()).max() <= 0.51
    assert picture.std() > 1


def test_the_codebook_is_what_the_decoder_sees(model: torch.nn.Module) -> None:
    book = tiny.janus().codebook()
    seen = model.model.vqmodel.quantize.get_codebook_entry(torch.arange(16)[None])  # [1, D, 4, 4]
    torch.testing.assert_close(book[:16], seen[0].flatten(1).T)
    assert book.shape == (48, 8)


@pytest.mark.parametrize("prompt", [Prompt(), Prompt(text="  "), Prompt(text="x" * 99), Prompt(text="a", size=77)])
def test_bad_prompts_are_refused(prompt: Prompt) -> None:
    with pytest.raises(BadPrompt) as caught:
        tiny.janus().start(prompt)
    one_message(caught.value)


def test_its_own_size_is_accepted() -> None:
    assert tiny.janus().sizes == [8]
    tiny.janus().start(Prompt(text="a", size=8)).close()


def test_missing_special_ids_are_refused() -> None:
    other = tiny.janus_model()
    other.generation_config.generation_kwargs = {}
    with pytest.raises(MissingWeights, match="boi_token_id"):
        Janus(other, tiny.janus_ids)


# --- files ------------------------------------------------------------------------------------------------------------


def one_message(error: ForetokenError) -> None:
    """Asserts that a message is a line a person can read: what happened, then what to do."""
    text = str(error)
    assert "\n" not in text and text.endswith(".") and 20 < len(text) < 600, text


def save_tokenizer(folder: Path) -> None:
    """A tokenizer of whole words that begins with BOS, like the real one."""
    words = ["<bos>", "<eos>", "<pad>", "<begin_of_image>", "<unk>", "User", "Assistant", "red", "apple", "<|", "|>:"]
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 0)])
    special = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


@pytest.fixture(scope="module")
def checkpoint(model: torch.nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a converted checkpoint has it."""
    folder = tmp_path_factory.mktemp("janus") / "tiny"
    model.save_pretrained(folder)
    save_tokenizer(folder)
    return folder


@pytest.fixture
def folder(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def test_a_checkpoint_loads_and_decodes_as_before(checkpoint: Path) -> None:
    loaded = load_backbone("janus", str(checkpoint), dtype="float32")
    ids = loaded.read("red apple")
    assert ids == [0, 9, 5, 10, 7, 8, 9, 6, 10, 3]  # <|User|>: red apple <|Assistant|>: and begin of image
    prompt = Prompt(text="red apple", sampling=GREEDY)
    tokens = generate(loaded, METHODS["ar"], prompt).finish().tokens
    assert tokens == generate(Janus(tiny.janus_model(), lambda text: ids), METHODS["ar"], prompt).finish().tokens
    assert loaded.render(tokens, list(range(16)), True).shape == (8, 8, 3)


def test_no_folder_is_refused() -> None:
    with pytest.raises(MissingWeights) as caught:
        load(None)
    one_message(caught.value)


@pytest.mark.parametrize("name", ["nowhere", "."])
def test_a_folder_without_a_model_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingWeights, match=r"config\.json") as caught:
        load(str(tmp_path / name))
    one_message(caught.value)


@pytest.mark.parametrize("kind", ["llama", "multi_modality", None])
def test_another_model_is_refused(folder: Path, kind: str | None) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(NotSupported) as caught:
        load(str(folder))
    one_message(caught.value)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_damaged_configuration_is_refused(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(MissingWeights, match="damaged") as caught:
        load(str(folder))
    one_message(caught.value)


def test_absent_weights_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingWeights) as caught:
        load(str(folder))
    one_message(caught.value)


def test_damaged_weights_are_refused(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(MissingWeights) as caught:
        load(str(folder))
    one_message(caught.value)


def test_weights_with_gaps_are_refused(folder: Path) -> None:
    """transformers would fill them with noise and only warn."""
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.generation_head.vision_head.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingWeights, match=r"generation_head\.vision_head\.weight") as caught:
        load(str(folder))
    one_message(caught.value)


@pytest.mark.parametrize(
    ("part", "name", "value"),
    [
        (None, "text_config", 5), (None, "vq_config", []), (None, "text_config", None), ("text_config", "hidden_size", "wide"),
        ("text_config", "num_attention_heads", 0), ("text_config", "num_hidden_layers", -1), ("vq_config", "channel_multiplier", "x"),
        ("text_config", "hidden_size", None), ("vq_config", "base_channels", 33),
    ],
)  # fmt: skip
def test_a_configuration_with_a_wrong_entry_is_refused(folder: Path, part: str | None, name: str, value: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (config if part is None else config[part])[name] = value
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingWeights) as caught:
        load(str(folder))
    one_message(caught.value)


def test_weights_that_are_not_finite_are_refused(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.generation_head.vision_head.weight"][0, 0] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(MissingWeights, match="not finite") as caught:
        load(str(folder))
    one_message(caught.value)


def test_weights_that_can_run_code_are_not_read(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with pytest.raises(MissingWeights, match="safetensors") as caught:
        load(str(folder))
    one_message(caught.value)


def test_weights_of_another_shape_are_refused(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["vq_config"]["num_embeddings"] = 50
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(MissingWeights) as caught:
        load(str(folder))
    one_message(caught.value)


def test_an_absent_tokenizer_is_refused(folder: Path) -> None:
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(MissingWeights, match="tokenizer") as caught:
        load(str(folder))
    one_message(caught.value)
