"""The rows of a benchmark: a stamp that a row may override, and a CSV file whose columns stay consistent."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from engine.errors import BadFile, BadOutput
from research.bench.rows import append_csv, check_csv, check_file, experiment, publish
from tests.engine.backbones import tiny


def table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_row_names_its_experiment_and_may_correct_the_stamp(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    backbone = tiny.pictogram()
    stamp = experiment(backbone, backbone.sampling, size=64)
    wanted = {"commit", "processor", "torch", "backbone", "weights", "dtype", "device", "temperature", "top_k", "top_p", "guidance", "size"}
    assert wanted <= set(stamp)
    path = tmp_path / "rows.csv"
    rows = publish([{"method": "a"}, {"method": "b", "dtype": "bfloat16"}], lambda row: row["method"], stamp, path)
    assert [row["dtype"] for row in rows] == ["float32", "bfloat16"] == [row["dtype"] for row in table(path)]
    assert capsys.readouterr().out == "a\nb\n"


def test_rows_with_other_columns_stay_under_their_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    append_csv(path, [{"method": "a", "speedup": [2.0, 1.5]}])
    append_csv(path, [{"method": "b", "speedup": [3.0, 2.5]}])
    append_csv(path, [{"row": "A plain", "knobs": {"window": 4}, "speedup": [1.0, 1.0]}, {"method": "c", "count": None}])
    rows = table(path)
    assert [row["method"] for row in rows] == ["a", "b", "", "c"] and [row["row"] for row in rows] == ["", "", "A plain", ""]
    assert json.loads(rows[1]["speedup"]) == [3.0, 2.5] and json.loads(rows[2]["knobs"]) == {"window": 4} and rows[3]["count"] == ""
    assert {len(row) for row in rows} == {5} and None not in rows[2] and [p.name for p in tmp_path.iterdir()] == ["rows.csv"]


def test_a_file_that_is_no_table_is_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for content in (b"a,b\n1,2,3\n", b"a,a\n1,2\n", b"\xff\xfe"):
        path.write_bytes(content)
        for act in (check_csv, lambda where: append_csv(where, [{"a": 1}])):
            with pytest.raises(BadFile, match="--csv"):
                act(path)
        assert path.read_bytes() == content


def test_asking_whether_a_file_can_be_written_changes_nothing(tmp_path: Path) -> None:
    old, new = tmp_path / "kept", tmp_path / "new"
    old.write_text("as it was")
    for path in (old, new, None):
        check_file(path, "--sheet")
    assert old.read_text() == "as it was" and not new.exists()
    for path in (tmp_path, tmp_path / "no" / "new", old / "below", tmp_path / ("n" * 5000)):
        with pytest.raises(BadOutput, match="--sheet"):
            check_file(path, "--sheet")


def test_rows_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadOutput, match="--csv"):
        append_csv(tmp_path / "no" / "rows.csv", [{"a": 1}])
