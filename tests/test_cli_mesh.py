"""`launch.py mesh` and `bench mesh`: the contract line, the files, and a folder of inputs."""

from __future__ import annotations

import copy
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from peft import LoraConfig, get_peft_model_state_dict, inject_adapter_in_model
from safetensors.torch import save_file

from app import cli
from engine.drafters.mesh_heads import MeshHeads
from engine.kernels.cpu.library import native, native_choice
from engine.mesh.bpt_tokens import BPT
from engine.mesh.write import write
from engine.networks.mesh_decoder import describe
from engine.networks.weights import ship, split
from research.bench import meshes
from research.bench.plan import MeshBench
from tests.engine.backbones import tiny

NEEDED = {"backbone", "method", "exact", "verify", "seed", "tokens", "forwards", "step_compression", "seconds", "tokens_per_second",
          "files", "compare", "faces", "vertices", "watertight", "chamfer", "hausdorff", "floor"}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random lowpoly with both kinds of heads on disk."""
    path = tmp_path_factory.mktemp("lowpoly")
    model = tiny.mesh_model()
    heads = {f"heads_{kind}": MeshHeads(4, 32, 2, BPT.vocabulary, kind) for kind in ("cross", "mlp")}
    files = split(model.state_dict(), "model") | {f"{name}.safetensors": h.state_dict() for name, h in heads.items()}
    card = {
        "name": "lowpoly", "families": ["table", "chair"], "model": {"settings": describe(model.settings), "files": 1, "held_out": {}},
        "heads": {name: {"settings": h.settings} for name, h in heads.items()},
    }  # fmt: skip
    ship(path, files, card)
    return path


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of these tests stay in a temporary folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def box(tmp_path: Path) -> Path:
    """A box of 10 x 40 x 20 at (100, 0, -7), in unknown units."""
    cuboid = trimesh.creation.box((10, 40, 20))
    return write(tmp_path / "box.ply", np.add(cuboid.vertices, (100, 0, -7)), cuboid.faces)


def mesh(folder: Path, path: Path, *arguments: str) -> list[str]:
    return ["mesh", str(path), "--backbone", str(folder), "--faces", "8", *arguments]


def last_line(capsys: pytest.CaptureFixture) -> dict:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_a_shrinkwrapped_mesh_is_written_beside_and_lies_nearer(
    folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    command = mesh(folder, box, "--shrinkwrap", "--formats", "glb,ply", "--out", str(out))
    assert cli.main([*command, "--json"]) == 0
    line = last_line(capsys)
    assert line["shrinkwrap"]["chamfer"] < line["chamfer"] and line["shrinkwrap"]["seconds"] > 0
    assert {Path(path).name for path in line["files"].values()} >= {"shrinkwrapped.glb", "shrinkwrapped.ply"}
    for suffix in ("glb", "ply"):
        plain, wrapped = (trimesh.load(out / f"{name}.{suffix}", process=False, force="mesh") for name in ("result", "shrinkwrapped"))
        assert np.array_equal(plain.faces, wrapped.faces) and not np.allclose(plain.vertices, wrapped.vertices)
        assert np.abs(wrapped.vertices - (100, 0, -7)).max() < 40  # in the place and size of the input
    assert cli.main(command) == 0
    assert f"Shrinkwrapped: chamfer {line['shrinkwrap']['chamfer']:.4f}" in capsys.readouterr().out
    assert cli.main([*mesh(folder, box), "--json"]) == 0
    assert last_line(capsys)["shrinkwrap"] is None


def test_a_run_is_continued_from_a_token_without_its_input(folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli.main([*mesh(folder, box, "--method", "xspecmesh_exact", "--up", "z", "--out", str(first)), "--json"]) == 0
    box.unlink()
    command = ["mesh", "--from", str(first), "--at", "11", "--backbone", str(folder), "--method", "sjdpp"]
    assert cli.main([*command, "--seed", "9", "--temperature", "1.5", "--out", str(second), "--json"]) == 0
    line = last_line(capsys)
    before, after = (np.load(each / "trace.npz")["tokens"].tolist() for each in (first, second))
    assert before[:11] == after[:11] and before != after and line["seed"] == 9 and 0 < line["faces"] <= 8
    settings = [json.loads((each / "run.json").read_text()) for each in (first, second)]
    assert settings[0]["input"] | {"notes": []} == settings[1]["input"] and settings[1]["at"] == 11
    assert np.abs(trimesh.load(second / "result.glb", force="mesh").vertices - (100, 0, -7)).max() < 40  # in the place of the input
    for name, value in (("up", "w"), ("centre", [1]), ("scale", 0)):
        damaged = settings[0] | {"input": settings[0]["input"] | {name: value}}
        (first / "run.json").write_text(json.dumps(damaged))
        assert cli.main(command) == 2 and "is damaged" in capsys.readouterr().err


def test_a_classical_baseline_is_written_and_near(folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    command = mesh(folder, box, "--faces", "60", "--baseline", "classical", "--out", str(out))
    assert cli.main([*command, "--json"]) == 0
    line = last_line(capsys)
    assert line["baseline"]["fit"]["verdict"] == "good" and line["baseline"]["chamfer"] < line["chamfer"]
    surface = trimesh.load(out / "classical.glb", process=False, force="mesh")
    assert 0 < len(surface.faces) == line["baseline"]["faces"] <= 62  # as many as the mesh may have
    assert np.abs(surface.vertices - (100, 0, -7)).max() < 40  # in the place and size of the input
    assert cli.main(command) == 0
    assert "Classical surface, without the model:" in capsys.readouterr().out
    assert cli.main([*mesh(folder, box), "--json"]) == 0
    assert last_line(capsys)["baseline"] is None


def test_mesh_prints_the_contract_line_and_files_in_the_inputs_frame(
    folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "out"
    options = (
        "--method",
        "xspecmesh",
        "--compare",
        "--seed",
        "7",
        "--about",
        "20",
        "--formats",
        "glb,obj,ply,stl",
        "--out",
        str(out),
        "--json",
    )
    assert cli.main(mesh(folder, box, *options)) == 0
    line = last_line(capsys)
    assert set(line) >= NEEDED
    assert line["backbone"] == "lowpoly" and line["method"] == "xspecmesh" and line["exact"] is False and line["seed"] == 7
    names = {"result.glb", "result.obj", "result.ply", "result.stl", "acceptance.glb", "trace.npz", "points.npz", "run.json"}
    assert names == {p.name for p in out.iterdir()}
    for suffix in ("glb", "obj", "ply", "stl"):
        loaded = trimesh.load(out / f"result.{suffix}", force="mesh")
        assert (loaded.bounds[0] >= np.array([95, -20, -17]) - 31).all() and (loaded.bounds[1] <= np.array([105, 20, 3]) + 31).all()
    settings = json.loads((out / "run.json").read_text())
    assert (settings["prompt"], settings["size"], settings["about"]) == ("box.ply", 8, 20) and settings["totals"]["tokens"] == line[
        "tokens"
    ]
    with np.load(out / "trace.npz") as trace:
        assert len(trace["tokens"]) == line["tokens"]


def test_the_exact_preset_with_match_seed_gives_plain_tokens(folder: Path, box: Path, capsys: pytest.CaptureFixture) -> None:
    options = ("--method", "xspecmesh_exact", "--verify", "match-seed", "--compare", "--json")
    assert cli.main(mesh(folder, box, *options)) == 0
    line = last_line(capsys)
    assert line["exact"] is True and line["compare"]["same_tokens"] is True and line["verify"] == "match seed"


def test_the_nearest_of_several_seeds_is_the_run(folder: Path, box: Path, capsys: pytest.CaptureFixture) -> None:
    """Its mesh equals plain decoding's for the chosen seed."""
    assert cli.main(mesh(folder, box, "--best-of", "5", "--seed", "2", "--method", "sjdpp", "--compare", "--json")) == 0
    line = last_line(capsys)
    tried = line["best_of"]
    near = [float("inf") if apart is None else apart for apart in tried["chamfer"]]
    assert tried["seeds"] == len(near) == 5 and line["seed"] == tried["seed"] and near[line["seed"] - 2] == min(near)
    assert line["verify"] == "match seed" and line["compare"]["same_tokens"] is True
    assert cli.main(mesh(folder, box, "--seed", "2", "--method", "ar")) == 0
    assert "lies nearest" not in capsys.readouterr().out
    assert cli.main(mesh(folder, box, "--best-of", "3", "--method", "xspecmesh")) == 2
    assert "xspecmesh draws another mesh of a seed than plain decoding" in capsys.readouterr().err


def test_a_folder_runs_all_its_files_and_names_the_bad_one(folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    many = tmp_path / "many"
    many.mkdir()
    (many / "a.ply").write_bytes(box.read_bytes())
    (many / "b.xyz").write_text("1 2\n3 4\n")
    (many / "c.ply").write_bytes(box.read_bytes())
    (many / "notes.md").write_text("not a mesh")
    assert cli.main(mesh(folder, many, "--method", "ar", "--out", str(tmp_path / "out"), "--json")) == 2
    captured = capsys.readouterr()
    lines = json.loads(captured.out.strip().splitlines()[-1])
    assert [Path(line["input"]).name for line in lines] == ["a.ply", "c.ply"]
    notes = captured.err.strip().splitlines()
    assert [note[:7] for note in notes] == ["b.xyz: "]
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"a", "c"}


def test_files_that_differ_in_their_kind_only_do_not_overwrite_each_other(
    folder: Path, box: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    many = tmp_path / "many"
    many.mkdir()
    (many / "a.ply").write_bytes(box.read_bytes())
    np.save(many / "a.npy", tiny.sphere().numpy())
    assert cli.main(mesh(folder, many, "--method", "ar", "--out", str(tmp_path / "out"), "--json")) == 0
    lines = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"a.ply", "a.npy"}
    assert len({line["files"]["run"] for line in lines}) == 2


def last_line_rows(capsys: pytest.CaptureFixture) -> list[dict]:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_bench_prints_the_rows_that_the_weights_allow(folder: Path, capsys: pytest.CaptureFixture) -> None:
    torch.manual_seed(0)
    assert cli.main(["bench", "mesh", "--backbone", str(folder), "--count", "2", "--faces", "8", "--json"]) == 0
    output = capsys.readouterr()
    rows = {row["row"]: row for row in json.loads(output.out.strip().splitlines()[-1])}
    assert {"A plain", "B MLP", "D cross-attention", "D exact", "lookup"} <= set(rows)
    assert "E cross-attention + LoRA" not in rows and "E cross-attention + LoRA: its heads" in output.err
    assert rows["A plain"]["step_compression"][0] == 1.0
    assert rows["D exact"]["exact"] is True and rows["D cross-attention"]["exact"] is False
    assert {row["faces_allowed"] for row in rows.values()} == {8}
    named = {"weights", "dtype", "temperature", "top_k", "top_p", "knobs", "commit", "processor", "inputs", "seeds", "repeats"}
    assert all(named <= set(row) for row in rows.values())
    swept = ["bench", "mesh", "--backbone", str(folder), "--count", "1", "--faces", "8", "--methods", "lookup,xspecmesh", "--json"]
    swept += ["--sweep", "depth=1,3"]
    assert cli.main([*swept, "--sweep", "drafted=2"]) == 0
    mine = {row["row"]: row for row in last_line_rows(capsys)}
    assert set(mine) == {"A plain", "xspecmesh depth=1", "xspecmesh depth=3", "lookup drafted=2"}
    assert mine["xspecmesh depth=1"]["step_compression"][0] <= 2 and mine["lookup drafted=2"]["exact"] is True


def test_bench_measures_what_it_is_told(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Temperature, budget and repeats change the runs and appear in the rows; rows of all experiments share a table."""
    table = tmp_path / "rows.csv"
    command = ["bench", "mesh", "--backbone", str(folder), "--count", "1", "--methods", "lookup", "--csv", str(table), "--json"]
    measured_rows = {}
    for name, options in {
        "cold": ["--temperature", "0.1", "--top-k", "5", "--faces", "8", "--about", "own"],
        "hot": ["--temperature", "4", "--top-k", "5", "--faces", "8"],
        "small": ["--temperature", "4", "--size", "3", "--repeats", "2", "--sweep", "drafted=2"],
    }.items():
        assert cli.main([*command, *options]) == 0
        measured_rows[name] = last_line_rows(capsys)[0]
    cold, hot, small = measured_rows.values()
    assert (cold["temperature"], cold["top_k"], cold["faces_allowed"], cold["repeats"]) == (0.1, 5, 8, 1)
    assert (small["temperature"], small["faces_allowed"], small["repeats"]) == (4.0, 3, 2)
    assert cold["faces_about"] == "own" and 0 < cold["faces_error"][0] <= 1 and "faces_error" not in hot
    assert cold["chamfer_16k"] != hot["chamfer_16k"] and hot["tokens"] != small["tokens"]
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["row"], row["temperature"]) for row in rows] == [
        ("A plain", "0.1"), ("lookup", "0.1"), ("A plain", "4.0"), ("lookup", "4.0"), ("A plain", "4.0"), ("lookup drafted=2", "4.0"),
    ]  # fmt: skip
    assert json.loads(rows[5]["knobs"])["drafted"] == 2 and all(None not in row for row in rows)


@pytest.mark.skipif(native(torch.bfloat16) is None, reason=native_choice(torch.bfloat16).reason)
def test_bench_compares_bfloat16_with_plain_decoding_in_float32(folder: Path, capsys: pytest.CaptureFixture) -> None:
    command = ["bench", "mesh", "--backbone", str(folder), "--methods", "lookup", "--count", "1", "--faces", "4", "--json"]
    assert cli.main([*command, "--dtype", "bfloat16"]) == 0
    rows = last_line_rows(capsys)
    assert [(row["row"], row["dtype"]) for row in rows] == [
        ("A plain in float32", "float32"), ("A plain", "bfloat16"), ("lookup", "bfloat16"),
    ]  # fmt: skip
    assert rows[0]["speedup"] == [1.0, 1.0, 1.0] and rows[1]["speedup"] != [1.0, 1.0, 1.0]
    assert cli.main([*command, "--dtype", "float32"]) == 0
    assert [row["row"] for row in last_line_rows(capsys)] == ["A plain", "lookup"]


def test_the_seeds_and_the_repeats_are_run(folder: Path) -> None:
    plan = MeshBench(backbone=str(folder), methods=("lookup",), count=1, seeds=3, repeats=2, size=4)
    models = meshes.Models(plan)
    inputs = meshes.subjects(1, "boxes", models.model("plain").card["families"])
    runs = models.measure({"A plain": meshes.MeshBenchRow("plain", "ar")}, inputs, plan.seeds, plan.repeats)["A plain"]
    assert [[run.prompt.seed for run in of] for of in runs] == [[seed] * 4 for seed in range(3)]
    assert all(run.prompt.size == 4 for of in runs for run in of)


def test_bench_of_the_merged_weights_measures_them(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    merged = tmp_path / "merged"
    shutil.copytree(folder, merged)
    add_adapter(merged)
    for model in ("lowpoly", "lowpoly:lora"):
        (merged / "card.json").write_text(json.dumps(json.loads((merged / "card.json").read_text()) | {"name": model}))
        assert cli.main(["bench", "mesh", "--backbone", str(merged), "--count", "1", "--faces", "4", "--methods", "lookup", "--json"]) == 0
        rows = {row["row"]: row for row in last_line_rows(capsys)}
        assert set(rows) == {"A plain" if model == "lowpoly" else "E plain", "lookup"}
        assert {row["backbone"] for row in rows.values()} == {model} and "speedup" in rows["lookup"]


def add_adapter(folder: Path) -> None:
    """A random adapter as written by the training of heads."""
    blocks = copy.deepcopy(tiny.mesh_model().decoder.blocks)  # which peft changes
    kinds = sorted({name.rsplit(".", 1)[-1] for name, module in blocks.named_modules() if isinstance(module, torch.nn.Linear)})
    settings = LoraConfig(r=2, lora_alpha=4, target_modules=kinds, inference_mode=True)
    inject_adapter_in_model(settings, blocks)
    state = {f"base_model.model.{name}": torch.randn_like(v) / 10 for name, v in get_peft_model_state_dict(blocks).items()}
    settings.save_pretrained(str(folder / "lora_cross"))
    save_file(state, str(folder / "lora_cross" / "adapter_model.safetensors"))


def test_the_files_of_all_formats_stand_in_the_line(folder: Path, box: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(mesh(folder, box, "--method", "ar", "--formats", "ply,glb,ply", "--json")) == 0
    files = last_line(capsys)["files"]
    assert {name: Path(path).name for name, path in files.items()} == {
        "acceptance": "acceptance.glb", "result": "result.glb", "result.ply": "result.ply", "trace": "trace.npz", "run": "run.json",
        "points": "points.npz",
    }  # fmt: skip
