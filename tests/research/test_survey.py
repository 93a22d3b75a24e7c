"""Surveys: the inputs of held-out shapes and of files, and their records, on tiny weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from engine.backbones import lowpoly
from engine.errors import BadPrompt
from engine.mesh.frame import SIDE
from research import mesh_judge
from research.bench.mesh_judged import readable, table
from research.survey import BOXES, FAMILIES, POINTS, Record, assets, files, measured, shapes, subject_of, survey
from research.worlds.lowpoly_shapes import HELD_OUT_FAMILIES, held_out_shape
from tests.engine.mesh import shapes as plain
from tests.engine.mesh.files import obj, ply, stl, text
from tests.research.train import tiny_folders


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    """A folder of assets: two meshes, one in a folder of its own, a cloud, a damaged file, and something else."""
    folder = tmp_path / "pack"
    (folder / "inner").mkdir(parents=True)
    vertices, faces = plain.table()
    obj(folder / "table.obj", vertices, faces.tolist())
    stl(folder / "inner" / "block.stl", *plain.box())
    ply(folder / "cloud.ply", plain.drawn(plain.table(), 200)[:, :3])
    (folder / "bad.glb").write_bytes(b"nothing")
    text(folder / "notes.txt", plain.drawn(plain.table(), 20))
    return folder


def test_every_family_comes():
    found = list(shapes(("table", "chair"), 3))
    assert [s.family for s in found[:4]] == ["table", "chair", *HELD_OUT_FAMILIES] and len(found) == 12
    assert {s.source for s in found if s.family in HELD_OUT_FAMILIES} == {FAMILIES} and found[0].source == BOXES
    assert len({s.points.tobytes() for s in found}) == 12


def test_a_subject_lies_in_the_frame_of_the_model():
    subject = subject_of(held_out_shape("chair", 4), BOXES, 4)
    vertices = subject.surface[0]
    assert np.ptp(vertices, 0).max() == pytest.approx(SIDE) and np.abs(vertices.max(0) + vertices.min(0)).max() < 1e-9
    assert subject.points.dtype == np.float32 and np.linalg.norm(subject.points[:, 3:], axis=1) == pytest.approx(1, abs=1e-3)
    assert len(subject.points) == POINTS


def test_files_are_not_selected_and_always_the_same(pack: Path, tmp_path: Path):
    assert len(files([pack], 10)) == 4 and files([pack], 2) == files([pack], 10)[:2]
    assert {source for source, _ in files([pack, pack / "inner"], 10)} == {"pack", "inner"}
    with pytest.raises(BadPrompt, match="--packs"):
        files([tmp_path / "none"], 10)


def test_a_file_that_cannot_be_used_is_named_and_left_out(pack: Path, capsys: pytest.CaptureFixture[str]):
    found = list(assets([pack], 10, "y"))
    assert sorted(s.name for s in found) == ["block", "table"] and all(s.family == "" and s.source == "pack" for s in found)
    said = capsys.readouterr().err
    assert "bad.glb" in said and "cloud.ply has no faces" in said


def test_a_record_is_measured_on_the_surface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tiny_folders.ship(tmp_path, monkeypatch)
    backbone, judge = lowpoly.load(), mesh_judge.load()
    subject = subject_of(held_out_shape("table", 1), BOXES, 1)
    (record, mesh), _ = measured(backbone, judge, [subject, subject], 1, backbone.sampling)
    assert record.faces == len(mesh.faces) and record.family == "table"
    if record.over_floor is not None:
        assert record.over_floor == pytest.approx(record.chamfer / record.floor) and record.floor < 0.03
    rows = list(survey(backbone, judge, [subject, subject], backbone.sampling))
    assert len(rows) == 2 and len(list(survey(backbone, judge, [subject] * 3, backbone.sampling, skip=1))) == 2
    assert rows[1][1] == record  # the seed counts the inputs
    wrapped = [each for _, each, _ in survey(backbone, judge, [subject], backbone.sampling, shrinkwrap=True)]
    assert wrapped[0].faces == rows[0][1].faces and wrapped[0].chamfer < rows[0][1].chamfer
    assert "2: held-out boxes, table" in capsys.readouterr().err
    assert all(not isinstance(value, dict) for value in rows[0][1].row().values())


def record(family: str, mesh_kind: str, over: float | None, source: str = BOXES, input_kind: str = "table") -> Record:
    """A record of one shape or file."""
    return Record("a", source, family, 9, over and over / 50, 0.02, over, input_kind, mesh_kind)


def test_the_table_counts_by_family_by_pack_and_in_all():
    found = [record("table", "table", 1.0), record("table", "chair", 3.0), record("gear", "", None, FAMILIES, "gear")]
    found += [record("", "table", 9.0, "pack"), record("", "car", 2.0, "pack")]
    rows = {row["row"]: row for row in table(found)}
    assert list(rows) == ["table", "gear", "pack", f"all {BOXES}", f"all {FAMILIES}", "all packs"]
    assert rows["table"]["right_kind"] == 0.5 and rows["table"]["chamfer_over_floor"][0] == 2.0
    assert rows["gear"]["empty"] == 1.0 and rows["gear"]["chamfer_over_floor"] is None and rows["gear"]["right_kind"] == 0.0
    assert rows["all packs"]["right_kind"] == 0.5 and rows["all packs"]["input_recognised"] is None
    assert rows["all packs"]["fits"] == {"good": 1, "fair": 0, "foreign": 1}
    assert "no mesh" in readable(rows["gear"]) and "right kind  50%" in readable(rows["table"])


def test_the_command_judges_and_draws(tmp_path: Path, pack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    tiny_folders.ship(tmp_path, monkeypatch)
    monkeypatch.setattr("research.bench.mesh_judged.contact_sheet", lambda rows, size: np.zeros((8, 8 * len(rows), 3), np.uint8))
    few = ["bench", "mesh", "--judge", "--packs", str(pack), "--count", "2", "--up", "y"]
    assert main([*few, "--each", "0", "--csv", str(tmp_path / "a.csv"), "--json"]) == 0
    assert '"row": "all packs"' in capsys.readouterr().out
    assert "over_floor" in (tmp_path / "a.csv").read_text().splitlines()[0]
    assert main([*few, "--sheet", str(tmp_path / "a.png")]) == 0 and (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--packs", "."], "add --judge"),
        (["--judge", "--packs", "nowhere"], "is not a folder"),
        (["--judge", "--up", "w"], "cannot be 'w'"),
        (["--judge", "--each", "0"], "each = 0"),
        (["--judge", "--repeats", "2"], "does not use --repeats"),
    ],
)
def test_what_cannot_be_judged_is_a_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert main(["bench", "mesh", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error and "\n" not in error
