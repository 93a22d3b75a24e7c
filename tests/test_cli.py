"""The command line: contract lines and files. faults/command_lines.py has the wrong command lines."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app import cli
from app.commands.report import print_json
from engine.decoding.initializers import WINDOW
from engine.networks.weights import ship
from tests.engine.backbones import tiny

PROMPT = "two red cats on a table"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random pictogram on disk."""
    path = tmp_path_factory.mktemp("model")
    backbone = tiny.pictogram()
    card = {
        "name": "pictogram", "words": tiny.WORDS, "sides": [8], "tokenizer": {"settings": backbone.tokenizer.settings},
        "decoder": {"settings": backbone.model.settings, "files": 1, "held_out": {}},
    }  # fmt: skip
    ship(path, {"tokenizer.safetensors": backbone.tokenizer.state_dict(), "decoder-1.safetensors": backbone.model.state_dict()}, card)
    return path


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of these tests stay in a temporary folder."""
    monkeypatch.setenv("FORETOKEN_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def image(folder: Path, *arguments: str) -> list[str]:
    return ["image", PROMPT, "--backbone", str(folder), *arguments]


def last_line(capsys: pytest.CaptureFixture) -> dict:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_image_prints_the_contract_line_and_writes_the_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    out = tmp_path / "out"
    assert cli.main(image(folder, "--method", "sjdpp", "--compare", "--seed", "7", "--out", str(out), "--json")) == 0
    line = last_line(capsys)
    needed = {"backbone", "method", "exact", "verify", "seed", "tokens", "forwards", "step_compression", "seconds", "tokens_per_second",
              "files", "compare"}  # fmt: skip
    assert needed <= set(line)
    assert line["backbone"] == "pictogram" and line["method"] == "sjdpp" and line["exact"] is True and line["seed"] == 7
    assert line["tokens"] == 64 and 0 < line["forwards"] <= 64
    assert line["step_compression"] == pytest.approx(64 / line["forwards"], abs=1e-3)
    assert set(line["compare"]) == {"method", "seconds", "speedup", "same_tokens"}
    assert set(line["files"]) == {"result", "trace", "run"}
    picture = Image.open(line["files"]["result"])
    assert picture.size == (64, 64)
    settings = json.loads(picture.text["foretoken"])
    assert settings["prompt"] == PROMPT and settings["seed"] == 7 and settings["knobs"]["window"] == WINDOW.default
    trace = np.load(line["files"]["trace"])
    assert trace["positions"].tolist() == list(range(64))
    assert trace["step_tokens"].sum() == 64 and trace["step_forwards"].sum() == line["forwards"]
    assert json.loads(Path(line["files"]["run"]).read_text())["totals"]["forwards"] == line["forwards"]


def test_every_run_is_kept_at_home_and_none_is_half_written(folder: Path, own_home: Path) -> None:
    for _ in range(2):
        assert cli.main(image(folder)) == 0
    runs = sorted((own_home / "runs").iterdir())
    assert len(runs) == 2
    assert all({p.name for p in r.iterdir()} == {"result.png", "trace.npz", "run.json"} for r in runs)


def test_match_seed_gives_the_tokens_of_plain_decoding(folder: Path, capsys: pytest.CaptureFixture) -> None:
    for seed in range(8):
        assert cli.main(image(folder, "--seed", str(seed), "--verify", "match-seed", "--compare", "--json")) == 0
        line = last_line(capsys)
        assert line["verify"] == "match seed" and line["compare"]["same_tokens"] is True


def test_the_published_preset_is_labelled(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(image(folder, "--method", "sjdpp_published", "--json")) == 0
    assert last_line(capsys)["exact"] is False


def test_unknown_words_are_named_and_the_run_goes_on(folder: Path, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["image", "two red cts on a zeppelin", "--backbone", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert "does not know 'cts'; nearest: cats." in captured.err
    assert "'zeppelin'" in captured.err
    assert json.loads(captured.out.splitlines()[-1])["unknown_words"]["cts"] == ["cats"]


def test_knobs_and_sampling_reach_the_run(folder: Path, capsys: pytest.CaptureFixture) -> None:
    arguments = ["--method", "sjdpp", "--set", "window=5", "--set", "init=repeat-above", "--temperature", "0.7", "--top-k", "9"]
    arguments += ["--guidance", "2", "--json"]
    assert cli.main(image(folder, *arguments)) == 0
    line = last_line(capsys)
    assert line["knobs"]["window"] == 5 and line["knobs"]["init"] == "repeat above"
    settings = json.loads(Path(line["files"]["run"]).read_text())
    assert settings["sampling"] == {
        "temperature": 0.7,
        "top_k": 9,
        "top_p": 1.0,
        "guidance": 2.0,
        "temperature_last": False,
        "guide": 0.0,
    }


def test_a_line_is_json_on_every_terminal(folder: Path, capsys: pytest.CaptureFixture) -> None:
    """Characters that the terminal lacks are written as escapes of JSON, numbers that JSON lacks as null."""
    assert cli.main(["image", "red caf\xe9s", "--backbone", str(folder), "--json"]) == 0
    assert "caf\xe9s" in last_line(capsys)["unknown_words"]
    written = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with contextlib.redirect_stdout(written):
        print_json({"word": "caf\xe9 \udcff", "share": float("nan"), "rows": [float("inf"), 1.5]})
    written.seek(0)
    assert json.loads(written.read()) == {"word": "caf\xe9 \udcff", "share": None, "rows": [None, 1.5]}


def test_an_unwritable_out_is_refused_before_the_work(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert cli.main(image(folder, "--out", str(blocked / "under"))) == 2
    assert "Cannot write" in capsys.readouterr().err


def test_bench_prints_rows_for_every_method(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red cat\ntwo cats on a table\n")
    table = tmp_path / "rows.csv"
    arguments = ["bench", "image", "--methods", "sjd,sjdpp,sjdpp_published", "--prompts", str(prompts), "--set", "window=8",
                 "--backbone", str(folder), "--csv", str(table), "--json"]  # fmt: skip
    assert cli.main(arguments) == 0
    rows = {r["method"]: r for r in last_line_rows(capsys)}
    assert {"ar", "sjd", "sjdpp", "sjdpp_published"} == set(rows)
    assert rows["ar"]["step_compression"] == [1.0, 1.0, 1.0] and rows["ar"]["same_tokens_as_plain"] == 2
    assert rows["sjdpp"]["exact"] and not rows["sjdpp_published"]["exact"]
    assert rows["sjdpp"]["knobs"]["window"] == 8
    for row in (rows["sjd"], rows["sjdpp"]):
        middle, low, high = row["speedup"]
        assert 0 < low <= middle <= high
        assert row["processor"] and row["commit"] and row["torch"] and row["weights"] and row["prompts_from"].startswith("prompts.txt ")
        assert (row["backbone"], row["dtype"], row["device"], row["size"], row["repeats"]) == ("pictogram", "float32", "cpu", 64, 1)
        assert {"temperature", "top_k", "top_p", "guidance", "temperature_last"} <= set(row)
    assert all("knobs" in row for row in rows.values())
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["method"] for row in written] == list(rows)
    assert all(row["weights"] == rows["ar"]["weights"] and row["guidance"] and row["commit"] for row in written)
    assert json.loads(written[list(rows).index("sjdpp")]["knobs"])["window"] == 8


def test_bench_sweeps_a_knob(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """One row per value for the methods that have the knob; relaxed rows give the probability of their pictures."""
    command = ["bench", "image", "--methods", "sjd,zipar", "--count", "1", "--backbone", str(folder), "--json"]
    assert cli.main([*command, "--sweep", "init=random,repeat left", "--sweep", "window=2,16"]) == 0
    rows = {r["method"]: r for r in last_line_rows(capsys)}
    swept = {"sjd init=random", "sjd init=repeat left", "sjd window=2", "sjd window=16", "zipar window=2", "zipar window=16"}
    assert set(rows) == swept | {"ar"}
    assert rows["sjd window=2"]["knobs"]["window"] == 2 and rows["sjd init=repeat left"]["knobs"]["init"] == "repeat left"
    assert 0 > rows["zipar window=2"]["log_probability"][0] != rows["zipar window=16"]["log_probability"][0]
    assert rows["zipar window=16"]["log_probability"] == rows["ar"]["log_probability"] and rows["ar"]["impossible"] == 0
    assert cli.main([*command, "--sweep", "radius=1"]) == 2
    assert "has no effect" in capsys.readouterr().err
    assert cli.main([*command, "--grid", "--sweep", "init=random,repeat left", "--sweep", "window=2,16"]) == 0
    both = [f"sjd init={init} window={window}" for init in ("random", "repeat left") for window in (2, 16)]  # zipar has no init
    assert [r["method"] for r in last_line_rows(capsys)] == ["ar", *both]
    assert cli.main([*command, "--grid", "--sweep", "window=2,16", "--sweep", "radius=1"]) == 2
    assert "has no effect" in capsys.readouterr().err
    assert cli.main([*command, "--set", "radius=1"]) == 2
    assert "no knob 'radius' in sjd, zipar" in capsys.readouterr().err
    assert cli.main([*command, "--sweep", "window=2,16", "--figure", str(tmp_path / "plane.png"), "--repeats", "0"]) == 0
    assert (tmp_path / "plane.png").read_bytes().startswith(b"\x89PNG") and {row["repeats"] for row in last_line_rows(capsys)} == {0}


def test_a_sheet_is_drawn_of_the_prompts(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    prompts, sheet = tmp_path / "prompts.txt", tmp_path / "sheet.png"
    prompts.write_text("a red cat\ntwo cats on a table\n")
    command = ["bench", "image", "--sheet", str(sheet), "--prompts", str(prompts), "--backbone", str(folder), "--json"]
    assert cli.main([*command, "--count", "1", "--methods", "sjd"]) == 0
    assert [row["method"] for row in last_line_rows(capsys)] == ["ar", "sjd"]
    with Image.open(sheet) as one:
        assert (np.asarray(one) != np.asarray(one)[0, 0]).any()


def test_a_prompt_that_the_model_cannot_read_is_said_before_the_measuring(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from research.bench import speed

    monkeypatch.setattr(speed, "measure", lambda *options: pytest.fail("it was measured"))
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("a red cat\nzzz qqq\n")
    assert cli.main(["bench", "image", "--methods", "sjd", "--prompts", str(prompts), "--backbone", str(folder)]) == 2
    assert "knows no word" in capsys.readouterr().err


def last_line_rows(capsys: pytest.CaptureFixture) -> list[dict]:
    return json.loads(capsys.readouterr().out.strip().splitlines()[-1])


def test_models_and_doctor_answer_without_weights(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from app.commands import doctor

    monkeypatch.setattr(doctor, "SHIPPED", ("janus",))
    assert cli.main(["models", "--json"]) == 0
    assert last_line(capsys)["pictogram"]["ready"] is True
    assert cli.main(["doctor", "--json"]) == 0
    models = last_line(capsys)
    assert models["native_functions"]
    assert models["torch"] and models["passes"] == [{"model": "janus", "missing": models["passes"][0]["missing"]}]
    assert "needs a folder" in models["passes"][0]["missing"]


def test_doctor_measures_a_model_stores_it_and_measures_it_again_when_asked(
    folder: Path, own_home: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from app.commands import doctor
    from engine.methods import sjdpp
    from engine.tuning import auto, load_monitor

    monkeypatch.setattr(doctor, "SHIPPED", ())
    monkeypatch.setattr(load_monitor, "used_elsewhere", lambda: None)  # nothing else runs on this machine
    monkeypatch.setattr(sjdpp, "WINDOWS", (4, 8))
    monkeypatch.setattr(auto, "PROMPTS", 1)
    command = ["doctor", "--model", str(folder), "--json"]
    seen = []
    for again in ([], [], ["--again"]):
        assert cli.main([*command, *again]) == 0
        output = capsys.readouterr()
        row = json.loads(output.out.strip().splitlines()[-1])["passes"][0]
        seen.append((row["milliseconds"], "Recording" in output.err))
        assert row["dtype"] == "float32" and row["threads"] == 1 and {"ar", row["auto"].removeprefix("auto:")} <= set(row["extra"])
        assert row["auto"].startswith("auto:") and "milliseconds per pass, by rows" in output.out
        assert set(row["milliseconds"]) == {"1", "2", "4", "8", "16", "32", "48"}  # its pictures have 64 tokens
    assert seen[0][0] == seen[1][0] != seen[2][0]
    assert [recorded for _, recorded in seen] == [True, False, True]
    assert len(list((own_home / "measured").iterdir())) == 1


def test_auto_names_an_exact_method_that_the_run_and_its_files_show(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.tuning import auto

    monkeypatch.setattr(auto, "best", lambda rows, costs: next(each for each in rows if each.knobs.get("window") == 8))
    monkeypatch.setattr(auto, "table_of", lambda backbone, known: [auto.Expected("sjdpp", {"window": w}, 2.0, w) for w in (4, 8)])
    out = tmp_path / "out"
    assert cli.main(image(folder, "--out", str(out), "--compare", "--verify", "match-seed")) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("auto: SJD++, window 8 (exact)") and "same tokens: yes" in shown
    settings = json.loads((out / "run.json").read_text())
    assert (settings["preset"], settings["method"], settings["knobs"]["window"]) == ("auto:sjdpp,window=8", "sjdpp", 8)
    assert cli.main(image(folder, "--json")) == 0
    line = last_line(capsys)
    assert line["preset"] == "auto:sjdpp,window=8" and "-auto-sjdpp-window-8-0" in line["files"]["result"]
    assert cli.main(image(folder, "--set", "window=4")) == 2
    assert "auto chooses the knobs itself" in capsys.readouterr().err


def test_verify_prints_the_table(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    from research.exactness import exactness

    row = {"exact": True, "z": 0.5, "tv": 0.01, "floor": 0.01, "runs": 20_000, "detects": 0.02, "mutants": {"a": 20.0}}
    monkeypatch.setattr(exactness, "verify", lambda names, full: ({"sjd[X]": row}, False, 1.0))
    assert cli.main(["verify", "sjd", "--json"]) == 1  # a false claim
    assert last_line(capsys) == {"sjd[X]": row}


def test_a_run_is_continued_from_a_token(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert cli.main(image(folder, "--method", "sjdpp", "--out", str(first))) == 0
    capsys.readouterr()
    arguments = ["image", "--from", str(first), "--at", "40", "--seed", "9", "--method", "sjdpp", "--backbone", str(folder)]
    assert cli.main([*arguments, "--out", str(second), "--json"]) == 0
    line = last_line(capsys)
    traces = [np.load(each / "trace.npz") for each in (first, second)]
    before, after = (dict(zip(t["positions"].tolist(), t["tokens"].tolist(), strict=True)) for t in traces)
    assert [before[i] for i in range(40)] == [after[i] for i in range(40)] and before != after
    assert line["tokens"] == 64 and line["step_compression"] == round(24 / line["forwards"], 3)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "A prompt is missing"),
        (["a cat", "--at", "3"], "--at and --token need --from"),
        (["--from", "nowhere"], "--from needs --at"),
        (["--from", "nowhere", "--at", "3", "--size", "64"], "--from keeps the size of the run"),
        (["--from", "nowhere", "--at", "3"], "nowhere"),
    ],
)
def test_what_cannot_be_continued(folder: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture) -> None:
    assert cli.main(["image", *arguments, "--backbone", str(folder)]) == 2 and sentence in capsys.readouterr().err
