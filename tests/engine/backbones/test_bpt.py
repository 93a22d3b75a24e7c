"""The adapter of BPT's public checkpoint: names, shapes, sequences, and the files that it must refuse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.backbones import bpt
from engine.backbones import load as load_backbone
from engine.core import Prompt, Sampling
from engine.errors import BadFile, BadPrompt, ForetokenError, MissingWeights
from engine.methods import METHODS
from engine.run import generate
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny_originals import BPT, bpt_backbone, bpt_model, bpt_tensors

PUBLISHED = dict(
    layers=24, width=1024, heads=16, inner=4096, length=10_000, vocabulary=5121, memories=4, features=54, encoder_width=768,
    encoder_blocks=8, latents=257, budgets=0,
)  # fmt: skip
ENCODER = "conditioner.point_encoder.model.shape_model.encoder."


def test_the_published_checkpoint_has_these_names_and_shapes() -> None:
    """Read off the authors' own module, built without weights."""
    found = bpt.expected(PUBLISHED)
    assert len(found) == 7 + 2 + 4 + 24 * 20 + 5 + 15 + 8 * 11
    for name, shape in {
        "sp_block_embed": (1, 1024), "sos_token": (1024,), "abs_pos_emb.weight": (10_000, 1024), "to_logits.bias": (5121,),
        "decoder.layers.69.1.to_v.weight": (1024, 1024), "decoder.layers.70.1.mem_k": (16, 4, 64), "decoder.layers.70.0.0.bias": (1024,),
        "decoder.layers.71.1.ff.0.proj.weight": (8192, 1024), "decoder.layers.71.1.ff.2.bias": (1024,),
        "decoder.final_norm.weight": (1024,), "conditioner.cond_head_proj.weight": (1024, 768), "conditioner.cond_proj.bias": (1024,),
        f"{ENCODER}query": (257, 768), f"{ENCODER}input_proj.weight": (768, 54), f"{ENCODER}cross_attn.attn.c_kv.weight": (1536, 768),
        f"{ENCODER}cross_attn.ln_3.weight": (768,), f"{ENCODER}self_attn.resblocks.7.attn.c_qkv.weight": (2304, 768),
        f"{ENCODER}self_attn.resblocks.0.mlp.c_fc.bias": (3072,), f"{ENCODER}ln_post.bias": (768,),
    }.items():  # fmt: skip
        assert found[name] == shape, name
    assert 0.55e9 < bpt.size(PUBLISHED).parameters < 0.62e9  # of 711 million; the rest only reconstructs surfaces


def test_settings_are_read_from_the_shapes() -> None:
    found = bpt.configure(bpt.expected(PUBLISHED))
    assert found == PUBLISHED


def saved(tensors: dict[str, Tensor], path: Path) -> str:
    """A file as the authors save it: the module's tensors beside other things."""
    torch.save({"model": tensors, "config": b"pickled", "version": "1.0"}, path)
    return str(path)


def test_the_file_gives_the_same_meshes_as_the_network(tmp_path: Path) -> None:
    prompt = Prompt(points=tiny.sphere(), seed=3)
    expected = generate(bpt_backbone(), METHODS["ar"], prompt).finish().tokens
    assert len(set(expected)) > 4
    save_file({name: tensor.contiguous() for name, tensor in bpt_tensors().items()}, tmp_path / "bpt.safetensors")
    for path in (saved(bpt_tensors(), tmp_path / "bpt.pt"), str(tmp_path / "bpt.safetensors")):
        found = bpt.load(path, dtype="float32")
        assert generate(found, METHODS["ar"], prompt).finish().tokens == expected
        assert found.parameters == sum(p.numel() for p in bpt_model().parameters())
        assert "Tencent Hunyuan" in found.card["licence"] and found.name == "bpt"


def test_a_folder_with_its_file_is_recognised(tmp_path: Path) -> None:
    saved(bpt_tensors(), tmp_path / "bpt-8-16-500m.pt")
    assert load_backbone(tmp_path, dtype="float32").name == "bpt"


def test_half_precision_is_read(tmp_path: Path) -> None:
    """The published file is in float16; the point encoder stays in float32 when the decoder does not."""
    path = saved({name: tensor.half() for name, tensor in bpt_tensors().items()}, tmp_path / "bpt.pt")
    found = bpt.load(path, dtype="bfloat16")
    assert found.dtype == "bfloat16" and found.model.encoder.queries.dtype == torch.float32
    run = generate(found, METHODS["lookup"], Prompt(points=tiny.sphere(), seed=1)).finish()
    assert run.tokens


@pytest.mark.parametrize("method", ["lookup", "jacobi", "sjd", "sjdpp"])
def test_match_seed_gives_the_tokens_of_plain_decoding(method: str) -> None:
    prompt = Prompt(points=tiny.sphere(), seed=5)
    plain = generate(bpt_backbone(), METHODS["ar"], prompt).finish()
    run = generate(bpt_backbone(), METHODS[method], prompt, {"verify": "match seed"}).finish()
    assert run.tokens == plain.tokens


def test_it_reads_4096_points_and_keeps_the_settings_of_the_authors() -> None:
    found = bpt_backbone()
    points = found.read_points(Prompt(points=torch.randn(9000, 6)))
    assert points.shape == (4096, 6)
    assert found.sampling == Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)
    with pytest.raises(BadPrompt, match=r"^bpt needs a point cloud"):
        found.start(Prompt(text="a chair"))


def refusal(path: str | None, kind: type[ForetokenError] = MissingWeights) -> str:
    """The sentence that a file is refused with."""
    with pytest.raises(kind) as caught:
        bpt.load(path, dtype="float32")
    text = str(caught.value)
    assert "\n" not in text and text.endswith(".") and 20 < len(text) < 600, text
    return text


def test_no_file_is_refused(tmp_path: Path) -> None:
    assert "bpt-8-16-500m.pt" in refusal(None)
    assert "holds no weights" in refusal(str(tmp_path))
    assert "no weights" in refusal(str(tmp_path / "nowhere.pt"))


@pytest.mark.parametrize(
    ("name", "shape", "said"),
    [
        ("to_logits.weight", None, "lacks 1 of the"),
        ("sos_token", None, "not weights of bpt"),
        ("decoder.layers.1.1.to_k.weight", (64, 32), "shape"),
        ("token_embed.weight", (4609, 64), "4,609 tokens"),
        ("sos_token", (65,), "does not divide"),
        (f"{ENCODER}query", (5,), "not weights of bpt"),
    ],
)
def test_other_weights_are_refused(tmp_path: Path, name: str, shape: tuple[int, ...] | None, said: str) -> None:
    tensors = bpt_tensors()
    if shape is None:
        del tensors[name]
    else:
        tensors[name] = torch.zeros(shape)
    assert said in refusal(saved(tensors, tmp_path / "bpt.pt"))


def test_weights_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    tensors = bpt_tensors() | {"sos_token": torch.full((BPT.width,), torch.inf)}
    assert "sos_token holds numbers that are not finite" in refusal(saved(tensors, tmp_path / "bpt.pt"))


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bpt.pt"
    saved(bpt_tensors(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    refusal(str(path), BadFile)


class Runs:
    """What a pickle would call while it is read."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


def test_a_file_that_would_run_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    saved(bpt_tensors() | {"extra": Runs(tmp_path / "ran")}, tmp_path / "bpt.pt")
    assert "run code" in refusal(str(tmp_path / "bpt.pt"), BadFile)
    assert not (tmp_path / "ran").exists()


def test_too_little_memory_is_refused_before_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpt.memory, "free", lambda device: 10**6)
    path = saved(bpt_tensors(), tmp_path / "bpt.pt")
    with pytest.raises(ForetokenError, match=r"^bpt needs .* in float32"):
        bpt.load(path, dtype="float32")
