"""`bench --judge`: the judges' verdicts on pictures and meshes, in the rows of their methods."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh

from engine.backbones import pictogram
from engine.errors import BadPrompt, NotSupported
from engine.recognition import picture_judge as judge
from engine.recognition.picture_judge import Judge
from engine.words.emoji_objects import TAUGHT
from research.bench import judging, meshes, sheet, speed
from research.bench.mesh_inputs import assets, files
from research.bench.plan import ImageBench, MeshBench
from research.bench.plot import points_of
from research.worlds.emoji_scenes import FIRST, WORLD, lessons_of
from tests.research.train import tiny_folders


def test_rows_for_plain_decoding_and_every_value_of_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge is untrained here: its verdicts mean nothing, but are the same for the same picture."""
    torch.manual_seed(0)
    reader = Judge(lessons_of(pictogram.load().card).objects).eval()
    monkeypatch.setattr(judge, "load", lambda: reader)
    plan = ImageBench(
        backbone="pictogram", methods=("zipar",), sweep=(("window", ("4", "16")),), count=2, repeats=0, judge=True, dtype="float32"
    )
    rows = {row["method"]: row for row in speed.bench(plan)}
    assert list(rows) == ["ar", "zipar window=4", "zipar window=16"]
    assert rows["zipar window=16"]["objects_more"] == rows["zipar window=16"]["half_width"] == 0  # a full window is plain decoding
    assert rows["zipar window=16"]["background"] == rows["ar"]["background"] and rows["ar"]["prompts"] == 2


def test_a_judge_that_knows_too_little_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Judge(TAUGHT).eval()
    monkeypatch.setattr(judge, "load", lambda: reader)
    assert judging.judge_of(FIRST) is reader
    with pytest.raises(NotSupported, match=f"does not know {len(WORLD.objects) - len(TAUGHT)} of the objects"):
        judging.judge_of(WORLD)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A pack with two meshes, a cloud, and another file."""
    folder = tmp_path / "pack"
    (folder / "inner").mkdir(parents=True)
    for name, size in (("table", (2.0, 1.0, 1.0)), ("inner/block", (1.0, 1.0, 1.0))):
        trimesh.creation.box(size).export(folder / f"{name}.obj")
    trimesh.PointCloud(np.random.default_rng(0).normal(size=(2000, 3))).export(folder / "cloud.ply")
    (folder / "bad.glb").write_bytes(b"nothing")
    return folder


def test_files_are_not_selected(pack: Path, tmp_path: Path) -> None:
    assert len(files([pack], 10)) == 4 and files([pack], 2) == files([pack], 10)[:2]
    with pytest.raises(BadPrompt, match="--packs"):
        files([tmp_path / "none"], 10)


def test_a_file_that_cannot_be_used_is_named_and_left_out(pack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sorted((s.name, s.family) for s in assets([pack], 10, "y")) == [("block", ""), ("table", "")]
    errors = capsys.readouterr().err
    assert "bad.glb" in errors and "cloud.ply has no faces" in errors


def test_each_input_stands_next_to_its_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "engine.mesh.picture.pictures", lambda views, size: [np.full((size, size, 3), k, np.uint8) for k in range(len(views))]
    )
    shape = np.zeros((3, 3)), np.array([[0, 1, 2]])
    drawn = np.asarray(sheet.meshes([(str(k), np.zeros((4, 6))) for k in range(sheet.PAIRS + 1)], [shape] * (sheet.PAIRS + 1)))
    assert drawn[8, 8 :: sheet.CELL + 4, 0].tolist() == list(range(2 * sheet.PAIRS))
    assert drawn[8 - len(drawn) // 2, 8 :: sheet.CELL + 4, 0].tolist()[:2] == [2 * sheet.PAIRS, 2 * sheet.PAIRS + 1]


def test_meshes_of_files_are_judged_and_drawn(tmp_path: Path, pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr("engine.mesh.picture.pictures", lambda views, size: [np.zeros((8, 8, 3), np.uint8) for _ in views])
    plan = MeshBench(
        backbone="lowpoly", methods=("lookup",), count=4, packs=(pack,), up="y", repeats=0, judge=True, size=4,
        sheet=tmp_path / "a.png", figure=tmp_path / "b.png",
    )  # fmt: skip
    rows = meshes.bench(plan)
    assert [row["row"] for row in rows] == ["A plain", "lookup"] and {row["inputs"] for row in rows} == {2}
    assert all(0 <= row["right_kind"] <= 1 and sum(row["fits"].values()) <= 2 for row in rows)
    assert (tmp_path / "a.png").exists()


def test_a_figure_has_a_point_for_each_timed_row() -> None:
    rows = [{"method": "ar", "exact": True, "speedup": [1.0]}, {"method": "gsd a", "exact": False, "speedup": [2.0], "mean_deviation": 0.1}]
    assert points_of(rows) == ("mean_deviation", {"ar": [("ar", 0.0, 1.0)], "gsd": [("gsd a", 0.1, 2.0)]})
