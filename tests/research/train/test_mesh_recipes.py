"""The mesh recipes: folded weights equal the trained ones, labels match the heads' places, adapters survive saving."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.random import PCG64, Generator

from engine.backbones import lowpoly
from engine.core import Prompt
from engine.errors import BadKnob
from engine.mesh.bpt_grammar import BPTGrammar
from engine.mesh.bpt_tokens import BPT, parse
from engine.methods import METHODS
from engine.networks import weights as folder
from engine.networks.mesh_decoder import face_level, settings_of
from engine.run import generate
from research.bench import meshes
from research.bench.plan import MeshBench
from research.papers import PAPERS, experiment_of
from research.train import head_lessons, mesh_heads
from research.train import lowpoly as lowpoly_recipe
from research.train.later_tokens import some_places
from research.train.lowpoly import MISPLACED, PAD, Trainee, World, collate, digit_matrix, fold, known_places, misplace, sample_of, unfold
from research.worlds.lowpoly_shapes import EASY, held_out_shapes, stretch, training_shapes
from research.worlds.mesh_packs import MeshPacks
from tests.engine.backbones import tiny
from tests.research.train import tiny_folders
from tests.research.train.tiny_folders import SMALL


def test_a_batch_is_a_function_of_its_step_and_little_of_it_is_padding() -> None:
    one, other = (World(EASY, 8, stretch, 0.3, 460) for _ in range(2))
    for a, b in zip(one.batch(6), other.batch(6), strict=True):
        assert torch.equal(a, b)
    tokens = torch.cat([(one.batch(s)[2] == PAD).float().mean()[None] for s in range(8)])
    assert tokens.mean() < 0.25
    points, targets, tokens, _ = one.batch(3)
    assert points.shape == (8, lowpoly.POINTS, 6) and points[..., :3].abs().max() < 1.1
    grammar = BPTGrammar(canonical=True)
    for row, target in zip(tokens, targets.tolist(), strict=True):
        real = row[row != PAD].tolist()
        assert grammar.accepts(real)
        assert target == 0 or target == pytest.approx(face_level(len(parse(real).faces)))


def test_a_world_with_packs_draws_from_them_and_from_the_families() -> None:
    box = replace(held_out_shapes(1)[0], family="castle")
    packs = MeshPacks((box,), (), ("castle",), ())
    mixed, plain = World(EASY, 8, stretch, 0.3, 460, packs=packs), World(EASY, 8, stretch, 0.3, 460)
    assert sum(s.disturbed > 0 for s in mixed._samples(0)) / len(mixed._samples(0)) == pytest.approx(lowpoly_recipe.PACK_SHARE, abs=0.15)
    assert not any(s.disturbed for s in plain._samples(0))


def test_clouds_lie_on_the_mesh_that_the_tokens_spell() -> None:
    sample = sample_of(held_out_shapes(1)[0])
    points = collate([sample], Generator(PCG64(0)), 0.0)[0][0, :, :3].numpy()
    corners = (parse(sample.tokens).triangles() + 0.5) / 64 - 1
    assert np.abs(points.max(0) - corners.max((0, 1))).max() < 0.05
    assert np.abs(points.min(0) - corners.min((0, 1))).max() < 0.05


def test_digits_say_every_coordinate() -> None:
    digits = digit_matrix(BPT.vocabulary)
    assert digits[: BPT.eos].sum(1).eq(3).all() and digits[BPT.eos].sum() == 0
    assert len(torch.unique(digits, dim=0)) == BPT.vocabulary


def test_folded_weights_are_the_same_function() -> None:
    torch.manual_seed(0)
    trainee = Trainee(SMALL).eval()
    tiny.spread(trainee, 0.2)
    batch = World(EASY, 2, stretch, 0.0, 460).batch(0)
    plain = fold(trainee.state_dict())
    assert settings_of(plain) == SMALL
    again = Trainee(SMALL).eval()
    model = again.model
    model.load_state_dict(plain)
    again.load_state_dict(unfold(model), strict=False)  # heads begin anew
    with torch.no_grad():
        places = torch.zeros(2, 1, dtype=torch.int64)
        known = known_places(batch.tokens)
        a, b = (torch.stack([each(batch, known[[i]], places)[0] for i in range(0, len(known), 9)]) for each in (trainee, again))
    assert len(a) > 10 and a.std() > 0.1  # one number a place
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.fixture
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny random lowpoly, where recipes read and write."""
    return tiny_folders.ship(tmp_path, monkeypatch) / "lowpoly"


def test_generating_together_is_generating_alone(shipped_folder: Path) -> None:
    """Sequences of a batch are independent: with greedy sampling each equals plain decoding of its own cloud."""
    backbone = lowpoly.load()
    backbone.sampling = type(backbone.sampling)(temperature=0.0)
    points = torch.stack([tiny.sphere(lowpoly.READ), tiny.sphere(lowpoly.READ) * 0.5])
    together = head_lessons.generate_together(backbone, points, Generator(PCG64(0)))
    order = torch.randperm(lowpoly.READ, generator=torch.Generator().manual_seed(0))
    for cloud, tokens in zip(points, together, strict=True):
        assert generate(backbone, METHODS["ar"], Prompt(points=cloud[order.argsort()])).finish().tokens == tokens


def test_heads_and_adapters_are_trained_written_and_read(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole recipe for a few seconds; the merged backbone then decodes with its own heads, exactly."""
    monkeypatch.setitem(
        mesh_heads.PRESETS, "cpu", {"minutes": 0.1, "generated": 4, "drawn": 4, "batch": 2, "rows": (64, 64), "rates": (5e-4, 1e-4)}
    )
    monkeypatch.setattr(mesh_heads, "UNSEEN", 4)
    mesh_heads.main(head_lessons.HeadOptions())
    names = {p.name for p in shipped_folder.iterdir()}
    assert {"heads_cross.safetensors", "heads_mlp.safetensors", "heads_cross_lora.safetensors", "lora_cross", "lora_mlp"} <= names
    both = ["cross-attention", "multilayer"]
    for backbone, kinds in ((lowpoly.load(), both), (lowpoly.load(option="lora"), both[:1]), (lowpoly.load(option="lora-mlp"), both[1:])):
        assert "mesh_heads" in backbone.capabilities and backbone.drafter("mesh_heads").kinds == kinds
        prompt = Prompt(points=tiny.sphere(), seed=3, size=6)
        plain = generate(backbone, METHODS["ar"], prompt).finish().tokens
        knobs = {"accept": "residual", "verify": "match seed", "heads": kinds[-1]}
        assert generate(backbone, METHODS["xspecmesh"], prompt, knobs).finish().tokens == plain
    row = lowpoly.read_card(shipped_folder)["heads"]["heads_cross_lora"]
    assert row["divergence"]["kl"] >= 0 and len(row["held_out"]["top_1"]) == mesh_heads.DEPTH


def test_a_backbone_is_trained_with_heads_that_fit_it(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole recipe for a few seconds: heads of both kinds are shipped with the model, and adapters of the old weights are removed."""
    small = {
        "batch": 4,
        "minutes": 0.05,
        "rate": 1e-3,
        "settings": replace(SMALL, length=640),
        "families": ("table",),
        "vary": stretch,
        "degraded": 0.0,
    }
    monkeypatch.setitem(lowpoly_recipe.PRESETS, "cpu", small)
    monkeypatch.setattr(lowpoly_recipe, "LATER_ROWS", 16)
    (shipped_folder / "heads_cross_lora.safetensors").write_bytes(b"of other weights")
    (shipped_folder / "lora_cross").mkdir()
    before = lowpoly.load().weights_hash
    lowpoly_recipe.main(lowpoly_recipe.LowpolyOptions(fresh=True))
    assert lowpoly.load().weights_hash == before  # of other families: numbers cannot tell which is better
    lowpoly_recipe.main(lowpoly_recipe.LowpolyOptions(export=True))
    backbone = lowpoly.load()
    assert backbone.weights_hash != before and backbone.kinds == ["cross-attention", "multilayer"]
    assert not (shipped_folder / "heads_cross_lora.safetensors").exists() and not (shipped_folder / "lora_cross").exists()
    for kind in ("cross", "mlp"):
        row = backbone.card["heads"][f"heads_{kind}"]
        assert row["steps"] > 0 and "curve" not in row and len(row["held_out"][f"top_1_{kind}"]) == row["settings"]["depth"]
    prompt = Prompt(points=tiny.sphere(), seed=3, size=6)
    exact = generate(backbone, METHODS["xspecmesh"], prompt, {"accept": "residual", "verify": "match seed"}).finish()
    assert exact.tokens == generate(backbone, METHODS["ar"], prompt).finish().tokens


def test_a_control_in_another_folder_gets_heads_and_adapters_of_its_own(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = {"minutes": 0.1, "generated": 4, "drawn": 4, "batch": 2, "rows": (64, 64), "rates": (5e-4, 1e-4)}
    monkeypatch.setitem(mesh_heads.PRESETS, "cpu", preset)
    monkeypatch.setattr(mesh_heads, "UNSEEN", 4)
    control, before = shipped_folder.parent / "control", sorted(p.name for p in shipped_folder.iterdir())
    torch.manual_seed(2)
    trainee = Trainee(SMALL)
    tiny.spread(trainee, 0.3)
    folder.ship(control, folder.split(fold(trainee.state_dict()), "model"), lowpoly.read_card(shipped_folder))
    with pytest.raises(BadKnob, match="contains no model"):
        head_lessons.HeadOptions(start=shipped_folder.parent)
    with pytest.raises(BadKnob, match="imported"):
        head_lessons.HeadOptions(start=control, backbone="bpt")
    mesh_heads.main(head_lessons.HeadOptions(start=control))
    assert sorted(p.name for p in shipped_folder.iterdir()) == before  # the shipped weights have no part in it
    own = lowpoly.load(str(control)).weights_hash
    assert own != lowpoly.load().weights_hash
    assert {row["backbone"] for row in lowpoly.read_card(control)["heads"].values()} == {own}
    models = meshes.Models(MeshBench(backbone=str(control), dtype="float32"))
    rows = experiment_of(PAPERS["xspecmesh"], "table-3").runs.rows.values()
    assert all(models.can_run(row) for row in rows)
    card = lowpoly.read_card(control)
    card["heads"]["heads_cross"]["backbone"] = "other"
    folder.ship(control, {}, card)
    models = meshes.Models(MeshBench(backbone=str(control), dtype="float32"))  # heads of other weights are left out
    assert [models.can_run(row) for row in rows] == [True, True, True, False, True]


def test_heads_go_on_from_the_shipped_ones_that_fit(shipped_folder: Path) -> None:
    trainee = Trainee(SMALL)
    heads = {kind: trainee.heads[kind] for kind in ("cross", "mlp")}
    other = heads["mlp"].settings | {"depth": 2}
    card = {"heads": {"heads_cross": {"settings": heads["cross"].settings}, "heads_mlp": {"settings": other}}}
    folder.ship(shipped_folder, {f"heads_{kind}.safetensors": each.state_dict() for kind, each in heads.items()}, card)
    shared = lowpoly_recipe.shipped_heads(trainee)
    assert set(shared) == {name for name in trainee.state_dict() if name.startswith("heads.cross.")}
    torch.testing.assert_close(shared["heads.cross.up"], heads["cross"].up.data, atol=1e-2, rtol=1e-2)  # eight bits


def test_heads_learn_the_same_from_remembered_states_and_from_a_pass(shipped_folder: Path) -> None:
    library = head_lessons.CloudSequences(lowpoly.load(), map(sample_of, training_shapes(0, 6, ("table", "tree"))), 3, 3, 0)
    heads = mesh_heads.MeshHeads(3, SMALL.width, SMALL.heads, SMALL.vocabulary)
    torch.nn.init.normal_(heads.down, std=0.1)
    student = head_lessons.HeadStudent(lowpoly.load_model(), heads, False)
    memory = head_lessons.Memory(student, library, "cpu")
    for step in range(3):
        points, tokens = library.batch(step)
        _, *passed = student.losses(points, tokens, None, None)
        for a, b in zip(student.head_losses(*memory.batch(step), None, None), passed, strict=True):
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)
        drawn, _ = student.head_losses(*memory.batch(step), 3000, Generator(PCG64(0)))
        torch.testing.assert_close(drawn, passed[0], atol=0.1, rtol=0.1)


def test_a_head_is_judged_by_the_token_that_many_places_behind_the_next_one(shipped_folder: Path) -> None:
    library = head_lessons.CloudSequences(lowpoly.load(), map(sample_of, training_shapes(0, 1, ("table",))), 1, 1, 0)
    heads = mesh_heads.MeshHeads(2, SMALL.width, SMALL.heads, SMALL.vocabulary)
    torch.nn.init.ones_(heads.gain)
    student = head_lessons.HeadStudent(lowpoly.load_model(), heads, False)
    points, tokens = library.batch(0)
    hidden, _ = student.hidden_states(points, tokens)
    probs = torch.log_softmax(student.decoder.head(hidden[0]), -1)  # a head that was never trained hands on what it is given
    for depth, loss in enumerate(student.losses(points, tokens, None, None)[1], start=1):
        behind = tokens[0, depth:]
        torch.testing.assert_close(loss, -probs[: len(behind)].gather(1, behind[:, None]).mean(), atol=1e-3, rtol=1e-3)


def test_merging_an_adapter_is_wearing_it(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W + AB gives the hidden states that the adapter gave in training."""
    model = lowpoly.load_model()
    student = head_lessons.HeadStudent(model, mesh_heads.MeshHeads(2, SMALL.width, SMALL.heads, SMALL.vocabulary), True)
    for name, p in student.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(p, std=0.1)
    mesh_heads.save_adapter(student.decoder.blocks, shipped_folder / "lora_cross")
    merged = head_lessons.HeadStudent(lowpoly.load(option="lora").model, student.heads, False)
    points, _, tokens, _ = World(EASY, 2, stretch, 0.0, 460).batch(0)
    with torch.no_grad():
        worn, plain = (
            student.hidden_states(points, tokens)[0],
            head_lessons.HeadStudent(lowpoly.load_model(), student.heads, False).hidden_states(points, tokens)[0],
        )
        torch.testing.assert_close(
            merged.hidden_states(points, tokens)[0], worn, atol=5e-3, rtol=1e-2
        )  # adapters are kept in half precision
    assert (worn - plain).abs().max() > 0.05


def test_padding_has_no_part_in_the_loss() -> None:
    tokens = torch.tensor([[3, 1, 4, 2], [2, PAD, PAD, PAD], [5, 0, PAD, PAD]])
    assert known_places(tokens).tolist() == [0, 1, 2, 3, 4, 8, 9]


def test_a_control_learns_nothing_from_its_heads_and_does_not_replace_the_shipped_weights(tmp_path: Path) -> None:
    with pytest.raises(BadKnob, match="--out"):
        lowpoly_recipe.LowpolyOptions(later=0)
    assert lowpoly_recipe.LowpolyOptions(later=0, out=tmp_path / "out").weight == lowpoly_recipe.LATER
    batch = World(EASY, 2, stretch, 0.0, 460).batch(0)
    places = some_places(batch.tokens, 8, Generator(PCG64(0)))
    for apart in (False, True):
        trainee = Trainee(SMALL, apart)
        _, later = trainee(batch, known_places(batch.tokens), places)
        sum(each.float().square().mean() for each in later).backward()
        learns = {name.split(".")[0] for name, p in trainee.named_parameters() if p.grad is not None and p.grad.abs().max() > 0}
        assert learns == ({"heads"} if apart else {"heads", "model", "digits_in", "digits_out"})


def test_mistakes_are_offsets_near_the_true_one_or_earlier_ones() -> None:
    tokens = np.concatenate([[5], 512 + np.arange(300) * 7 % 4096, [BPT.eos, PAD]])
    read = np.stack([misplace(tokens, Generator(PCG64(seed))) for seed in range(20)])
    changed = read != tokens
    assert 0 < changed.mean() < MISPLACED and not changed[:, [0, -2, -1]].any()
    digits = np.stack(np.unravel_index(np.stack([np.broadcast_to(tokens, read.shape), read])[:, changed] - 512, (16,) * 3))
    near = (abs(digits[:, 0] - digits[:, 1]) <= 2).all(0)
    earlier = [value in tokens[max(0, at - 4) : at] for (_, at), value in zip(np.argwhere(changed), read[changed], strict=True)]
    assert (near | earlier).all() and 0.5 < near.mean() < 1
