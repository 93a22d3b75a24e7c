"""The adapter of BPT's public checkpoint: names, shapes, sequences. Its refusals are in test_adapter_folders.py."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.backbones import bpt
from engine.core import Prompt, Sampling
from engine.errors import BadPrompt
from engine.methods import METHODS
from engine.networks.mesh_decoder import MeshSettings
from engine.run import generate
from tests.engine.backbones import tiny
from tests.engine.backbones.tiny_originals import bpt_backbone, bpt_model, bpt_tensors, save_bpt

PUBLISHED = MeshSettings(
    layers=24, width=1024, heads=16, inner=4096, length=10_000, vocabulary=5121, memories=4, features=54, encoder_width=768,
    encoder_blocks=8, latents=257, budgets=0,
)  # fmt: skip
ENCODER = "conditioner.point_encoder.model.shape_model.encoder."


def test_the_published_checkpoint_has_these_names_and_shapes() -> None:
    """Read off the authors' own module, built without weights."""
    shapes = bpt.expected_shapes(PUBLISHED)
    assert len(shapes) == 7 + 2 + 4 + 24 * 20 + 5 + 15 + 8 * 11
    for name, shape in {
        "sp_block_embed": (1, 1024), "sos_token": (1024,), "abs_pos_emb.weight": (10_000, 1024), "to_logits.bias": (5121,),
        "decoder.layers.69.1.to_v.weight": (1024, 1024), "decoder.layers.70.1.mem_k": (16, 4, 64), "decoder.layers.70.0.0.bias": (1024,),
        "decoder.layers.71.1.ff.0.proj.weight": (8192, 1024), "decoder.layers.71.1.ff.2.bias": (1024,),
        "decoder.final_norm.weight": (1024,), "conditioner.cond_head_proj.weight": (1024, 768), "conditioner.cond_proj.bias": (1024,),
        f"{ENCODER}query": (257, 768), f"{ENCODER}input_proj.weight": (768, 54), f"{ENCODER}cross_attn.attn.c_kv.weight": (1536, 768),
        f"{ENCODER}cross_attn.ln_3.weight": (768,), f"{ENCODER}self_attn.resblocks.7.attn.c_qkv.weight": (2304, 768),
        f"{ENCODER}self_attn.resblocks.0.mlp.c_fc.bias": (3072,), f"{ENCODER}ln_post.bias": (768,),
    }.items():  # fmt: skip
        assert shapes[name] == shape, name
    assert 0.55e9 < bpt.size(PUBLISHED).parameters < 0.62e9  # of 711 million numbers; the others only reconstruct surfaces


def test_settings_are_read_from_the_shapes() -> None:
    settings = bpt.configure(bpt.expected_shapes(PUBLISHED))
    assert settings == PUBLISHED


def test_the_file_gives_the_same_meshes_as_the_network(tmp_path: Path) -> None:
    prompt = Prompt(points=tiny.sphere(), seed=3)
    expected = generate(bpt_backbone(), METHODS["ar"], prompt).finish().tokens
    assert len(set(expected)) > 4
    save_file({name: tensor.contiguous() for name, tensor in bpt_tensors().items()}, tmp_path / "bpt.safetensors")
    loaded = bpt.load(str(tmp_path / "bpt.safetensors"), dtype="float32")  # the authors' own form is in test_adapter_folders.py
    assert generate(loaded, METHODS["ar"], prompt).finish().tokens == expected
    assert loaded.parameters == sum(p.numel() for p in bpt_model().parameters())


def test_half_precision_is_read(tmp_path: Path) -> None:
    """The published file is in float16; the point encoder runs in float32 even if the decoder does not."""
    path = save_bpt(tmp_path / "bpt.pt", {name: tensor.half() for name, tensor in bpt_tensors().items()})
    loaded = bpt.load(path, dtype="bfloat16")
    assert loaded.dtype == "bfloat16" and loaded.model.encoder.queries.dtype == torch.float32
    run = generate(loaded, METHODS["lookup"], Prompt(points=tiny.sphere(), seed=1)).finish()
    assert run.tokens


def test_it_reads_4096_points_and_keeps_the_settings_of_the_authors() -> None:
    backbone = bpt_backbone()
    points = backbone.read_points(Prompt(points=torch.randn(9000, 6)))
    assert points.shape == (4096, 6)
    assert backbone.sampling == Sampling(temperature=0.5, top_k=50, top_p=0.95, temperature_last=True)
    with pytest.raises(BadPrompt, match=r"^bpt needs a point cloud"):
        backbone.start(Prompt(text="a chair"))
