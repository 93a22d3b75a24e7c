"""Heads of XSpecMesh on an imported BPT: the recipe writes next to it, and the method runs with these heads and is exact."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import bpt, imported_folders, load
from engine.converting import convert
from engine.core import NO_DRAFT, Prompt, Sampling
from engine.errors import BadFile, BadKnob, MissingWeights, NotSupported
from engine.mesh.bpt_tokens import BPT as LEVELS
from engine.mesh.bpt_tokens import parse
from engine.methods import find
from engine.networks.mesh_decoder import MeshModel
from engine.run import generate
from research.train import head_lessons, imported_mesh_heads, loop, mesh_heads
from research.train.imported_mesh_heads import mesh_files, sample_in, samples_of
from tests.engine.backbones import tiny, tiny_originals

NAME = "Tiny-BPT"
SIZES = [(1 + i % 5, 1 + i % 3, 1 + i % 4) for i in range(24)]
CORNERS = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))


def original(path: Path) -> Path:
    """The file of a tiny random BPT, with room for 200 tokens."""
    torch.manual_seed(8)
    tensors = tiny_originals.bpt_tensors()
    positions = MeshModel(replace(tiny_originals.BPT, length=200)).decoder.positions.detach()
    return Path(tiny_originals.save_bpt(path, tensors | {"abs_pos_emb.weight": 20 * positions}))


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An imported model, a folder of tetrahedra, and a recipe that makes one or two steps."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loop, "CHECKPOINTS", tmp_path / "training")
    preset = {"minutes": 0.002, "generated": 2, "drawn": 6, "batch": 2, "rows": 16, "rate": 5e-4, "longest": 60, "together": 2}
    monkeypatch.setitem(imported_mesh_heads.PRESETS, "cpu", preset)
    monkeypatch.setattr(imported_mesh_heads, "UNSEEN", 2)
    list(convert(original(tmp_path / f"{NAME}.pt")))
    for i, size in enumerate(SIZES):
        (tmp_path / "meshes").mkdir(exist_ok=True)
        rows = [f"v {' '.join(str(a * b) for a, b in zip(corner, size, strict=True))}" for corner in CORNERS]
        (tmp_path / "meshes" / f"{i:02}.obj").write_text("\n".join([*rows, "f 1 3 2", "f 1 2 4", "f 1 4 3", "f 2 3 4"]))
    return imported_folders()[0]


def options(tmp_path: Path, **more: object) -> head_lessons.HeadOptions:
    return head_lessons.HeadOptions(backbone=NAME, shapes=tmp_path / "meshes", **more)


def test_heads_are_trained_beside_the_model_and_give_its_tokens(model: Path, tmp_path: Path) -> None:
    assert "mesh_heads" not in load(NAME).capabilities
    with pytest.raises(MissingWeights, match="train mesh-heads --backbone Tiny-BPT"):
        load(NAME).drafter("mesh_heads")
    mesh_heads.main(options(tmp_path))
    assert {path.name for path in (model / "drafters").iterdir()} == {"card.json", "heads_cross.safetensors", "heads_mlp.safetensors"}
    backbone = load(NAME)
    row = backbone.card["heads"]["heads_cross"]
    assert row["steps"] > 0 and row["settings"]["width"] == 64 and len(row["held_out"]["top_1"]) == mesh_heads.DEPTH
    assert row["backbone"] == backbone.weights_hash and "Tencent" in backbone.card["licence"]
    for sampling in (Sampling(0.0), backbone.sampling):
        prompt = Prompt(points=tiny.sphere(), seed=3, size=8, sampling=sampling)
        plain = generate(backbone, find("ar")[0], prompt).finish()
        assert len(plain.tokens) > 4
        for name, kind in (("xspecmesh", "cross-attention"), ("xspecmesh_exact", "cross-attention"), ("xspecmesh_exact", "multilayer")):
            method, knobs = find(name)
            exact = {"accept": "residual", "verify": "match seed", "heads": kind}
            run = generate(backbone, method, prompt, knobs | exact).finish()
            assert run.exact and run.tokens == plain.tokens and run.totals["drafted"] > 0
    assert generate(backbone, find("xspecmesh")[0], prompt).finish().tokens  # as published: with a threshold


def test_heads_learn_from_the_states_of_the_backbone(tmp_path: Path) -> None:
    """They learn from the states of decoding, and the loss falls."""
    _, backbone = imported_mesh_heads.load_imported(NAME, "cpu")
    library = head_lessons.CloudSequences(backbone, samples_of(mesh_files(tmp_path / "meshes"), 6, False), 2, 2, 0, together=2, longest=60)
    memory = head_lessons.Memory(head_lessons.HeadStudent(backbone.model, None, False), library, "cpu", 2)
    order = torch.randperm(bpt.POINTS, generator=torch.Generator().manual_seed(0))
    sequence = load(NAME).start(Prompt(points=library.points[0][order.argsort()]))
    for i, token in enumerate(library.tokens[0]):
        torch.testing.assert_close(sequence.forward(NO_DRAFT).hidden[0, 0], memory.hidden[0][i].float(), atol=2e-2, rtol=1e-2)
        sequence.commit([], token)
    heads = mesh_heads.MeshHeads(3, 64, 1, LEVELS.vocabulary)
    student, optimizer = head_lessons.HeadStudent(backbone.model, heads, False), torch.optim.Adam(heads.parameters(), 1e-2)
    losses = []
    for _ in range(12):
        losses.append(student.head_losses(*memory.of([0, 3]), None, None)[0].sum())
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < 0.7 * losses[0]


def test_procedural_shapes_too_long_for_the_model_are_refused() -> None:
    with pytest.raises(BadKnob, match="--shapes"):
        mesh_heads.main(head_lessons.HeadOptions(backbone=NAME))


def test_a_bfloat16_model_takes_its_heads(tmp_path: Path) -> None:
    mesh_heads.main(options(tmp_path))
    run = generate(load(NAME, dtype="bfloat16"), find("xspecmesh_exact")[0], Prompt(points=tiny.sphere(), size=8), {"accept": "residual"})
    assert run.finish().totals["drafted"] > 0


def test_other_weights_do_not_take_old_heads(model: Path, tmp_path: Path) -> None:
    mesh_heads.main(options(tmp_path))
    card = (model / "card.json").read_text()
    (model / "card.json").write_text(card.replace('"weights_hash": "', '"weights_hash": "0'))
    with pytest.raises(MissingWeights, match=r"was trained for the weights.*mesh-heads --backbone Tiny-BPT"):
        generate(load(NAME), find("xspecmesh")[0], Prompt(points=tiny.sphere())).finish()


def test_held_out_meshes_are_not_trained_on(tmp_path: Path) -> None:
    files = mesh_files(tmp_path / "meshes")
    unseen, seen = (list(samples_of(files, 50, held_out)) for held_out in (True, False))
    assert len(unseen) == len(seen) == 50
    expected = [sample_in(files[i]).tokens.tolist() for i in (0, 10, 20)]
    assert [row.tokens.tolist() for row in unseen[:4]] == [*expected, expected[0]]
    assert [row.tokens.tolist() for row in seen[:2]] == [sample_in(files[i]).tokens.tolist() for i in (1, 2)]


def test_the_tokens_of_a_file_spell_its_mesh(tmp_path: Path) -> None:
    sample = sample_in(tmp_path / "meshes" / "00.obj")
    assert len(parse(sample.tokens[:-1]).faces) == 4 and sample.tokens[-1] == LEVELS.eos
    assert np.ptp(sample.vertices, 0).max() == pytest.approx(1.9, abs=0.01)


def test_sequences_of_a_batch_are_cut_at_the_length_of_the_preset() -> None:
    backbone = load(NAME)
    sequences = head_lessons.generate_together(backbone, torch.stack([tiny.sphere(), -tiny.sphere()]), Generator(PCG64(0)), 9)
    assert max(map(len, sequences)) <= 9
    whole = head_lessons.generate_together(backbone, torch.stack([tiny.sphere(), -tiny.sphere()]), Generator(PCG64(0)))
    assert sequences == [row[:9] for row in whole]


def test_what_has_no_recipe_is_refused(registered_toy: None, tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="is not imported"):
        imported_mesh_heads.load_imported(str(tmp_path / f"{NAME}.pt"), "cpu")
    with pytest.raises(NotSupported, match="no recipe for heads"):
        imported_mesh_heads.load_imported("toy", "cpu")
    with pytest.raises(BadKnob, match="--shapes is for imported"):
        mesh_heads.main(head_lessons.HeadOptions(shapes=tmp_path))
    with pytest.raises(BadFile, match="needs at least 20"):
        mesh_files(tmp_path / "nowhere")
    (tmp_path / "cloud.ply").write_text(
        "ply\nformat ascii 1.0\nelement vertex 20\nproperty float x\nproperty float y\nproperty float z\nend_header\n"
        + "\n".join(f"{i} {i * i % 7} {i * i % 5}" for i in range(20))
    )
    with pytest.raises(BadFile, match="point cloud"):
        sample_in(tmp_path / "cloud.ply")
    assert load(NAME).points == bpt.POINTS
